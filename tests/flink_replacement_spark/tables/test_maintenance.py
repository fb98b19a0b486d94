"""Retention of ticks over a real table."""

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyspark.sql import SparkSession
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from candlewright.wire.errors import RoleLost
from core.background import start_thread
from core.settings import Settings
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.maintenance import Maintenance
from iceberg import OHLC, TICKS, Piece, append_or_find, create_tables, load_table, open_catalog
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)

TICKERS = ["OLD/USDT.BINANCE", "OLDER/USDT.KRAKEN"]


def _rows(times: list[datetime]) -> pa.Table:
    rows = [
        {
            "ticker": ticker,
            "trade_id": str(number),
            "ts": time,
            "ts_ns": int(time.timestamp()) * 10**9,
            "price": 1.0,
            "size": 1.0,
            "side": "buy",
            "received_at": time,
        }
        for ticker in TICKERS
        for number, time in enumerate(times)
    ]
    return pa.Table.from_pylist(rows, schema=TICKS.arrow_schema)


def test_whole_days_past_the_retention_go_and_no_younger_trade_does(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.TABLES", ())
    catalog = open_catalog(platform.settings)
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    first_kept = midnight - timedelta(days=3)
    second = timedelta(seconds=1)
    old = [first_kept - timedelta(days=400), first_kept - timedelta(days=1), first_kept - second]
    young = [first_kept, first_kept + second, midnight]
    append_or_find(load_table(catalog, TICKS), _rows(old + young), {"candlewright.batch-id": "retention"})
    maintenance = Maintenance(
        session=platform.driver.session, catalog=catalog, locks=platform.driver.locks, minutes=1, ticks_retention_days=3
    )

    def kept() -> list[datetime]:
        found = load_table(catalog, TICKS).scan().to_arrow().to_pylist()
        return sorted(row["ts"] for row in found if row["ticker"] in TICKERS)

    maintenance.run_all(threading.Event())
    assert maintenance.last_problem == ""
    assert kept() == sorted(young * 2)
    snapshot = load_table(catalog, TICKS).current_snapshot()
    assert snapshot is not None and snapshot.summary is not None
    # Files were dropped, and none was rewritten.
    assert snapshot.summary["deleted-data-files"] is not None
    assert snapshot.summary["added-data-files"] is None
    maintenance.drop_old_ticks()
    assert load_table(catalog, TICKS).current_snapshot() == snapshot


def test_the_heap_that_maintenance_took_is_given_back(platform: Platform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.TABLES", ())
    session = platform.driver.session
    gateway = session.sparkContext._gateway
    assert gateway is not None
    runtime = gateway.jvm.Runtime.getRuntime()
    size = runtime.maxMemory() // 3
    text = gateway.jvm.StringBuilder()
    text.setLength(size)
    grown = runtime.totalMemory()
    text.setLength(0)
    text.trimToSize()
    maintenance = Maintenance(
        session=session, catalog=open_catalog(platform.settings), locks=platform.driver.locks, minutes=1
    )
    maintenance.run_all(threading.Event())
    assert maintenance.last_problem == ""
    assert runtime.totalMemory() < grown - size // 2


class _Session:
    """Records statements; those that contain a word of `broken` fail."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.broken = ""

    def sql(self, text: str) -> None:
        self.said.append(text)
        if self.broken and self.broken in text:
            raise OSError("away")


def _maintenance(monkeypatch: pytest.MonkeyPatch, session: Any, location: str) -> Maintenance:
    empty = SimpleNamespace(snapshots=[])
    table = SimpleNamespace(location=lambda: location, current_snapshot=lambda: None, metadata=empty)
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.load_table", lambda *_: table)
    return Maintenance(session=session, catalog=SimpleNamespace(), locks=TableLocks(), minutes=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("location", "is_listed"), [("s3://lake/market/ticks", True), ("file:///d/ticks", False)])
def test_orphans_of_an_object_store_are_looked_for_without_hadoop(
    location: str, is_listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _Session()
    _maintenance(monkeypatch, session, location).remove_orphans(TICKS)
    assert ["prefix_listing => true" in text for text in session.said] == [is_listed]


def test_a_step_that_fails_is_a_problem_until_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    session = _Session()
    maintenance = _maintenance(monkeypatch, session, "file:///d/ticks")
    monkeypatch.setattr(maintenance, "give_memory_back", lambda: None)
    session.broken = "remove_orphan_files"
    maintenance.run_all(threading.Event())
    assert "remove_orphans" in maintenance.last_problem
    session.broken = ""
    maintenance.run_all(threading.Event())
    assert maintenance.last_problem == ""


def _await(is_so: Callable[[], bool]) -> None:
    wait = Retrying(retry=retry_if_result(lambda found: not found), stop=stop_after_delay(60), wait=wait_fixed(0.05))
    wait(is_so)


def test_a_catalog_that_is_locked_for_long_is_seen_and_ends_no_maintenance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("_LOOK_SECONDS", 0.05), ("MANY_SNAPSHOTS", 2), ("KEPT_SNAPSHOTS", 1)):
        monkeypatch.setattr(f"flink_replacement_spark.tables.maintenance.{name}", value)
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.TRIMMED_AGE_SECONDS", 0.0)
    catalog = open_catalog(Settings(data_dir=tmp_path))
    create_tables(catalog)
    for number in range(3):
        rows = _rows([datetime.now(UTC)])
        append_or_find(load_table(catalog, TICKS), rows, {"candlewright.batch-id": f"locked {number}"})
    maintenance = Maintenance(session=cast(SparkSession, None), catalog=catalog, locks=TableLocks(), minutes=0)
    stopping = threading.Event()
    with closing(sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        thread = start_thread("maintenance", lambda: maintenance.run_until(stopping))
        try:
            # It can still be read; a commit gives up after five seconds.
            _await(lambda: "database is locked" in maintenance.last_problem or not thread.is_alive())
            assert thread.is_alive()
            other.execute("ROLLBACK")
            _await(lambda: not maintenance.last_problem)
            assert thread.is_alive()
            assert len(load_table(catalog, TICKS).metadata.snapshots) < 3
        finally:
            stopping.set()
            thread.join(30)


def _with_files(data_dir: Path, days: int, files: int) -> Catalog:
    """A lake whose ticks have this many small files per day."""
    catalog = open_catalog(Settings(data_dir=data_dir))
    create_tables(catalog)
    for day in range(days):
        for number in range(files):
            rows = _rows([datetime(2026, 1, 1 + day, tzinfo=UTC)])
            append_or_find(load_table(catalog, TICKS), rows, {"candlewright.batch-id": f"{day} {number}"})
    return catalog


def test_a_table_that_cannot_be_read_keeps_no_other_from_being_trimmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("MANY_SNAPSHOTS", 2), ("KEPT_SNAPSHOTS", 1), ("TRIMMED_AGE_SECONDS", 0.0)):
        monkeypatch.setattr(f"flink_replacement_spark.tables.maintenance.{name}", value)
    catalog = _with_files(tmp_path, days=1, files=3)
    Path(load_table(catalog, OHLC).metadata_location.removeprefix("file://")).write_text("{")
    maintenance = Maintenance(session=cast(SparkSession, None), catalog=catalog, locks=TableLocks(), minutes=0)
    maintenance.trim_all()
    assert maintenance.last_problem.startswith("maintenance (trim ohlc)")
    assert len(load_table(catalog, TICKS).metadata.snapshots) < 3


class _Commits:
    """Replaces Iceberg's own library, and records what would be committed."""

    merged: ClassVar[list[int]] = []

    def __init__(self, *_place: object, piece: Piece, **_more: object) -> None:
        self._rows = piece.rows

    def commit(self, summary: dict[str, str]) -> bool:
        self.merged.append(self._rows)
        return True


def _data_files(data_dir: Path) -> set[Path]:
    return set((data_dir / "warehouse" / "market" / "ticks").rglob("*.parquet"))


def test_a_piece_that_cannot_be_read_keeps_no_other_from_being_merged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.Replacement", _Commits)
    monkeypatch.setattr(_Commits, "merged", [])
    catalog = _with_files(tmp_path, days=2, files=5)
    table = load_table(catalog, TICKS)
    broken = next(iter(table.scan().plan_files())).file.file_path
    Path(broken.removeprefix("file://")).write_bytes(b"not a data file")
    maintenance = Maintenance(session=cast(SparkSession, None), catalog=catalog, locks=TableLocks(), minutes=0)
    with pytest.raises(Exception, match="Parquet"):
        maintenance.compact(TICKS)
    assert _Commits.merged == [5, 5, 5]


def test_a_piece_that_may_not_be_committed_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each round would write it again: a driver that lost its role would fill the disk until orphans are removed."""
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.Replacement", _Commits)
    catalog = _with_files(tmp_path, days=1, files=5)
    before = _data_files(tmp_path)

    def refuse(summary: object) -> dict[str, str]:
        raise RoleLost("driver", 1, 2)

    maintenance = Maintenance(session=cast(SparkSession, None), catalog=catalog, locks=TableLocks(refuse), minutes=0)
    with pytest.raises(RoleLost):
        maintenance.compact(TICKS)
    assert _data_files(tmp_path) == before
