"""Checks candles read from files, one by one and against each other."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from candlewright.wire.grid import EARLIEST_NS, LATEST_NS, SECOND, origin_of
from candlewright.wire.periods import format_period
from candlewright.wire.ticker import Ticker
from datasets.archives.files import MAX_ROWS, BadFile, Lines
from iceberg.tables import OHLC

SOURCE = "archive"
_UNITS = {"seconds": SECOND, "milliseconds": 1_000_000, "microseconds": 1_000, "nanoseconds": 1}
_MICRO = 1_000
_COLUMNS = [name for name in OHLC.arrow_schema.names if name != "updated_at"]
#: Columns of an import: those of `market.ohlc` without the time of the commit.
SCHEMA = pa.schema([OHLC.arrow_schema.field(name) for name in _COLUMNS])


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the user specified about the files. `period_seconds`: None = as in the file; `mapping`: `market.ohlc`'s
    column names to the file's.
    """

    ticker: Ticker
    period_seconds: int | None = None
    mapping: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Candles:
    """The rows of one file, ascending by open time. `remarks` are shown to the user."""

    file: Path
    table: pa.Table
    remarks: tuple[str, ...] = ()


def times(lines: Lines, name: str) -> "tuple[NDArray[np.int64], int]":
    """The column's times in ns, and the length of the file's unit in ns; all times of a file have one unit. Raises
    BadFile.
    """
    found = lines.integers(name)
    factor = next((each for each in _UNITS.values() if EARLIEST_NS <= int(found[0]) * each < LATEST_NS), 0)
    lines.refuse(np.array([not factor]), f"{name} is not a plausible time: {{}}", name)
    is_bad = (found < EARLIEST_NS // factor) | (found >= LATEST_NS // factor)
    unit = next(unit for unit, each in _UNITS.items() if each == factor)
    lines.refuse(is_bad, f"{name} is not a time in {unit}, as in the first line: {{}}", name)
    return found * factor, factor


def checked(
    lines: Lines,
    wanted: Wanted,
    period_seconds: int,
    *,
    opens: "NDArray[np.int64]",
    names: Sequence[str] = ("open", "high", "low", "close", "volume"),
    quote_volume: str = "",
    trade_count: str = "",
    remarks: tuple[str, ...] = (),
) -> Candles:
    """The rows as candles. `opens`: open times in ns; `names`: the columns with open, high, low, close and volume.
    Raises BadFile.
    """
    if wanted.period_seconds not in (None, period_seconds):
        said = format_period(wanted.period_seconds or 0)
        raise BadFile(lines.file, f"its candles have the period {format_period(period_seconds)}, not {said}")
    period = period_seconds * SECOND
    is_off = (opens - origin_of(period_seconds)) % period != 0
    lines.refuse(is_off, f"its time is not the open time of a {format_period(period_seconds)} candle")
    lines.refuse(opens + period > time.time_ns(), "the candle has not closed yet")
    values = [lines.numbers(name) for name in names]
    open_, high, low, close, volume = values
    for name, value in zip(names[:4], values, strict=False):
        lines.refuse(value <= 0, f"{name} is not above zero: {{}}", name)
    lines.refuse(volume < 0, f"{names[4]} is negative: {{}}", names[4])
    lines.refuse(
        (high < np.maximum(open_, close)) | (low > np.minimum(open_, close)),
        "low and high do not enclose open and close",
    )
    quotes = lines.numbers(quote_volume) if quote_volume else None
    if quotes is not None:
        lines.refuse(quotes < 0, f"{quote_volume} is negative: {{}}", quote_volume)
    count = len(opens)
    columns = [
        pa.array([str(wanted.ticker)]).dictionary_encode().take(pa.array(np.zeros(count, np.int32))).cast(pa.string()),
        pa.array(np.full(count, period_seconds, np.int32)),
        pa.array(opens // _MICRO).cast(pa.timestamp("us", "UTC")),
        *map(pa.array, values),
        pa.nulls(count, pa.float64()) if quotes is None else pa.array(quotes),
        pa.array(lines.integers(trade_count)) if trade_count else pa.nulls(count, pa.int64()),
        pa.repeat(pa.scalar(SOURCE), count),
        pa.repeat(pa.scalar(value=True), count),
    ]
    table = pa.table([column.cast(field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)
    order = np.argsort(opens, kind="stable")
    twice = np.flatnonzero(np.diff(opens[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise BadFile(lines.file, f"it repeats the time of {lines.place(int(first))}", lines.place(int(second)))
    return Candles(lines.file, table.take(pa.array(order)), remarks)


def together(parts: Iterable[Candles]) -> pa.Table:
    """The rows of all files. Raises BadFile if two files differ in a candle, or with the first one too many."""
    tables, rows = [], 0
    for part in parts:
        rows += part.table.num_rows
        if rows > MAX_ROWS:
            raise BadFile(part.file, f"with it, the files have {rows:,} candles, over {MAX_ROWS:,}: import fewer")
        tables.append(part.table)
    table = pa.concat_tables(tables)
    period = table["period_seconds"].to_numpy().astype(np.int64)
    opens = table["open_time"].cast(pa.int64()).to_numpy()
    order = np.lexsort((opens, period))
    table = table.take(pa.array(order))
    period, opens = period[order], opens[order]
    is_again = np.zeros(len(opens), dtype=bool)
    is_again[1:] = (period[1:] == period[:-1]) & (opens[1:] == opens[:-1])
    for place in np.flatnonzero(is_again).tolist():
        one, other = table.slice(place - 1, 1), table.slice(place, 1)
        if not one.equals(other):
            moment = one["open_time"][0].as_py().isoformat()
            raise BadFile(part.file, f"two of the files differ in the candle of {moment}")
    return table.filter(pa.array(~is_again))
