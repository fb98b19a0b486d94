"""Serving tasks give the events of the whole table, however the rows arrive and whichever process dies."""

import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from bus import Bus, Record
from bus import topics as bus_topics
from bus.api import partition_of
from bus.dead_letters import kept
from bus.lives import Lives
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire import tick_columns
from core.settings import Settings
from flink_replacement_spark.cep import evaluate
from flink_replacement_spark.engine import steps as engine_steps
from flink_replacement_spark.engine.serving import serve
from flink_replacement_spark.engine.serving_query import TABLE_SERVING
from flink_replacement_spark.engine.steps import Course, Owner, Step, Steps, commit, look
from flink_replacement_spark.live.store import StateStore
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers import served as trigger_served
from flink_replacement_spark.triggers import store as trigger_store
from flink_replacement_spark.triggers.query import TRIGGERS_QUERY, held_for_triggers
from flink_replacement_spark.triggers.served import TriggerOwner, reader_of
from flink_replacement_spark.triggers.store import STATE_PREFIX
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.serving import Deaths, OwnCache, pause, served
from tests.flink_replacement_spark.trigger_batches import ONE, OTHER, PARTITIONS, bus_for_triggers, register, seen
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.triggers.trigger_records import IN_ORDER, V_SHAPE, rows
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.running import shares
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(60)

RULES = TriggerRules(partitions=PARTITIONS)
SPREAD = f"""SELECT a.ts_ns, a.price - b.price AS spread FROM ticks a JOIN ticks b
  ON a.ts = b.ts AND a.ticker = '{ONE}' AND b.ticker = '{OTHER}'"""

#: Two alerts on different tickers.
PAIR = """SELECT * FROM (SELECT * FROM trigger_events WHERE trigger_id = 'high') MATCH_RECOGNIZE (
  ORDER BY fired_at MEASURES A.ticker AS a, B.ticker AS b PATTERN (A B) DEFINE B AS B.ticker <> A.ticker)"""


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[Bus]:
    with bus_for_triggers(redis.url) as bus:
        yield bus


def owner(url: str, number: int, rules: TriggerRules = RULES) -> TriggerOwner:
    return TriggerOwner(url=url, query_id="q", owner=number, rules=rules, settings=Settings())


def alone(url: str, number: int, rules: TriggerRules = RULES) -> list[Owner]:
    return [owner(url, number, rules)]


def next_step(one: TriggerOwner, before: Step, *, written: Step | None = None) -> Step | None:
    return one.take(before, look(one._bus, [one.awaits(before, written=written)], Lives()))


@pytest.mark.parametrize(("share_ns", "count"), [(0, 400), (1, 100)], ids=["at once", "behind"])
def test_events_are_those_of_the_whole_table_each_once_whichever_task_dies(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, share_ns: int, count: int
) -> None:
    """`behind`: triggers that keep state take one row in each step, so that the others wait."""
    if share_ns:
        # A task must survive all steps until one is written: a dozen, and not those of a whole second.
        monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 0.0125)
    monkeypatch.setattr(shares, "_ROW_NS", 0)
    rules = replace(RULES, share_ns=share_ns)
    cache, deaths, chance = OwnCache(), Deaths(often=0), random.Random(5)
    monkeypatch.setattr(trigger_rows, "_CACHE", cache)
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(trigger_rows, "publish_events", deaths.around(trigger_rows.publish_events))
    monkeypatch.setattr(trigger_store.PartStore, "save", deaths.around(trigger_store.PartStore.save))
    monkeypatch.setattr(trigger_store.PartStore, "note", deaths.around(trigger_store.PartStore.note))
    monkeypatch.setattr(trigger_rows, "_MOST", (4, 8, 1 << 20))
    monkeypatch.setattr(trigger_rows, "_ENOUGH", (2, 4, 1 << 20))
    prices, others = walk(3, count), walk(4, count)
    chains = [partial(alone, redis.url, number, rules) for number in range(PARTITIONS + 1)]
    with served(bus, {"triggers": "q"}, cache, chains=chains):
        offset = register(bus, "v", V_SHAPE, ONE)
        register(bus, "any", "price > 0", OTHER)
        offset = register(bus, "spread", SPREAD, ONE, OTHER)
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        deaths.often = 8
        first = 0
        while first < len(prices):
            some = chance.randint(1, 12)
            feed.trades(bus, ONE, 1 + first, prices=prices[first : first + some])
            pause(chance)
            feed.trades(bus, OTHER, 1 + first, prices=others[first : first + some])
            pause(chance)
            if chance.random() < 0.2:
                feed.clock(bus, ONE, 1 + first, sequence=min(first + some, len(prices)))
            first += some
        feed.clock(bus, ONE, 10_000, sequence=len(prices))
        feed.clock(bus, OTHER, 10_000, sequence=len(prices))
        expected = evaluate(V_SHAPE, table_of(ONE, 1, prices)).to_pylist()
        for trigger_id, wanted in (("v", len(expected)), ("any", len(others)), ("spread", len(prices))):
            feed.wait_for_events(bus, wanted, trigger_id, timeout=30)
    assert deaths.count > 10
    found = feed.events(bus, "v")
    assert [row for event in found for row in rows(event)] == expected
    assert [row["price"] for event in feed.events(bus, "any") for row in rows(event)] == others
    spreads = [row["spread"] for event in feed.events(bus, "spread") for row in rows(event)]
    assert spreads == [one - other for one, other in zip(prices, others, strict=True)]
    for trigger_id in ("v", "any", "spread"):
        told = feed.events(bus, trigger_id)
        assert [int(event.context["sequence"]) for event in told] == list(range(1, len(told) + 1))
        assert len({event.context["event_id"] for event in told}) == len(told)


