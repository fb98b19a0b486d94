"""Lists the stored series of candles, and reads the candles of one. Reads the tables without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from threading import Lock
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from cachetools import LRUCache
from numpy.typing import NDArray
from pyiceberg.exceptions import NoSuchTableError

from candlewright.wire.grid import LATEST_NS, SECOND, count_opens
from candlewright.wire.ranges import common
from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.coverage import read_holes
from iceberg.read import read_ohlc
from iceberg.scan import as_dataset
from iceberg.tables import OHLC

_MICRO = 1_000


class Series(NamedTuple):
    """A ticker and period, with the number of its stored candles and their first and last open times (ns)."""

    ticker: str
    period_seconds: int
    rows: int
    first: int
    last: int


def stored_series(settings: Settings, patterns: Sequence[str] = (), periods: Sequence[int] = ()) -> list[Series]:
    """Stored series, ordered by ticker and period. `patterns`: ticker names in which `*` and `?` are wildcards. Empty
    `patterns` or `periods` select all.
    """
    try:
        table = open_catalog(settings).load_table(OHLC.identifier)
    except NoSuchTableError:
        return []
    files = as_dataset(table, OHLC)
    if isinstance(files, pa.Table):
        found = _grouped(files, "open_time", "open_time", None)
    else:
        found = _together([_series_in(file) for file in files.get_fragments()])
    rows = [
        Series(row["ticker"], row["period_seconds"], row["rows"], row["first"] * _MICRO, row["last"] * _MICRO)
        for row in found.to_pylist()
        if (not patterns or any(fnmatchcase(row["ticker"], pattern) for pattern in patterns))
        and (not periods or row["period_seconds"] in periods)
    ]
    return sorted(rows)


#: Series of data files that a process keeps, most recently used first; a file never changes.
_MAX_REMEMBERED = 100_000
_remembered: LRUCache[str, pa.Table] = LRUCache(_MAX_REMEMBERED, getsizeof=lambda found: 1 + found.num_rows)
_lock = Lock()


def _series_in(file: ds.Fragment) -> pa.Table:
    with _lock:
        found = _remembered.get(file.path)
    if found is None:
        # Read a batch at a time, so that memory grows with the number of series, not with the file.
        batches = file.to_batches(schema=OHLC.arrow_schema, columns=["ticker", "period_seconds", "open_time"])
        found = _together([_grouped(pa.table(each), "open_time", "open_time", None) for each in batches])
        if found.num_rows < _MAX_REMEMBERED:
            with _lock:
                _remembered[file.path] = found
    return found


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    return _grouped(pa.concat_tables([_NO_SERIES, *parts]), "first", "last", "rows")


_NO_SERIES = pa.schema(
    [
        ("ticker", pa.string()),
        ("period_seconds", pa.int32()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("rows", pa.int64()),
    ]
).empty_table()


def _grouped(table: pa.Table, first: str, last: str, rows: str | None) -> pa.Table:
    counted = table.append_column("one", pa.repeat(pa.scalar(1, pa.int64()), table.num_rows)) if rows is None else table
    keys = ["ticker", "period_seconds"]
    values = [(first, "min"), (last, "max"), (rows or "one", "sum")]
    found = counted.group_by(keys).aggregate(values)
    times = [found[f"{name}_{how}"].cast(pa.int64()) for name, how in values[:2]]
    text = found["ticker"].cast(pa.string())
    names = [*keys, "first", "last", "rows"]
    return pa.table([text, found["period_seconds"], *times, found[f"{rows or 'one'}_sum"]], names=names)


@dataclass(frozen=True, slots=True)
class Candles:
    """The stored candles of one series in [start, end), ascending; `start` and `end` are open times in ns.

    Numbers of candles: `holes` between the first and the last row that the venue does not have, as a finished request
    found; `unknown` ones, missing for an unknown reason; `incomplete` rows, known to lack trades.
    """

    ticker: str
    period_seconds: int
    table: pa.Table
    holes: int
    unknown: int
    incomplete: int

    @property
    def whole(self) -> pa.Table:
        """The rows without the incomplete ones."""
        return self.table.filter(pc.fill_null(self.table["complete"], False)) if self.incomplete else self.table


def read_candles(
    settings: Settings, ticker: str, period_seconds: int, *, start: int | None = None, end: int | None = None
) -> Candles:
    """The stored candles of one series. `start`, `end`: nanoseconds; None = whatever is stored."""
    table = read_ohlc(settings, ticker, period_seconds, start_ns=start or 0, end_ns=LATEST_NS if end is None else end)
    missing = missing_ranges(open_times(table), period_seconds)
    known = read_holes(settings, ticker, period_seconds) if missing else []
    total = sum(count_opens(*each, period_seconds) for each in missing)
    holes = sum(count_opens(*each, period_seconds) for each in common(missing, known))
    incomplete = table.num_rows - pc.sum(pc.fill_null(table["complete"], False)).as_py() if table.num_rows else 0
    return Candles(ticker, period_seconds, table, holes, total - holes, incomplete)


def open_times(table: pa.Table) -> NDArray[np.int64]:
    """The rows' open times, in ns since the epoch."""
    opens: NDArray[np.int64] = table["open_time"].cast(pa.int64()).to_numpy()
    return opens * _MICRO


def missing_ranges(opens: NDArray[np.int64], period_seconds: int) -> list[tuple[int, int]]:
    """Half-open ranges (ns) of missing open times between the rows."""
    step = period_seconds * SECOND
    places = np.flatnonzero(np.diff(opens) > step)
    return list(zip((opens[places] + step).tolist(), opens[places + 1].tolist(), strict=True))
