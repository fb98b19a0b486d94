"""The writer without Spark: a bus, real Iceberg tables, no executors."""

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog
from pyiceberg.table import ManifestGroupPlanner

from bus import Bus, Record
from bus import topics as bus_topics
from bus.dead_letters import kept
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import CommitConflict
from core.settings import Settings
from flink_replacement_spark.history.outcomes import OutcomeRecord
from flink_replacement_spark.history.writer import TABLE_TALLIES, HistoryWriter
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.revisions import RevisionTable
from iceberg import COVERAGE, OHLC, OHLC_REVISIONS, append_or_find, create_tables, load_table, open_catalog, read_ohlc
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import MINUTE, TICKER, Feed, Status, final_of, notifications, page
from tests.fresh_bus import FreshBus
from tests.hostile import records_like


class NoSpark:
    """Replaces the part that needs Spark, and keeps the rows that it was given to merge."""

    def __init__(self) -> None:
        self.merged: list[pa.Table] = []

    def merge(self, rows: pa.Table, summary: dict[str, str]) -> None:
        self.merged.append(rows)

    def write_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> dict[int, str]:
        raise AssertionError("nothing here is that large")

    def revise_pieces(self, pieces: Sequence[records.PieceDone], summary: dict[str, str]) -> None:
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
        self.writer = HistoryWriter(
            self.bus, self.catalog, self.spark, locks=TableLocks(), stopping=self.stopping, keep_finals_seconds=3_600.0
        )
        return self.writer

    def batch(self, batch_id: int | None = None) -> list[OutcomeRecord]:
        """Publish the outcomes of the feed, and carry them out as one micro-batch."""
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
        found = read_ohlc(self.settings, TICKER, 60, start_ns=0, end_ns=100_000 * MINUTE)
        return [time // (MINUTE // 1_000) for time in found["open_time"].cast(pa.int64()).to_pylist()]

    def revisions(self) -> list[tuple[int, int, float]]:
        """(minute, revision, close) in order."""
        found = load_table(self.catalog, OHLC_REVISIONS).scan().to_arrow()
        minutes = [time // (MINUTE // 1_000) for time in found["open_time"].cast(pa.int64()).to_pylist()]
        return sorted(zip(minutes, found["revision"].to_pylist(), found["close"].to_pylist(), strict=True))

    def coverage(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = load_table(self.catalog, COVERAGE).scan().to_arrow().to_pylist()
        return rows

    def final(self, request_id: str) -> ing.HistoryReadyNotification:
        found = final_of(self.bus, request_id)
        assert found is not None
        return found


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, FreshBus())


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


def test_many_small_requests_cost_few_calls_of_the_bus_and_few_reads_of_the_table(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The requests of a crowd are in one micro-batch with another client's request, which waits for all of them."""
    calls: dict[str, int] = {}

    def count(owner: object, name: str) -> None:
        real = getattr(owner, name)

        def counted(*arguments: Any, **more: Any) -> Any:
            calls[name] = calls.get(name, 0) + 1
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, counted)

    for name in ("read", "publish_once", "publish_new"):
        count(bench.bus, name)
    count(ManifestGroupPlanner, "plan_manifest_entries")
    for number in range(200):
        start = number * 10 if number % 40 else 50_000 + number * 200
        bench.feed.piece(f"r{number}", range(start, start + 5))
        bench.feed.done(f"r{number}", 5)
    bench.batch()
    assert {bench.final(f"r{number}").status for number in range(200)} == {ing.HistoryReadyNotification.OK}
    assert len(notifications(bench.bus)) == 200
    assert len(bench.minutes()) == 1_000
    assert calls["read"] < 20
    assert calls["publish_new"] == 1
    assert "publish_once" not in calls
    assert calls["plan_manifest_entries"] < 10


def test_coverage_records_where_a_range_with_unclosed_candles_ended(bench: Bench) -> None:
    for name, closed_until in (("whole", 0), ("short", 5 * MINUTE)):
        bench.feed.piece(name, range(5))
        bench.feed.done(name, 5)
        bench.feed.outcomes[-1].request.closed_until = closed_until
    bench.batch()
    found = {row["request_id"]: row["closed_until"] for row in bench.coverage()}
    assert found == {"whole": None, "short": datetime.fromtimestamp(300, UTC)}


def proven(bench: Bench, name: str, start: int, *, end: int, piece: int = 0) -> None:
    bench.feed.outcomes.append(
        records.HistoryOutcome(
            piece=records.PieceDone(
                request_id=name,
                piece=piece,
                job_id=f"proof:{name}:{piece}",
                ticker=TICKER,
                period_seconds=60,
                start_time=start * MINUTE,
                end_time=end * MINUTE,
                rows=end - start,
                expected=end - start,
                is_proven=True,
            )
        )
    )


def test_a_proven_piece_counts_with_the_rows_that_are_stored(bench: Bench) -> None:
    bench.feed.piece("first", range(5))
    bench.feed.done("first", 5)
    bench.batch()
    proven(bench, "second", 0, end=5)
    bench.feed.piece("second", range(5, 8), piece=1)
    bench.feed.done("second", 8)
    again = bench.batch()
    assert (bench.final("second").status, bench.final("second").row_count) == (ing.HistoryReadyNotification.OK, 8)
    bench.restart()
    bench.carry_out(again)
    assert bench.minutes() == list(range(8))
    assert {row["request_id"]: row["got"] for row in bench.coverage()} == {"first": 5, "second": 8}


def test_a_proven_piece_whose_rows_were_deleted_meanwhile_ends_as_an_error(bench: Bench) -> None:
    bench.feed.piece("first", range(5))
    bench.batch()
    load_table(bench.catalog, OHLC).delete("volume = 3.0")
    proven(bench, "second", 0, end=5)
    bench.feed.done("second", 5)
    bench.batch()
    final = bench.final("second")
    assert (final.status, final.row_count) == (ing.HistoryReadyNotification.ERROR, 0)
    assert "1 have been deleted" in final.error_message


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


@pytest.mark.parametrize("is_over", [False, True])
def test_a_repeated_batch_needs_no_pages_of_written_pieces(bench: Bench, is_over: bool) -> None:
    bench.feed.piece("r", range(5))
    if is_over:
        bench.feed.done("r", 5)
    outcomes = bench.batch(batch_id=3)
    assert bench.bus.items(bus_topics.TABLE_HISTORY_WRITTEN) == {"0": b"%d" % len(outcomes)}
    bench.bus.trim(bus_topics.HISTORY, keep_seconds=0)
    bench.restart()
    bench.carry_out(outcomes, batch_id=3)
    if not is_over:
        bench.feed.done("r", 5)
        bench.batch()
    assert bench.final("r").status == ing.HistoryReadyNotification.OK
    assert bench.minutes() == list(range(5))
    assert not list(kept(bench.bus))


@pytest.mark.parametrize("step", ["_write_wave", "_cover", "_publish"])
def test_a_crash_between_any_two_steps_is_repaired(bench: Bench, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
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


def test_stored_rows_are_confirmed_and_not_written(bench: Bench) -> None:
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


def test_the_first_stored_candle_is_revision_0_and_each_correction_adds_one(bench: Bench) -> None:
    bench.feed.piece("old", range(3))
    bench.batch()
    before = time.time()
    bench.feed.piece("new", range(2, 4), close=3.0)
    bench.batch()
    assert bench.revisions() == [(0, 0, 1.0), (1, 0, 1.0), (2, 0, 1.0), (2, 1, 3.0), (3, 0, 3.0)]
    found = load_table(bench.catalog, OHLC_REVISIONS).scan(row_filter="close > 2").to_arrow()
    times = {known_at.timestamp() for known_at in found["known_at"].to_pylist()}
    assert before - 0.001 <= min(times) <= max(times) <= time.time() + 0.001


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt, RuntimeError])
def test_revisions_survive_a_crash_around_their_commit(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, error: type[BaseException], when: str
) -> None:
    bench.feed.piece("first", range(2))
    bench.batch()
    original = RevisionTable.correct
    crashes = 1

    def crash_once(*args: Any) -> None:
        nonlocal crashes
        if when == "after":
            original(*args)
        if crashes:
            crashes -= 1
            raise error("crash")
        original(*args)

    monkeypatch.setattr(RevisionTable, "correct", crash_once)
    bench.feed.piece("second", range(5))
    outcomes = [OutcomeRecord(0, n, o.SerializeToString()) for n, o in enumerate(bench.feed.outcomes)]
    if error is not OSError:
        with pytest.raises(error):
            bench.carry_out(outcomes, batch_id=1)
    if error is KeyboardInterrupt:
        bench.restart()
    bench.carry_out(outcomes, batch_id=1)
    assert bench.minutes() == list(range(5))
    assert bench.revisions() == [(minute, 0, 1.0) for minute in range(5)]


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


def test_a_bad_record_is_counted_and_the_others_continue(bench: Bench) -> None:
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


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"partition": 99}, "partition 99"),
        ({"partition": 2**31}, "partition"),
        ({"spans": [cw.Span(first_offset=0, last_offset=3)]}, "offset 3"),
        ({"spans": [cw.Span(first_offset=2**60, last_offset=2**60)]}, "span of offsets"),
        ({"start_time": 2**63, "end_time": 2**64 - 1}, "time range"),
        ({"period_seconds": 0}, "the period of 0 s"),
        ({"rows": 2**64 - 1}, "rows"),
        ({"holes": [cw.TimeRange(start_time=0, end_time=2**64 - 1)]}, "a hole"),
    ],
)
def test_an_impossible_outcome_is_put_aside_and_its_request_ends_as_error(
    bench: Bench, changes: dict[str, Any], reason: str
) -> None:
    piece = bench.feed.piece("bad", range(5))
    for name, value in changes.items():
        piece.ClearField(name)  # type: ignore[arg-type]
        piece.MergeFrom(records.PieceDone(**{name: value}))
    bench.feed.outcomes[0].piece.CopyFrom(piece)
    bench.feed.done("bad", 5)
    bench.feed.piece("good", range(10, 15))
    bench.feed.done("good", 5)
    bench.batch()
    final = bench.final("bad")
    assert final.status == ing.HistoryReadyNotification.ERROR and reason in final.error_message
    assert bench.final("good").status == ing.HistoryReadyNotification.OK
    assert bench.minutes() == list(range(10, 15))
    ((_, letter),) = kept(bench.bus)
    assert (letter.part, letter.topic, letter.offset) == ("history", bus_topics.HISTORY_OUTCOMES, 0)
    assert reason in letter.reason


