"""Which series of candles are stored, and the candles of one. Reads the tables without Spark."""

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue

from candlewright.wire.grid import LATEST_NS, SECOND, count_opens
from candlewright.wire.ranges import common
from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.coverage import read_holes
from iceberg.filters import any_of, equal
from iceberg.read import read_ohlc
from iceberg.scan import scan_table
from iceberg.tables import OHLC

_MICRO = 1_000


class Series(NamedTuple):
    """A ticker at one period, with the number of its stored candles and their first and last open time (ns)."""

    ticker: str
    period_seconds: int
    rows: int
    first: int
    last: int


def stored_series(settings: Settings, patterns: Sequence[str] = (), periods: Sequence[int] = ()) -> list[Series]:
    """By ticker and period. `patterns`: names of tickers, in which `*` and `?` are wildcards; none = all."""
    try:
        table = open_catalog(settings).load_table(OHLC.identifier)
    except NoSuchTableError:
        return []
    wanted = any_of([equal("period_seconds", each) for each in set(periods)]) if periods else AlwaysTrue()
    columns = ("ticker", "period_seconds", "open_time")
    batches = scan_table(table, wanted, selected_fields=columns).to_arrow_batch_reader()
    # A batch at a time, so that a large table costs no more memory than its series.
    parts = [_grouped(pa.table(batch), "open_time", "open_time", None) for batch in batches if batch.num_rows]
    if not parts:
        return []
    found = _grouped(pa.concat_tables(parts), "first", "last", "rows")
    rows = [
        Series(row["ticker"], row["period_seconds"], row["rows"], row["first"] * _MICRO, row["last"] * _MICRO)
        for row in found.to_pylist()
        if not patterns or any(fnmatchcase(row["ticker"], pattern) for pattern in patterns)
    ]
    return sorted(rows)


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

    `holes`: candles between the first and the last row that the venue does not have, by a finished request. `unknown`:
    those of which nothing is stored. `incomplete`: rows that the platform knows not to be whole.
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
    """`start`, `end`: nanoseconds, None = whatever is stored."""
    table = read_ohlc(settings, ticker, period_seconds, start_ns=start or 0, end_ns=LATEST_NS if end is None else end)
    missing = missing_ranges(open_times(table), period_seconds)
    known = read_holes(settings, ticker, period_seconds) if missing else []
    total = sum(count_opens(*each, period_seconds) for each in missing)
    holes = sum(count_opens(*each, period_seconds) for each in common(missing, known))
    incomplete = table.num_rows - pc.sum(pc.fill_null(table["complete"], False)).as_py() if table.num_rows else 0
    return Candles(ticker, period_seconds, table, holes, total - holes, incomplete)


def open_times(table: pa.Table) -> NDArray[np.int64]:
    """Nanoseconds since the epoch."""
    opens: NDArray[np.int64] = table["open_time"].cast(pa.int64()).to_numpy()
    return opens * _MICRO


def missing_ranges(opens: NDArray[np.int64], period_seconds: int) -> list[tuple[int, int]]:
    """Half-open ranges of open times between the rows."""
    step = period_seconds * SECOND
    places = np.flatnonzero(np.diff(opens) > step)
    return list(zip((opens[places] + step).tolist(), opens[places + 1].tolist(), strict=True))
