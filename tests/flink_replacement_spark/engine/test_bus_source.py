import pytest
from hypothesis import given
from hypothesis import strategies as hyp

from bus import Record
from candlewright.wire.errors import BusUnavailable, OffsetOutOfRange, RecordsLost
from flink_replacement_spark.engine import bus_source
from flink_replacement_spark.engine.bus_source import (
    LIVES,
    BusRangesReader,
    BusStreamReader,
    RangesPartition,
    capped,
    positions_of,
    read_range,
    remember_plan,
)
from tests.fresh_bus import FreshBus

OPTIONS = {"url": "redis://none", "topic": "t", "reader": "me", "max_records": "10"}


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> FreshBus:
    bus = FreshBus(2)
    bus.create_topic("t")
    monkeypatch.setattr(bus_source, "RedisBus", lambda *_, **__: bus)
    return bus


def fill(bus: FreshBus, partition: int, count: int) -> None:
    bus.publish("t", [Record(value=b"%d" % n, partition=partition) for n in range(count)])


@given(hyp.lists(hyp.integers(0, 50), min_size=1, max_size=6), hyp.integers(1, 100))
def test_a_batch_is_capped_and_takes_from_every_partition(behind: list[int], most: int) -> None:
    found = capped({}, {str(p): count for p, count in enumerate(behind)}, most)
    assert sum(found.values()) == min(sum(behind), most)
    assert all(0 <= found[str(p)] <= count for p, count in enumerate(behind))
    if most >= len(behind):
        assert all(found[str(p)] > 0 for p, count in enumerate(behind) if count)


def test_a_new_query_begins_at_the_oldest_record_and_holds_it(bus: FreshBus) -> None:
    fill(bus, 0, 3)
    reader = BusStreamReader(OPTIONS)
    assert positions_of(reader.initialOffset()) == {"0": 0, "1": 0}
    assert bus.holds("t", "me") == {0: 0, 1: 0}
    assert positions_of(reader.latestOffset()) == {"0": 3, "1": 0}


def test_a_query_without_news_wakes_every_two_seconds(bus: FreshBus, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def wait(after: object, seconds: float, **_: object) -> set[tuple[str, int]]:
        waited.append(seconds)
        return set()

    monkeypatch.setattr(bus, "wait", wait)
    reader = BusStreamReader(OPTIONS)
    assert reader.latestOffset() == reader.latestOffset()
    assert waited and min(waited) >= 2


def test_a_query_without_its_checkpoint_begins_at_its_hold(bus: FreshBus) -> None:
    fill(bus, 0, 3)
    bus.hold("t", "me", {0: 2, 1: 0})
    assert positions_of(BusStreamReader(OPTIONS).initialOffset()) == {"0": 2, "1": 0}


def test_a_continued_query_never_plans_before_its_last_batch(bus: FreshBus) -> None:
    fill(bus, 0, 30)
    reader = BusStreamReader(OPTIONS)
    start = reader.initialOffset()
    planned = reader.latestOffset()
    reader.partitions(start, planned)
    fill(bus, 1, 30)  # takes its share of the batch
    assert positions_of(planned) == {"0": 10, "1": 0}
    assert positions_of(BusStreamReader(OPTIONS).latestOffset()) == {"0": 15, "1": 5}


def test_committed_records_may_go(bus: FreshBus) -> None:
    fill(bus, 0, 5)
    reader = BusStreamReader(OPTIONS)
    reader.initialOffset()
    assert bus.trim("t", keep_seconds=0, keep_bytes=0) == 0
    reader.commit({"0": 4, "1": 0})
    assert bus.trim("t", keep_seconds=0, keep_bytes=0) == 4


def test_records_of_the_last_batch_may_go_though_no_batch_follows(bus: FreshBus) -> None:
    fill(bus, 0, 5)
    reader = BusStreamReader(OPTIONS)
    start = reader.initialOffset()
    end = reader.latestOffset()
    reader.partitions(start, end)
    # Spark asks again only once the batch has ended.
    assert reader.latestOffset() == end
    assert bus.holds("t", "me") == {0: 5, 1: 0}


def test_a_partition_of_the_bus_is_one_input_partition(bus: FreshBus) -> None:
    found = BusStreamReader(OPTIONS).partitions({"0": 1, "1": 4}, {"0": 3, "1": 4})
    assert found == [RangesPartition((("t", 0, 1, 2, -1),))]


def test_while_the_bus_is_down_nothing_is_reported(bus: FreshBus, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BusStreamReader(OPTIONS)
    start = reader.initialOffset()

    def away(*_: object, **__: object) -> None:
        raise BusUnavailable("gone")

    monkeypatch.setattr(bus, "wait", away)
    assert reader.latestOffset() == start


def test_ranges_of_one_tag_are_read_by_one_task(bus: FreshBus) -> None:
    ranges = '[["t", 0, 5, 6, 1], ["t", 1, 0, 0, 0], ["t", 0, 0, 1, 1]]'
    found = BusRangesReader({"url": "redis://none", "ranges": ranges}).partitions()
    assert found == [RangesPartition((("t", 1, 0, 0, 0),)), RangesPartition((("t", 0, 5, 6, 1), ("t", 0, 0, 1, 1)))]


def test_a_missing_record_in_a_range_is_an_error(bus: FreshBus) -> None:
    fill(bus, 0, 3)
    assert [record.value for found in read_range(bus, "t", 0, first=1, last=2) for record in found] == [b"1", b"2"]
    with pytest.raises(OffsetOutOfRange):
        list(read_range(bus, "t", 0, first=1, last=5))


def replaced(bus: FreshBus, kept: int, new: int) -> None:
    """A bus after a copy was restored: `kept` records of the first life, then `new` ones of another."""
    bus._store.call("FLUSHDB")
    bus._store.call("SET", "cw:life", "first-life--")
    bus.create_topic("t", 2)
    fill(bus, 0, kept)
    bus._store.call("SET", "cw:life", "another-life")
    fill(bus, 0, new)


def test_a_source_does_not_skip_records_that_replaced_read_ones(bus: FreshBus) -> None:
    bus._store.call("SET", "cw:life", "first-life--")
    fill(bus, 0, 5)
    reader = BusStreamReader(OPTIONS)
    start = reader.initialOffset()
    planned = reader.latestOffset()
    reader.partitions(start, planned)
    assert planned[LIVES] == {"t:0": "first-life--@0", "t:1": ""}
    replaced(bus, 3, 6)
    with pytest.raises(RecordsLost, match="t/0 was read up to 5, but is unchanged only up to 3"):
        reader.latestOffset()
    # A new process, which does not get the position of the checkpoint: the plan on the bus is as old as the bus.
    after = BusStreamReader(OPTIONS)
    end = after.latestOffset()
    assert positions_of(end) == {"0": 9, "1": 0}
    with pytest.raises(RecordsLost):
        after.partitions(planned, end)


def test_a_checkpoint_without_histories_continues_from_its_offsets(bus: FreshBus) -> None:
    fill(bus, 0, 5)
    remember_plan(bus, "me", {"0": 3, "1": 0})
    reader = BusStreamReader(OPTIONS)
    end = reader.latestOffset()
    assert positions_of(end) == {"0": 5, "1": 0}
    assert [each.ranges for each in reader.partitions({"0": 3, "1": 0}, end)] == [(("t", 0, 3, 4, -1),)]  # type: ignore[attr-defined]
    assert bus.holds("t", "me") == {}
    reader.commit(end)
    assert bus.holds("t", "me") == {0: 5, 1: 0}
