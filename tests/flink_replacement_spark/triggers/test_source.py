"""The records that a micro-batch of triggers takes, over a real Redis and without Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bus import Bus, Record
from bus import topics as bus_topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from flink_replacement_spark.triggers import source as trigger_source
from flink_replacement_spark.triggers.source import Span, TriggerPlan, TriggerStreamReader

pytestmark = pytest.mark.timeout(60)

READER = "triggers"
TICKS, MARKS, CONTROLS = bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.TRIGGER_CONTROLS
BARS = bus_topics.OHLC


@pytest.fixture
def bus(redis: EmbeddedRedis, tmp_path: Path) -> Iterator[Bus]:
    bus = RedisBus(redis.url)
    bus._store.call("FLUSHALL")
    for topic in (TICKS, MARKS, bus_topics.OHLC, bus_topics.TRIGGER_EVENTS):
        bus.create_topic(topic, 2)
    bus.create_topic(CONTROLS, 1)
    yield bus
    bus.close()


@pytest.fixture
def reader(redis: EmbeddedRedis, bus: Bus) -> Iterator[TriggerStreamReader]:
    found = make_reader(redis.url)
    yield found
    found.stop()


def make_reader(url: str, **options: str) -> TriggerStreamReader:
    return TriggerStreamReader({"url": url, "reader": READER, "tasks": "2", **options})


def publish(bus: Bus, topic: str, count: int, *, partition: int = 0) -> None:
    bus.publish(topic, [Record(b"x", partition=partition) for _ in range(count)])


def until(reader: TriggerStreamReader, before: dict[str, Any]) -> dict[str, Any]:
    """Wait for offsets that differ from these."""
    while (found := reader.latestOffset()) == before:
        pass
    return found


def test_nothing_is_planned_before_the_first_registration_and_nothing_is_held(
    bus: Bus, reader: TriggerStreamReader
) -> None:
    start = reader.initialOffset()
    publish(bus, TICKS, 5)
    assert reader.latestOffset() == start
    assert bus.holds(TICKS, READER) == {0: 5, 1: 0}
    publish(bus, CONTROLS, 1)
    found = until(reader, start)
    assert (found[TICKS], found[CONTROLS]) == ({"0": 5, "1": 0}, {"0": 1})
    assert found["now_ns"] > 0


def test_a_first_batch_starts_also_where_trades_came_between_its_planning_and_its_start(
    redis: EmbeddedRedis, bus: Bus, reader: TriggerStreamReader
) -> None:
    """Spark logs the end of the batch, and then, in each new run, asks for the start of the stream."""
    reader.initialOffset()
    publish(bus, TICKS, 5)
    end = reader.latestOffset()
    for again in (reader, make_reader(redis.url)):
        start = again.initialOffset()
        assert start[TICKS]["0"] > end[TICKS]["0"]
        plans = [TriggerPlan.from_json(*plan) for part in again.partitions(start, end) for plan in part.plans]  # type: ignore[attr-defined]
        assert all(span.first == span.end for plan in plans for span in plan.spans)
    again.stop()


def test_registrations_and_marks_wait_for_the_rows_that_were_there(redis: EmbeddedRedis, bus: Bus) -> None:
    reader = make_reader(redis.url, max_records="4")
    start = reader.initialOffset()
    publish(bus, CONTROLS, 1)
    before = until(reader, start)
    publish(bus, TICKS, 10)
    publish(bus, MARKS, 1)
    publish(bus, CONTROLS, 1)
    planned = []
    for _ in range(3):
        before = until(reader, before)
        planned.append((before[TICKS]["0"], before[MARKS]["0"], before[CONTROLS]["0"]))
        publish(bus, TICKS, 1)
    assert planned == [(4, 0, 1), (8, 0, 1), (12, 1, 2)]
    reader.stop()


def test_bars_wait_for_the_trades_of_their_partition_that_were_there(redis: EmbeddedRedis, bus: Bus) -> None:
    reader = make_reader(redis.url, max_records="4")
    start = reader.initialOffset()
    publish(bus, CONTROLS, 1)
    before = until(reader, start)
    publish(bus, TICKS, 10)
    publish(bus, BARS, 1)
    publish(bus, BARS, 1, partition=1)
    planned = []
    for _ in range(4):
        before = until(reader, before)
        planned.append((before[TICKS]["0"], before[BARS]["0"], before[BARS]["1"]))
        publish(bus, TICKS, 1)
        publish(bus, BARS, 1)
    assert planned == [(4, 0, 1), (8, 0, 1), (12, 1, 1), (13, 4, 1)]
    reader.stop()


def test_time_continues_without_any_news(
    bus: Bus, reader: TriggerStreamReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = reader.initialOffset()
    publish(bus, CONTROLS, 1)
    first = until(reader, start)
    assert reader.latestOffset() == first
    monkeypatch.setattr(trigger_source.time, "time_ns", lambda: first["now_ns"] + 1_000_000_000)
    later = reader.latestOffset()
    assert later == first | {"now_ns": first["now_ns"] + 1_000_000_000}


def test_every_partition_and_the_joint_one_have_work(bus: Bus, reader: TriggerStreamReader) -> None:
    start = reader.initialOffset()
    publish(bus, CONTROLS, 1)
    middle = until(reader, start)
    publish(bus, TICKS, 2, partition=1)
    end = until(reader, middle)
    tables = [batch for part in reader.partitions(middle, end) for batch in reader.read(part)]
    plans = {
        row["owner"]: TriggerPlan.from_json(row["owner"], row["plan"]) for batch in tables for row in batch.to_pylist()
    }
    assert sorted(plans) == [0, 1, 2]
    assert plans[0].of(TICKS) == (Span(TICKS, 0, 0, 0),)
    assert plans[1].of(TICKS) == (Span(TICKS, 1, 0, 2),)
    assert plans[2].of(TICKS) == (Span(TICKS, 0, 0, 0), Span(TICKS, 1, 0, 2))
    assert {plan.now_ns for plan in plans.values()} == {end["now_ns"]}
    assert {plan.controls for plan in plans.values()} == {Span(CONTROLS, 0, 1, 1)}


def test_a_restarted_source_continues_from_the_last_plan(redis: EmbeddedRedis, bus: Bus) -> None:
    reader = make_reader(redis.url)
    start = reader.initialOffset()
    publish(bus, CONTROLS, 1)
    end = until(reader, start)
    reader.partitions(start, end)
    reader.stop()
    again = make_reader(redis.url)
    assert again.latestOffset() == end
    again.commit(end)
    assert bus.holds(CONTROLS, READER) == {0: 1}
    again.stop()


def test_a_query_without_its_checkpoint_begins_at_its_hold(redis: EmbeddedRedis, bus: Bus) -> None:
    publish(bus, TICKS, 5)
    publish(bus, CONTROLS, 3)
    bus.hold(TICKS, READER, {0: 4})
    bus.hold(CONTROLS, READER, {0: 2})
    reader = make_reader(redis.url)
    start = reader.initialOffset()
    assert (start[TICKS], start[CONTROLS]) == ({"0": 4, "1": 0}, {"0": 2})
    reader.stop()
