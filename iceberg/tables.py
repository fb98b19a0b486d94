"""Definitions of all tables: their columns, partitions, sort order and properties are defined only here.

All times are `timestamptz` with microseconds; `ticks.ts_ns` keeps the exchange's nanoseconds.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from sqlalchemy.exc import IntegrityError, OperationalError
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_incrementing

from core.catalog_conf import NAMESPACE

#: Few buckets, because every commit may write a file to each; file statistics do the rest of the pruning.
TICKER_BUCKETS = 8

_PROPERTIES = {
    "format-version": "2",
    "write.parquet.compression-codec": "zstd",
    "write.target-file-size-bytes": str(64 << 20),
    "write.distribution-mode": "none",
    "write.merge.mode": "copy-on-write",
    "write.delete.mode": "copy-on-write",
    "write.update.mode": "copy-on-write",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "20",
    # No retries in the library: a conflict means that another writer committed, so the rows must be compared again
    # before the next attempt.
    "commit.retry.num-retries": "0",
}


@dataclass(frozen=True, slots=True)
class TableDefinition:
    name: str
    schema: Schema
    partition_spec: PartitionSpec
    sort_order: SortOrder
    properties: dict[str, str] = field(default_factory=lambda: dict(_PROPERTIES))
    arrow_schema: pa.Schema = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arrow_schema", schema_to_pyarrow(self.schema, include_field_ids=False))

    @property
    def identifier(self) -> tuple[str, str]:
        return NAMESPACE, self.name


def _schema(*columns: tuple[str, IcebergType]) -> Schema:
    """Columns with ids in order; nested types bring the ids of their own fields (from 100)."""
    fields = [NestedField(number, name, kind, required=False) for number, (name, kind) in enumerate(columns, start=1)]
    return Schema(*fields)


def _buckets(schema: Schema, column: str) -> PartitionField:
    source = schema.find_field(column).field_id
    return PartitionField(source, 1000, BucketTransform(TICKER_BUCKETS), f"{column}_bucket")


def _days(schema: Schema, column: str) -> PartitionField:
    return PartitionField(schema.find_field(column).field_id, 1001, DayTransform(), f"{column}_day")


def _order(schema: Schema, *columns: str) -> SortOrder:
    return SortOrder(*(SortField(schema.find_field(name).field_id, IdentityTransform()) for name in columns))


_TIME = TimestamptzType()
_TEXT = StringType()
_NUMBER = DoubleType()

_CANDLE: tuple[tuple[str, IcebergType], ...] = (
    ("ticker", _TEXT),
    ("period_seconds", IntegerType()),
    ("open_time", _TIME),
    ("open", _NUMBER),
    ("high", _NUMBER),
    ("low", _NUMBER),
    ("close", _NUMBER),
    ("volume", _NUMBER),
    ("quote_volume", _NUMBER),
    ("trade_count", LongType()),
    ("source", _TEXT),
    ("complete", BooleanType()),
)
_OHLC_SCHEMA = _schema(*_CANDLE, ("updated_at", _TIME))
#: Unique by (ticker, period_seconds, open_time); `source` is exchange, ticks or derived.
OHLC = TableDefinition(
    "ohlc",
    _OHLC_SCHEMA,
    PartitionSpec(_buckets(_OHLC_SCHEMA, "ticker")),
    _order(_OHLC_SCHEMA, "ticker", "period_seconds", "open_time"),
)

_REVISIONS_SCHEMA = _schema(*_CANDLE, ("revision", IntegerType()), ("known_at", _TIME))
#: Append-only, unique by (ticker, period_seconds, open_time, revision): every bar as it was first known, and every
#: correction of it, with the time of its publication.
OHLC_REVISIONS = TableDefinition(
    "ohlc_revisions",
    _REVISIONS_SCHEMA,
    PartitionSpec(_buckets(_REVISIONS_SCHEMA, "ticker")),
    _order(_REVISIONS_SCHEMA, "ticker", "period_seconds", "open_time", "revision"),
)

_TICKS_SCHEMA = _schema(
    ("ticker", _TEXT),
    ("trade_id", _TEXT),
    ("ts", _TIME),
    ("ts_ns", LongType()),
    ("price", _NUMBER),
    ("size", _NUMBER),
    ("side", _TEXT),
    ("received_at", _TIME),
)
#: Unique by (ticker, trade_id); a day is a partition, so that old days can be dropped whole.
TICKS = TableDefinition(
    "ticks",
    _TICKS_SCHEMA,
    PartitionSpec(_buckets(_TICKS_SCHEMA, "ticker"), _days(_TICKS_SCHEMA, "ts")),
    _order(_TICKS_SCHEMA, "ticker", "ts_ns"),
)

_TRIGGER_EVENTS_SCHEMA = _schema(
    ("trigger_id", _TEXT),
    ("event_id", _TEXT),
    ("fired_at", _TIME),
    ("ticker", _TEXT),
    ("columns", _TEXT),
    ("context", MapType(100, _TEXT, 101, _TEXT, value_required=False)),
)
TRIGGER_EVENTS = TableDefinition(
    "trigger_events",
    _TRIGGER_EVENTS_SCHEMA,
    PartitionSpec(_days(_TRIGGER_EVENTS_SCHEMA, "fired_at")),
    _order(_TRIGGER_EVENTS_SCHEMA, "trigger_id", "fired_at"),
)

_GAPS_SCHEMA = _schema(
    ("ticker", _TEXT),
    ("from_trade_id", _TEXT),
    ("to_trade_id", _TEXT),
    ("from_ts", _TIME),
    ("to_ts", _TIME),
    ("missing", LongType()),
    ("repaired", BooleanType()),
    ("reason", _TEXT),
    ("detected_at", _TIME),
)
GAPS = TableDefinition("gaps", _GAPS_SCHEMA, PartitionSpec(), _order(_GAPS_SCHEMA, "ticker", "from_ts"))

_HOLE = StructType(NestedField(102, "start", _TIME, required=False), NestedField(103, "end", _TIME, required=False))
_COVERAGE_SCHEMA = _schema(
    ("request_id", _TEXT),
    ("ticker", _TEXT),
    ("period_seconds", IntegerType()),
    ("start", _TIME),
    ("end", _TIME),
    ("expected", LongType()),
    ("got", LongType()),
    ("holes", ListType(104, _HOLE, element_required=False)),
    ("status", _TEXT),
    ("closed_until", _TIME),
)
#: One row per finished request; holes are half-open. `closed_until` is set if the range extended beyond the closed
#: candles.
COVERAGE = TableDefinition(
    "coverage", _COVERAGE_SCHEMA, PartitionSpec(), _order(_COVERAGE_SCHEMA, "ticker", "period_seconds", "start")
)

_DELIVERIES_SCHEMA = _schema(
    ("event_id", _TEXT),
    ("destination", _TEXT),
    ("attempts", IntegerType()),
    ("status", _TEXT),
    ("delivered_at", _TIME),
    ("error", _TEXT),
)
#: One row per alert and destination, once the alert was delivered or given up (`status` delivered or abandoned).
DELIVERIES = TableDefinition(
    "deliveries",
    _DELIVERIES_SCHEMA,
    PartitionSpec(_days(_DELIVERIES_SCHEMA, "delivered_at")),
    _order(_DELIVERIES_SCHEMA, "delivered_at"),
)

TABLES: tuple[TableDefinition, ...] = (OHLC, OHLC_REVISIONS, TICKS, TRIGGER_EVENTS, GAPS, COVERAGE, DELIVERIES)


def create_tables(catalog: Catalog, definitions: Sequence[TableDefinition] = TABLES, *, attempts: int = 10) -> None:
    """Create missing tables, and add missing columns to tables that an earlier release created.

    Safe to call from several processes at once.
    """
    with contextlib.suppress(NamespaceAlreadyExistsError, IntegrityError):
        catalog.create_namespace(NAMESPACE)
    retrying = Retrying(
        retry=retry_if_exception_type((OperationalError, CommitFailedException)),
        wait=wait_incrementing(0.1, 0.1),
        stop=stop_after_attempt(attempts),
        reraise=True,
    )
    for definition in definitions:
        retrying(_create_table, catalog, definition)


def _create_table(catalog: Catalog, definition: TableDefinition) -> None:
    if catalog.table_exists(definition.identifier):
        _add_columns(catalog, definition)
        return
    with contextlib.suppress(TableAlreadyExistsError):
        catalog.create_table(
            definition.identifier,
            definition.schema,
            partition_spec=definition.partition_spec,
            sort_order=definition.sort_order,
            properties=definition.properties,
        )


def _add_columns(catalog: Catalog, definition: TableDefinition) -> None:
    table = catalog.load_table(definition.identifier)
    known = {field.name for field in table.schema().fields}
    missing = [field for field in definition.schema.fields if field.name not in known]
    if missing:
        with table.update_schema() as update:
            for field in missing:
                update.add_column(field.name, field.field_type)
