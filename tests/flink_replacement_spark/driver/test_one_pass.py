"""Bars and triggers in one pass: results are those of each alone, and neither harms the other."""

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from bus import Record, SequenceStamp, Swap, TopicPartition
from bus import topics as bus_topics
from bus.api import partition_of
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BusFull
from candlewright.wire.grid import SECOND
from core.settings import Settings
from flink_replacement_spark.cep import evaluate
from flink_replacement_spark.engine import serving
from flink_replacement_spark.engine import steps as engine_steps
from flink_replacement_spark.engine.serving import Chain, serve
from flink_replacement_spark.engine.steps import Done, Step, Steps
from flink_replacement_spark.live import journal as live_journal
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live import served as live_served
from flink_replacement_spark.live.served import LIVE_QUERY, LiveOwner, LiveTimes
from flink_replacement_spark.live.tick_rows import rows_of_trades
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers import served as trigger_served
from flink_replacement_spark.triggers import store as trigger_store
from flink_replacement_spark.triggers.served import TRIGGERS_QUERY, TriggerOwner
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.serving import Deaths, OwnCache, pause, served
from tests.flink_replacement_spark.trigger_batches import register
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.fresh_bus import FreshBus
from tests.triggers.trigger_records import V_SHAPE, rows
from triggers.partition import TriggerOutput, TriggerPartition
from triggers.texts.check import TriggerRules

pytestmark = pytest.mark.timeout(120)

PARTITIONS = 2
#: In different partitions; `FOREIGN` is in that of `ONE`.
ONE, OTHER, FOREIGN = "A/U.X", "B/U.X", "C/U.X"
TIMES = LiveTimes(0, 3_600 * SECOND, 10**9 * SECOND, 20_000)
RULES = TriggerRules(partitions=PARTITIONS)
IDS = {LIVE_QUERY: "bars", TRIGGERS_QUERY: "events"}
LAST_BAR = """SELECT t.ts_ns, t.price, o.close FROM ticks t ASOF JOIN ohlc o
  ON t.ticker = o.ticker AND t.ts >= o.close_time"""


def partition(ticker: str) -> int:
    return partition_of(ticker.encode(), PARTITIONS)


def live_bus() -> FreshBus:
    bus = FreshBus(PARTITIONS)
    for topic in (*live_served.TOPICS, bus_topics.OHLC, bus_topics.TICK_ROWS, bus_topics.TRIGGER_EVENTS):
        bus.create_topic(topic, PARTITIONS)
    for topic in (bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_PROGRESS, bus_topics.FUNCTION_ROWS):
        bus.create_topic(topic, 1)
    return bus


def live_owner(bus: FreshBus, number: int) -> LiveOwner:
    return LiveOwner(bus.url, IDS[LIVE_QUERY], number, TIMES)


def trigger_owner(bus: FreshBus, number: int) -> TriggerOwner:
    return TriggerOwner(url=bus.url, query_id=IDS[TRIGGERS_QUERY], owner=number, rules=RULES, settings=Settings())


def chain_of(bus: FreshBus, number: int) -> Chain:
    if number == PARTITIONS:
        return [trigger_owner(bus, number)]
    return [live_owner(bus, number), trigger_owner(bus, number)]


def want(bus: FreshBus, ticker: str, *periods: int) -> None:
    wanted = records.TickMark(ticker=ticker, wanted=records.Wanted(ticks=True, period_seconds=periods))
    bus.publish(bus_topics.TICK_MARKS, [Record(wanted.SerializeToString(), ticker.encode())])


def bars(bus: FreshBus, ticker: str) -> list[OHLCV]:
    found = bus.read(bus_topics.OHLC, partition(ticker), 0, max_records=100_000)
    return [bar for record in found if (bar := OHLCV.FromString(record.value)).ticker == ticker]


