"""Describes the files of a data set; used both to make the manifest and to check it.

The files may come from a stranger. They are read in batches, and refused by what they claim before it takes memory.
"""

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from candlewright.wire.errors import CandlewrightError
from candlewright.wire.grid import SECOND
from datasets.manifest.document import MOST_OPENS, FromTrades, Partition
from datasets.quality import agreement, bars_of
from datasets.stored import open_times
from iceberg.tables import OHLC, TICKS

_CHUNK = 2**20
_DAY_SECONDS = 86_400
_BATCH_ROWS = 1 << 16
#: Candles of one price take five bytes a row; a file with more rows than these per byte was made to be unpacked.
_MOST_ROWS_PER_BYTE = 16
#: The most bytes of a partition, whose rows are hashed together: a day with ten million trades has one GiB.
_MOST_PARTITION_BYTES = 2 << 30
_NEEDED = frozenset({"ticker", "period_seconds", "open_time", "trade_id", "ts_ns", "price", "size"})


class NotRows(CandlewrightError):
    """A file that does not hold rows of candles or trades."""


def hash_of(file: BinaryIO) -> str:
    file.seek(0)
    found = hashlib.sha256()
    while chunk := file.read(_CHUNK):
        found.update(chunk)
    return found.hexdigest()


def times_of(table: pa.Table) -> NDArray[np.int64]:
    """Open times of candles, or times of trades, in ns."""
    if "open_time" in table.column_names:
        return open_times(table)
    found: NDArray[np.int64] = table["ts_ns"].to_numpy()
    return found


def partitions_of(file: BinaryIO, *, of_trades: bool) -> Iterator[tuple[Partition, pa.Table]]:
    """The file's partitions with their rows, by month (candles) or day (trades), in the order of the rows.

    Raises NotRows, and what pyarrow raises for a damaged file.
    """
    unit = "D" if of_trades else "M"
    parts: list[pa.Table] = []
    for table in _batches(file, of_trades=of_trades):
        starts = _starts(table, unit)
        if parts and _month_or_day(parts[-1], unit) != _month_or_day(table, unit):
            yield _partition(parts, unit)
            parts = []
        for start, end in itertools.pairwise(starts):
            yield _partition([*parts, table.slice(start, end - start)], unit)
            parts = []
        parts.append(table.slice(starts[-1]))
        if sum(part.nbytes for part in parts) > _MOST_PARTITION_BYTES:
            raise NotRows(f"the rows of {_month_or_day(table, unit)} have over {_MOST_PARTITION_BYTES >> 20:,} MiB")
    if parts:
        yield _partition(parts, unit)


def _batches(file: BinaryIO, *, of_trades: bool) -> Iterator[pa.Table]:
    """The rows in pieces, none of them empty, in the columns of the table that they are from."""
    size = file.seek(0, 2)
    with pq.ParquetFile(file, buffer_size=_CHUNK) as source:
        schema = (TICKS if of_trades else OHLC).arrow_schema
        if [*map(_kind, source.schema_arrow)] != [*map(_kind, schema)]:
            raise NotRows(f"its columns are not those of {'trades' if of_trades else 'candles'}")
        groups = [source.metadata.row_group(number).num_rows for number in range(source.num_row_groups)]
        if min(groups, default=1) < 1 or sum(groups) != source.metadata.num_rows:
            raise NotRows("its number of rows contradicts its parts")
        if sum(groups) > size * _MOST_ROWS_PER_BYTE:
            raise NotRows(f"it claims {sum(groups):,} rows, more than {size:,} bytes can hold")
        for batch in source.iter_batches(_BATCH_ROWS, use_threads=False):
            table = pa.table(batch)
            for name in _NEEDED.intersection(table.column_names):
                if table[name].null_count:
                    raise NotRows(f"a value of {name} is missing")
            if table.num_rows:
                yield table


def _kind(field: pa.Field) -> tuple[str, pa.DataType]:
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    return field.name, pa.string() if is_text else field.type


def _starts(table: pa.Table, unit: str) -> list[int]:
    names = times_of(table).view("datetime64[ns]").astype(f"datetime64[{unit}]")
    return [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist()]


def _month_or_day(table: pa.Table, unit: str) -> str:
    return str(times_of(table.slice(0, 1)).view("datetime64[ns]").astype(f"datetime64[{unit}]")[0])


def _partition(parts: list[pa.Table], unit: str) -> tuple[Partition, pa.Table]:
    table = pa.concat_tables(parts)
    return Partition(name=_month_or_day(table, unit), rows=table.num_rows, sha256=digest(table)), table


def digest(table: pa.Table) -> str:
    """A hash of names, types and values that does not depend on the file's encoding: per column, which values are not
    NULL, then the values as little-endian numbers, or as lengths and UTF-8.
    """
    found = hashlib.sha256()
    for name, column in zip(table.column_names, table.columns, strict=True):
        found.update(f"{name}\0{column.type}\0{len(column)}\0".encode())
        found.update(np.packbits(column.is_valid().to_numpy()).tobytes())
        kind = column.type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            texts = pc.fill_null(column, "")
            found.update(pc.binary_length(texts).to_numpy().astype("<i8").tobytes())
            for text in texts.chunks:
                found.update(_joined(text))
            continue
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.int64())
        values = pc.fill_null(column, False if pa.types.is_boolean(kind) else 0).to_numpy()
        found.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def _joined(texts: pa.Array) -> memoryview:
    """The texts one after the other, as UTF-8: a part of the array's own buffer."""
    width = np.int64 if pa.types.is_large_string(texts.type) else np.int32
    _, places, content = texts.buffers()
    if not len(texts) or content is None:
        return memoryview(b"")
    bounds = np.frombuffer(places, width)[texts.offset : texts.offset + len(texts) + 1]
    return memoryview(content)[int(bounds[0]) : int(bounds[-1])]


def from_trades(candles: Iterable[pa.Table], trades: BinaryIO, period_seconds: int) -> FromTrades:
    """Compare the candles that have trades before and after them with bars made from the trades. `candles`: ascending,
    and cut only where a day ends.

    Periods longer than a day are not compared.
    """
    compared, differing = 0, list[int]()
    if period_seconds <= _DAY_SECONDS:
        trades.seek(0)
        source = ds.ParquetFileFormat().make_fragment(pa.PythonFile(trades))
        for table in candles:
            for day, begin in _days_of(table):
                shared, equal = _compared(day, begin, source, period_seconds)
                compared += len(shared)
                differing += shared[~equal].tolist()
    return FromTrades(compared=compared, differing=len(differing), opens=differing[:MOST_OPENS])


def _days_of(candles: pa.Table) -> Iterator[tuple[pa.Table, int]]:
    """The candles of each day, with its beginning in ns."""
    opens = open_times(candles)
    days = opens // (_DAY_SECONDS * SECOND)
    bounds = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist(), len(days)]
    for low, high in itertools.pairwise(bounds):
        if high > low:
            yield candles.slice(low, high - low), int(days[low]) * _DAY_SECONDS * SECOND


def _compared(
    day: pa.Table, begin: int, trades: ds.Fragment, period_seconds: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    step = period_seconds * SECOND
    at = pc.field("ts_ns")
    wanted = (at >= begin - step) & (at < begin + _DAY_SECONDS * SECOND + step)
    rows = trades.to_table(schema=TICKS.arrow_schema, filter=wanted, use_threads=False)
    if not rows.num_rows:
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return agreement(day, bars_of(rows, period_seconds), step)
