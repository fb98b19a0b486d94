"""Merging small files while writers are active loses and duplicates no row, delays no writer, and deletes no needed
file.
"""

import threading
import time
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from core.catalog_conf import SPARK_CATALOG, spark_catalog_conf
from core.settings import Settings
from flink_replacement_spark.tables import maintenance as maintenance_module
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.maintenance import Maintenance
from iceberg import (
    OHLC,
    TICKS,
    TRIGGER_EVENTS,
    TableDefinition,
    append_or_find,
    create_tables,
    is_committed,
    load_table,
    plan_pieces,
    rewrite,
)
from iceberg.catalog import catalog_properties
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)

SECOND_US = 1_000_000
_numbers = count()


class Case:
    """A separate catalog in the session that all tests share."""

    def __init__(self, folder: Path, session: SparkSession) -> None:
        self.folder = folder
        settings = Settings(data_dir=folder)
        name = f"case{next(_numbers)}"
        self.catalog = load_catalog(name, **catalog_properties(settings))
        for key, value in spark_catalog_conf(settings).items():
            session.conf.set(key.replace(f"catalog.{SPARK_CATALOG}", f"catalog.{name}"), value)
        create_tables(self.catalog)
        self.locks = TableLocks()
        self.maintenance = Maintenance(
            session=session,
            catalog=self.catalog,
            locks=self.locks,
            minutes=1,
            min_snapshot_age_seconds=0.0,
            piece_rows=200,
            spark_catalog=name,
        )

    def table(self, definition: TableDefinition = OHLC) -> Table:
        return load_table(self.catalog, definition)

    def append(self, first: int, count: int, name: str = "x", *, tickers: int = 1) -> None:
        with self.locks.writing(OHLC, "test"):
            append_or_find(self.table(), bars(first, count, tickers), {"candlewright.live-bars": name})

    def files(self) -> list[str]:
        return [task.file.file_path for task in self.table().scan().plan_files()]

    def minutes(self, snapshot_id: int | None = None) -> list[int]:
        found = (
            self.table()
            .scan(snapshot_id=snapshot_id)
            .to_arrow()
            .sort_by([("ticker", "ascending"), ("open_time", "ascending")])
        )
        return [time // (60 * SECOND_US) for time in found["open_time"].cast(pa.int64()).to_pylist()]

    def on_disk(self) -> set[str]:
        return {f"file://{path}" for path in (self.folder / "warehouse").rglob("ohlc/data/**/*.parquet")}


def bars(first: int, count: int, tickers: int = 1) -> pa.Table:
    minutes = np.tile(np.arange(first, first + count), tickers)
    names = np.repeat([f"T{number}/B.C" for number in range(tickers)], count)
    times = pa.array(minutes * 60 * SECOND_US).cast(pa.timestamp("us", "UTC"))
    size = len(minutes)
    numbers = {
        name: pa.array(np.full(size, 1.0)) for name in ("open", "high", "low", "close", "volume", "quote_volume")
    }
    columns = {
        "ticker": pa.array(names), "period_seconds": pa.array(np.full(size, 60), pa.int32()), "open_time": times,
        **numbers, "trade_count": pa.array(np.ones(size, np.int64)), "source": pa.array(["ticks"] * size),
        "complete": pa.array([True] * size), "updated_at": times,
    }  # fmt: skip
    schema = OHLC.arrow_schema
    return pa.table([columns[name].cast(schema.field(name).type) for name in schema.names], schema=schema)


@pytest.fixture
def case(tmp_path: Path, platform: Platform) -> Case:
    return Case(tmp_path, platform.driver.session)


def test_small_files_become_few_sorted_ones_and_large_ones_stay(case: Case) -> None:
    for first in range(300, 0, -30):
        case.append(first, 30)
    case.maintenance.compact(OHLC)
    tasks = list(case.table().scan().plan_files())
    assert sorted(task.file.record_count for task in tasks) == [120, 180]
    assert case.minutes() == list(range(30, 330))
    for path in case.files():
        minutes = pa.parquet.read_table(path.removeprefix("file://"))["open_time"].cast(pa.int64()).to_pylist()
        assert minutes == sorted(minutes)
    before = case.files()
    case.maintenance.compact(OHLC)
    assert case.files() == before


@pytest.mark.parametrize("definition", [TICKS, TRIGGER_EVENTS], ids=lambda definition: definition.name)
def test_tables_of_all_shapes_are_merged(case: Case, definition: TableDefinition) -> None:
    times = [0, 86_400 * SECOND_US]
    for number in range(6):
        rows = [
            {
                "ticker": f"T{number}/B.C", "ts": time, "ts_ns": time * 1_000 + number, "trade_id": str(number),
                "price": 1.0, "trigger_id": "t", "event_id": str(number), "fired_at": time,
                "columns": "{}", "context": [("a", "b")],
            }
            for time in times
        ]  # fmt: skip
        append_or_find(
            case.table(definition), pa.Table.from_pylist(rows, schema=definition.arrow_schema), {"candlewright.a": "b"}
        )
    keys = [("ticker", "ascending"), (definition.arrow_schema.names[2], "ascending")]
    before = case.table(definition).scan().to_arrow().sort_by(keys)
    small = len(list(case.table(definition).scan().plan_files()))
    case.maintenance.compact(definition)
    if definition is TRIGGER_EVENTS:
        assert len(list(case.table(definition).scan().plan_files())) == 2 < small
    assert case.table(definition).scan().to_arrow().sort_by(keys).equals(before)


def test_a_piece_that_a_writer_changed_meanwhile_is_dropped_and_nothing_is_lost(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in range(0, 60, 10):
        case.append(first, 10)

    def changed(*arguments: object) -> object:
        written = rewrite(*arguments)  # type: ignore[arg-type]
        with case.locks.writing(OHLC, "history"):
            case.table().overwrite(bars(0, 20), "open_time < '1970-01-01T00:10:00+00:00'")
        return written

    monkeypatch.setattr(maintenance_module, "rewrite", changed)
    before = case.on_disk()
    case.maintenance.compact(OHLC)
    assert case.minutes() == sorted([*range(20), *range(10, 60)])
    assert len(case.on_disk() - before) == 1, "files of a dropped piece stay"
    monkeypatch.undo()
    case.maintenance.compact(OHLC)
    assert case.minutes() == sorted([*range(20), *range(10, 60)])


def test_rows_that_are_appended_while_a_piece_is_made_stay(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    for first in range(0, 60, 10):
        case.append(first, 10)

    def appended(*arguments: object) -> object:
        case.append(60, 10)
        return rewrite(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(maintenance_module, "rewrite", appended)
    case.maintenance.compact(OHLC)
    assert case.minutes() == list(range(70))
    assert len(case.files()) == 2


def test_a_writer_comes_while_files_are_rewritten_and_maintenance_gives_way_to_it(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maintenance_module, "PATIENCE_SECONDS", 0.1)
    for first in range(0, 60, 10):
        case.append(first, 10)
    before = case.on_disk()
    with case.locks.writing(OHLC, "history"):
        case.maintenance.compact(OHLC)
    assert case.on_disk() == before and len(case.files()) == 6
    assert case.locks.worst_hold_seconds == {}
    case.maintenance.compact(OHLC)
    assert len(case.files()) == 1


def test_the_newest_commit_of_each_writer_is_found_by_its_name_however_old(case: Case) -> None:
    case.append(0, 10, "old")
    with case.locks.writing(OHLC, "history"):
        append_or_find(case.table(), bars(10, 10), {"candlewright.query-id": "q", "candlewright.batch-id": "1"})
    for number in range(30):
        case.append(20 + number, 1, f"bars:{number}")
    case.maintenance.compact(OHLC)
    case.maintenance.expire(OHLC)
    table = case.table()
    assert len(table.metadata.snapshots) < 30
    assert is_committed(table, {"candlewright.query-id": "q", "candlewright.batch-id": "1"})
    assert is_committed(table, {"candlewright.live-bars": "bars:29"})
    assert not is_committed(table, {"candlewright.live-bars": "old"})


def test_expiry_deletes_only_files_that_no_snapshot_names(case: Case) -> None:
    for number in range(40):
        case.append(number, 1, f"bars:{number}")
    case.maintenance.compact(OHLC)
    for number in range(40, 70):
        case.append(number, 1, f"bars:{number}")
    before = case.on_disk()
    case.maintenance.expire(OHLC)
    table = case.table()
    named = {
        task.file.file_path
        for snapshot in table.metadata.snapshots
        for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    }
    assert case.on_disk() == named < before
    for snapshot in table.metadata.snapshots:
        found = case.minutes(snapshot.snapshot_id)
        assert found == list(range(len(found)))
    assert case.minutes() == list(range(70))


def test_a_reader_of_a_snapshot_that_was_dropped_just_now_still_finds_its_files(case: Case) -> None:
    case.maintenance.min_snapshot_age_seconds = 600.0
    for number in range(30):
        case.append(number, 1, f"bars:{number}")
    read = case.table().scan()
    case.maintenance.compact(OHLC)
    case.maintenance._forget(OHLC, 1, 0.0)
    case.maintenance.expire(OHLC)
    assert read.to_arrow().num_rows == 30


def test_writers_and_maintenance_at_once_lose_and_repeat_nothing(case: Case) -> None:
    stopping, waits = threading.Event(), []

    def maintain() -> None:
        while not stopping.is_set():
            for step in (case.maintenance.compact, case.maintenance.expire):
                step(OHLC)

    worker = threading.Thread(target=maintain)
    worker.start()
    try:
        for number in range(60):
            started = time.monotonic()
            case.append(number, 1, f"bars:{number}", tickers=3)
            waits.append(time.monotonic() - started)
            if number % 10 == 9:
                with case.locks.writing(OHLC, "history"):
                    first = f"1970-01-01T00:{number - 9:02}:00+00:00"
                    case.table().overwrite(bars(number - 9, number + 1 - (number - 9), 3), f"open_time >= '{first}'")
    finally:
        stopping.set()
        worker.join(60)
    assert case.minutes() == [*range(60)] * 3
    assert case.maintenance.problems == {}
    assert len(case.files()) < 60


def test_pieces_are_bounded_by_rows_and_bytes(case: Case) -> None:
    for first in range(0, 200, 20):
        case.append(first, 20)
    table = case.table()
    assert [piece.rows for piece in plan_pieces(table, 60)] == [60, 60, 60]
    size = max(task.file.file_size_in_bytes for task in table.scan().plan_files())
    assert {len(piece.tasks) for piece in plan_pieces(table, 10_000, 3 * size)} <= {2, 3}
