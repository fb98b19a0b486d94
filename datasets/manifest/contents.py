"""Describes the files of a data set; used both to make the manifest and to check it."""

import hashlib
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from candlewright.wire.grid import SECOND
from datasets.manifest.document import FromTrades, Partition
from datasets.quality import agreement, bars_of
from datasets.stored import open_times

_CHUNK = 2**20
_DAY_SECONDS = 86_400
#: The most candles that are listed as different from their trades.
_NAMED = 1_000


def hash_of(file: Path) -> str:
    found = hashlib.sha256()
    with file.open("rb") as source:
        while chunk := source.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def times_of(table: pa.Table) -> NDArray[np.int64]:
    """Open times of candles, or times of trades, in ns."""
    if "open_time" in table.column_names:
        return open_times(table)
    found: NDArray[np.int64] = table["ts_ns"].to_numpy()
    return found


def partitions_of(file: Path, *, of_trades: bool) -> Iterator[tuple[Partition, pa.Table]]:
    """The file's partitions with their rows, by month (candles) or day (trades), in the order of the rows. Reads a row
    group at a time.
    """
    unit = "D" if of_trades else "M"
    rest: pa.Table | None = None
    source = pq.ParquetFile(file)
    for number in range(source.num_row_groups):
        table = source.read_row_group(number)
        table = table if rest is None else pa.concat_tables([rest, table])
        starts = _starts(table, unit)
        for start, end in itertools.pairwise(starts):
            yield _partition(table.slice(start, end - start), unit)
        rest = table.slice(starts[-1]) if starts else table
    if rest is not None and rest.num_rows:
        yield _partition(rest, unit)


def _starts(table: pa.Table, unit: str) -> list[int]:
    if not table.num_rows:
        return []
    names = times_of(table).view("datetime64[ns]").astype(f"datetime64[{unit}]")
    return [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist()]


def _partition(table: pa.Table, unit: str) -> tuple[Partition, pa.Table]:
    name = str(times_of(table)[:1].view("datetime64[ns]").astype(f"datetime64[{unit}]")[0])
    return Partition(name=name, rows=table.num_rows, sha256=digest(table)), table


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
            found.update("".join(texts.to_pylist()).encode())
            continue
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.int64())
        values = pc.fill_null(column, False if pa.types.is_boolean(kind) else 0).to_numpy()
        found.update(values.astype(values.dtype.newbyteorder("<")).tobytes())
    return found.hexdigest()


def from_trades(candles: pa.Table, trades: Path, period_seconds: int) -> FromTrades:
    """Compare the candles that have trades before and after them with bars made from the trades.

    Periods longer than a day are not compared.
    """
    compared, differing = 0, list[int]()
    if period_seconds > _DAY_SECONDS or not candles.num_rows:
        return FromTrades(compared=0, differing=0, opens=[])
    opens = open_times(candles)
    step, day = period_seconds * SECOND, _DAY_SECONDS * SECOND
    first = opens[0] // day * day
    for begin in range(int(first), int(opens[-1]) + 1, day):
        low, high = np.searchsorted(opens, (begin, begin + day))
        if low == high:
            continue
        wanted = [("ts_ns", ">=", begin - step), ("ts_ns", "<", begin + day + step)]
        rows = pq.read_table(trades, filters=wanted)
        if not rows.num_rows:
            continue
        shared, equal = agreement(candles.slice(low, high - low), bars_of(rows, period_seconds), step)
        compared += len(shared)
        differing += shared[~equal].tolist()
    return FromTrades(compared=compared, differing=len(differing), opens=differing[:_NAMED])
