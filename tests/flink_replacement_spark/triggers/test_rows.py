"""Micro-batches of triggers over a real Redis, without Spark."""

from collections.abc import Iterator

import pytest

from bus import Bus, Record
from bus import topics as bus_topics
from bus.dead_letters import kept
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire.candlewright_pb2 import TriggerRemove
from flink_replacement_spark.triggers import rows as trigger_rows
from flink_replacement_spark.triggers.store import STATE_PREFIX
from protobuf import records_pb2 as records
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.trigger_batches import (
    ONE,
    OTHER,
    Query,
    bus_for_triggers,
    register,
    seen,
)
from tests.triggers.trigger_records import IN_ORDER, V_SHAPE, bar

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


def test_the_cost_of_triggers_is_recorded(bus: Bus, query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trigger_rows, "_COST_NS", 0)
    register(bus, "v", V_SHAPE, ONE)
    register(bus, "row", "price > 0", ONE)
    query.run()
    feed.trades(bus, ONE, 1, prices=[5, 4, 3])
    query.run()
    noted = [records.TriggerCosts.FromString(value) for value in bus.items(bus_topics.TABLE_TRIGGER_COSTS).values()]
    (cost,) = (cost for each in noted for cost in each.costs)
    assert (cost.trigger_id, cost.partitions) == ("v", 1)
    assert cost.state_bytes > 100


def test_a_batch_that_runs_again_changes_nothing(bus: Bus, query: Query) -> None:
    register(bus, "v", V_SHAPE, ONE)
    register(bus, "bad", "prise > 0", OTHER)
    query.run()
    query.again()
    assert [entry.trigger_id for said in feed.progress(bus) for entry in said.suspended] == ["bad"]
    for first, prices in ((1, [5, 4]), (3, [6, 6, 6, 5]), (7, [4, 7, 7, 7])):
        feed.trades(bus, ONE, first, prices=prices)
        query.run()
        before = feed.events(bus, "v")
        counted = query.again()
        assert feed.events(bus, "v") == before
        assert {row["name"]: row["value"] for row in counted}["records"] == 1
    assert seen(bus, "v", "bottom") == [4, 4]
    assert [event.context["sequence"] for event in feed.events(bus, "v")] == ["1", "2"]


def test_trades_meet_closed_bars_and_other_tickers_and_a_batch_runs_again(bus: Bus, query: Query) -> None:
    """State is read back from the bus for each batch; the two tickers are in different partitions."""
    last_bar = "SELECT t.price, o.close FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time"
    spread = f"SELECT a.price - b.price AS s FROM ticks a ASOF JOIN ticks b ON a.ts >= b.ts AND b.ticker = '{OTHER}' "
    register(bus, "bar", last_bar, ONE, period_seconds="60")
    register(bus, "spread", f"{spread} WHERE a.ticker = '{ONE}'", ONE, OTHER)
    query.run()
    feed.trades(bus, ONE, 1, prices=[5, 6])
    feed.trades(bus, OTHER, 2, prices=[1, 2])
    query.run()
    feed.trades(bus, ONE, 70, prices=[7, 8])
    query.run()
    assert feed.events(bus, "bar") == []
    bus.publish(bus_topics.OHLC, [Record(bar(0, 3.0), partition_key=ONE.encode())])
    query.run()
    query.again()
    feed.trades(bus, OTHER, 75, prices=[1])
    query.run()
    query.again()
    assert seen(bus, "bar", "close") == [3, 3]
    # At second 1 the other ticker has no trade yet; at 71 another trade of the same time may still come.
    assert seen(bus, "spread", "s") == [5, 5]
    assert [event.context["sequence"] for event in feed.events(bus, "spread")] == ["1", "2"]


def test_a_lost_checkpoint_loses_neither_registrations_nor_rows(bus: Bus, query: Query) -> None:
    register(bus, "kept", IN_ORDER, ONE)
    register(bus, "gone", IN_ORDER, ONE)
    register(bus, "spread", f"SELECT a.price - b.price AS s FROM ticks a JOIN ticks b ON a.ts = b.ts "
             f"AND a.ticker = '{ONE}' AND b.ticker = '{OTHER}'", ONE, OTHER)  # fmt: skip
    query.run()
    feed.trades(bus, ONE, 1, prices=[1, 2])
    query.run()
    query.run()  # only the clock advances: the previous batch is committed now
    bus.delete(bus_topics.TABLE_TRIGGERS, ["gone"])
    feed.trades(bus, ONE, 1, prices=[1, 2])  # returns the existing state again
    feed.trades(bus, ONE, 3, prices=[3, 4])
    feed.trades(bus, OTHER, 3, prices=[1, 1])
    query.reader.stop()
    query = Query(query.url, "another")
    query.run()
    assert seen(bus, "kept") == [1, 2, 3, 4]
    assert seen(bus, "gone") == [1, 2]
    assert seen(bus, "spread", "s") == [2]
    query.again()
    assert seen(bus, "kept") == [1, 2, 3, 4]
    query.reader.stop()


def test_rows_are_not_read_where_no_trigger_runs(bus: Bus, query: Query) -> None:
    register(bus, "a", IN_ORDER, ONE)
    feed.trades(bus, OTHER, 1, prices=[1, 2])
    query.run()
    feed.trades(bus, OTHER, 3, prices=[1, 2])
    assert query.run() == []
    feed.trades(bus, ONE, 1, prices=[1, 2])
    assert {row["name"]: row["value"] for row in query.run()} == {"records": 1, "events": 2}
    feed.control(bus, records.TriggerControl(remove=TriggerRemove(trigger_id="a")))
    query.run()
    feed.trades(bus, ONE, 3, prices=[1, 2])
    assert query.run() == []


def test_only_changed_parts_of_the_state_are_written_and_none_is_left_behind(bus: Bus, query: Query) -> None:
    for name in "abcdef":
        register(bus, name, V_SHAPE, ONE)
    query.run()
    for first in range(1, 41, 4):
        feed.trades(bus, ONE, first, prices=[5, 4, 6, 5])
        query.run()
    table = bus.items("trigger_state:q")
    home = {name.split("/", 2)[1:][0] for name in table if name.count("/") > 1}
    assert len(table) < 80
    assert any(int(number) < query.number - 2 for number in home)


@pytest.mark.parametrize("name", ["", "pointer", "meta", "triggers"])
def test_an_unreadable_state_is_reported_and_its_triggers_start_afresh(bus: Bus, query: Query, name: str) -> None:
    register(bus, "t", "price > 0", ONE)
    query.run()
    feed.trades(bus, ONE, 1, prices=[11])
    query.run()
    assert len(seen(bus, "t")) == 1
    table = f"{STATE_PREFIX}:{query.query_id}"
    for key in bus.items(table):
        depth = {"": 1, "pointer": 0}.get(name, 2)
        if key.count("/") == depth if depth < 2 else key.split("/")[2:3] == [name]:
            bus.put(table, {key: b"\xff\x00"})
    trigger_rows._CACHE.clear()
    feed.trades(bus, ONE, 2, prices=[12])
    query.run()
    assert seen(bus, "t") == [11.0, 12.0]
    assert any("cannot be read" in letter.reason for _, letter in kept(bus))
    letters = len(list(kept(bus)))
    trigger_rows._CACHE.clear()
    feed.trades(bus, ONE, 3, prices=[13])
    query.run()
    assert seen(bus, "t") == [11.0, 12.0, 13.0]
    assert len(list(kept(bus))) == letters