def test_an_impossible_end_is_an_error_without_coverage(bench: Bench) -> None:
    bench.feed.done("r", 5)
    bench.feed.outcomes[0].request.status = 999  # type: ignore[assignment]
    bench.batch()
    final = bench.final("r")
    assert final.status == ing.HistoryReadyNotification.ERROR and "999 is not a status" in final.error_message
    assert bench.coverage() == []


def test_a_page_with_values_that_the_table_cannot_hold_ends_its_request_as_error(bench: Bench) -> None:
    wild = page("job", range(5))
    wild.trade_count[2] = 2**64 - 1
    bench.feed.piece("r", range(5), pages=[wild])
    bench.feed.done("r", 5)
    bench.batch()
    assert "trade_count" in bench.final("r").error_message
    assert bench.minutes() == []


def test_a_tally_that_cannot_be_read_never_becomes_an_ok(bench: Bench) -> None:
    bench.bus.put(TABLE_TALLIES, {"r": b"\xff"})
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert bench.final("r").status == ing.HistoryReadyNotification.ERROR


_FEED = Feed(FreshBus())
_FEED.piece("x", range(5))
_FEED.done("x", 5)
_OUTCOMES = records_like(*_FEED.outcomes)
_PAGES = records_like(page("x", range(5)))


@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
@given(outcomes=st.lists(_OUTCOMES, min_size=10, max_size=30), pages=st.lists(_PAGES, min_size=1, max_size=5))
def test_no_outcome_and_no_page_stops_the_writer(bench: Bench, outcomes: list[bytes], pages: list[bytes]) -> None:
    number = bench.batches
    wild, good = f"wild{number}", f"good{number}"
    places = bench.bus.publish(bus_topics.HISTORY, [Record(value, partition_key=TICKER.encode()) for value in pages])
    piece = bench.feed.piece(wild, range(5), pages=[page(wild, range(5))])
    piece.spans[0].first_offset = places[0].offset
    bench.feed.outcomes[0].piece.CopyFrom(piece)
    bench.feed.done(wild, 5)
    bench.feed.piece(good, range(10, 15))
    bench.feed.done(good, 5)
    values = [*outcomes, *(outcome.SerializeToString() for outcome in bench.feed.outcomes)]
    bench.feed.outcomes.clear()
    bench.carry_out([OutcomeRecord(0, n, value) for n, value in enumerate(values)])
    assert bench.final(good).status == ing.HistoryReadyNotification.OK
    assert set(range(10, 15)) <= set(bench.minutes())
    assert bench.bus.recall(bus_topics.REGISTRY_FINALS, [wild]) != [None]


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


