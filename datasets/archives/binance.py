"""Binance's public archive of spot klines: `BTCUSDT-1m-2024-01.zip`, with its CHECKSUM file beside it.

Columns without a header; times in milliseconds, since 2025 in microseconds.
Source: github.com/binance/binance-public-data.
"""

import re
from pathlib import Path

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period, parse_period
from datasets.archives.candles import Candles, Wanted, checked, times
from datasets.archives.files import BadFile, checked_sum, content_of, read_lines

VENUE = "BINANCE"
_COLUMNS = ("open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "count")
_UNUSED = ("taker_buy_volume", "taker_buy_quote_volume", "ignore")
_NAME = re.compile(
    r"(?P<symbol>[^-]+)-(?P<period>[0-9]+[a-z]+)-[0-9]{4}-[0-9]{2}(-[0-9]{2})?\.(zip|csv)", re.IGNORECASE
)


def read(file: Path, wanted: Wanted) -> Candles:
    """Raises BadFile."""
    period_seconds = _checked_name(file, wanted)
    is_verified = checked_sum(file)
    lines = read_lines(file, content_of(file), (*_COLUMNS, *_UNUSED))
    opens, unit = times(lines, "open_time")
    length = lines.integers("close_time") * unit + unit - opens
    if period_seconds is None:
        period_seconds = int(length[0]) // SECOND
    is_off = length != period_seconds * SECOND
    lines.refuse(is_off, f"close_time does not end a candle of {format_period(period_seconds)}: {{}}", "close_time")
    remarks = [] if is_verified else [f"there is no {file.name}.CHECKSUM beside it: its content was not verified"]
    if lines.first > 1:
        remarks.append("it has a header, as Binance's archives of futures do: make sure that it is of the spot market")
    return checked(
        lines,
        wanted,
        period_seconds,
        opens=opens,
        quote_volume="quote_volume",
        trade_count="count",
        remarks=tuple(remarks),
    )


def _checked_name(file: Path, wanted: Wanted) -> int | None:
    """The period that the name of the file says; raises BadFile where it is of another market."""
    if wanted.ticker.venue != VENUE:
        raise BadFile(file, f"the archive is of {VENUE}, and {wanted.ticker} is of {wanted.ticker.venue}")
    found = _NAME.fullmatch(file.name)
    if found is None:
        return None
    if found["symbol"].upper() != wanted.ticker.symbol.replace("/", "").upper():
        raise BadFile(file, f"it is of {found['symbol']}, not of {wanted.ticker}")
    try:
        return parse_period(found["period"])
    except InvalidRequest as error:
        raise BadFile(file, f"candles of {found['period']} have no fixed length, and are not stored") from error
