"""Reads Kraken's downloadable OHLCVT files: `XBTUSD_1.csv`, in the archive or unpacked; the number is the period in
minutes.

The files have no header; columns: time in seconds, open, high, low, close, volume, trades. Source: Kraken's support
pages.
"""

import re
from pathlib import Path

from candlewright.wire.ticker import Ticker
from datasets.archives.candles import Candles, Wanted, checked, times
from datasets.archives.files import MAX_BYTES, BadFile, kept, read_lines, unpacked

VENUE = "KRAKEN"
_COLUMNS = ("time", "open", "high", "low", "close", "volume", "trades")
_NAME = re.compile(r"(?P<pair>[A-Z0-9.]+)_(?P<minutes>[0-9]{1,5})\.(csv|zip)", re.IGNORECASE)
#: Assets for which Kraken has its own names.
_ASSETS = {"BTC": "XBT", "DOGE": "XDG"}


def read(file: Path, wanted: Wanted) -> Candles:
    """The wanted candles. Raises BadFile."""
    if wanted.ticker.venue != VENUE:
        raise BadFile(file, f"the archive is from {VENUE}, but {wanted.ticker} is on {wanted.ticker.venue}")
    period_seconds = wanted.period_seconds
    found = _NAME.fullmatch(file.name)
    if found is not None:
        if found["pair"].upper() not in pairs_of(wanted.ticker):
            raise BadFile(file, f"its market is {found['pair']}, not {wanted.ticker}")
        period_seconds = int(found["minutes"]) * 60
    if not period_seconds:
        raise BadFile(file, "its name does not say how long its candles are: add --period")
    names = [f"{pair}_{period_seconds // 60}.csv" for pair in pairs_of(wanted.ticker)]
    with kept(file) as original, unpacked(file, original, MAX_BYTES, names=names) as content:
        lines = read_lines(file, content, _COLUMNS)
    opens, _ = times(lines, "time")
    remarks = ("Kraken's archive omits minutes without a trade, so a missing minute is not recorded as a hole",)
    return checked(lines, wanted, period_seconds, opens=opens, trade_count="trades", remarks=remarks)


def pairs_of(ticker: Ticker) -> list[str]:
    """The names that Kraken may use for the market in its files."""
    assets = ticker.symbol.upper().split("/")
    return list(dict.fromkeys(("".join(_ASSETS.get(asset, asset) for asset in assets), "".join(assets))))
