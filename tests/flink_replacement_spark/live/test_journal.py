"""The state of live bars between micro-batches, as tasks keep it: workers take turns, die, and run batches again."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus import Record
from bus import topics as bus_topics
from candlewright.wire.candlewright_pb2 import OHLCV, Side, TickBatch
from candlewright.wire.errors import BusUnavailable
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.engine.writes import Outdated
from flink_replacement_spark.live import journal as live_journal
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live import source as live_source
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.store import StateStore
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus

T0 = 1_700_000_100 * SECOND
TICKERS = ("A/B.C", "D/E.F")
HOUR = 3_600 * SECOND


class _Query:
    """One partition's tasks without Spark. `worker`: what the process that runs the next task remembers."""

    def __init__(self, bus: FreshBus, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bus = bus
        self.name = name
        self.monkeypatch = monkeypatch
        self.worker: dict[tuple[str, int], live_rows._Kept] = {}
        self.batches = 0
        for topic in live_source.TOPICS:
            bus.create_topic(topic)

    def _connect(self) -> None:
        for module in (live_rows, live_source):
            self.monkeypatch.setattr(module, "worker_bus", lambda url: self.bus)

    def planned(self) -> list[live_source.Range]:
        """Plan the records since the committed offsets."""
        ranges = []
        for tag, topic in enumerate(live_source.TOPICS):
            first, end = self.bus.holds(topic, bus_topics.READER_BAR_MAKER).get(0, 0), self.bus.state(topic)[0].end
            if end > first:
                ranges.append(live_source.Range(tag, first, end - 1))
        return ranges

    def run(self, ranges: list[live_source.Range], journal_bytes: int = 2_000) -> None:
        self.monkeypatch.setattr(live_rows, "_CACHE", self.worker)
        self._connect()
        live_rows.run_step(
            "",
            self.name,
            self.batches,
            partition=0,
            lateness_ns=0,
            horizon_ns=HOUR,
            max_ahead_ns=5 * SECOND,
            ranges=ranges,
            journal_bytes=journal_bytes,
        )

    def commit(self) -> None:
        self.batches += 1
        for topic in live_source.TOPICS:
            self.bus.hold(topic, bus_topics.READER_BAR_MAKER, {0: self.bus.state(topic)[0].end})
            self.bus.trim(topic, keep_seconds=0)

    def state(self) -> bytes:
        """The state that a task in a new worker loads."""
        self._connect()
        journal = live_journal.Journal(self.bus, self.name, 0)
        partitions = self.bus.partitions(bus_topics.TICKS)

        def replay(live: LivePartition, note: live_journal.Note) -> None:
            for ranges in note.steps:
                checked = CheckedRecords(note.max_ahead_ns, partitions, note.excluded)
                live_rows._output(live, "", 0, ranges, checked)

        found = journal.resume(self.batches, None, replay)[1]
        assert found is not None
        return found.save()

    def published(self) -> list[bytes]:
        found = self.bus.read(bus_topics.OHLC, 0, 0, max_records=10_000) if self.bus.partitions(bus_topics.OHLC) else []
        return [record.value for record in found]


def _trades(bus: FreshBus, second: int, number: int) -> None:
    ticker = TICKERS[number % 2]
    batch = TickBatch(ticker=ticker, first_sequence=number // 2 + 1, received_at=[1])
    batch.timestamp.append(T0 + second * SECOND)
    batch.price.append(1.0 + number)
    batch.size.append(0.5)
    batch.side.append(Side.BUY)
    batch.trade_id.append(f"x{number}" if number % 2 else str(number))
    bus.publish(bus_topics.TICKS, [Record(batch.SerializeToString(), ticker.encode())])


def _mark(bus: FreshBus, periods: list[int]) -> None:
    mark = records.TickMark(ticker=TICKERS[0], wanted=records.Wanted(ticks=True, period_seconds=periods))
    bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), TICKERS[0].encode())])


_STEPS = st.lists(
    st.tuples(
        st.integers(1, 40),
        st.sampled_from(["", "", "wants", "bad", "other worker", "new worker", "again", "dies before", "dies after"]),
    ),
    min_size=5,
    max_size=40,
)


