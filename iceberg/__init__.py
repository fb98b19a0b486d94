"""The tables of the platform, their catalog, and exact reads and appends without Spark."""

from iceberg.append import (
    RowDifference,
    append,
    append_or_find,
    compare_candles,
    drop_old_snapshots,
    is_committed,
    load_table,
    written_requests,
)
from iceberg.catalog import NAMESPACE, SPARK_CATALOG, is_object_store, open_catalog, spark_catalog_conf
from iceberg.read import (
    has_files_in,
    read_gaps,
    read_ohlc,
    read_past_bars,
    read_past_ticks,
    read_ticks,
    scan_range,
    scan_series,
    scan_trade_ids,
)
from iceberg.tables import COVERAGE, GAPS, OHLC, TABLES, TICKS, TRIGGER_EVENTS, TableDefinition, create_tables

__all__ = [
    "COVERAGE",
    "GAPS",
    "NAMESPACE",
    "OHLC",
    "SPARK_CATALOG",
    "TABLES",
    "TICKS",
    "TRIGGER_EVENTS",
    "RowDifference",
    "TableDefinition",
    "append",
    "append_or_find",
    "compare_candles",
    "create_tables",
    "drop_old_snapshots",
    "has_files_in",
    "is_committed",
    "is_object_store",
    "load_table",
    "open_catalog",
    "read_gaps",
    "read_ohlc",
    "read_past_bars",
    "read_past_ticks",
    "read_ticks",
    "scan_range",
    "scan_series",
    "scan_trade_ids",
    "spark_catalog_conf",
    "written_requests",
]
