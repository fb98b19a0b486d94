"""Reads Binance's public archive of spot klines: `BTCUSDT-1m-2024-01.zip`, with its CHECKSUM file next to it.

The files have no header. Times are in milliseconds, since 2025 in microseconds. Source:
github.com/binance/binance-public-data.
"""

import re
from pathlib import Path

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import SECOND
from candlewright.wire.periods import format_period, parse_period
from datasets.archives.candles import Candles, Wanted, checked, times
from datasets.archives.files import MAX_BYTES, BadFile, checked_sum, kept, read_lines, unpacked

VENUE = "BINANCE"
_COLUMNS = ("open_time", "open", "high", "low", "close", "volume", "close_time", "quote_volume", "count")
_UNUSED = ("taker_buy_volume", "taker_buy_quote_volume", "ignore")
_NAME = re.compile(
    r"(?P<symbol>[^-]+)-(?P<period>[0-9]+[a-z]+)-[0-9]{4}-[0-9]{2}(-[0-9]{2})?\.(zip|csv)", re.IGNORECASE
)


def read(file: Path, wanted: Wanted) -> Candles:
    """The wanted candles. Raises BadFile."""
    period_seconds = _checked_name(file, wanted)
    with kept(file) as original:
        is_verified = checked_sum(file, original)
        with unpacked(file, original, MAX_BYTES) as content:
            lines = read_lines(file, content, (*_COLUMNS, *_UNUSED), wanted=lambda _: _COLUMNS)
    opens, unit = times(lines, "open_time")
    length = lines.integers("close_time") * unit + unit - opens
    if period_seconds is None:
        period_seconds = int(length[0]) // SECOND
    is_off = length != period_seconds * SECOND
    lines.refuse(is_off, f"close_time is not the end of a {format_period(period_seconds)} candle: {{}}", "close_time")
    remarks = [] if is_verified else [f"there is no {file.name}.CHECKSUM beside it, so its content was not verified"]
    if lines.first > 1:
        remarks.append("it has a header, like Binance's futures archives: make sure that it is from the spot market")
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
    """The period in the file's name; None if the name has none. Raises BadFile if the name is of another market."""
    if wanted.ticker.venue != VENUE:
        raise BadFile(file, f"the archive is from {VENUE}, but {wanted.ticker} is on {wanted.ticker.venue}")
    found = _NAME.fullmatch(file.name)
    if found is None:
        return None
    if found["symbol"].upper() != wanted.ticker.symbol.replace("/", "").upper():
        raise BadFile(file, f"its market is {found['symbol']}, not {wanted.ticker}")
    try:
        return parse_period(found["period"])
    except InvalidRequest as error:
        raise BadFile(file, f"candles of {found['period']} have no fixed length and cannot be imported") from error
