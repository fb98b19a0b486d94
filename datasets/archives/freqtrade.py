"""Reads freqtrade's `BTC_USDT-1m.feather`: columns date, open, high, low, close, volume."""

import re
from pathlib import Path

import pyarrow as pa

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import parse_period
from datasets.archives.arrow_file import read_table
from datasets.archives.candles import Candles, Wanted, checked
from datasets.archives.files import MAX_BYTES, MAX_ROWS, BadFile, Lines, kept
from datasets.layouts.files import pair_of

_SHOWN = 60
_NAMES = ("date", "open", "high", "low", "close", "volume")
_NAME = re.compile(r"(?P<pair>.+)-(?P<period>[0-9]+[a-zA-Z]+)\.feather")


def read(file: Path, wanted: Wanted) -> Candles:
    """The wanted candles. Raises BadFile."""
    period_seconds = _checked_name(file, wanted)
    table = _table(file)
    lines = Lines(file, table.select(_NAMES), unit="row")
    date = table["date"]
    if not pa.types.is_timestamp(date.type):
        raise BadFile(file, f"the column date is {str(date.type)[:_SHOWN]}, not a time")
    for name in _NAMES[1:]:
        kind = table[name].type
        if not (pa.types.is_floating(kind) or pa.types.is_integer(kind)):
            raise BadFile(file, f"the column {name} is {str(kind)[:_SHOWN]}, not a number")
    lines.refuse(date.is_null().to_numpy(), "the date is missing")
    try:
        opens = date.cast(pa.timestamp("ns", date.type.tz)).cast(pa.int64()).to_numpy()
    except pa.ArrowInvalid as error:
        raise BadFile(file, f"a date is not a plausible time: {error}") from error
    return checked(lines, wanted, period_seconds, opens=opens)


def _table(file: Path) -> pa.Table:
    try:
        with kept(file) as source:
            table = read_table(file, source, MAX_BYTES)
        table.validate(full=True)
        missing = [name for name in _NAMES if name not in table.column_names]
    except OSError as error:
        raise BadFile(file, error.strerror or str(error)) from error
    except (pa.ArrowException, UnicodeDecodeError, MemoryError) as error:
        raise BadFile(file, f"it is not a valid feather file: {error}") from error
    if missing:
        raise BadFile(file, f"it has no column {missing[0]}; its columns are: {', '.join(table.column_names)[:200]}")
    if not table.num_rows:
        raise BadFile(file, "it has no rows")
    if table.num_rows > MAX_ROWS:
        raise BadFile(file, f"it has {table.num_rows:,} candles, over {MAX_ROWS:,}")
    return table


def _checked_name(file: Path, wanted: Wanted) -> int:
    found = _NAME.fullmatch(file.name)
    if found is None and wanted.period_seconds is None:
        raise BadFile(file, "its name does not say how long its candles are: add --period")
    if found is None:
        return int(wanted.period_seconds or 0)
    if found["pair"].upper() != pair_of(str(wanted.ticker), "_").upper():
        raise BadFile(file, f"its market is {found['pair']}, not {wanted.ticker}")
    try:
        return parse_period(found["period"])
    except InvalidRequest as error:
        raise BadFile(file, str(error)) from error
