"""Serving tasks make the correct bars, however trades arrive and whichever process dies."""

import random
import time
from collections import defaultdict

import pytest

from bus import Record, SequenceStamp
from bus import topics as bus_topics
from bus.lives import Lives
from candlewright.wire.candlewright_pb2 import OHLCV, Side, TickBatch
from candlewright.wire.grid import SECOND
from flink_replacement_spark.engine import steps as engine_steps
from flink_replacement_spark.engine.checked_records import CheckedRecords
from flink_replacement_spark.engine.steps import Course, Steps, commit, look
from flink_replacement_spark.engine.writes import Outdated
from flink_replacement_spark.live import journal as live_journal
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live import served as live_served
from flink_replacement_spark.live.partition import LivePartition
from flink_replacement_spark.live.served import LiveOwner, LiveTimes
from flink_replacement_spark.live.tick_rows import rows_of_trades
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.serving import Deaths, OwnCache, pause, served
from tests.fresh_bus import FreshBus

pytestmark = pytest.mark.timeout(60)

TICKER, T0, HOUR = "A/B.C", 1_700_000_100 * SECOND, 3_600 * SECOND
TIMES = LiveTimes(0, HOUR, 10**9 * SECOND, 20_000)


def trade(second: int, number: int) -> bytes:
    batch = TickBatch(
        ticker=TICKER, first_sequence=number, timestamp=[T0 + second * SECOND], price=[100.0 + number % 7], size=[0.5],
        received_at=[1],
    )  # fmt: skip
    batch.side.append(Side.BUY)
    batch.trade_id.append(str(number))
    return batch.SerializeToString()


def mark(**body: object) -> bytes:
    return records.TickMark(ticker=TICKER, **body).SerializeToString()  # type: ignore[arg-type]


def published(bus: FreshBus) -> list[OHLCV]:
    if not bus.partitions(bus_topics.OHLC):
        return []
    return [OHLCV.FromString(record.value) for record in bus.read(bus_topics.OHLC, 0, 0, max_records=100_000)]


def stored_ids(bus: FreshBus) -> list[int]:
    """The trades for the table."""
    found = bus.read(bus_topics.TICK_ROWS, 0, 0, max_records=100_000)
    return [int(trade_id) for trade_id in rows_of_trades(found)["trade_id"].to_pylist()]


def live_bus() -> FreshBus:
    bus = FreshBus(1)
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TICK_ROWS):
        bus.create_topic(topic, 1)
    return bus


class Walk:
    """Steps of one task, one after the other."""

    def __init__(self, bus: FreshBus) -> None:
        self.bus, self.steps = bus, Steps(bus, "q")
        self.course = Course(LiveOwner(bus.url, "q", 0, TIMES), self.steps, lambda query, done: None)
        self.lives = Lives()
        self.count = 0

    def trade(self, second: int) -> None:
        self.count += 1
        record = Record(trade(second, self.count), TICKER.encode(), sequence=SequenceStamp(f"TICKS:{TICKER}"))
        self.bus.publish(bus_topics.TICKS, [record])

    def mark(self, **body: object) -> None:
        self.bus.publish(bus_topics.TICK_MARKS, [Record(mark(**body), TICKER.encode())])

    def clock(self, second: int) -> None:
        self.mark(clock=records.Clock(exchange_time=T0 + second * SECOND, sequence=self.count))

    def carry_out(self) -> bool:
        """Take the next step; whether it was written."""
        before = self.steps.newest("0")
        news = look(self.bus, [self.course.awaits()], self.lives)
        planned = self.course.take(news)
        assert planned is not None
        self.course.run(planned, news.few_records)
        assert commit([self.course])
        return self.steps.newest("0") != before

    def write_next(self) -> None:
        """Have the next step written, with those before it."""
        self.course._unwritten.must_be_written()


def values(bar: OHLCV) -> tuple[object, ...]:
    return bar.open, bar.high, bar.low, bar.close, bar.volume, bar.trade_count


