"""Tables that take the rows of a topic as they come: one commit appends what a follower took."""

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog

from bus import StoredRecord
from core import metrics
from flink_replacement_spark.tables.follower import Taken
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import TableDefinition, append_or_find, is_committed, load_table

__all__ = ["AppendedTable"]


class AppendedTable:
    """`rows` makes the table's rows of records; `mark` is the snapshot property that names a commit."""

    def __init__(
        self,
        catalog: Catalog,
        locks: TableLocks,
        definition: TableDefinition,
        *,
        rows: Callable[[Sequence[StoredRecord]], pa.Table],
        mark: str,
        stored: metrics.Counter,
    ) -> None:
        self._catalog = catalog
        self._locks = locks
        self._definition = definition
        self._rows = rows
        self._mark = mark
        self._stored = stored

    def store(self, taken: Taken) -> None:
        """See `Follower`."""
        rows = self._rows(taken.records)
        summary = {self._mark: taken.name}
        if rows.num_rows:
            with self._locks.writing(self._definition, f"the topic's {self._definition.name}"):
                table = load_table(self._catalog, self._definition)
                if not (taken.is_repeat and is_committed(table, summary)):
                    append_or_find(table, rows, self._locks.sign(summary))
        self._stored.inc(rows.num_rows)
