"""Bars and the triggers over them in one pass: handed over in memory, each there once, whichever process dies."""

import itertools
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from bus import Bus, Record, StoredRecord, Swap
from bus import topics as bus_topics
from bus.api import TopicPartition, partition_of
from bus.embedded import EmbeddedRedis
from bus.redis_bus import RedisBus
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.grid import SECOND
from core.settings import Settings
from flink_replacement_spark.cep import evaluate
from flink_replacement_spark.engine import bus_source
from flink_replacement_spark.engine.handover import Handover
from flink_replacement_spark.engine.serving import Owner, Step, Steps
from flink_replacement_spark.engine.writes import Together
from flink_replacement_spark.live import journal as live_journal
from flink_replacement_spark.live import rows as live_rows
from flink_replacement_spark.live import served as live_served
from flink_replacement_spark.live.served import LiveOwner, LiveTimes
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers import served as trigger_served
from flink_replacement_spark.triggers import state as trigger_state
from flink_replacement_spark.triggers.served import TriggerOwner
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import wait_for
from tests.flink_replacement_spark.serving import Deaths, OwnCache, pause, served
from tests.flink_replacement_spark.trigger_batches import ONE, OTHER, PARTITIONS, bus_for_triggers, register, seen
from tests.flink_replacement_spark.trigger_feed import T0
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.triggers.trigger_records import V_SHAPE, rows
from triggers.check import TriggerRules
from triggers.partition import TriggerOutput, TriggerPartition

pytestmark = pytest.mark.timeout(60)

TIMES = LiveTimes(0, 3_600 * SECOND, 10**9 * SECOND, 20_000)
RULES = TriggerRules(partitions=PARTITIONS)
FIVE = {"period_seconds": "5"}


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[Bus]:
    with bus_for_triggers(redis.url) as bus:
        bus.create_topic(bus_topics.TICK_ROWS, PARTITIONS)
        yield bus


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch) -> OwnCache:
    cache = OwnCache()
    for module in (live_rows, trigger_rows):
        monkeypatch.setattr(module, "_CACHE", cache)
    for module in (live_served, trigger_served):
        monkeypatch.setattr(module, "WAIT_SECONDS", 0.2)
    return cache


