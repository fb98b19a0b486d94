"""Kraken's downloadable OHLCVT: `XBTUSD_1.csv`, in its archive or unpacked; the number is the period in minutes.

Columns without a header: time in seconds, open, high, low, close, volume, trades. Source: Kraken's support pages.
"""

import re
from pathlib import Path

from candlewright.wire.ticker import Ticker
from datasets.archives.candles import Candles, Wanted, checked, times
from datasets.archives.files import BadFile, content_of, read_lines

VENUE = "KRAKEN"
_COLUMNS = ("time", "open", "high", "low", "close", "volume", "trades")
_NAME = re.compile(r"(?P<pair>[A-Z0-9.]+)_(?P<minutes>[0-9]{1,5})\.(csv|zip)", re.IGNORECASE)
#: Kraken's own names of assets.
_ASSETS = {"BTC": "XBT", "DOGE": "XDG"}


def read(file: Path, wanted: Wanted) -> Candles:
    """Raises BadFile."""
    if wanted.ticker.venue != VENUE:
        raise BadFile(file, f"the archive is of {VENUE}, and {wanted.ticker} is of {wanted.ticker.venue}")
    period_seconds = wanted.period_seconds
    found = _NAME.fullmatch(file.name)
    if found is not None:
        if found["pair"].upper() not in pairs_of(wanted.ticker):
            raise BadFile(file, f"it is of {found['pair']}, not of {wanted.ticker}")
        period_seconds = int(found["minutes"]) * 60
    if not period_seconds:
        raise BadFile(file, "its name does not say how long its candles are: add --period")
    names = [f"{pair}_{period_seconds // 60}.csv" for pair in pairs_of(wanted.ticker)]
    lines = read_lines(file, content_of(file, names), _COLUMNS)
    opens, _ = times(lines, "time")
    remarks = ("minutes without a trade are absent in Kraken's archive: that they are missing here proves nothing",)
    return checked(lines, wanted, period_seconds, opens=opens, trade_count="trades", remarks=remarks)


def pairs_of(ticker: Ticker) -> list[str]:
    """As Kraken names the market in its files."""
    assets = ticker.symbol.upper().split("/")
    return list(dict.fromkeys(("".join(_ASSETS.get(asset, asset) for asset in assets), "".join(assets))))
