"""Writes deliveries of alerts from their topic to `lake.market.deliveries`."""

from collections.abc import Sequence

import orjson
import pyarrow as pa

from bus import StoredRecord
from bus import topics as bus_topics
from candlewright.wire.errors import BadFrame
from core import metrics
from flink_replacement_spark.tables.appended import Appended
from iceberg import DELIVERIES

__all__ = ["APPENDED_DELIVERIES"]


def _rows(records: Sequence[StoredRecord]) -> pa.Table:
    """Raises BadFrame for a record that is not a delivery."""
    try:
        found = [orjson.loads(record.value) for record in records]
        rows = pa.Table.from_pylist(found, DELIVERIES.arrow_schema)
    except (orjson.JSONDecodeError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError, AttributeError) as error:
        raise BadFrame("BAD_RECORD", f"not a delivery: {error}") from error
    if lacking := [name for name in rows.column_names if rows[name].null_count]:
        raise BadFrame("BAD_RECORD", f"not a delivery: {', '.join(lacking)} missing")
    return rows


APPENDED_DELIVERIES = Appended(
    definition=DELIVERIES,
    topic=bus_topics.DELIVERIES,
    reader=bus_topics.READER_DELIVERY_TABLE,
    state="delivery_table",
    many_records=5_000,
    rows=_rows,
    mark="candlewright.deliveries",
    stored=metrics.Counter(
        "candlewright_spark_deliveries_stored_total", "Deliveries of alerts in the table.", registry=metrics.REGISTRY
    ),
)