class Told:
    """How many steps of triggers took what was handed over, and how many of them bars."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.steps = self.bars = 0
        told = TriggerOwner._told

        def counting(owner: TriggerOwner, *arguments: Any, **named: Any) -> Step | None:
            step = told(owner, *arguments, **named)
            if step is not None:
                self.steps += 1
                self.bars += step.start[bus_topics.OHLC] != step.end[bus_topics.OHLC]
            return step

        monkeypatch.setattr(TriggerOwner, "_told", counting)


def processes(url: str, count: int) -> list[Callable[[], Owner]]:
    """Each serves both owners of all partitions, and the joint one."""
    made: list[Callable[[], Owner]] = []
    for _ in range(count):
        for number in range(PARTITIONS):
            handover = Handover()
            leader = LiveOwner(url, "live", number, TIMES, handover)
            follower = TriggerOwner(url, "triggers", number, RULES, Settings(), handover)
            made += [lambda own=leader: replace(own), lambda own=follower: replace(own)]  # type: ignore[misc]
        joint = TriggerOwner(url, "triggers", PARTITIONS, RULES, Settings())
        made.append(lambda own=joint: replace(own))  # type: ignore[misc]
    return made


def want_five(bus: Bus, *tickers: str) -> None:
    for ticker in tickers:
        mark = records.TickMark(ticker=ticker, wanted=records.Wanted(period_seconds=[5]))
        bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), key=ticker.encode())])


def bars(bus: Bus, ticker: str, period: int) -> list[OHLCV]:
    found = []
    for partition in range(PARTITIONS):
        for record in bus.read(bus_topics.OHLC, partition, 0, max_records=100_000):
            bar = OHLCV.FromString(record.value)
            if (bar.ticker, bar.period_seconds) == (ticker, period):
                found.append(bar)
    return found


def is_taken(bus: Bus, ticker: str) -> bool:
    """Whether triggers have seen all trades and bars of its partition."""
    partition = partition_of(ticker.encode(), PARTITIONS)
    end = Steps(bus, "triggers").newest(str(partition)).end
    ends = bus.states([bus_topics.TICKS, bus_topics.OHLC])
    return all(end[topic][str(partition)] == own[partition].end for topic, own in ends.items())


def test_triggers_over_bars_read_no_bar_from_the_bus(
    bus: Bus, redis: EmbeddedRedis, cache: OwnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, read = Told(monkeypatch), bus_source.read_range
    topics = Counter[str]()

    def counting(bus: Bus, topic: str, *place: int) -> Iterator[list[StoredRecord]]:
        topics[topic] += 1
        return read(bus, topic, *place)

    with served(bus, cache, processes(redis.url, 1), threads_each=1):
        want_five(bus, ONE)
        offset = register(bus, "bars", "close > 0", ONE, **FIVE)
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        feed.trades(bus, ONE, 1, [1])
        wait_for(lambda: told.steps or feed.trades(bus, ONE, 2, [2]))
        monkeypatch.setattr(trigger_rows, "read_range", counting)
        for number in range(7, 63, 5):
            feed.trades(bus, ONE, number, [number])
            feed.wait_for_events(bus, number // 5, "bars", timeout=20)
    made = bars(bus, ONE, 5)
    assert seen(bus, "bars", "close") == [bar.close for bar in made] and len(made) == 12
    # Its own look every second may come first.
    assert told.bars >= 8 and topics[bus_topics.OHLC] <= 4


def test_a_slow_trigger_keeps_no_bar_waiting_and_gets_them_all(
    bus: Bus, redis: EmbeddedRedis, cache: OwnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluated, may_go_on = trigger_rows._process, threading.Event()

    def slow(live: TriggerPartition, read: Sequence[StoredRecord], *arguments: Any) -> TriggerOutput:
        if any(record.topic == bus_topics.TICKS for record in read):
            may_go_on.wait(20)
        return evaluated(live, read, *arguments)

    with served(bus, cache, processes(redis.url, 1), threads_each=1):
        want_five(bus, ONE)
        offset = register(bus, "bars", "close > 0", ONE, **FIVE)
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        monkeypatch.setattr(trigger_rows, "_process", slow)
        for place, number in enumerate((1, 7, 13, 19)):
            feed.trades(bus, ONE, number, [number])
            wait_for(lambda place=place: len(bars(bus, ONE, 5)) >= place or None, 10)  # type: ignore[misc]
        assert not feed.events(bus, "bars")
        may_go_on.set()
        feed.wait_for_events(bus, 3, "bars", timeout=20)
    assert seen(bus, "bars", "close") == [1, 7, 13]


def test_bars_of_others_are_neither_passed_over_nor_taken_for_those_handed_over(
    bus: Bus, redis: EmbeddedRedis, cache: OwnCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is published between the look at the topic and the commit of the platform's own bar."""
    told, where = Told(monkeypatch), Together.commit_where
    foreign = itertools.count(1)

    def late(together: Together, plans: Sequence[Swap], ends: Mapping[TopicPartition, int]) -> bool:
        if (number := next(foreign)) % 2:
            bar = OHLCV(open_time=T0 + number * SECOND, period_seconds=1, ticker=ONE, close=number, complete=True)
            bar.open = bar.high = bar.low = bar.close
            bus.publish(bus_topics.OHLC, [Record(bar.SerializeToString(), key=ONE.encode())])
        return where(together, plans, ends)

    monkeypatch.setattr(Together, "commit_where", late)
    with served(bus, cache, processes(redis.url, 1), threads_each=1):
        want_five(bus, ONE)
        register(bus, "foreign", "close > 0", ONE, period_seconds="1")
        offset = register(bus, "bars", "close > 0", ONE, **FIVE)
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        for number in range(7, 63, 5):
            feed.trades(bus, ONE, number, [number])
            feed.wait_for_events(bus, (number - 7) // 5, "bars", timeout=20)
        own = bars(bus, ONE, 1)
        feed.wait_for_events(bus, len(own), "foreign", timeout=20)
    assert seen(bus, "bars", "close") == [bar.close for bar in bars(bus, ONE, 5)]
    assert seen(bus, "foreign", "close") == [bar.close for bar in own] and len(own) > 3 and told.bars > 2


@pytest.mark.parametrize("rivals", [1, 2])
def test_bars_and_events_are_each_there_once_whoever_dies(
    bus: Bus, redis: EmbeddedRedis, cache: OwnCache, monkeypatch: pytest.MonkeyPatch, rivals: int
) -> None:
    deaths, chance, told = Deaths(often=0), random.Random(7), Told(monkeypatch)
    for place, name in (
        (trigger_rows, "publish_events"),
        (trigger_state.PartStore, "save"),
        (live_rows, "_publish_chunk"),
        (live_journal.Journal, "keep"),
        (RedisBus, "commit"),
    ):
        monkeypatch.setattr(place, name, deaths.around(getattr(place, name)))
    prices, others = walk(3, 300), walk(4, 300)
    with served(bus, cache, processes(redis.url, rivals), threads_each=1):
        want_five(bus, ONE, OTHER)
        register(bus, "v", V_SHAPE, ONE)
        register(bus, "echo", "SELECT event_id FROM trigger_events WHERE trigger_id = 'bars'")
        offset = register(bus, "bars", "close > 0", ONE, OTHER, **FIVE)
        wait_for(lambda: feed.is_carried_out(bus, offset) or None)
        deaths.often = 8
        first = 0
        while first < len(prices):
            count = chance.randint(1, 9)
            feed.trades(bus, ONE, 1 + first, prices[first : first + count])
            pause(chance)
            feed.trades(bus, OTHER, 1 + first, others[first : first + count])
            pause(chance)
            first += count
            if rivals == 1 and first % 3 == 0:
                wait_for(lambda: is_taken(bus, OTHER) or None, 20)
        for ticker in (ONE, OTHER):
            feed.clock(bus, ticker, 10_000, len(prices))
        expected = evaluate(V_SHAPE, table_of(ONE, 1, prices)).to_pylist()
        # Trades are at seconds 1 to 300.
        for trigger_id, number in (("v", len(expected)), ("bars", 122), ("echo", 122)):
            feed.wait_for_events(bus, number, trigger_id, timeout=40)
    # Rivals mostly find that the other one has gone on.
    assert deaths.count > 10 and told.bars > (5 if rivals == 1 else 0)
    assert [row for event in feed.events(bus, "v") for row in rows(event)] == expected
    for ticker, own in ((ONE, prices), (OTHER, others)):
        made = bars(bus, ticker, 5)
        assert [bar.sequence for bar in made] == list(range(1, 62)) and not any(bar.revision for bar in made)
        assert [bar.close for bar in made] == [own[min(300, place) - 1] for place in range(4, 305, 5)]
        fired = [row for event in feed.events(bus, "bars") for row in rows(event) if row["ticker"] == ticker]
        assert [row["close"] for row in fired] == [bar.close for bar in made]
    ids = sorted(event.context["event_id"] for event in feed.events(bus, "bars"))
    assert sorted(seen(bus, "echo", "event_id")) == ids and len(set(ids)) == len(ids)
    for trigger_id in ("v", "bars", "echo"):
        numbers = [int(event.context["sequence"]) for event in feed.events(bus, trigger_id)]
        assert numbers == list(range(1, len(numbers) + 1))
