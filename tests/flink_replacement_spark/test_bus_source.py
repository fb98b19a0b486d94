import pytest
from hypothesis import given
from hypothesis import strategies as hyp

from bus import Record
from bus.memory_bus import MemoryBus
from core.errors import BusUnavailable, OffsetOutOfRange
from flink_replacement_spark import bus_source
from flink_replacement_spark.bus_source import BusRangesReader, BusStreamReader, RangesPartition, capped, read_range

OPTIONS = {"url": "redis://none", "topic": "t", "reader": "me", "max_records": "10"}


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch) -> MemoryBus:
    bus = MemoryBus(2)
    bus.create_topic("t")
    monkeypatch.setattr(bus_source, "RedisBus", lambda *_, **__: bus)
    return bus


def fill(bus: MemoryBus, partition: int, count: int) -> None:
    bus.publish("t", [Record(value=b"%d" % n, partition=partition) for n in range(count)])


@given(hyp.lists(hyp.integers(0, 50), min_size=1, max_size=6), hyp.integers(1, 100))
def test_a_batch_is_capped_and_takes_from_every_partition(behind: list[int], most: int) -> None:
    found = capped({}, behind, most)
    assert sum(found.values()) == min(sum(behind), most)
    assert all(0 <= found[str(p)] <= count for p, count in enumerate(behind))
    if most >= len(behind):
        assert all(found[str(p)] > 0 for p, count in enumerate(behind) if count)


def test_a_new_query_begins_at_the_oldest_record_and_holds_it(bus: MemoryBus) -> None:
    fill(bus, 0, 3)
    reader = BusStreamReader(OPTIONS)
    assert reader.initialOffset() == {"0": 0, "1": 0}
    assert bus.holds("t", "me") == {0: 0, 1: 0}
    assert reader.latestOffset() == {"0": 3, "1": 0}


def test_a_lost_checkpoint_begins_at_what_is_held(bus: MemoryBus) -> None:
    fill(bus, 0, 3)
    bus.hold("t", "me", {0: 2, 1: 0})
    assert BusStreamReader(OPTIONS).initialOffset() == {"0": 2, "1": 0}


def test_a_query_that_goes_on_never_plans_behind_its_last_batch(bus: MemoryBus) -> None:
    fill(bus, 0, 30)
    reader = BusStreamReader(OPTIONS)
    start = reader.initialOffset()
    planned = reader.latestOffset()
    reader.partitions(start, planned)
    fill(bus, 1, 30)  # takes its share of what a batch may hold
    assert planned == {"0": 10, "1": 0}
    assert BusStreamReader(OPTIONS).latestOffset() == {"0": 15, "1": 5}


def test_committed_records_may_go(bus: MemoryBus) -> None:
    fill(bus, 0, 5)
    reader = BusStreamReader(OPTIONS)
    reader.initialOffset()
    assert bus.trim("t", keep_seconds=0, keep_bytes=0) == 0
    reader.commit({"0": 4, "1": 0})
    assert bus.trim("t", keep_seconds=0, keep_bytes=0) == 4


def test_a_partition_of_the_bus_is_one_input_partition(bus: MemoryBus) -> None:
    found = BusStreamReader(OPTIONS).partitions({"0": 1, "1": 4}, {"0": 3, "1": 4})
    assert found == [RangesPartition((("t", 0, 1, 2, -1),))]


def test_while_the_bus_is_away_there_is_no_news(bus: MemoryBus, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = BusStreamReader(OPTIONS)
    start = reader.initialOffset()

    def away(*_: object) -> None:
        raise BusUnavailable("gone")

    monkeypatch.setattr(bus, "wait", away)
    assert reader.latestOffset() == start


def test_ranges_of_one_tag_are_read_by_one_task(bus: MemoryBus) -> None:
    ranges = '[["t", 0, 5, 6, 1], ["t", 1, 0, 0, 0], ["t", 0, 0, 1, 1]]'
    found = BusRangesReader({"url": "redis://none", "ranges": ranges}).partitions()
    assert found == [RangesPartition((("t", 1, 0, 0, 0),)), RangesPartition((("t", 0, 5, 6, 1), ("t", 0, 0, 1, 1)))]


def test_a_missing_record_in_a_range_is_an_error(bus: MemoryBus) -> None:
    fill(bus, 0, 3)
    assert [record.value for found in read_range(bus, "t", 0, 1, 2) for record in found] == [b"1", b"2"]
    with pytest.raises(OffsetOutOfRange):
        list(read_range(bus, "t", 0, 1, 5))