def test_a_chain_of_triggers_sees_each_event_once_whichever_task_dies(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, deaths, chance = OwnCache(), Deaths(often=0), random.Random(6)
    monkeypatch.setattr(trigger_rows, "_CACHE", cache)
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(trigger_rows, "publish_events", deaths.around(trigger_rows.publish_events))
    monkeypatch.setattr(trigger_store.PartStore, "save", deaths.around(trigger_store.PartStore.save))
    monkeypatch.setattr(trigger_store.PartStore, "note", deaths.around(trigger_store.PartStore.note))
    monkeypatch.setattr(trigger_rows, "_MOST", (4, 8, 1 << 20))
    monkeypatch.setattr(trigger_rows, "_ENOUGH", (2, 4, 1 << 20))
    chains = [partial(alone, redis.url, number) for number in range(PARTITIONS + 1)]
    with served(bus, {"triggers": "q"}, cache, chains=chains):
        register(bus, "echo", "SELECT event_id, ticker FROM trigger_events WHERE trigger_id = 'high'")
        register(bus, "again", "SELECT event_id FROM trigger_events WHERE trigger_id IN ('echo', 'pair')")
        register(bus, "pair", PAIR)
        offset = register(bus, "high", "SELECT price FROM ticks WHERE price > 50", ONE, OTHER)
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        deaths.often = 6
        for turn in range(30):
            feed.trades(bus, ONE, 1 + 2 * turn, prices=[10, 60 + turn])
            pause(chance)
            feed.trades(bus, OTHER, 1 + turn, prices=[100 + turn])
            # Each pair of events arrives before the next pair.
            feed.wait_for_events(bus, turn + 1, "pair", timeout=30)
        for trigger_id, count in (("high", 60), ("echo", 60), ("again", 90)):
            feed.wait_for_events(bus, count, trigger_id, timeout=30)
    assert deaths.count > 5
    ids = {name: [event.context["event_id"] for event in feed.events(bus, name)] for name in ("high", "echo", "pair")}
    seen = {
        name: [row["event_id"] for event in feed.events(bus, name) for row in rows(event)] for name in ("echo", "again")
    }
    assert sorted(seen["echo"]) == sorted(ids["high"])
    assert sorted(seen["again"]) == sorted(ids["echo"] + ids["pair"])
    for trigger_id in ("high", "echo", "again", "pair"):
        told = feed.events(bus, trigger_id)
        assert sorted(int(event.context["sequence"]) for event in told) == list(range(1, len(told) + 1))
        assert len({event.context["event_id"] for event in told}) == len(told)


@dataclass
class Task:
    """A task that serves one owner, step by step. `restart`: another process takes over."""

    bus: Bus
    url: str
    rules: TriggerRules = RULES

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        trigger_rows._CACHE.clear()
        self.steps = Steps(self.bus, "q")
        self.owner = owner(self.url, partition_of(ONE.encode(), PARTITIONS), self.rules)
        self.owner.resume(self.steps.newest(self.owner.name))
        self.course = Course(self.owner, self.steps, lambda query, done: None)

    def advance(self) -> None:
        before = self.steps.newest(self.owner.name)
        news = look(self.bus, [self.course.awaits()], Lives())
        planned = self.course.take(news)
        assert planned is not None
        self.course._unwritten.must_be_written()
        self.course.run(planned, news.few_records)
        assert commit([self.course]) and self.steps.newest(self.owner.name) != before

    def trade(self, number: int, price: float) -> None:
        feed.trades(self.bus, ONE, number, prices=[price])
        self.advance()

    @property
    def notes(self) -> int:
        """Since the last whole state."""
        pointer = StateStore(self.bus, "q", STATE_PREFIX).pointer(self.owner.owner)
        return len(pointer.to(pointer.newest)) - 1


@pytest.fixture
def task(bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> Iterator[Task]:
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.02)
    monkeypatch.setattr(engine_steps, "_HOLD_SECONDS", 0.0)
    yield Task(bus, redis.url)
    trigger_rows._CACHE.clear()


def test_steps_with_events_write_notes_and_the_bus_keeps_the_records_of_the_state(task: Task) -> None:
    bus, number = task.bus, task.owner.owner
    bus.put(TABLE_SERVING, {TRIGGERS_QUERY: b"q"})
    register(bus, "a", IN_ORDER, ONE)
    task.advance()
    for count in (1, 2, 3):
        task.trade(count, float(count))
        assert task.notes == count
    newest = task.steps.newest(task.owner.name)
    assert next_step(task.owner, newest, written=newest) is None
    assert bus.holds(bus_topics.TICKS, reader_of(number)) == {number: 0}
    assert held_for_triggers(Settings(), bus, PARTITIONS)[number] == 3
    task.restart()
    task.trade(4, 4.0)
    assert bus.holds(bus_topics.TICKS, reader_of(number)) == {number: 0}
    pairs = [(row["before"], row["price"]) for event in feed.events(bus, "a") for row in rows(event)]
    assert pairs == [(None, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]


@pytest.mark.parametrize("bounds", [(2, 99, 1 << 20), (99, 2, 1 << 20), (99, 99, 150)], ids=["notes", "steps", "bytes"])
@pytest.mark.parametrize(("name", "price"), [("_MOST", 9.0), ("_ENOUGH", 1.0)], ids=["events", "no events"])
def test_the_state_is_stored_whole_after_some_notes(
    task: Task, monkeypatch: pytest.MonkeyPatch, bounds: tuple[int, int, int], name: str, price: float
) -> None:
    monkeypatch.setattr(trigger_rows, name, bounds)
    register(task.bus, "a", f"SELECT price FROM ({IN_ORDER}) WHERE price > 5", ONE)
    task.advance()
    counts = []
    for number in range(1, 10):
        task.trade(number, price)
        counts.append(task.notes)
    assert counts == [1, 2, 0] * 3
    task.trade(10, price)
    assert task.bus.holds(bus_topics.TICKS, reader_of(task.owner.owner)) == {task.owner.owner: 9}
    assert len(task.bus.items(f"{STATE_PREFIX}:q")) < 20


def test_the_state_is_stored_whole_where_records_are_not_enough(task: Task) -> None:
    bus, task.rules = task.bus, replace(RULES, kept_partitions=1)
    task.restart()
    register(bus, "a", "price > 0", ONE)
    task.advance()
    task.trade(1, 1.0)
    assert task.notes == 1
    register(bus, "b", "price > 0", ONE)
    task.advance()
    assert task.notes == 0, "a registration"
    task.trade(2, 2.0)
    assert task.notes == 1
    bus.publish(bus_topics.TICKS, [Record(b"?", partition=task.owner.owner)])
    task.advance()
    assert task.notes == 0, "a refused record"
    task.trade(3, 3.0)
    assert task.notes == 1
    by_price = "PARTITION BY price ORDER BY ts MEASURES A.price AS a PATTERN (A B) DEFINE B AS B.price > 0"
    register(bus, "c", f"SELECT * FROM ticks MATCH_RECOGNIZE ({by_price})", ONE)
    task.advance()
    task.trade(4, 4.0)
    task.trade(5, 5.0)
    assert task.notes == 2
    task.trade(6, 6.0)
    assert task.notes == 0, "a suspension"
    task.restart()
    task.trade(7, 7.0)
    assert seen(bus, "a") == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
    assert seen(bus, "b") == [2.0, 3.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize("is_written", [True, False], ids=["at once", "later"])
def test_a_step_of_nothing_but_a_refused_record_is_done_once_it_is_written(task: Task, *, is_written: bool) -> None:
    register(task.bus, "a", "price > 0", ONE)
    task.advance()
    task.trade(1, 1.0)
    elsewhere = tick_columns.encode(feed.columns(OTHER, 1, [1.0]))
    task.bus.publish(bus_topics.TICKS, [Record(elsewhere, partition=task.owner.owner)])
    if not is_written:
        before = task.steps.newest(task.owner.name)
        planned = task.course.take(look(task.bus, [task.course.awaits()], Lives()))
        assert planned is not None
        task.course.run(planned, {})
        assert commit([task.course]) and task.steps.newest(task.owner.name) == before
        task.course._unwritten.must_be_written()
    task.advance()
    assert task.owner.is_done(task.steps.newest(task.owner.name)) and not task.course.is_due


def test_an_owner_without_triggers_plans_nothing_and_keeps_no_record(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.02)
    idle, steps = owner(redis.url, partition_of(ONE.encode(), PARTITIONS)), Steps(bus, "q")
    feed.trades(bus, ONE, 1, prices=[1, 2, 3])
    step = steps.newest(idle.name)
    assert next_step(idle, step) is None
    assert bus.holds(bus_topics.TICKS, reader_of(idle.owner)) == {idle.owner: 1}
    register(bus, "a", "price > 0", ONE)
    planned = next_step(idle, step)
    assert planned is not None and planned.start[bus_topics.TICKS] == planned.end[bus_topics.TICKS] == {idle.name: 1}
    step = steps.advance(idle.name, step, planned)
    idle.run(step)
    feed.trades(bus, ONE, 4, prices=[4, 5])
    following = next_step(idle, step)
    assert following is not None
    idle.run(steps.advance(idle.name, step, following))
    assert [row["price"] for event in feed.events(bus, "a") for row in rows(event)] == [4, 5]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(*) AS n FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '10' SECOND)",
        "SELECT COUNT(*) AS n FROM ticks GROUP BY ticker, SESSION(ts, INTERVAL '10' SECOND)",
        """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS n
           PATTERN (A+) WITHIN INTERVAL '10' SECOND DEFINE A AS price > 0)""",
    ],
    ids=["window", "session", "within"],
)
def test_the_exchanges_clock_alone_ends_what_waits_for_it_within_a_tenth_of_a_second(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
    cache = OwnCache()
    monkeypatch.setattr(trigger_rows, "_CACHE", cache)
    partition = partition_of(ONE.encode(), PARTITIONS)
    took = []
    with served(bus, {"triggers": "q"}, cache, chains=[partial(alone, redis.url, partition)]):
        register(bus, "t", sql, ONE)
        wait_for(lambda: feed.progress(bus) or None)
        for number in range(1, 11):
            feed.trades(bus, ONE, 100 * number, prices=[5])
            feed.clock(bus, ONE, 100 * number + 50, sequence=number)
            published_at = time.monotonic()
            assert bus.wait({(bus_topics.TRIGGER_EVENTS, partition): number - 1}, 20)
            took.append(time.monotonic() - published_at)
    assert len(feed.events(bus, "t")) == 10
    # The machine may be busy, but no pause is part of the way.
    assert min(took) < 0.1


def test_a_silence_is_noticed_when_it_is_due(bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the next full second of the clock."""
    cache = OwnCache()
    monkeypatch.setattr(trigger_rows, "_CACHE", cache)
    chains = [partial(alone, redis.url, partition_of(ONE.encode(), PARTITIONS))]
    with served(bus, {"triggers": "q"}, cache, chains=chains):
        register(bus, "d", "FALSE", ONE, deadman_seconds="1.3")
        (event,) = wait_for(lambda: feed.first_events(bus, 1, "d"))
    (row,) = rows(event)
    assert 1.3 <= row["silent_seconds"] < 1.9


def test_a_step_of_a_version_that_read_no_events_is_continued(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.02)
    one, steps = owner(redis.url, partition_of(ONE.encode(), PARTITIONS)), Steps(bus, "q")
    register(bus, "a", "price > 0", ONE)
    planned = next_step(one, steps.newest(one.name))
    assert planned is not None
    start, end = (
        {topic: own for topic, own in places.items() if topic != bus_topics.TRIGGER_EVENTS}
        for places in (planned.start, planned.end)
    )
    step = steps.advance(one.name, steps.newest(one.name), replace(planned, start=start, end=end))
    one.run(step)
    feed.trades(bus, ONE, 1, prices=[1])
    following = next_step(one, step)
    assert following is not None and bus_topics.TRIGGER_EVENTS in following.end
    one.run(steps.advance(one.name, step, following))
    assert [row["price"] for event in feed.events(bus, "a") for row in rows(event)] == [1]


def test_an_owner_that_resumes_has_its_state_before_the_first_record(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.02)
    trigger_rows._CACHE.clear()
    one, steps = owner(redis.url, partition_of(ONE.encode(), PARTITIONS)), Steps(bus, "q")

    def advanced(before: Step) -> Step:
        planned = next_step(one, before)
        assert planned is not None
        return steps.advance(one.name, before, planned)

    step = steps.newest(one.name)
    one.resume(step)
    assert not trigger_rows._CACHE, "nothing has been saved that could be read"
    register(bus, "a", "price > 0", ONE)
    step = advanced(step)
    one.run(step)
    for number, was_done in ((1, True), (2, False)):
        if not was_done:
            feed.trades(bus, ONE, number, prices=[number])
            step = advanced(step)
        trigger_rows._CACHE.clear()
        one.resume(step)
        with monkeypatch.context() as patched:
            # Called again, it would fail.
            patched.setattr(trigger_rows, "_resume", None)
            if was_done:
                feed.trades(bus, ONE, number, prices=[number])
                step = advanced(step)
            one.run(step)
    assert [row["price"] for event in feed.events(bus, "a") for row in rows(event)] == [1, 2]


def test_an_outdated_process_carries_out_the_step_that_the_other_planned(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.02)
    number, steps = partition_of(ONE.encode(), PARTITIONS), Steps(bus, "q")
    register(bus, "a", "price > 0", ONE)
    one, other = owner(redis.url, number), owner(redis.url, number)
    planned = next_step(one, steps.newest(one.name))
    assert planned is not None
    first = steps.advance(one.name, steps.newest(one.name), planned)
    one.run(first)
    feed.trades(bus, ONE, 1, prices=[1])
    early = next_step(one, first)
    feed.trades(bus, ONE, 2, prices=[2])
    late = next_step(other, first)
    assert early is not None and late is not None and early.end != late.end
    assert steps.advance(one.name, first, early) == early
    assert steps.advance(one.name, first, late) == early
    one.run(early)
    trigger_rows._CACHE.clear()
    other.run(early)
    assert [row["price"] for event in feed.events(bus, "a") for row in rows(event)] == [1]


def test_a_record_that_cannot_be_processed_costs_no_record_before_it(
    bus: Bus, redis: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps before it had no results, and so are not on the bus yet."""
    process = TriggerPartition.process

    def picky(live: TriggerPartition, ticks: Sequence[bytes], *others: Any, **named: Any) -> TriggerOutput:
        if any(13 in tick_columns.decode(value).price for value in ticks):
            raise ArithmeticError("surprise")
        return process(live, ticks, *others, **named)

    monkeypatch.setattr(TriggerPartition, "process", picky)
    monkeypatch.setattr(engine_steps, "UNWRITTEN_SECONDS", 60.0)
    monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.2)
    one, steps = owner(redis.url, partition_of(ONE.encode(), PARTITIONS)), Steps(bus, "q")
    stopping = threading.Event()
    arguments: dict[str, Any] = {"on_done": lambda query, done: None}
    task = threading.Thread(target=serve, args=([one], {"triggers": steps}, stopping), kwargs=arguments)
    task.start()
    try:
        register(bus, "v", V_SHAPE, ONE)
        wait_for(lambda: feed.progress(bus) or None)
        written = steps.newest(one.name)
        for number in (1, 2, 3):
            feed.trades(bus, ONE, number, prices=[6 - number])
            wait_for(lambda end=number: one._at.get(bus_topics.TICKS) == {one.name: end} or None)  # type: ignore[misc]
        assert steps.newest(one.name) == written
        feed.trades(bus, ONE, 4, prices=[13])
        feed.trades(bus, ONE, 5, prices=[6, 5])
        feed.wait_for_events(bus, 1, "v", timeout=20)
    finally:
        stopping.set()
        task.join()
        trigger_rows._CACHE.clear()
    assert [(row["top"], row["bottom"]) for event in feed.events(bus, "v") for row in rows(event)] == [(5, 3)]
    assert [letter.reason for _, letter in kept(bus)] == ["ArithmeticError: surprise"]
