"""The writer without Spark: memory bus, real Iceberg tables, no executors."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog

from bus import Bus
from bus import topics as bus_topics
from bus.memory_bus import MemoryBus
from core.errors import CommitConflict
from core.settings import Settings
from flink_replacement_spark.history_writer import TABLE_TALLIES, HistoryWriter
from flink_replacement_spark.state import OutcomeRecord
from iceberg import COVERAGE, OHLC, append_or_find, create_tables, load_table, open_catalog, read_ohlc
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import MINUTE, TICKER, Feed, Status, final_of, notifications, page


class NoSpark:
    """Stands for what needs Spark; keeps what it was asked to merge."""

    def __init__(self) -> None:
        self.merged: list[pa.Table] = []

    def merge(self, rows: pa.Table, summary: dict[str, str]) -> None:
        self.merged.append(rows)

    def write_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        raise AssertionError("nothing here is that large")


class Bench:
    def __init__(self, data_dir: Path, bus: Bus) -> None:
        self.settings = Settings(data_dir=data_dir)
        self.bus = bus
        self.catalog: Catalog = open_catalog(self.settings)
        create_tables(self.catalog)
        self.stopping = threading.Event()
        self.spark = NoSpark()
        self.feed = Feed(bus)
        self.batches = 0
        self.writer = self.restart()

    def restart(self) -> HistoryWriter:
        self.writer = HistoryWriter(self.bus, self.catalog, self.spark, threading.Lock(), self.stopping, 3_600.0)
        return self.writer

    def batch(self, batch_id: int | None = None) -> list[OutcomeRecord]:
        """Send what the feed holds and carry it out as one micro-batch."""
        outcomes = [
            OutcomeRecord(0, number, outcome.SerializeToString()) for number, outcome in enumerate(self.feed.outcomes)
        ]
        self.feed.outcomes.clear()
        self.carry_out(outcomes, batch_id)
        return outcomes

    def carry_out(self, outcomes: Sequence[OutcomeRecord], batch_id: int | None = None) -> None:
        self.writer.write("query", self.batches if batch_id is None else batch_id, outcomes)
        self.batches += 1

    def minutes(self) -> list[int]:
        found = read_ohlc(self.settings, TICKER, 60, 0, 100_000 * MINUTE)
        return [time // (MINUTE // 1_000) for time in found["open_time"].cast(pa.int64()).to_pylist()]

    def coverage(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = load_table(self.catalog, COVERAGE).scan().to_arrow().to_pylist()
        return rows

    def final(self, request_id: str) -> ing.HistoryReadyNotification:
        found = final_of(self.bus, request_id)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, MemoryBus())


def test_a_request_ends_with_its_rows_its_coverage_and_one_final(bench: Bench) -> None:
    bench.feed.piece("r", range(5), piece=0)
    bench.feed.piece("r", range(5, 8), piece=1)
    bench.feed.done("r", 8)
    bench.batch()
    assert bench.minutes() == list(range(8))
    final = bench.final("r")
    assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 8)
    assert (final.iceberg_namespace, final.iceberg_table) == ("market", "ohlc")
    assert notifications(bench.bus) == [final]
    (row,) = bench.coverage()
    assert (row["request_id"], row["got"], row["expected"], row["status"]) == ("r", 8, 8, "OK")
    assert len(row["holes"]) == 1  # type: ignore[arg-type]


def test_pieces_and_the_end_may_come_in_different_batches_and_processes(bench: Bench) -> None:
    bench.feed.piece("r", range(5), piece=0)
    bench.batch()
    bench.restart()
    bench.feed.piece("r", range(5, 8), piece=1)
    bench.batch()
    bench.restart()
    bench.feed.done("r", 8)
    bench.batch()
    assert bench.final("r").row_count == 8
    assert bench.bus.get(TABLE_TALLIES, ["r"]) == [None]


def test_a_batch_that_runs_again_changes_nothing(bench: Bench) -> None:
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    outcomes = bench.batch(batch_id=3)
    snapshots = len(load_table(bench.catalog, OHLC).metadata.snapshots)
    bench.restart()
    bench.carry_out(outcomes, batch_id=3)
    assert bench.minutes() == list(range(5))
    assert len(bench.coverage()) == 1
    assert len(notifications(bench.bus)) == 1
    assert len(load_table(bench.catalog, OHLC).metadata.snapshots) == snapshots


@pytest.mark.parametrize("step", ["_write_wave", "_cover", "_publish"])
def test_a_crash_between_any_two_steps_is_made_good(bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    original = getattr(HistoryWriter, step)

    def crash_after(*args: object) -> object:
        original(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(HistoryWriter, step, crash_after)
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    outcomes = [OutcomeRecord(0, n, o.SerializeToString()) for n, o in enumerate(bench.feed.outcomes)]
    with pytest.raises(KeyboardInterrupt):
        bench.carry_out(outcomes, batch_id=0)
    monkeypatch.undo()
    bench.restart()
    bench.carry_out(outcomes, batch_id=0)
    assert bench.minutes() == list(range(5))
    assert len(bench.coverage()) == 1
    assert len(notifications(bench.bus)) == 1


def test_rows_that_stand_there_already_are_confirmed_not_written(bench: Bench) -> None:
    bench.feed.piece("first", range(5))
    bench.feed.done("first", 5)
    bench.batch()
    bench.feed.piece("second", range(3, 8))
    bench.feed.done("second", 5)
    bench.batch()
    assert bench.minutes() == list(range(8))
    assert bench.final("second").row_count == 5
    assert bench.spark.merged == []


def test_two_requests_for_one_range_in_one_batch_write_each_row_once(bench: Bench) -> None:
    for name in ("a", "b"):
        bench.feed.piece(name, range(5))
        bench.feed.done(name, 5)
    bench.batch()
    assert bench.minutes() == list(range(5))
    assert bench.final("a").row_count == bench.final("b").row_count == 5


def test_only_changed_rows_are_merged(bench: Bench) -> None:
    bench.feed.piece("old", range(5))
    bench.feed.done("old", 5)
    bench.batch()
    bench.feed.piece("new", range(2, 6), close=3.0)
    bench.feed.done("new", 4)
    bench.batch()
    (merged,) = bench.spark.merged
    assert merged.num_rows == 4
    assert set(merged["close"].to_pylist()) == {3.0}


def test_pages_of_an_abandoned_job_never_reach_the_table(bench: Bench) -> None:
    mixed = [page("good", range(3)), page("fenced", range(3, 9), close=99.0), page("good", range(3, 5))]
    bench.feed.piece("r", range(5), pages=mixed)
    bench.feed.done("r", 5)
    bench.batch()
    assert bench.minutes() == list(range(5))
    assert bench.final("r").status == ing.HistoryReadyNotification.OK


@pytest.mark.parametrize("reported", [4, 6])
def test_a_piece_with_another_count_than_reported_ends_as_error_and_writes_nothing(bench: Bench, reported: int) -> None:
    bench.feed.piece("r", range(5), rows=reported)
    bench.feed.done("r", reported)
    bench.batch()
    final = bench.final("r")
    assert final.status == ing.HistoryReadyNotification.ERROR
    assert "reported with" in final.error_message
    assert bench.minutes() == []
    assert bench.coverage()[0]["status"] == "ERROR"


def test_a_lost_piece_record_never_becomes_an_ok(bench: Bench) -> None:
    bench.feed.piece("r", range(5), piece=0)
    bench.feed.piece("r", range(5, 9), piece=1)
    bench.feed.done("r", 9)
    outcomes = [o.SerializeToString() for o in bench.feed.outcomes]
    outcomes[1] = b"\xff\xff garbage"
    bench.carry_out([OutcomeRecord(0, n, value) for n, value in enumerate(outcomes)])
    final = bench.final("r")
    assert final.status == ing.HistoryReadyNotification.ERROR
    assert "only 5" in final.error_message


def test_a_bad_record_is_counted_and_the_others_go_on(bench: Bench) -> None:
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    values = [b"", b"\x0a\xff", *(o.SerializeToString() for o in bench.feed.outcomes)]
    bench.carry_out([OutcomeRecord(2, 10 + n, value) for n, value in enumerate(values)])
    assert bench.final("r").status == ing.HistoryReadyNotification.OK
    assert bench.writer.health.bad_records == 2
    assert "offset 11" in bench.writer.health.last_bad_record


def test_a_page_that_cannot_be_decoded_ends_its_request_as_error(bench: Bench) -> None:
    broken = page("job", range(5))
    del broken.high[3:]
    bench.feed.piece("r", range(5), pages=[broken])
    bench.feed.done("r", 5)
    bench.batch()
    assert "cannot be decoded" in bench.final("r").error_message


def test_trimmed_pages_end_the_request_as_error(bench: Bench) -> None:
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    assert bench.bus.trim(bus_topics.HISTORY, keep_seconds=0, keep_bytes=0) == 1
    bench.batch()
    final = bench.final("r")
    assert final.status == ing.HistoryReadyNotification.ERROR
    assert "no longer on the bus" in final.error_message


@pytest.mark.parametrize(
    "status",
    [ing.HistoryReadyNotification.NOT_FOUND, ing.HistoryReadyNotification.ERROR, ing.HistoryReadyNotification.TIMEOUT],
)
def test_other_ends_are_passed_on_with_their_words(bench: Bench, status: Status) -> None:
    bench.feed.done("r", 0, status=status, text="why")
    bench.batch()
    final = bench.final("r")
    assert final.status == status
    assert (final.row_count, final.error_message) == (0, "why")


def test_an_earlier_final_stands(bench: Bench) -> None:
    bench.feed.done("r", 0, status=ing.HistoryReadyNotification.TIMEOUT, text="late")
    bench.batch()
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert bench.final("r").status == ing.HistoryReadyNotification.TIMEOUT
    assert len(notifications(bench.bus)) == 1


def test_an_unwritable_warehouse_is_told_and_recovered_from(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = append_or_find
    problems: list[str] = []

    def full_twice(*args: object) -> None:
        if len(problems) < 2:
            problems.append(bench.writer.health.problem)
            raise OSError(28, "No space left on device")
        problems.append(bench.writer.health.problem)
        original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("flink_replacement_spark.history_writer.append_or_find", full_twice)
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert problems[:2] == ["", "history cannot be written: [Errno 28] No space left on device"]
    assert bench.writer.health.problem == ""
    assert bench.final("r").row_count == 5
    assert bench.minutes() == list(range(5))


def test_a_conflict_is_compared_anew_before_the_next_attempt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = append_or_find
    calls = []

    def lose_the_answer_once(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        calls.append(args)
        if len(calls) == 1:
            raise CommitConflict("somebody else committed")

    monkeypatch.setattr("flink_replacement_spark.history_writer.append_or_find", lose_the_answer_once)
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert bench.minutes() == list(range(5))
    assert len(bench.coverage()) == 1


def test_a_stop_ends_the_attempts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        bench.stopping.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flink_replacement_spark.history_writer.append_or_find", full)
    bench.feed.piece("r", range(5))
    with pytest.raises(OSError, match="No space"):
        bench.batch()
    assert final_of(bench.bus, "r") is None
