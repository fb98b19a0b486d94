"""Reads for answers over the network, in parts of a bounded size, all from one state of the table."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table

from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.filters import equal
from iceberg.read import file_bounds, first_open, range_filter, scan_range
from iceberg.scan import read_rows
from iceberg.tables import OHLC, TABLES, TableDefinition

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

_MICRO = 1_000
_SECOND = 1_000_000_000
#: The most candles in one part.
PART_ROWS = 50_000
#: The first range searched for the newest rows, in periods, and the factor by which each further one is longer.
_STRETCH_PERIODS, _GROWTH = 1_000, 8


def open_table(settings: Settings, definition: TableDefinition, catalog: "Catalog | None" = None) -> Table | None:
    """The newest state of a table; None if the platform has not created it yet."""
    try:
        return (catalog or open_catalog(settings)).load_table(definition.identifier)
    except NoSuchTableError:
        return None


def version_of(table: Table) -> int:
    """A number that stays the same until a row changes; 0 for an empty table."""
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot is not None else 0


def bars_in_parts(table: Table, ticker: str, period_seconds: int, *, start_ns: int, end_ns: int) -> Iterator[pa.Table]:
    """Candles of [start_ns, end_ns) in order, at most PART_ROWS at a time; at least one part, which may be empty.

    Where a part would be empty, it jumps to the next candle, since a range may begin long before the first one.
    """
    step = PART_ROWS * period_seconds * _SECOND
    while True:
        until = min(start_ns + step, end_ns)
        part = scan_range(table, ticker, period_seconds, start_ns=start_ns, end_ns=until)
        if not part.num_rows and until < end_ns:
            until = first_open(table, ticker, period_seconds, start_ns=until, end_ns=end_ns) or end_ns
        if part.num_rows or until >= end_ns:
            yield part
        if until >= end_ns:
            return
        start_ns = until


def newest_bars(table: Table, ticker: str, period_seconds: int, *, start_ns: int, end_ns: int, limit: int) -> pa.Table:
    """The last `limit` candles of [start_ns, end_ns), in order."""
    wanted = range_filter(ticker, period_seconds, start_ns=start_ns, end_ns=end_ns)
    oldest, newest = file_bounds(table, wanted, "open_time")
    if newest < oldest:
        return OHLC.arrow_schema.empty_table()
    # These bounds are of whole files, with every series in them.
    start_ns, end_ns = max(start_ns, oldest * _MICRO), min(end_ns, newest * _MICRO + 1)
    periods = max(limit, _STRETCH_PERIODS)
    while True:
        first = max(start_ns, end_ns - periods * period_seconds * _SECOND)
        found = scan_range(table, ticker, period_seconds, start_ns=first, end_ns=end_ns)
        if found.num_rows >= limit or first <= start_ns:
            return found.slice(max(0, found.num_rows - limit))
        periods *= _GROWTH


def rows_of(table: Table, definition: TableDefinition, ticker: str = "") -> pa.Table:
    """All rows, or those of one ticker."""
    wanted: BooleanExpression = equal("ticker", ticker) if ticker else AlwaysTrue()
    return read_rows(table, definition, wanted)


def definition_of(name: str) -> TableDefinition | None:
    return next((each for each in TABLES if each.name == name), None)
