"""Real Spark, real Redis, real tables: one driver for the whole module."""

import json
import os
import socket
import threading
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.ml.functions import vector_to_array
from pyspark.ml.linalg import Vectors
from pyspark.sql import Row

from bus import topics as bus_topics
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import InvalidRequest
from core.http import StatusServer
from flink_replacement_spark.engine.bus_source import pass_on
from flink_replacement_spark.history.merger import SparkMerger
from flink_replacement_spark.history.query import HISTORY_QUERY
from flink_replacement_spark.jars import fetch_jars, packages_of
from flink_replacement_spark.spark.class_archive import archive_of, class_path
from flink_replacement_spark.spark.fence import DriverLock
from flink_replacement_spark.spark.session import add_vector_functions
from flink_replacement_spark.spark.worker_daemon import IDLE_SECONDS
from flink_replacement_spark.sql.connect import SparkUnreachable, run_sql
from flink_replacement_spark.tables.maintenance import Maintenance
from iceberg import OHLC, TABLES, TableDefinition, load_table, open_catalog
from tests.flink_replacement_spark.harness import MINUTE, final_of, page, wait_for
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)


def test_both_readers_see_the_rows_when_the_final_comes(platform: Platform) -> None:
    ticker = "SEEN/USDT.BINANCE"
    platform.feed(ticker).request("seen", range(1_000))
    final = platform.final("seen")
    by_pyiceberg = platform.rows(ticker)
    by_connect = run_sql(
        platform.settings, f"SELECT * FROM lake.market.ohlc WHERE ticker = '{ticker}' ORDER BY open_time"
    )
    assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 1_000)
    assert by_pyiceberg.num_rows == by_connect.num_rows == 1_000
    assert by_connect["open_time"].cast(pa.int64()).to_pylist() == [n * MINUTE // 1_000 for n in range(1_000)]
    assert by_connect["volume"].to_pylist() == by_pyiceberg["volume"].to_pylist() == [float(n) for n in range(1_000)]
    assert platform.coverage("seen") == 1


def test_changed_rows_are_replaced_and_the_rest_stays(platform: Platform) -> None:
    ticker = "CHANGE/USDT.BINANCE"
    feed = platform.feed(ticker)
    feed.request("change-1", range(100))
    assert platform.final("change-1").row_count == 100
    feed.request("change-2", range(50, 150), close=5.0)
    assert platform.final("change-2").row_count == 100
    closes = platform.rows(ticker)["close"].to_pylist()
    assert closes == [1.0] * 50 + [5.0] * 100
    feed.piece("change-3", range(50, 150), close=7.0, source="ticks")
    feed.done("change-3", 100)
    feed.send()
    assert platform.final("change-3").row_count == 100
    assert platform.rows(ticker)["close"].to_pylist() == closes


def test_each_snapshot_names_its_query_and_batch(platform: Platform) -> None:
    feed = platform.feed("NAMED/USDT.BINANCE")
    for number, close in enumerate((1.0, 2.0)):
        feed.request(f"named-{number}", range(10), close=close)
        platform.final(f"named-{number}")
        snapshot = load_table(open_catalog(platform.settings), OHLC).current_snapshot()
        assert snapshot is not None and snapshot.summary is not None
        query = platform.driver.queries[0].query
        assert query is not None
        assert snapshot.summary["candlewright.query-id"] == str(query.id)
        assert int(snapshot.summary["candlewright.batch-id"] or "-1") >= 0


def test_the_records_of_a_batch_are_read_without_a_spark_job(platform: Platform) -> None:
    feed = platform.feed("JOBS/USDT.BINANCE")
    feed.request("jobs-1", range(10))
    platform.final("jobs-1")
    query = platform.driver.queries[0].query
    assert query is not None
    tracker = platform.driver.session.sparkContext.statusTracker()
    jobs = tracker.getJobIdsForGroup(str(query.runId))
    feed.request("jobs-2", range(10, 20))
    assert platform.final("jobs-2").row_count == 10
    assert tracker.getJobIdsForGroup(str(query.runId)) == jobs


def test_a_query_continues_from_its_checkpoint(platform: Platform) -> None:
    ticker = "RESTART/USDT.BINANCE"
    feed = platform.feed(ticker)
    feed.piece("restart", range(100), piece=0)
    feed.send()
    wait_for(lambda: platform.bus.get("history_tallies", ["restart"])[0])
    run_id = platform.stop_query()
    feed.piece("restart", range(100, 200), piece=1)
    feed.done("restart", 200)
    feed.send()
    platform.wait_for_next_query(run_id)
    assert platform.final("restart").row_count == 200
    assert platform.rows(ticker).num_rows == 200


def test_a_lost_commit_log_file_repeats_a_batch_without_duplicates(platform: Platform) -> None:
    ticker = "LOG/USDT.BINANCE"
    feed = platform.feed(ticker)
    feed.request("log", range(300))
    platform.final("log")
    feed.request("log-2", range(300, 400))
    platform.final("log-2")
    run_id = platform.stop_query()
    commits = platform.settings.data_dir / "checkpoints" / HISTORY_QUERY / "commits"
    last = max((file for file in commits.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink(missing_ok=True)
    batches = platform.driver.batches
    platform.wait_for_next_query(run_id)
    wait_for(lambda: True if platform.driver.batches > batches else None)
    feed.request("log-3", range(400, 410))
    platform.final("log-3")
    assert platform.rows(ticker).num_rows == 410
    assert [platform.coverage(name) for name in ("log", "log-2", "log-3")] == [1, 1, 1]


def test_a_bad_record_does_not_stop_the_query(platform: Platform) -> None:
    query = platform.driver.queries[0].query
    feed = platform.feed("BAD/USDT.BINANCE")
    feed.send_values([b"\xff\xff\xff", b""])
    feed.request("bad", range(10))
    assert platform.final("bad").row_count == 10
    assert platform.driver.queries[0].query is query
    assert platform.driver.status().details["history"]["bad_records"] == 2


def test_uncommitted_records_are_held_on_the_bus(platform: Platform) -> None:
    feed = platform.feed("HELD/USDT.BINANCE")
    for number in range(2):
        feed.request(f"held-{number}", range(10))
        platform.final(f"held-{number}")
    ends = {p: state.end for p, state in enumerate(platform.bus.state(bus_topics.HISTORY_OUTCOMES))}
    held = platform.bus.holds(bus_topics.HISTORY_OUTCOMES, bus_topics.READER_HISTORY_WRITER)
    assert held.keys() == ends.keys()
    assert all(held[partition] <= ends[partition] for partition in ends)
    assert sum(held.values()) >= sum(ends.values()) - 2


def test_executors_check_and_write_whole_pieces(platform: Platform) -> None:
    ticker = "LARGE/USDT.BINANCE"
    feed = platform.feed(ticker)
    pieces = [
        feed.piece("large", range(500), piece=0),
        feed.piece("large", range(500, 900), piece=1, rows=401),
        feed.piece(
            "large",
            range(900, 1_000),
            piece=2,
            pages=[page("x", range(900, 950), ticker), page("x", range(950, 1_000), ticker)],
        ),
    ]
    catalog = open_catalog(platform.settings)
    merger = SparkMerger(platform.driver.session, catalog, platform.settings.bus.url)
    summary = {"candlewright.batch-id": "large"}
    with platform.driver.locks.writing(OHLC, "test"):
        for _ in range(2):
            faults = merger.write_pieces(pieces, summary)
            assert list(faults) == [1]
            assert "401" in faults[1]
            rows = platform.rows(ticker)
            assert rows["volume"].to_pylist() == [float(n) for n in (*range(500), *range(900, 1_000))]


def test_a_warehouse_that_cannot_be_written_turns_health_red_until_it_can(platform: Platform) -> None:
    ticker = "FULL/USDT.BINANCE"
    data = platform.settings.data_dir / "warehouse" / "market" / "ohlc" / "data"
    aside = data.with_name("data.aside")
    data.rename(aside)
    data.write_text("a file where the folder was: no data file can be made")
    try:
        platform.feed(ticker).request("full", range(10))
        status = wait_for(lambda: status if (status := platform.driver.status()).problems else None)
        assert "history cannot be written" in status.problems[0]
        assert final_of(platform.bus, "full") is None
    finally:
        data.unlink()
        aside.rename(data)
    assert platform.final("full").row_count == 10
    wait_for(lambda: None if platform.driver.status().problems else True)
    assert platform.rows(ticker).num_rows == 10


@pytest.mark.parametrize(
    "tables", [pytest.param((OHLC,), id="candles"), pytest.param(TABLES, id="all", marks=pytest.mark.long)]
)
def test_maintenance_merges_files_and_keeps_rows(
    platform: Platform, monkeypatch: pytest.MonkeyPatch, tables: tuple[TableDefinition, ...]
) -> None:
    monkeypatch.setattr("flink_replacement_spark.tables.maintenance.TABLES", tables)
    name = f"FILES{len(tables)}"
    ticker = f"{name}/USDT.BINANCE"
    feed = platform.feed(ticker)
    for number in range(6):
        feed.request(f"{name}-{number}", range(10 * number, 10 * number + 10))
        platform.final(f"{name}-{number}")
    catalog = open_catalog(platform.settings)

    def files() -> int:
        return len(list(load_table(catalog, OHLC).scan().plan_files()))

    before = files()
    maintenance = Maintenance(
        session=platform.driver.session,
        catalog=catalog,
        locks=platform.driver.locks,
        minutes=1,
        min_snapshot_age_seconds=0.0,
    )
    maintenance.run_all(threading.Event())
    assert maintenance.last_problem == ""
    assert files() < before
    assert platform.rows(ticker)["volume"].to_pylist() == [float(n) for n in range(60)]
    feed.request(f"{name}-last", range(55, 65))
    assert platform.final(f"{name}-last").row_count == 10
    assert platform.rows(ticker).num_rows == 65


def test_sql_answers_and_refuses_with_a_sentence(platform: Platform) -> None:
    assert run_sql(platform.settings, "SELECT 1 AS one, current_timezone() AS zone").to_pylist() == [
        {"one": 1, "zone": "UTC"}
    ]
    assert run_sql(platform.settings, "SELECT id FROM range(10)", limit=3).num_rows == 3
    with pytest.raises(InvalidRequest, match="nonsense"):
        run_sql(platform.settings, "SELECT nonsense FROM market.ohlc")


def test_sql_says_when_no_platform_runs(platform: Platform) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        bind = f"127.0.0.1:{probe.getsockname()[1]}"
    spark = platform.settings.spark.model_copy(update={"connect_bind": bind})
    with pytest.raises(SparkUnreachable, match="is the platform up"):
        run_sql(platform.settings.model_copy(update={"spark": spark}), "SELECT 1")


def test_the_status_page_is_ready_and_counts(platform: Platform, tmp_path: Path) -> None:
    port_file = tmp_path / "spark.http"
    server = StatusServer("127.0.0.1:0", platform.driver.status, port_file=port_file)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text()}/ready", timeout=10) as answer:
            said = json.load(answer)
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            page_text = answer.read().decode()
    finally:
        server.close()
    assert said["ready"] and said["part"] == "flink_replacement_spark"
    assert "candlewright_spark_candles_total" in page_text


def test_a_second_driver_does_not_get_the_lock_of_its_data_directory(platform: Platform) -> None:
    lock = DriverLock(platform.settings.data_dir)
    assert not lock.acquire(timeout_seconds=0.2)
    lock.close()


def test_the_driver_starts_from_the_archive_of_classes_where_there_is_one(platform: Platform) -> None:
    archive = archive_of(class_path(fetch_jars(packages_of(platform.settings))))
    gateway = SparkContext._gateway
    assert gateway is not None
    mapped = Path(f"/proc/{gateway.proc.pid}/maps").read_text()
    assert (str(archive) in mapped) is archive.exists()


def test_functions_for_vectors_are_added_to_a_session_that_starts_without(platform: Platform) -> None:
    session = platform.driver.session
    add_vector_functions(session)
    vectors = session.createDataFrame([(Vectors.dense(1.0, 2.0),)], ["vector"])
    assert vectors.select(vector_to_array("vector").alias("array")).collect() == [Row(array=[1.0, 2.0])]


@pytest.mark.long
def test_spark_starts_the_daemon_of_sources_again_after_it_has_ended(platform: Platform) -> None:
    ranges = json.dumps([(bus_topics.HISTORY_OUTCOMES, 0, 0, -1, 0)])
    source = platform.driver.session.read.format("bus").options(url=platform.settings.bus.url, ranges=ranges)
    assert source.load().count() == 0
    # Spark ends workers that were idle for a minute, and then the daemon has none.
    wait_for(
        lambda: None if _daemons("create_data_source") + _daemons("plan_data_source_read") else 1, 4 * IDLE_SECONDS
    )
    assert source.load().count() == 0
    assert _daemons("create_data_source") and _daemons("plan_data_source_read")


def test_spark_searches_for_no_sources_but_those_of_the_platform(platform: Platform) -> None:
    assert platform.driver.session.version
    assert not _daemons("lookup_data_sources")


def test_the_daemon_of_the_first_task_serves_sql_as_well(platform: Platform) -> None:
    platform.driver.session.range(1).mapInArrow(pass_on, "id bigint").toArrow()
    variables = [Path(f"/proc/{pid}/environ").read_text() for pid in _daemons("worker")]
    # Those of Spark Connect name its sessions.
    assert len([each for each in variables if "SPARK_JOB_ARTIFACT_UUID=default" in each]) == 1


def _daemons(worker: str) -> list[int]:
    """The processes of the JVM's own whose command names this worker."""
    gateway = SparkContext._gateway
    assert gateway is not None
    found = []
    for children in Path(f"/proc/{gateway.proc.pid}/task").glob("*/children"):
        # One that ends meanwhile is gone.
        with suppress(FileNotFoundError):
            pids = map(int, children.read_text().split())
            found += [pid for pid in pids if f".{worker}\0" in Path(f"/proc/{pid}/cmdline").read_text()]
    return found


def test_a_driver_leaves_the_environment_as_it_was(platform: Platform) -> None:
    assert platform.driver.session.version
    assert not [name for name in os.environ if name.startswith("PYSPARK_PYTHON")]
