"""Micro-batches of triggers over a real Redis, without Spark."""

from collections.abc import Iterator

import pytest

from bus import Bus
from bus import topics as bus_topics
from bus.embedded import EmbeddedRedis
from protobuf import records_pb2 as records
from protobuf.candlewright_pb2 import TriggerRemove
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.trigger_batches import (
    ONE,
    OTHER,
    Query,
    bus_for_triggers,
    register,
    seen,
)
from tests.triggers.trigger_records import IN_ORDER, V_SHAPE

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def bus(redis: EmbeddedRedis) -> Iterator[Bus]:
    with bus_for_triggers(redis.url) as bus:
        yield bus


@pytest.fixture
def query(redis: EmbeddedRedis, bus: Bus) -> Iterator[Query]:
    found = Query(redis.url)
    yield found
    found.reader.stop()


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