@settings(max_examples=12, deadline=None)
@given(_STEPS)
def test_the_state_and_the_bars_are_those_of_a_run_in_one_worker(steps: list[tuple[int, str]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(live_journal, "MAX_NOTES", 5)
        disturbed, calm = (_run_all(patch, steps, is_disturbed=value) for value in (True, False))
        assert disturbed.published() == calm.published()
        assert _without_arrivals(disturbed.state()) == _without_arrivals(calm.state())


def _run_all(patch: pytest.MonkeyPatch, steps: list[tuple[int, str]], *, is_disturbed: bool) -> _Query:
    query = _Query(FreshBus(1), "q", patch)
    others: dict[tuple[str, int], live_rows._Kept] = {}
    second = 0
    for number, (seconds, event) in enumerate(steps, start=1):
        second += seconds
        _trades(query.bus, second, number)
        if event == "wants":
            _mark(query.bus, [5, 90, 120] if number % 2 else [])
        elif event == "bad":
            query.bus.publish(bus_topics.TICKS, [Record(b"\xff", b"A/B.C")])
        ranges = query.planned()
        if is_disturbed:
            if event == "other worker":
                query.worker, others = others, query.worker
            elif event == "new worker":
                query.worker = {}
            elif event == "again":
                query.run(ranges)
            elif event.startswith("dies"):
                _die(patch, query, ranges, before=event.endswith("before"))
                query.worker = {}
        query.run(ranges)
        query.commit()
    return query


def _die(patch: pytest.MonkeyPatch, query: _Query, ranges: list[live_source.Range], *, before: bool) -> None:
    """Die in the middle of a batch: before its state is written, or after that but before Spark's commit."""
    keep = live_journal.Journal.keep

    def killed(journal: live_journal.Journal, *arguments: object) -> int:
        if not before:
            keep(journal, *arguments)  # type: ignore[arg-type]
        raise BusUnavailable("killed")

    with patch.context() as own:
        own.setattr(live_journal.Journal, "keep", killed)
        with pytest.raises(BusUnavailable):
            query.run(ranges)


def _without_arrivals(state: bytes) -> bytes:
    """Runs differ in the arrival times of their records."""
    live = LivePartition.load(state)
    live._touched = {}
    return live.save()


def test_a_batch_writes_a_note_and_the_bus_keeps_the_records_of_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    query = _Query(FreshBus(1), "q", monkeypatch)
    monkeypatch.setattr(live_journal, "MAX_NOTES", 10)
    written: list[int] = []
    keep = live_journal.Journal.keep
    monkeypatch.setattr(live_journal.Journal, "keep", lambda *own: written.append(keep(*own)))
    kept = []
    for number in range(1, 60):
        _trades(query.bus, number * 5, number)
        query.run(query.planned(), 1 << 20)
        query.commit()
        state = query.bus.state(bus_topics.TICKS)[0]
        kept.append(state.end - state.first)
    assert [batch for batch, size in enumerate(written) if size > 1_000] == [0, 11, 22, 33, 44, 55]
    assert max(size for size in written if size < 1_000) < 150
    assert max(kept) <= 12
    # Everything except the last whole state and what follows it is dropped.
    assert len(query.bus.items("live_state:q")) <= 13


def test_states_of_versions_that_wrote_them_whole_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    query = _Query(FreshBus(1), "q", monkeypatch)
    live = LivePartition(0, HOUR)
    batch = TickBatch(ticker="A/B.C", first_sequence=1, timestamp=[T0], price=[7.0], size=[1.0])
    batch.side.append(Side.BUY)
    batch.trade_id.append("0")
    batch.received_at.append(1)
    live.process([batch.SerializeToString()], [])
    query.bus.put("live_state:q", {"0/3": b"before", "0/4": live.save(), "0": json.dumps([4, 3]).encode()})
    query.batches = 5
    for number in (2, 4):
        _trades(query.bus, 40 * number, number)
        query.run(query.planned())
        query.commit()
        query.worker = {}
    (bar, _) = (OHLCV.FromString(value) for value in query.published())
    assert (bar.open, bar.trade_count, bar.revision) == (7.0, 1, 0)
    assert "0/3" not in query.bus.items("live_state:q")


def test_a_state_before_the_last_one_is_kept_until_the_next() -> None:
    store = StateStore(FreshBus(), "q")
    store.save(0, 5, b"five")
    store.append(0, 6, b"six")
    store.save(0, 9, b"nine")
    assert store.pointer(0).to(store.base_of(0, 9)) == [5, 6]
    assert store.read(0, [5, 6]) == [b"five", b"six"]
    store.append(0, 10, b"ten")
    assert store.pointer(0).to(store.base_of(0, 11)) == [9, 10]
    with pytest.raises(Outdated):
        store.read(0, [6])