def test_bars_are_those_of_all_trades_and_their_numbers_have_no_holes(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus(1)
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TICK_ROWS):
        bus.create_topic(topic, 1)
    cache, deaths, chance = OwnCache(), Deaths(often=4), random.Random(2)
    monkeypatch.setattr(live_rows, "_CACHE", cache)
    monkeypatch.setattr(live_served, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(live_journal, "MAX_NOTES", 5)
    monkeypatch.setattr(live_rows, "_publish_chunk", deaths.around(live_rows._publish_chunk))
    monkeypatch.setattr(live_journal.Journal, "keep", deaths.around(live_journal.Journal.keep))
    wanted = mark(wanted=records.Wanted(ticks=True, period_seconds=[5]))
    trades: list[bytes] = []
    with served(bus, {"live": "q"}, cache, chains=[lambda: [LiveOwner(bus.url, "q", 0, TIMES)]]):
        bus.publish(bus_topics.TICK_MARKS, [Record(wanted, TICKER.encode())])
        wait_for(lambda: Steps(bus, "q").newest("0").number >= 0 or None)
        second = 0
        for number in range(1, 400):
            second += chance.randint(0, 6)
            # Occasionally a trade arrives after those of the next bar.
            trades.append(trade(second - 10 * (number % 50 == 0), number))
            stamp = SequenceStamp(f"TICKS:{TICKER}")
            bus.publish(bus_topics.TICKS, [Record(trades[-1], TICKER.encode(), sequence=stamp)])
            pause(chance)
            bus.trim(bus_topics.TICKS, keep_seconds=0)
        clock = records.Clock(exchange_time=T0 + (second + 1_000) * SECOND, sequence=399)
        bus.publish(bus_topics.TICK_MARKS, [Record(mark(clock=clock), TICKER.encode())])
        whole = LivePartition(0, HOUR)
        whole.process([], [wanted])
        made = [*whole.process(trades, []).bars, *whole.process([], [mark(clock=clock)]).bars]
        expected = {}
        for tickers, each in made:
            for record in live_rows._bar_records(tickers, each):
                bar = OHLCV.FromString(record.value)
                expected[bar.period_seconds, bar.open_time] = values(bar)

        def newest() -> dict[tuple[int, int], tuple[object, ...]] | None:
            found = {(bar.period_seconds, bar.open_time): values(bar) for bar in published(bus)}
            return found if found == expected else None

        wait_for(newest)
        wait_for(lambda: len(stored_ids(bus)) >= 399 or None)
    assert deaths.count > 10 and len(expected) > 100
    assert sorted(stored_ids(bus)) == list(range(1, 400))
    numbers, revisions = defaultdict(list), defaultdict(list)
    for bar in published(bus):
        numbers[bar.period_seconds].append(bar.sequence)
        revisions[bar.period_seconds, bar.open_time].append(bar.revision)
    assert all(own == list(range(1, len(own) + 1)) for own in numbers.values())
    assert all(own == list(range(len(own))) for own in revisions.values())


def test_steps_without_bars_are_written_with_the_next_that_has_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_rows, "_CACHE", {})
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 3_600.0)
    walk = Walk(live_bus())
    walk.mark(wanted=records.Wanted(ticks=True, period_seconds=[60]))
    assert walk.carry_out()
    for second in range(1, 6):
        walk.trade(second)
        assert not walk.carry_out()
        walk.clock(second)
        assert not walk.carry_out()
    assert stored_ids(walk.bus) == []
    walk.clock(120)
    assert walk.carry_out()
    assert stored_ids(walk.bus) == [1, 2, 3, 4, 5]
    assert [bar.trade_count for bar in published(walk.bus)] == [5]
    newest = walk.steps.newest("0")
    assert newest.start == {bus_topics.TICKS: {"0": 0}, bus_topics.TICK_MARKS: {"0": 1}}
    assert newest.end == {bus_topics.TICKS: {"0": 5}, bus_topics.TICK_MARKS: {"0": 7}}