def stored_ids(bus: FreshBus, ticker: str) -> list[int]:
    """The trades for the table."""
    found = bus.read(bus_topics.TICK_ROWS, partition(ticker), 0, max_records=100_000)
    if not found:
        return []
    table = rows_of_trades(found)
    pairs = zip(table["ticker"].to_pylist(), table["trade_id"].to_pylist(), strict=True)
    return [int(trade_id) for name, trade_id in pairs if name == ticker]


def told(bus: FreshBus, trigger_id: str) -> list[tuple[str, list[dict[str, Any]]]]:
    """Numbers and rows of its events, each of which has an id of its own."""
    found = feed.events(bus, trigger_id)
    assert len({event.context["event_id"] for event in found}) == len(found)
    return [(event.context["sequence"], rows(event)) for event in found]


# ---- the same results
COUNT = 300
TRIGGERS = ("shape", "any", "bar", "second", "both")


def trade(bus: FreshBus, prices: Mapping[str, Sequence[float]], chance: random.Random | None) -> None:
    """Publish all trades, cut and paused at random places, and the clocks that end the last bars."""
    first = 0
    while first < COUNT:
        end = first + (chance.randint(1, 12) if chance else 10)
        for ticker, own in prices.items():
            feed.trades(bus, ticker, 1 + first, prices=own[first:end])
            if chance:
                pause(chance)
                bus.trim(bus_topics.TICKS, keep_seconds=0)
        if chance and chance.random() < 0.2:
            feed.clock(bus, ONE, min(end, COUNT), sequence=min(end, COUNT))
        first = end
    for ticker in prices:
        feed.clock(bus, ticker, 10_000, sequence=COUNT)


def set_up(bus: FreshBus) -> None:
    for ticker in (ONE, OTHER):
        want(bus, ticker, 5, 60)
    register(bus, "shape", V_SHAPE, ONE)
    register(bus, "any", "price > 0", OTHER)
    register(bus, "bar", "close > 0", ONE, period_seconds="60")
    register(bus, "second", "volume > 0", OTHER, period_seconds="5")
    offset = register(bus, "both", LAST_BAR, ONE, period_seconds="60")
    wait_for(lambda: feed.is_carried_out(bus, offset) or None)


def expected_closes(bus: FreshBus, prices: Sequence[float]) -> list[float]:
    """For each trade of ONE that follows a minute, the close of the last one."""
    ends = {bar.open_time + 60 * SECOND: bar.close for bar in bars(bus, ONE) if bar.period_seconds == 60}
    times = [feed.T0 + number * SECOND for number in range(1, 1 + len(prices))]
    return [ends[max(end for end in ends if end <= at)] for at in times if at >= min(ends)]


