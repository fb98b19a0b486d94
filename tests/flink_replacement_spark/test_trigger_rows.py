"""Micro-batches of triggers over a real Redis, without Spark: what Spark does with them is done here by hand."""

from collections.abc import Iterator
from typing import Any

import pytest

from bus import Bus
from bus import topics as bus_topics
from bus.embedded import EmbeddedRedis
from bus.redis_bus import RedisBus
from core.settings import Settings
from flink_replacement_spark import trigger_rows
from flink_replacement_spark.trigger_source import TriggerStreamReader
from protobuf import records_pb2 as records
from protobuf.candlewright_pb2 import TriggerRemove
from tests.flink_replacement_spark import trigger_feed as feed
from tests.triggers.trigger_records import IN_ORDER, V_SHAPE, rows
from triggers.check import TriggerRules

pytestmark = pytest.mark.timeout(60)

PARTITIONS = 5
ONE, OTHER = "BTC/USDT.BINANCE", "ETH/USDT.BINANCE"  # in different ones of the five


class Query:
    """`run` carries out the next micro-batch, `again` the last one a second time, as after a lost commit."""

    settings: Settings | None = None

    def __init__(self, url: str, query_id: str = "q") -> None:
        self.url = url
        self.query_id = query_id
        self.reader = TriggerStreamReader({"url": url, "reader": bus_topics.READER_TRIGGERS, "tasks": "2"})
        self.start = self.end = self.reader.initialOffset()
        self.number = -1

    def run(self) -> list[dict[str, Any]]:
        self.plan()
        return self.again()

    def plan(self) -> None:
        self.reader.commit(self.end)
        self.start = self.end
        while (found := self.reader.latestOffset()) == self.end:
            pass
        self.end = found
        self.number += 1

    def again(self) -> list[dict[str, Any]]:
        trigger_rows._CACHE.clear()
        rules = TriggerRules(partitions=PARTITIONS)
        work = trigger_rows.process(self.url, self.query_id, self.number, rules, self.settings)
        parts = self.reader.partitions(self.start, self.end)
        return [row for part in parts for batch in work(self.reader.read(part)) for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), fsync="no") as server:
        yield server


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[Bus]:
    bus = RedisBus(redis.url)
    bus._store.call("FLUSHALL")
    for topic in (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC, bus_topics.TRIGGER_EVENTS):
        bus.create_topic(topic, PARTITIONS)
    for topic in (bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_PROGRESS):
        bus.create_topic(topic, 1)
    yield bus
    bus.close()


@pytest.fixture
def query(redis: EmbeddedRedis, bus: Bus) -> Iterator[Query]:
    found = Query(redis.url)
    yield found
    found.reader.stop()


def register(bus: Bus, trigger_id: str, sql: str, *tickers: str, **parameters: str) -> int:
    """Its control's offset; as the relay does it, without waiting for anybody."""
    registration = records.TriggerRegistration(
        trigger_id=trigger_id, sql=sql, tickers=tickers, parameters=parameters, version=1, registered_at=1
    )
    offset = feed.control(bus, records.TriggerControl(register=registration))
    entry = records.TriggerEntry(registration=registration, control_offset=offset)
    bus.put(bus_topics.TABLE_TRIGGERS, {trigger_id: entry.SerializeToString()})
    return offset


def seen(bus: Bus, trigger_id: str, column: str = "price") -> list[Any]:
    return [row[column] for event in feed.events(bus, trigger_id) for row in rows(event)]


def test_all_partitions_say_how_far_they_have_come(bus: Bus, query: Query) -> None:
    offset = register(bus, "a", "price > 0", ONE)
    query.run()
    assert feed.is_carried_out(bus, offset)
    said = len(feed.progress(bus))
    query.run()
    assert len(feed.progress(bus)) == said


def test_a_batch_that_runs_again_changes_nothing(bus: Bus, query: Query) -> None:
    register(bus, "v", V_SHAPE, ONE)
    register(bus, "bad", "prise > 0", OTHER)
    query.run()
    query.again()
    assert [entry.trigger_id for said in feed.progress(bus) for entry in said.suspended] == ["bad"]
    for first, prices in ((1, [5, 4]), (3, [6, 6, 6, 5]), (7, [4, 7, 7, 7])):
        feed.trades(bus, ONE, first, prices)
        query.run()
        before = feed.events(bus, "v")
        counted = query.again()
        assert feed.events(bus, "v") == before
        assert {row["name"]: row["value"] for row in counted}["records"] == 1
    assert seen(bus, "v", "bottom") == [4, 4]
    assert [event.context["sequence"] for event in feed.events(bus, "v")] == ["1", "2"]


def test_a_lost_checkpoint_brings_back_what_is_registered_and_loses_no_row(bus: Bus, query: Query) -> None:
    register(bus, "kept", IN_ORDER, ONE)
    register(bus, "gone", IN_ORDER, ONE)
    register(bus, "spread", f"SELECT a.price - b.price AS s FROM ticks a JOIN ticks b ON a.ts = b.ts "
             f"AND a.ticker = '{ONE}' AND b.ticker = '{OTHER}'", ONE, OTHER)  # fmt: skip
    query.run()
    feed.trades(bus, ONE, 1, [1, 2])
    query.run()
    query.run()  # the clock: the batch before it is committed now
    bus.delete(bus_topics.TABLE_TRIGGERS, ["gone"])
    feed.trades(bus, ONE, 1, [1, 2])  # says again what was there
    feed.trades(bus, ONE, 3, [3, 4])
    feed.trades(bus, OTHER, 3, [1, 1])
    query.reader.stop()
    query = Query(query.url, "another")
    query.run()
    assert seen(bus, "kept") == [1, 3]
    assert seen(bus, "gone") == [1]
    assert seen(bus, "spread", "s") == [2]
    query.again()
    assert seen(bus, "kept") == [1, 3]
    query.reader.stop()


def test_rows_are_not_read_where_no_trigger_runs(bus: Bus, query: Query) -> None:
    register(bus, "a", IN_ORDER, ONE)
    feed.trades(bus, OTHER, 1, [1, 2])
    query.run()
    feed.trades(bus, OTHER, 3, [1, 2])
    assert query.run() == []
    feed.trades(bus, ONE, 1, [1, 2])
    assert {row["name"]: row["value"] for row in query.run()} == {"records": 1, "events": 1}
    feed.control(bus, records.TriggerControl(remove=TriggerRemove(trigger_id="a")))
    query.run()
    feed.trades(bus, ONE, 3, [1, 2])
    assert query.run() == []


def test_only_changed_parts_of_the_state_are_written_and_none_is_left_behind(bus: Bus, query: Query) -> None:
    for name in "abcdef":
        register(bus, name, V_SHAPE, ONE)
    query.run()
    for first in range(1, 41, 4):
        feed.trades(bus, ONE, first, [5, 4, 6, 5])
        query.run()
    table = bus.items("trigger_state:q")
    home = {name.split("/", 2)[1:][0] for name in table if name.count("/") > 1}
    assert len(table) < 80
    assert any(int(number) < query.number - 2 for number in home)