@pytest.mark.parametrize("seed", range(2))
def test_a_task_that_takes_over_has_the_state_of_the_former_one(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Even if trades before and after a clock were in different steps that were written together."""
    cache: dict[tuple[str, int], live_rows._Kept] = {}
    monkeypatch.setattr(live_rows, "_CACHE", cache)
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 3_600.0)
    chance, walk, second = random.Random(seed), Walk(live_bus()), 0
    walk.mark(wanted=records.Wanted(ticks=True, period_seconds=[5, 60]))
    outcomes = []
    for _ in range(40):
        second += chance.randint(0, 4)
        for _ in range(chance.randint(1, 3)):
            # Some trades are older than the clock.
            walk.trade(max(1, second - chance.choice((0, 0, 3, 70))))
        if chance.random() < 0.4:
            walk.clock(second)
        if walk.course._unwritten.start and chance.random() < 0.2:
            walk.write_next()
        outcomes.append(walk.carry_out())
        if outcomes[-1]:
            before = cache["q", 0].live.save()
            cache.clear()
            walk.trade(second)
            walk.write_next()
            assert walk.carry_out()
            whole, partial = cache.pop(("q", 0)).live.save(), loaded(walk)
            assert partial == whole and before != whole
    assert outcomes.count(False) > 3 and outcomes.count(True) > 3
    assert sorted(stored_ids(walk.bus)) == list(range(1, max(stored_ids(walk.bus)) + 1))


def loaded(walk: Walk) -> bytes:
    """The state that another worker loads."""
    journal = live_journal.Journal(walk.bus, "q", 0)

    def replay(live: LivePartition, note: live_journal.Note) -> None:
        for ranges in note.steps:
            live_rows._output(live, walk.bus.url, 0, ranges, CheckedRecords(note.max_ahead_ns, 1, note.excluded))

    _, found = journal.resume(walk.steps.newest("0").number + 1, None, replay)
    assert found is not None
    return found.save()


def test_a_task_without_the_unwritten_steps_of_its_state_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cache: dict[tuple[str, int], live_rows._Kept] = {}
    monkeypatch.setattr(live_rows, "_CACHE", cache)
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 3_600.0)
    walk = Walk(live_bus())
    walk.trade(1)
    assert walk.carry_out()
    written = walk.steps.newest("0")
    walk.trade(2)
    assert not walk.carry_out()
    # Another task of this process has taken the state over.
    cache.clear()
    walk.clock(120)
    with pytest.raises(Outdated):
        walk.carry_out()
    assert walk.steps.newest("0") == written and published(walk.bus) == []


def test_the_exchanges_clock_alone_ends_a_bar_within_a_tenth_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    bus = FreshBus(1)
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TICK_ROWS):
        bus.create_topic(topic, 1)
    cache = OwnCache()
    monkeypatch.setattr(live_rows, "_CACHE", cache)
    took = []
    with served(bus, {"live": "q"}, cache, chains=[lambda: [LiveOwner(bus.url, "q", 0, TIMES)]]):
        for number in range(1, 11):
            stamp = SequenceStamp(f"TICKS:{TICKER}")
            second = 60 * number
            bus.publish(bus_topics.TICKS, [Record(trade(second, number), TICKER.encode(), sequence=stamp)])
            clock = records.Clock(exchange_time=T0 + (second + 60) * SECOND, sequence=number)
            bus.publish(bus_topics.TICK_MARKS, [Record(mark(clock=clock), TICKER.encode())])
            published_at = time.monotonic()
            assert bus.wait({(bus_topics.OHLC, 0): number - 1}, 20)
            took.append(time.monotonic() - published_at)
    assert len(published(bus)) == len(took)
    # The machine may be busy, but no pause is part of the way.
    assert min(took) < 0.1
