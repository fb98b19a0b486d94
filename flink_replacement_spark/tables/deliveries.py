"""Deliveries of alerts from their topic into `lake.market.deliveries`."""

from collections.abc import Sequence

import orjson
import pyarrow as pa
from pyiceberg.catalog import Catalog

from bus import StoredRecord
from bus import topics as bus_topics
from candlewright.wire.errors import BadFrame
from core import metrics
from flink_replacement_spark.tables.appended import AppendedTable
from flink_replacement_spark.tables.follower import Followed
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import DELIVERIES

__all__ = ["FOLLOWED_DELIVERIES", "delivery_table"]


def _rows(records: Sequence[StoredRecord]) -> pa.Table:
    """Raises BadFrame for a record that is not a delivery."""
    try:
        found = [orjson.loads(record.value) for record in records]
        return pa.Table.from_pylist(found, DELIVERIES.arrow_schema)
    except (orjson.JSONDecodeError, pa.ArrowInvalid, pa.ArrowTypeError, TypeError, AttributeError) as error:
        raise BadFrame("BAD_RECORD", f"not a delivery: {error}") from error


FOLLOWED_DELIVERIES = Followed(
    bus_topics.DELIVERIES,
    bus_topics.READER_DELIVERY_TABLE,
    "delivery_table",
    max_records=50_000,
    many_records=5_000,
    digest=_rows,
)
_STORED = metrics.Counter(
    "candlewright_spark_deliveries_stored_total", "Deliveries of alerts in the table.", registry=metrics.REGISTRY
)


def delivery_table(catalog: Catalog, locks: TableLocks) -> AppendedTable:
    return AppendedTable(catalog, locks, DELIVERIES, rows=_rows, mark="candlewright.deliveries", stored=_STORED)