def test_an_earlier_final_is_kept(bench: Bench) -> None:
    bench.feed.done("r", 0, status=ing.HistoryReadyNotification.TIMEOUT, text="late")
    bench.batch()
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert bench.final("r").status == ing.HistoryReadyNotification.TIMEOUT
    assert len(notifications(bench.bus)) == 1


def test_an_unwritable_warehouse_is_reported_and_recovered_from(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = append_or_find
    problems: list[str] = []

    def full_twice(*args: object) -> None:
        if len(problems) < 2:
            problems.append(bench.writer.health.problem)
            raise OSError(28, "No space left on device")
        problems.append(bench.writer.health.problem)
        original(*args)  # type: ignore[arg-type]

    monkeypatch.setattr("flink_replacement_spark.history.writer.append_or_find", full_twice)
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert problems[:2] == ["", "history cannot be written: [Errno 28] No space left on device"]
    assert bench.writer.health.problem == ""
    assert bench.final("r").row_count == 5
    assert bench.minutes() == list(range(5))


def test_a_conflict_is_compared_again_before_the_next_attempt(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    original = append_or_find
    calls = []

    def lose_the_answer_once(*args: object) -> None:
        original(*args)  # type: ignore[arg-type]
        calls.append(args)
        if len(calls) == 1:
            raise CommitConflict("another driver committed")

    monkeypatch.setattr("flink_replacement_spark.history.writer.append_or_find", lose_the_answer_once)
    bench.feed.piece("r", range(5))
    bench.feed.done("r", 5)
    bench.batch()
    assert bench.minutes() == list(range(5))
    assert len(bench.coverage()) == 1


def test_a_stop_ends_the_attempts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        bench.stopping.set()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("flink_replacement_spark.history.writer.append_or_find", full)
    bench.feed.piece("r", range(5))
    with pytest.raises(OSError, match="No space"):
        bench.batch()
    assert final_of(bench.bus, "r") is None
