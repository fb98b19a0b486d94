"""Tables that append the rows of a topic as they arrive; one commit appends what a follower took."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.catalog import Catalog

from bus import StoredRecord
from core import metrics
from flink_replacement_spark.tables.follower import Followed, Taken
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import TableDefinition, append_or_find, is_committed, load_table

__all__ = ["Appended", "AppendedTable"]

_MAX_RECORDS = 50_000


@dataclass(kw_only=True, frozen=True, slots=True)
class Appended:
    """A table and its topic. `rows` makes the table's rows of records, and raises BadFrame for one without any; `mark`
    is the snapshot property that names a commit. The rest is as in `Followed`.
    """

    definition: TableDefinition
    topic: str
    reader: str
    state: str
    many_records: int
    rows: Callable[[Sequence[StoredRecord]], pa.Table]
    mark: str
    stored: metrics.Counter

    @property
    def followed(self) -> Followed:
        return Followed(
            topic=self.topic,
            reader=self.reader,
            state=self.state,
            max_records=_MAX_RECORDS,
            many_records=self.many_records,
            digest=self.rows,
        )


class AppendedTable:
    def __init__(self, catalog: Catalog, locks: TableLocks, appended: Appended) -> None:
        self._catalog = catalog
        self._locks = locks
        self._appended = appended

    def store(self, taken: Taken) -> None:
        """See `Follower`."""
        appended = self._appended
        rows = appended.rows(taken.records)
        summary = {appended.mark: taken.name}
        if rows.num_rows:
            with self._locks.writing(appended.definition, f"the topic's {appended.definition.name}"):
                table = load_table(self._catalog, appended.definition)
                if not (taken.is_repeat and is_committed(table, summary)):
                    append_or_find(table, rows, self._locks.sign(summary))
        appended.stored.inc(rows.num_rows)
