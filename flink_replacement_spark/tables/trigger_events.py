"""Writes trigger events from their topic to `lake.market.trigger_events`."""

from collections.abc import Sequence

import pyarrow as pa

from bus import StoredRecord
from bus import topics as bus_topics
from candlewright.wire.errors import BadFrame
from core import metrics
from flink_replacement_spark.tables.appended import Appended
from iceberg import TRIGGER_EVENTS
from triggers.events.event_rows import event_rows

__all__ = ["APPENDED_EVENTS"]


def _rows(records: Sequence[StoredRecord]) -> pa.Table:
    """Raises BadFrame for a record that is not an event, or has values that cannot be read."""
    rows = event_rows([record.value for record in records], TRIGGER_EVENTS.arrow_schema)
    if rows.num_rows < len(records):
        raise BadFrame("BAD_RECORD", "not a CEPTriggerEvent whose values can be read")
    return rows


APPENDED_EVENTS = Appended(
    definition=TRIGGER_EVENTS,
    topic=bus_topics.TRIGGER_EVENTS,
    reader=bus_topics.READER_TRIGGER_TABLE,
    state="trigger_table",
    many_records=1_000,
    rows=_rows,
    mark="candlewright.trigger-events",
    stored=metrics.Counter(
        "candlewright_spark_trigger_events_stored_total", "Events of triggers in the table.", registry=metrics.REGISTRY
    ),
)