def test_bars_and_events_are_those_of_separate_passes_whichever_task_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    cache, deaths, chance = OwnCache(), Deaths(often=0), random.Random(8)
    for rows_module in (live_rows, trigger_rows):
        monkeypatch.setattr(rows_module, "_CACHE", cache)
    for served_module in (live_served, trigger_served):
        monkeypatch.setattr(served_module, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(live_journal, "MAX_NOTES", 5)
    monkeypatch.setattr(trigger_rows, "_MOST", (4, 8, 1 << 20))
    monkeypatch.setattr(trigger_rows, "_ENOUGH", (2, 4, 1 << 20))
    for home, name in (
        (live_rows, "_publish_chunk"),
        (live_journal.Journal, "keep"),
        (trigger_rows, "publish_events"),
        (trigger_store.PartStore, "save"),
        (trigger_store.PartStore, "note"),
    ):
        monkeypatch.setattr(home, name, deaths.around(getattr(home, name)))
    prices = {ONE: walk(3, COUNT), OTHER: walk(4, COUNT)}
    shapes = evaluate(V_SHAPE, table_of(ONE, 1, prices[ONE])).to_pylist()

    alone = live_bus()
    separate: list[Callable[[], Chain]] = [
        *(lambda number=number: [live_owner(alone, number)] for number in range(PARTITIONS)),
        *(lambda number=number: [trigger_owner(alone, number)] for number in range(PARTITIONS + 1)),
    ]
    with served(alone, IDS, cache, chains=separate):
        set_up(alone)
        trade(alone, prices, None)
        counts = {"shape": len(shapes), "any": COUNT, "bar": COUNT // 60 + 1, "second": COUNT // 5 + 1}
        for trigger_id, count in counts.items():
            feed.wait_for_events(alone, count, trigger_id, timeout=30)
        closes = expected_closes(alone, prices[ONE])
        counts["both"] = len(closes)
        found = feed.wait_for_events(alone, len(closes), "both", timeout=30)
        assert [row["close"] for event in found for row in rows(event)] == closes
    assert [row for event in feed.events(alone, "shape") for row in rows(event)] == shapes

    bus = live_bus()
    with served(bus, IDS, cache, chains=[partial(chain_of, bus, number) for number in range(PARTITIONS + 1)]):
        set_up(bus)
        deaths.often = 8
        trade(bus, prices, chance)
        for trigger_id, count in counts.items():
            feed.wait_for_events(bus, count, trigger_id, timeout=60)
        wait_for(lambda: all(len(stored_ids(bus, ticker)) >= COUNT for ticker in prices) or None)
    assert deaths.count > 10
    for trigger_id in TRIGGERS:
        assert told(bus, trigger_id) == told(alone, trigger_id)
    for ticker in prices:
        assert sorted(stored_ids(bus, ticker)) == list(range(1, COUNT + 1))
        made = [bar.SerializeToString() for bar in bars(bus, ticker)]
        assert sorted(made) == sorted(bar.SerializeToString() for bar in bars(alone, ticker))


# ---- one pass
@dataclass(kw_only=True)
class Task:
    """Serves the chain of a partition, and notes in `log` what happens in which order: `live` and `triggers` when the
    owner runs, and the topics of each commit with records.
    """

    bus: FreshBus
    monkeypatch: pytest.MonkeyPatch
    number: int = 0
    log: list[str | frozenset[str]] = field(default_factory=list)
    #: The `ends` of each call of `bus.commit`.
    ends: list[Mapping[TopicPartition, int]] = field(default_factory=list)
    #: The bars of the steps of triggers that were written.
    evaluated: list[bytes] = field(default_factory=list)
    #: Where steps of triggers ran.
    threads: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        commit, run_live, run_triggers = self.bus.commit, LiveOwner.run, TriggerOwner.run
        process = TriggerPartition.process
        # By thread, the bars of the newest step.
        taken: dict[str, list[bytes]] = defaultdict(list)

        def commit_noted(
            swaps: Sequence[Swap],
            appended: Mapping[str, Sequence[Record]],
            *,
            ends: Mapping[TopicPartition, int] | None = None,
        ) -> bool:
            self.ends.append(ends or {})
            self.before_commit()
            is_done = commit(swaps, appended, ends=ends)
            if is_done and any(appended.values()):
                self.log.append(frozenset(topic for topic, own in appended.items() if own))
            if is_done and any(swap.table == f"steps:{IDS[TRIGGERS_QUERY]}" for swap in swaps):
                self.evaluated += taken.pop(threading.current_thread().name, [])
            return is_done

        def run_live_noted(owner: LiveOwner, step: Step, *others: Any) -> Done:
            self.log.append("live")
            return run_live(owner, step, *others)

        def run_triggers_noted(owner: TriggerOwner, step: Step, *others: Any) -> Done:
            self.threads.append(threading.current_thread().name)
            taken.pop(self.threads[-1], None)
            self.before_triggers()
            self.log.append("triggers")
            done = run_triggers(owner, step, *others)
            # Before them, bars of earlier steps were read again, if the state had to be read.
            mine = step.end[bus_topics.OHLC][owner.name] - step.start[bus_topics.OHLC][owner.name]
            taken[self.threads[-1]] = taken[self.threads[-1]][-mine:] if mine else []
            return done

        def process_noted(
            live: TriggerPartition, ticks: Sequence[bytes], found: Sequence[bytes], *others: Any, **named: Any
        ) -> TriggerOutput:
            taken[threading.current_thread().name] += found
            return process(live, ticks, found, *others, **named)

        self.monkeypatch.setattr(self.bus, "commit", commit_noted)
        self.monkeypatch.setattr(LiveOwner, "run", run_live_noted)
        self.monkeypatch.setattr(TriggerOwner, "run", run_triggers_noted)
        self.monkeypatch.setattr(TriggerPartition, "process", process_noted)
        self.monkeypatch.setattr(live_rows, "_CACHE", {})
        self.monkeypatch.setattr(trigger_rows, "_CACHE", {})
        self.monkeypatch.setattr(live_served, "WAIT_SECONDS", 0.1)
        self.monkeypatch.setattr(trigger_served, "WAIT_SECONDS", 0.1)

    def before_triggers(self) -> None:
        """Called in each step of the triggers."""

    def before_commit(self) -> None:
        """Called in each call of `bus.commit`."""

    @contextmanager
    def serving(self, chain: Chain | None = None) -> Iterator[None]:
        steps = {query: Steps(self.bus, query_id) for query, query_id in IDS.items()}
        served_chain = chain or chain_of(self.bus, self.number)
        first = served_chain[0]
        first.resume(steps[first.query].newest(first.name))

        def run(stopping: threading.Event) -> None:
            serve(
                served_chain,
                steps,
                stopping,
                on_done=lambda query, done: None,
                on_problem=lambda owner, problem: self.problems.append(problem),
            )

        with feed.beside("chain", run):
            yield

    def register(self, trigger_id: str, sql: str, *tickers: str, **parameters: str) -> None:
        offset = register(self.bus, trigger_id, sql, *tickers, **parameters)
        wait_for(lambda: any(said.controls_end > offset for said in feed.progress(self.bus)) or None)
        # A registration is carried out apart.
        wait_for(lambda: not [each for each in threading.enumerate() if each.name.startswith("triggers-")] or None)

    def events(self, count: int, trigger_id: str) -> list[dict[str, Any]]:
        """The rows of its events, of which there are this many."""
        found = [row for event in feed.wait_for_events(self.bus, count, trigger_id, timeout=30) for row in rows(event)]
        assert len(found) == count
        assert [int(number) for number, _ in told(self.bus, trigger_id)] == list(range(1, count + 1))
        return found

    def bars(self, count: int) -> list[OHLCV]:
        return wait_for(lambda: found if len(found := bars(self.bus, ONE)) >= count else None, 30)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Task:
    # On a busy machine, any step may take long.
    monkeypatch.setattr(engine_steps, "_HEAVY_SECONDS", 5.0)
    monkeypatch.setattr(engine_steps, "_HEAVY_FOR_SECONDS", 0.1)
    monkeypatch.setattr(serving, "_APART_SECONDS", 0.02)
    return Task(bus=live_bus(), monkeypatch=monkeypatch)


OF_BOTH = {bus_topics.OHLC, bus_topics.TRIGGER_EVENTS}


def test_a_bar_and_its_event_are_written_in_one_call(task: Task) -> None:
    with task.serving():
        want(task.bus, ONE, 60)
        task.register("bar", "close > 0", ONE, period_seconds="60")
        feed.trades(task.bus, ONE, 1, prices=[5.0])
        wait_for(lambda: task.log.count("live") >= 2 or None)
        task.log.clear()
        feed.trades(task.bus, ONE, 61, prices=[6.0])
        assert [row["close"] for row in task.events(1, "bar")] == [5.0]
    calls = [entry & OF_BOTH for entry in task.log if isinstance(entry, frozenset)]
    assert [topics for topics in calls if topics] == [OF_BOTH]


def test_the_event_of_a_trade_that_closes_no_bar_is_written_before_its_trade_is_counted(task: Task) -> None:
    with task.serving():
        want(task.bus, ONE, 60)
        task.register("any", "price > 0", ONE)
        task.log.clear()
        feed.trades(task.bus, ONE, 1, prices=[1.0])
        task.events(1, "any")
        for number in range(2, 8):
            wait_for(lambda: "live" in task.log or None)
            task.log.clear()
            feed.trades(task.bus, ONE, number, prices=[float(number)])
            task.events(number, "any")
            wait_for(lambda: "live" in task.log or None)
            order = [entry for entry in task.log if "live" in entry or bus_topics.TRIGGER_EVENTS in entry]
            assert order == [frozenset({bus_topics.TRIGGER_EVENTS}), "live"]
        feed.trades(task.bus, ONE, 61, prices=[61.0])
        assert task.bars(1)[0].trade_count == 7
    assert task.events(8, "any")[-1]["price"] == 61.0


def test_trades_that_close_no_bar_are_counted_a_little_later_all_at_once_and_then_nothing_is_done(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, states_after = list[float](), task.bus.states_after

    def look_noted(after: Mapping[TopicPartition, int], seconds: float, **named: Any) -> object:
        looks.append(seconds)
        return states_after(after, seconds, **named)

    monkeypatch.setattr(task.bus, "states_after", look_noted)
    with task.serving():
        want(task.bus, ONE, 60)
        task.register("any", "price > 0", ONE)
        feed.trades(task.bus, ONE, 1, prices=[1.0])
        task.events(1, "any")
        wait_for(lambda: 1 in stored_ids(task.bus, ONE) or None)
        task.log.clear()
        for number in range(2, 12):
            feed.trades(task.bus, ONE, number, prices=[float(number)])
            task.events(number, "any")
        assert task.log.count("live") < 5
        wait_for(lambda: len(stored_ids(task.bus, ONE)) == 11 or None)
        # What was due has been done by now.
        time.sleep(0.5)
        looks.clear()
        task.log.clear()
        time.sleep(0.5)
        assert len(looks) < 20 and "live" not in task.log
    assert stored_ids(task.bus, ONE) == list(range(1, 12))


# ---- others publish bars to the same partition
def publish_foreign(bus: FreshBus, number: int) -> None:
    price = 1.0 + number
    bar = OHLCV(
        ticker=FOREIGN, period_seconds=60, open_time=feed.T0 + 60 * number * SECOND, open=price, high=price, low=price,
        close=price, volume=1.0, complete=True, source="elsewhere",
    )  # fmt: skip
    stamp = SequenceStamp(f"OHLC:{FOREIGN}:60", tag=b"\x68")
    bus.publish(bus_topics.OHLC, [Record(bar.SerializeToString(), FOREIGN.encode(), sequence=stamp)])


def identity(value: bytes) -> tuple[str, int, int, float]:
    bar = OHLCV.FromString(value)
    return bar.ticker, bar.open_time, bar.revision, bar.close


def test_bars_of_others_are_evaluated_once_in_the_order_of_the_log(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_SHARED_SECONDS", 0.0)
    bus, chance, own, count = task.bus, random.Random(9), random.Random(10), 60
    foreign, turn = iter(range(10_000)), threading.Lock()

    def publish_next() -> None:
        # In the order of their times, because a late bar has no event.
        with turn:
            publish_foreign(bus, next(foreign))

    def interfere() -> None:
        # Between the look at the bus and the call that writes.
        if task.ends[-1] and own.random() < 0.3:
            publish_next()

    with task.serving():
        want(bus, ONE, 60)
        task.register("bar", "close > 0", ONE, FOREIGN, period_seconds="60")
        monkeypatch.setattr(task, "before_commit", interfere)
        for number in range(count):
            feed.trades(bus, ONE, 1 + 60 * number, prices=[100.0 + number])
            pause(chance)
            if chance.random() < 0.6:
                task.bars(number)
            if chance.random() < 0.2:
                publish_foreign(bus, next(foreign))
        assert len(task.bars(count - 1)) == count - 1
        published = next(foreign)
        found = task.events(count - 1 + published, "bar")
    log = [identity(record.value) for record in bus.read(bus_topics.OHLC, 0, 0, max_records=10_000)]
    assert [identity(value) for value in task.evaluated] == log and len(set(log)) == len(log) == count - 1 + published
    assert sorted((row["ticker"], row["open_time"]) for row in found) == sorted(each[:2] for each in log)
    assert published > 10 and len([ends for ends in task.ends if ends]) > 10


def test_bars_are_not_passed_on_for_a_while_after_others_have_published_some(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = iter(range(1))

    def interfere() -> None:
        if task.ends[-1] and (number := next(foreign, None)) is not None:
            publish_foreign(task.bus, number)

    with task.serving():
        want(task.bus, ONE, 60)
        task.register("bar", "close > 0", ONE, FOREIGN, period_seconds="60")
        monkeypatch.setattr(task, "before_commit", interfere)
        for number in range(10):
            feed.trades(task.bus, ONE, 1 + 60 * number, prices=[1.0])
            task.bars(number)
        task.events(10, "bar")
    assert [ends for ends in task.ends if ends] == [{(bus_topics.OHLC, 0): 0}]


# ---- one fails, or takes long
class Minutes:
    """Publishes trades, each of which ends a bar."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.count = 0

    def trade(self, times: int = 1) -> None:
        for _ in range(times):
            feed.trades(self.task.bus, ONE, 1 + 60 * self.count, prices=[1.0 + self.count])
            self.count += 1

    def wait_for_bars(self) -> None:
        self.task.bars(self.count - 1)

    def wait_for_one_pass(self) -> None:
        """Until a bar and its event are written together again."""
        self.task.log.clear()

        def is_one_pass() -> bool | None:
            self.trade()
            time.sleep(0.02)
            return any(entry >= OF_BOTH for entry in self.task.log if isinstance(entry, frozenset)) or None

        wait_for(is_one_pass, 30)

    def check(self) -> None:
        """Each trade has one event, is counted once and stored once, and so is each bar."""
        self.wait_for_bars()
        assert [row["price"] for row in self.task.events(self.count, "any")] == [1.0 + at for at in range(self.count)]
        closes = [row["close"] for row in self.task.events(self.count - 1, "bar")]
        assert (
            closes
            == [bar.close for bar in self.task.bars(self.count - 1)]
            == [1.0 + at for at in range(self.count - 1)]
        )
        assert {bar.trade_count for bar in self.task.bars(1)} == {1}
        ids = stored_ids(self.task.bus, ONE)
        assert ids == [1 + 60 * at for at in range(len(ids))] and len(ids) >= self.count - 1


@pytest.fixture
def trades(task: Task) -> Iterator[Minutes]:
    """The triggers are registered, and have evaluated a trade."""
    found = Minutes(task)
    with task.serving():
        want(task.bus, ONE, 60)
        task.register("any", "price > 0", ONE)
        task.register("bar", "close > 0", ONE, period_seconds="60")
        found.trade(2)
        task.events(2, "any")
        task.events(1, "bar")
    task.threads.clear()
    yield found
    assert not task.problems or not task.problems[-1]


@pytest.mark.parametrize("failing", ["run", "run and resume", "resume at the start"])
def test_bars_continue_while_triggers_fail_and_so_do_the_triggers_later(
    task: Task, trades: Minutes, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    monkeypatch.setattr(serving, "_FIRST_REST_SECONDS", 0.02)
    monkeypatch.setattr(serving, "_MAX_REST_SECONDS", 0.1)
    is_failing, resume = threading.Event(), TriggerOwner.resume

    def fail() -> None:
        if is_failing.is_set():
            raise ValueError("broken")

    def resume_failing(owner: TriggerOwner, step: Step) -> None:
        fail()
        resume(owner, step)

    monkeypatch.setattr(task, "before_triggers", fail)
    if failing != "run":
        monkeypatch.setattr(TriggerOwner, "resume", resume_failing)
    if failing == "resume at the start":
        is_failing.set()
        trigger_rows._CACHE.clear()
    with task.serving():
        trades.trade()
        is_failing.set()
        trades.trade(5)
        trades.wait_for_bars()
        wait_for(lambda: "ValueError: broken" in task.problems or None)
        trades.trade(5)
        trades.wait_for_bars()
        assert len(feed.events(task.bus, "any")) < trades.count
        is_failing.clear()
        trades.wait_for_one_pass()
        trades.check()


def test_bars_do_not_wait_for_heavy_triggers_which_are_in_one_pass_again_once_they_are_light(
    task: Task, trades: Minutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_steps, "_HEAVY_SECONDS", 0.1)
    is_free, is_heavy = threading.Event(), True

    def work() -> None:
        if is_heavy:
            done_at = time.thread_time() + 0.15
            while time.thread_time() < done_at:
                pass
            assert is_free.wait(30)

    monkeypatch.setattr(task, "before_triggers", work)
    is_free.set()
    with task.serving():
        trades.trade()
        wait_for(lambda: "triggers-0" in task.threads or trades.trade(), 30)
        is_free.clear()
        for _ in range(5):
            trades.trade()
            trades.wait_for_bars()
        assert len(feed.events(task.bus, "any")) < trades.count
        is_free.set()
        task.events(trades.count, "any")
        is_heavy = False
        trades.wait_for_one_pass()
        trades.check()


def test_bars_do_not_wait_for_triggers_with_a_backlog(
    task: Task, trades: Minutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    with task.serving([live_owner(task.bus, 0)]):
        trades.trade(1_200)
        trades.wait_for_bars()
    is_free = threading.Event()
    monkeypatch.setattr(task, "before_triggers", lambda: is_free.wait(30))
    with task.serving():
        trades.trade()
        trades.wait_for_bars()
        wait_for(lambda: task.threads or None)
        trades.trade()
        trades.wait_for_bars()
        assert task.threads == ["triggers-0"] and len(feed.events(task.bus, "any")) < 1_000
        is_free.set()
        trades.wait_for_one_pass()
        trades.check()


def test_bars_continue_while_no_event_can_be_published_and_so_do_the_triggers_later(
    task: Task, trades: Minutes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "_FIRST_REST_SECONDS", 0.02)
    monkeypatch.setattr(serving, "_MAX_REST_SECONDS", 0.1)
    commit, is_full = task.bus.commit, threading.Event()

    def commit_unless_full(swaps: Sequence[Swap], appended: Mapping[str, Sequence[Record]], **named: Any) -> bool:
        if is_full.is_set() and appended.get(bus_topics.TRIGGER_EVENTS):
            raise BusFull(bus_topics.TRIGGER_EVENTS, 2, 1)
        return commit(swaps, appended, **named)

    monkeypatch.setattr(task.bus, "commit", commit_unless_full)
    with task.serving():
        trades.wait_for_one_pass()
        task.events(trades.count, "any")
        is_full.set()
        for _ in range(5):
            trades.trade()
            trades.wait_for_bars()
        wait_for(lambda: [problem for problem in task.problems if "BusFull" in problem] or None)
        assert len(feed.events(task.bus, "any")) < trades.count
        is_full.clear()
        trades.wait_for_one_pass()
        trades.check()


def test_triggers_that_are_well_again_do_not_wait_for_news_of_the_bars(
    task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_served, "WAIT_SECONDS", 60.0)
    with task.serving():
        task.register("first", "close > 0", FOREIGN, period_seconds="60")
        publish_foreign(task.bus, 0)
        task.events(1, "first")
        task.register("second", "close > 0", FOREIGN, period_seconds="60")
        publish_foreign(task.bus, 1)
        task.events(1, "second")
        feed.clock(task.bus, ONE, 1, sequence=0)
