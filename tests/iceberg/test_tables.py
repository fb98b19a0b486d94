from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from candlewright.wire.errors import ConfigurationError
from core.catalog_conf import spark_catalog_conf
from core.settings import IcebergSettings, Settings
from iceberg import (
    COVERAGE,
    DELIVERIES,
    GAPS,
    OHLC,
    OHLC_REVISIONS,
    TABLES,
    TICKS,
    TRIGGER_EVENTS,
    create_tables,
    open_catalog,
)

COLUMNS = {
    OHLC.name: "ticker period_seconds open_time open high low close volume quote_volume trade_count source complete "
    "updated_at",
    OHLC_REVISIONS.name: "ticker period_seconds open_time open high low close volume quote_volume trade_count source "
    "complete revision known_at",
    TICKS.name: "ticker trade_id ts ts_ns price size side received_at",
    TRIGGER_EVENTS.name: "trigger_id event_id fired_at ticker columns context",
    GAPS.name: "ticker from_trade_id to_trade_id from_ts to_ts missing repaired reason detected_at",
    DELIVERIES.name: "event_id destination attempts status delivered_at error",
    COVERAGE.name: "request_id ticker period_seconds start end expected got holes status closed_until",
}


def test_all_tables_have_the_promised_columns(catalog: Catalog) -> None:
    for definition in TABLES:
        table = catalog.load_table(definition.identifier)
        assert [field.name for field in table.schema().fields] == COLUMNS[definition.name].split()
        assert table.metadata.format_version == 2


def test_times_are_utc_with_microseconds(catalog: Catalog) -> None:
    schema = catalog.load_table(OHLC.identifier).schema()
    assert str(schema.find_field("open_time").field_type) == "timestamptz"
    assert str(schema.find_field("period_seconds").field_type) == "int"
    assert str(schema.find_field("trade_count").field_type) == "long"


def test_tables_are_made_once_whichever_process_is_first(settings: Settings) -> None:
    def make(_: int) -> None:
        create_tables(open_catalog(settings))

    open_catalog(settings)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(8)))
    catalog = open_catalog(settings)
    assert sorted(name for _, name in catalog.list_tables("market")) == sorted(table.name for table in TABLES)


def test_making_tables_again_keeps_their_rows_place(catalog: Catalog, settings: Settings) -> None:
    before = catalog.load_table(OHLC.identifier).metadata.table_uuid
    create_tables(open_catalog(settings))
    assert open_catalog(settings).load_table(OHLC.identifier).metadata.table_uuid == before


def test_a_table_of_an_earlier_release_gets_the_columns_that_it_lacks(catalog: Catalog, settings: Settings) -> None:
    before = catalog.load_table(COVERAGE.identifier)
    rows = pa.Table.from_pylist([{"request_id": "r"}], COVERAGE.arrow_schema)
    before.append(rows)
    with before.update_schema() as update:
        update.delete_column("closed_until")

    def make(_: int) -> None:
        create_tables(open_catalog(settings))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(make, range(4)))
    after = open_catalog(settings).load_table(COVERAGE.identifier)
    assert after.metadata.table_uuid == before.metadata.table_uuid
    [row] = after.scan().to_arrow().to_pylist()
    assert (row["request_id"], row["closed_until"]) == ("r", None)
    after.append(rows)


def test_both_readers_are_pointed_at_one_file(settings: Settings) -> None:
    conf = spark_catalog_conf(settings)
    assert conf["spark.sql.catalog.lake.uri"] == f"jdbc:sqlite:{settings.data_dir}/catalog.db"
    assert conf["spark.sql.catalog.lake.warehouse"] == f"file://{settings.data_dir}/warehouse"
    assert conf["spark.sql.catalog.lake.cache-enabled"] == "false"
    open_catalog(settings)
    assert (settings.data_dir / "catalog.db").is_file()


def test_a_database_address_is_split_for_jdbc(settings: Settings) -> None:
    group = IcebergSettings(
        catalog="jdbc",
        uri="postgresql+psycopg2://me:secret@db:5432/lake",
        warehouse="s3://b/w",
        properties={"s3.region": "eu-west-1"},
    )
    conf = spark_catalog_conf(settings.model_copy(update={"iceberg": group}))
    assert conf["spark.sql.catalog.lake.uri"] == "jdbc:postgresql://db:5432/lake"
    assert conf["spark.sql.catalog.lake.jdbc.user"] == "me"
    assert conf["spark.sql.catalog.lake.jdbc.password"] == "secret"
    assert conf["spark.sql.catalog.lake.io-impl"].endswith("S3FileIO")
    assert conf["spark.sql.catalog.lake.client.region"] == "eu-west-1"


def test_a_rest_catalog_needs_an_address(settings: Settings) -> None:
    with pytest.raises(ConfigurationError, match=r"iceberg\.uri"):
        open_catalog(settings.model_copy(update={"iceberg": IcebergSettings(catalog="rest")}))
