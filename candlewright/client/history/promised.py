"""Checks rows against the final notification."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from candlewright.client.errors import RowsUnavailable
from candlewright.client.history.history import History
from candlewright.client.records import Notification, Range

if TYPE_CHECKING:
    import pyarrow as pa

Holes = Sequence[tuple[int, int]]


def as_promised(
    table: "pa.Table", *, holes: Holes, closed_until: int | None, wanted: Range, final: Notification
) -> History:
    """If the final promises more rows than can be read, that is an error, never a shorter table."""
    promised = final.row_count if wanted.limit is None else min(final.row_count, wanted.limit)
    if table.num_rows < promised:
        raise RowsUnavailable(f"the platform confirmed {promised} rows, {table.num_rows} can be read from here")
    return History(table=table, notification=final, holes=tuple(holes), closed_until=closed_until)
