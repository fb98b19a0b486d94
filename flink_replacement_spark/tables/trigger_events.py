"""Events of triggers from their topic into `lake.market.trigger_events`."""

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog

from bus import StoredRecord
from bus import topics as bus_topics
from candlewright.wire.errors import BadFrame
from core import metrics
from flink_replacement_spark.tables.appended import AppendedTable
from flink_replacement_spark.tables.follower import Followed
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import TRIGGER_EVENTS
from triggers.event_rows import event_rows

__all__ = ["FOLLOWED_EVENTS", "event_table"]


def _rows(records: Sequence[StoredRecord]) -> pa.Table:
    """Raises BadFrame for a record that is not an event, or has values that cannot be read."""
    rows = event_rows([record.value for record in records], TRIGGER_EVENTS.arrow_schema)
    if rows.num_rows < len(records):
        raise BadFrame("BAD_RECORD", "not a CEPTriggerEvent whose values can be read")
    return rows


FOLLOWED_EVENTS = Followed(
    bus_topics.TRIGGER_EVENTS,
    bus_topics.READER_TRIGGER_TABLE,
    "trigger_table",
    max_records=50_000,
    many_records=1_000,
    digest=_rows,
)
_STORED = metrics.Counter(
    "candlewright_spark_trigger_events_stored_total", "Events of triggers in the table.", registry=metrics.REGISTRY
)


def event_table(catalog: Catalog, locks: TableLocks) -> AppendedTable:
    return AppendedTable(catalog, locks, TRIGGER_EVENTS, rows=_rows, mark="candlewright.trigger-events", stored=_STORED)
