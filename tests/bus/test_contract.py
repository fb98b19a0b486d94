"""The guarantees of `bus.api.Bus`."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bus.api import NOBODY, Bus, FewRecords, PartitionState, Position, Record, SequenceStamp, Swap
from bus.redis.store import Store
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BusError, BusFull, LeaseLost, OffsetOutOfRange
from tests.fresh_bus import FreshBus

FOREVER = 1e9


def offsets(records: object) -> list[tuple[int, int]]:
    return [(getattr(r, "record", r).partition, getattr(r, "record", r).offset) for r in records]  # type: ignore[attr-defined]


@pytest.fixture
def bus() -> Iterator[Bus]:
    bus = FreshBus()
    yield bus
    bus.close()


# ---- log
def test_published_records_are_read_back_in_order_with_dense_offsets(bus: Bus) -> None:
    bus.create_topic("t", 1)
    first = bus.publish("t", [Record(b"a", key=b"k"), Record(b"b", headers={"h": "ä", "i": ""})])
    second = bus.publish("t", [Record(b"\r\n$1\r\nv\r\n", key=b""), Record(b"")])
    assert first + second == [Position(0, offset) for offset in range(4)]
    found = bus.read("t", 0, 0)
    assert [(r.topic, r.partition, r.offset, r.key, r.value, dict(r.headers), r.sequence) for r in found] == [
        ("t", 0, 0, b"k", b"a", {}, None),
        ("t", 0, 1, None, b"b", {"h": "ä", "i": ""}, None),
        ("t", 0, 2, b"", b"\r\n$1\r\nv\r\n", {}, None),
        ("t", 0, 3, None, b"", {}, None),
    ]
    assert all(abs(r.timestamp_ms / 1_000 - time.time()) < 60 for r in found)


def test_reading_starts_at_the_offset_and_ends_at_the_end(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"%d" % n) for n in range(10)])
    assert [r.offset for r in bus.read("t", 0, 7)] == [7, 8, 9]
    assert [r.offset for r in bus.read("t", 0, 2, max_records=3)] == [2, 3, 4]
    assert bus.read("t", 0, 10) == []


def test_an_offset_past_the_end_was_never_written(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"x")])
    with pytest.raises(OffsetOutOfRange) as caught:
        bus.read("t", 0, 2)
    assert (caught.value.first, caught.value.end) == (0, 1)


def test_a_topic_without_records_reads_as_empty(bus: Bus) -> None:
    assert bus.read("nothing", 0, 0) == []
    assert bus.partitions("nothing") == 0
    assert bus.trim("nothing", keep_seconds=0) == 0
    assert bus.groups("nothing") == []
    with pytest.raises(BusError):
        bus.state("nothing")


def test_a_partition_that_a_topic_does_not_have_is_refused(bus: Bus) -> None:
    bus.create_topic("t", 2)
    with pytest.raises(BusError):
        bus.read("t", 2, 0)
    with pytest.raises(BusError):
        bus.publish("t", [Record(b"x", partition=2)])


def test_reading_stops_at_the_byte_limit_but_gives_at_least_one(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"x" * 1_000) for _ in range(10)])
    assert len(bus.read("t", 0, 0, max_bytes=3_500)) == 3
    assert len(bus.read("t", 0, 0, max_bytes=10)) == 1


def test_large_reads_are_complete(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"x" * (n % 700), key=b"%d" % n) for n in range(5_000)])
    found = bus.read("t", 0, 0, max_records=10_000)
    assert [(r.offset, r.key, len(r.value)) for r in found] == [(n, b"%d" % n, n % 700) for n in range(5_000)]


def test_the_number_of_partitions_is_fixed_when_the_topic_is_made(bus: Bus) -> None:
    assert bus.create_topic("t", 3) == 3
    assert bus.create_topic("t", 5) == 3
    bus.publish("made_by_record", [Record(b"x")])
    bus.create_group("made_by_group", "g", at_end=True)
    assert {topic: bus.partitions(topic) for topic in bus.topics()} == {
        "made_by_group": 4,
        "made_by_record": 4,
        "t": 3,
    }


def test_partition_key_goes_before_key_and_key_before_partition(bus: Bus) -> None:
    by_key = bus.publish("t", [Record(b"", key=key, partition=0) for key in (b"", b"A", b"B", b"C", b"D", b"bar")])
    assert [position.partition for position in by_key] == [3, 0, 3, 2, 1, 2]
    assert bus.publish("t", [Record(b"", key=b"A", partition_key=b"C")])[0].partition == 2
    assert bus.publish("t", [Record(b"", partition=1)])[0].partition == 1
    assert {bus.publish("t", [Record(b"")])[0].partition for _ in range(8)} == {0, 1, 2, 3}


def test_positions_come_in_the_order_of_the_records(bus: Bus) -> None:
    wanted = [2, 0, 2, 1, 0, 2]
    positions = bus.publish("t", [Record(b"%d" % n, partition=p) for n, p in enumerate(wanted)])
    assert positions == [
        Position(2, 0),
        Position(0, 0),
        Position(2, 1),
        Position(1, 0),
        Position(0, 1),
        Position(2, 2),
    ]
    assert [bus.read("t", p.partition, p.offset)[0].value for p in positions] == [b"%d" % n for n in range(6)]


def test_publishing_nothing_is_allowed(bus: Bus) -> None:
    assert bus.publish("t", []) == []


# ---- sequences
def test_sequences_are_dense_per_name_and_part_of_the_value(bus: Bus) -> None:
    tag = b"\x68"  # OHLCV.sequence = 13, varint
    bar = OHLCV(ticker="A/B.X", sequence=0).SerializeToString()
    for name in ("one", "two", "one"):
        bus.publish("t", [Record(bar, partition=0, sequence=SequenceStamp(name, tag=tag))])
    found = bus.read("t", 0, 0)
    assert [r.sequence for r in found] == [1, 1, 2]
    assert [OHLCV.FromString(r.value).sequence for r in found] == [1, 1, 2]
    assert (bus.last_sequence("one"), bus.last_sequence("two"), bus.last_sequence("none")) == (2, 1, 0)
    assert bus.last_sequences(["two", "none", "one", "two"]) == [1, 0, 2, 1]
    assert bus.last_sequences([]) == []


def test_a_record_may_take_many_numbers(bus: Bus) -> None:
    stamps = [SequenceStamp("s", count=count, tag=b"\x10") for count in (300, 1, 70_000, 2)]
    bus.publish("t", [Record(b"", partition=0, sequence=stamp) for stamp in stamps])
    assert [r.sequence for r in bus.read("t", 0, 0)] == [1, 301, 302, 70_302]
    assert bus.last_sequence("s") == 70_303
    assert [r.value for r in bus.read("t", 0, 0)] == [
        b"\x10\x01",
        b"\x10\xad\x02",
        b"\x10\xae\x02",
        b"\x10\x9e\xa5\x04",
    ]


def test_a_sequence_may_be_an_entry_of_a_context_map(bus: Bus) -> None:
    from candlewright.wire.ingestor_pb2 import CEPTriggerEvent

    field = CEPTriggerEvent.DESCRIPTOR.fields_by_name["context"].number
    stamp = SequenceStamp("s", context_tag=bytes([field << 3 | 2]))
    event = CEPTriggerEvent(trigger_id="x", context={"ticker": "A", "sequence": "0"}).SerializeToString()
    for _ in range(12):
        bus.publish("t", [Record(event, partition=0, sequence=stamp)])
    values = [CEPTriggerEvent.FromString(r.value) for r in bus.read("t", 0, 0)]
    assert [dict(v.context) for v in values] == [{"ticker": "A", "sequence": str(n)} for n in range(1, 13)]


def test_locate_finds_where_to_start_reading(bus: Bus) -> None:
    bus.create_topic("t", 1)
    for _ in range(40):
        batch = [Record(b"", sequence=SequenceStamp("busy", count=3)) for _ in range(100)]
        bus.publish("t", [*batch, Record(b"", sequence=SequenceStamp("rare"))])
    for name, sequence, offset in (
        ("busy", 1, 0),
        ("busy", 301, 101),
        ("busy", 11_999, 4_038),
        ("rare", 40, 4_039),
    ):
        start = bus.locate("t", name, sequence)
        assert start is not None
        assert start.partition == 0
        assert start.offset <= offset
        assert offset - start.offset <= 4_040
    assert bus.locate("t", "busy", 12_001) is None
    assert bus.locate("t", "busy", 0) is None
    assert bus.locate("t", "other", 1) is None
    assert bus.locate("other", "busy", 1) is None


def test_locate_finds_no_trimmed_number(bus: Bus) -> None:
    bus.create_topic("t", 1)
    for n in range(60):
        bus.publish("t", [Record(b"", sequence=SequenceStamp("ab"[n % 2], count=2))])
    bus.hold("t", "r", {0: 31})
    assert bus.trim("t", keep_seconds=-1) == 31
    assert [bus.locate("t", "a", n) is None for n in (30, 31, 32, 33)] == [True, True, True, False]
    assert [bus.locate("t", "b", n) is None for n in (29, 30, 31, 32)] == [True, True, False, False]
    start = bus.locate("t", "a", 33)
    assert start is not None
    assert 31 <= start.offset <= 32


# ---- once
def test_publish_once_writes_once_and_returns_the_existing_content(bus: Bus) -> None:
    bus.create_topic("t", 1)
    first = bus.publish_once("t", Record(b"v"), registry="r", name="n", content=b"c1", keep_seconds=60)
    again = bus.publish_once("t", Record(b"w"), registry="r", name="n", content=b"c2", keep_seconds=60)
    other = bus.publish_once("t", Record(b"x"), registry="q", name="n", content=b"", keep_seconds=60)
    assert (first.is_first, first.content, first.position) == (True, b"c1", Position(0, 0))
    assert (again.is_first, again.content, again.position) == (False, b"c1", None)
    assert (other.is_first, other.content, other.position) == (True, b"", Position(0, 1))
    assert [r.value for r in bus.read("t", 0, 0)] == [b"v", b"x"]
    assert bus.recall("r", ["n", "m"]) == [b"c1", None]
    assert bus.recall("r", []) == []


def test_publish_new_writes_each_name_once_in_one_call(bus: Bus) -> None:
    bus.create_topic("t", 2)
    bus.publish_once("t", Record(b"0", key=b"a"), registry="r", name="zero", content=b"c", keep_seconds=60)

    def publish(*names: str) -> list[bool]:
        records = [Record(name.encode(), key=str(n).encode()) for n, name in enumerate(names)]
        return bus.publish_new("t", records, registry="r", names=names, keep_seconds=60)

    assert publish("one", "zero", "two", "one") == [True, False, True, False]
    assert publish("two", "one") == [False, False]
    assert publish("three", "*1 2", "ü") == [True, True, True]
    assert publish() == []
    values = [record.value for partition in range(2) for record in bus.read("t", partition, 0)]
    assert sorted(values) == sorted(name.encode() for name in ("0", "one", "two", "three", "*1 2", "ü"))
    assert bus.recall("r", ["zero", "one", "ü", "four"]) == [b"c", b"", b"", None]


def test_publish_new_remembers_the_contents_that_it_is_given(bus: Bus) -> None:
    bus.create_topic("t", 2)
    bus.publish_once("t", Record(b"0", key=b"a"), registry="r", name="zero", content=b"first", keep_seconds=60)
    names = ["one", "zero", "two", "one", "three"]
    contents = [b"1", b"0", b"", b"again", b"\x00=* 3\xff"]
    records = [Record(name.encode(), key=name.encode()) for name in names]
    written = bus.publish_new("t", records, registry="r", names=names, keep_seconds=60, contents=contents)
    assert written == [True, False, True, False, True]
    assert bus.recall("r", ["one", "zero", "two", "three"]) == [b"1", b"first", b"", b"\x00=* 3\xff"]
    assert sum(state.end for state in bus.state("t")) == 4


def test_only_one_of_many_writers_of_new_names_appends_each(bus: Bus) -> None:
    bus.create_topic("t", 1)
    written: list[bool] = []

    def write(n: int) -> None:
        names = [str(name) for name in range(n, n + 20)]
        records = [Record(name.encode()) for name in names]
        written.extend(bus.publish_new("t", records, registry="r", names=names, keep_seconds=60))

    run_threads(write, 8)
    assert sum(written) == 27
    assert sorted(int(r.value) for r in bus.read("t", 0, 0)) == list(range(27))


def test_a_repeated_call_of_a_named_writer_writes_nothing(bus: Bus) -> None:
    bus.create_topic("t", 2)
    records = [Record(str(n).encode(), key=str(n).encode()) for n in range(6)]
    first = bus.publish_as("t", records, writer="bars:1", number=7)
    assert bus.publish_as("t", records, writer="bars:1", number=7) == first
    assert bus.publish_as("t", [], writer="bars:1", number=8) == []
    assert bus.publish_as("t", records[:1], writer="bars:2", number=1)[0].offset == 3
    assert sum(state.end for state in bus.state("t")) == 7
    with pytest.raises(BusError, match="after a later one"):
        bus.publish_as("t", records, writer="bars:1", number=6)


def test_a_repeated_call_of_a_named_writer_may_have_other_records(bus: Bus) -> None:
    bus.create_topic("t", 4)
    records = [Record(b"v", key=str(n).encode()) for n in range(32)]
    parts = {position.partition for position in bus.publish_as("t", records[:3], writer="w", number=1)}
    assert 1 < len(parts) < 4
    assert len(bus.publish_as("t", records, writer="w", number=1)) < 32
    assert sum(state.end for state in bus.state("t")) == 3


def test_a_named_writer_may_need_a_lease(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.grant({"job": b""})
    first = bus.publish_as("t", [Record(b"v")], writer="job", number=1, lease="job")
    bus.revoke(["job"])
    assert bus.publish_as("t", [Record(b"v")], writer="job", number=1, lease="job") == first
    with pytest.raises(LeaseLost):
        bus.publish_as("t", [Record(b"w")], writer="job", number=2, lease="job")
    assert bus.state("t")[0].end == 1


def test_names_of_publish_once_are_forgotten(bus: Bus) -> None:
    for _ in range(2):
        once = bus.publish_once("t", Record(b"v"), registry="r", name="n", content=b"c", keep_seconds=0.02)
        assert once.is_first
        wait_until(lambda: bus.recall("r", ["n"]) == [None])


def test_only_one_of_many_writers_is_first(bus: Bus) -> None:
    bus.create_topic("t", 1)
    outcomes: list[bool] = []

    def write(n: int) -> None:
        once = bus.publish_once("t", Record(b"%d" % n), registry="r", name="n", content=b"%d" % n, keep_seconds=60)
        outcomes.append(once.is_first)

    run_threads(write, 8)
    assert sorted(outcomes) == [False] * 7 + [True]
    assert [r.value for r in bus.read("t", 0, 0)] == bus.recall("r", ["n"])


# ---- waiting
def test_wait_returns_existing_records_immediately(bus: Bus) -> None:
    bus.create_topic("t", 2)
    bus.publish("t", [Record(b"x", partition=1)])
    assert bus.wait({("t", 0): 0, ("t", 1): 0}, 10) == {("t", 1)}
    assert bus.wait({("t", 1): 1, ("unknown", 0): 0}, 0.01) == set()
    assert bus.wait({}, 0.01) == set()


def test_wait_wakes_when_a_record_arrives(bus: Bus) -> None:
    bus.create_topic("t", 2)
    result: list[object] = []
    waiter = threading.Thread(target=lambda: result.append(bus.wait({("t", 0): 0, ("u", 3): 0, ("t", 1): 1}, 30)))
    waiter.start()
    bus.publish("t", [Record(b"x", partition=1)])
    started = time.monotonic()
    bus.publish("u", [Record(b"x", partition=3)])
    waiter.join(20)
    assert result == [{("u", 3)}]
    assert time.monotonic() - started < 5


# ---- retention and back-pressure
def test_trim_keeps_records_that_a_hold_needs(bus: Bus) -> None:
    bus.create_topic("t", 2)
    bus.publish("t", [Record(b"x", partition=n % 2) for n in range(20)])
    bus.hold("t", "r1", {0: 7, 1: 3})
    bus.hold("t", "r2", {0: 4})
    assert bus.holds("t", "r1") == {0: 7, 1: 3}
    assert bus.trim("t", keep_seconds=-1) == 7
    assert [(s.first, s.end) for s in bus.state("t")] == [(4, 10), (3, 10)]
    bus.release("t", "r2")
    assert bus.trim("t", keep_seconds=-1) == 3
    bus.release("t", "r1")
    assert bus.trim("t", keep_seconds=-1) == 10
    assert bus.state("t") == [PartitionState(10, 10, 0)] * 2
    assert bus.holds("t", "r1") == {}


def test_trimmed_offsets_are_out_of_range_and_new_ones_continue(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"x")] * 5)
    bus.trim("t", keep_seconds=-1)
    with pytest.raises(OffsetOutOfRange) as caught:
        bus.read("t", 0, 4)
    assert (caught.value.first, caught.value.end) == (5, 5)
    assert bus.read("t", 0, 5) == []
    assert bus.publish("t", [Record(b"y")]) == [Position(0, 5)]
    with pytest.raises(OffsetOutOfRange):
        bus.read("t", 0, 4)
    assert bus.read("t", 0, 5)[0].value == b"y"


def test_trim_keeps_records_that_are_young_enough(bus: Bus) -> None:
    bus.publish("t", [Record(b"x")] * 5)
    assert bus.trim("t", keep_seconds=3_600) == 0


def test_trim_keeps_as_many_bytes_as_asked(bus: Bus) -> None:
    bus.create_topic("t", 2)
    for n in range(40):
        bus.publish("t", [Record(b"x" * 1_000, partition=n % 4 == 0)])
    total = sum(part.size_bytes for part in bus.state("t"))
    assert 40_000 <= total <= 44_000
    dropped = bus.trim("t", keep_seconds=FOREVER, keep_bytes=total // 2)
    left = sum(part.size_bytes for part in bus.state("t"))
    assert dropped == 20
    assert total // 2 - 1_100 <= left <= total // 2


def test_trim_keeps_records_that_a_group_has_not_acknowledged(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    bus.publish("t", [Record(b"x")] * 10)
    assert bus.trim("t", keep_seconds=-1) == 0
    bus.read_group("t", "g", "c", max_records=6)
    bus.acknowledge("t", "g", 0, offsets=[0, 1, 3, 4, 5])
    assert bus.trim("t", keep_seconds=-1) == 2
    bus.acknowledge("t", "g", 0, offsets=[2])
    assert bus.trim("t", keep_seconds=-1) == 4
    bus.delete_group("t", "g")
    assert bus.trim("t", keep_seconds=-1) == 4


def test_a_full_topic_refuses_until_its_reader_continues() -> None:
    bus = FreshBus(max_bytes=1 << 20)
    bus.create_topic("t", 1)
    bus.hold("t", "r", {0: 0})
    for _ in range(11):
        bus.publish("t", [Record(b"x" * 100_000)])
    with pytest.raises(BusFull) as caught:
        bus.publish("t", [Record(b"x")])
    assert caught.value.limit == 1 << 20
    assert caught.value.size >= 1_100_000
    assert bus.publish("other", [Record(b"x")])
    assert [part.end for part in bus.state("t")] == [11]
    with pytest.raises(BusFull):
        bus.publish_once("t", Record(b"x"), registry="r", name="n", content=b"", keep_seconds=9)
    assert bus.recall("r", ["n"]) == [None]
    bus.hold("t", "r", {0: 8})
    assert bus.publish("t", [Record(b"x")]) == [Position(0, 11)]


def test_an_unread_topic_stays_bounded() -> None:
    bus = FreshBus(max_bytes=1 << 20)
    for _ in range(40):
        bus.publish("t", [Record(b"x" * 100_000)])
    assert sum(part.size_bytes for part in bus.state("t")) < 1.2 * (1 << 20)
    assert sum(part.end for part in bus.state("t")) == 40


def test_an_abandoned_group_does_not_stop_writers_forever() -> None:
    bus = FreshBus(max_bytes=1 << 20, group_expiry_seconds=0.05)
    bus.create_group("t", "abandoned", at_end=False)

    def published() -> bool:
        try:
            return bool(bus.publish("t", [Record(b"x" * 200_000)]))
        except BusFull:
            return False

    for _ in range(12):
        wait_until(published)
    assert bus.groups("t") == []
    with pytest.raises(BusError):
        bus.read_group("t", "abandoned", "c")


def test_a_group_in_use_does_not_expire() -> None:
    bus = FreshBus(group_expiry_seconds=30)
    bus.create_group("t", "g", at_end=True)
    bus.trim("t", keep_seconds=-1)
    assert bus.groups("t") == ["g"]


# ---- groups
def test_a_group_at_the_end_sees_only_later_records(bus: Bus) -> None:
    bus.publish("t", [Record(b"old", partition=p) for p in range(3)])
    bus.create_group("t", "late", at_end=True)
    bus.create_group("t", "early", at_end=False)
    assert bus.next_offsets("t", "late") == {0: 1, 1: 1, 2: 1, 3: 0}
    assert bus.next_offsets("t", "early") == {0: 0, 1: 0, 2: 0, 3: 0}
    bus.publish("t", [Record(b"new", partition=p) for p in (0, 3)])
    assert sorted(offsets(bus.read_group("t", "late", "c"))) == [(0, 1), (3, 0)]
    assert len(bus.read_group("t", "early", "c")) == 5
    assert bus.next_offsets("t", "late") == {0: 2, 1: 1, 2: 1, 3: 1}


def test_making_a_group_again_changes_nothing(bus: Bus) -> None:
    bus.publish("t", [Record(b"x")] * 4)
    bus.create_group("t", "g", at_end=False)
    assert len(bus.read_group("t", "g", "c")) == 4
    bus.create_group("t", "g", at_end=False)
    assert bus.read_group("t", "g", "c") == []
    assert bus.groups("t") == ["g"]


def test_a_group_after_trim_starts_at_the_first_record(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"x")] * 6)
    bus.hold("t", "r", {0: 4})
    bus.trim("t", keep_seconds=-1)
    bus.create_group("t", "g", at_end=False)
    assert bus.next_offsets("t", "g") == {0: 4}
    assert offsets(bus.read_group("t", "g", "c")) == [(0, 4), (0, 5)]


def test_each_record_goes_to_one_consumer_and_is_pending_until_acknowledged(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"%d" % n, key=b"k") for n in range(5)])
    one = bus.read_group("t", "g", "one", max_records=2)
    two = bus.read_group("t", "g", "two", max_records=9)
    assert offsets(one) == [(0, 0), (0, 1)]
    assert offsets(two) == [(0, 2), (0, 3), (0, 4)]
    assert [r.deliveries for r in one + two] == [1] * 5
    assert (two[0].record.value, two[0].record.key) == (b"2", b"k")
    assert bus.pending("t", "g") == {0: 5}
    assert bus.acknowledge("t", "g", 0, offsets=[0, 3, 77]) == 2
    assert bus.acknowledge("t", "g", 0, offsets=[0]) == 0
    assert bus.acknowledge("t", "g", 0, offsets=[]) == 0
    assert bus.acknowledge("t", "nobody", 0, offsets=[0]) == 0
    assert bus.pending("t", "g") == {0: 3}


def test_no_partition_starves(bus: Bus) -> None:
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"x", partition=p) for p in range(4) for _ in range(20)])
    assert {p for p, _ in offsets(bus.read_group("t", "g", "c", max_records=8))} == {0, 1, 2, 3}
    assert {offsets(bus.read_group("t", "g", "c", max_records=1))[0][0] for _ in range(8)} == {0, 1, 2, 3}


def test_quiet_partitions_leave_their_share_to_busy_ones(bus: Bus) -> None:
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"x", partition=2)] * 20)
    assert offsets(bus.read_group("t", "g", "c", max_records=8)) == [(2, n) for n in range(8)]
    assert offsets(bus.read_group("t", "g", "c", max_records=1)) == [(2, 8)]


def test_a_group_may_read_some_partitions_only(bus: Bus) -> None:
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"x", partition=p) for p in range(4)])
    assert sorted(offsets(bus.read_group("t", "g", "c", partitions=[3, 1]))) == [(1, 0), (3, 0)]
    assert bus.read_group("t", "g", "c", partitions=[]) == []
    assert offsets(bus.claim_expired("t", "g", "d", min_idle_seconds=0, partitions=[3])) == [(3, 0)]


def test_expired_records_are_claimed_in_offset_order_and_counted(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"%d" % n) for n in range(6)])
    bus.read_group("t", "g", "one")
    bus.acknowledge("t", "g", 0, offsets=[1])
    assert bus.claim_expired("t", "g", "two", min_idle_seconds=60) == []
    claimed = bus.claim_expired("t", "g", "two", min_idle_seconds=0, max_records=3)
    assert [(r.record.offset, r.record.value, r.deliveries) for r in claimed] == [
        (0, b"0", 2),
        (2, b"2", 2),
        (3, b"3", 2),
    ]
    again = bus.claim_expired("t", "g", "one", min_idle_seconds=0)
    assert [(r.record.offset, r.deliveries) for r in again] == [(0, 3), (2, 3), (3, 3), (4, 2), (5, 2)]
    assert bus.pending("t", "g") == {0: 5}


def test_records_of_one_consumer_are_claimed_alone(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"%d" % n) for n in range(4)])
    bus.read_group("t", "g", "gone", max_records=2)
    bus.read_group("t", "g", "here", max_records=1)
    assert bus.pending_by_consumer("t", "g") == {0: {"gone": 2, "here": 1}}
    bus.forget_consumer("t", "g", "gone")
    claimed = bus.claim_expired("t", "g", "new", min_idle_seconds=0, of_consumer="gone")
    assert [(c.record.offset, c.deliveries) for c in claimed] == [(0, 2), (1, 2)]
    bus.forget_consumer("t", "g", "gone")
    assert bus.pending_by_consumer("t", "g") == {0: {"here": 1, "new": 2}}
    with pytest.raises(BusError):
        bus.pending_by_consumer("t", "unknown")


def test_records_given_back_do_not_count_as_delivered(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"%d" % n) for n in range(3)])
    offered = bus.read_group("t", "g", "c")
    bus.acknowledge("t", "g", 0, offsets=[1])
    bus.give_back("t", "g", offered)
    assert bus.pending_by_consumer("t", "g") == {0: {NOBODY: 2}}
    claimed = bus.claim_expired("t", "g", "d", min_idle_seconds=0, of_consumer=NOBODY)
    assert [(c.record.offset, c.deliveries) for c in claimed] == [(0, 1), (2, 1)]


def test_groups_are_independent_and_unknown_ones_are_errors(bus: Bus) -> None:
    bus.create_group("t", "a", at_end=True)
    bus.create_group("t", "b", at_end=True)
    bus.publish("t", [Record(b"x", partition=0)])
    assert len(bus.read_group("t", "a", "c")) == len(bus.read_group("t", "b", "c")) == 1
    assert bus.groups("t") == ["a", "b"]
    assert bus.delete_group("t", "a") is True
    assert bus.delete_group("t", "a") is False
    assert bus.delete_group("nothing", "a") is False
    for call in (bus.pending, bus.next_offsets):
        with pytest.raises(BusError):
            call("t", "a")
    with pytest.raises(BusError):
        bus.read_group("t", "a", "c")
    with pytest.raises(BusError):
        bus.claim_expired("t", "a", "c", min_idle_seconds=0)


# ---- leases
def test_a_revoked_lease_writes_nothing(bus: Bus) -> None:
    bus.create_topic("t", 1)
    with pytest.raises(LeaseLost):
        bus.publish("t", [Record(b"x")], lease="job")
    bus.grant({"job": b"note", "other": b"\x00"})
    assert bus.leases() == {"job": b"note", "other": b"\x00"}
    assert bus.publish("t", [Record(b"x")], lease="job") == [Position(0, 0)]
    bus.revoke(["job", "never"])
    with pytest.raises(LeaseLost):
        bus.publish("t", [Record(b"y")], lease="job")
    assert bus.leases() == {"other": b"\x00"}
    assert len(bus.read("t", 0, 0)) == 1
    bus.grant({})
    bus.revoke([])


def test_leases_are_revoked_before_others_are_granted_in_one_call(bus: Bus) -> None:
    bus.create_topic("t", 1)
    bus.grant({"old": b"1", "again": b"2", "kept": b"3"})
    bus.grant({"new": b"4", "again": b"5"}, revoking=["old", "again", "never"])
    assert bus.leases() == {"again": b"5", "kept": b"3", "new": b"4"}
    with pytest.raises(LeaseLost):
        bus.publish("t", [Record(b"x")], lease="old")
    bus.grant({}, revoking=["kept"])
    assert bus.leases() == {"again": b"5", "new": b"4"}


# ---- tables
def test_tables_keep_the_newest_value_of_a_key(bus: Bus) -> None:
    bus.put("a", {"x": b"1", "y": b"2"})
    bus.put("a", {"x": b"3"})
    bus.put("b", {"x": b""})
    bus.put("a", {})
    assert bus.get("a", ["y", "x", "z"]) == [b"2", b"3", None]
    assert bus.get("a", []) == []
    assert bus.items("a") == {"x": b"3", "y": b"2"}
    bus.delete("a", ["x", "z"])
    assert bus.items("a") == {"y": b"2"}
    assert bus.items("b") == {"x": b""}
    assert bus.items("c") == {}


def test_the_first_writer_of_a_new_key_wins(bus: Bus) -> None:
    assert bus.put_new("t", "k", b"first") == b"first"
    assert bus.put_new("t", "k", b"second") == b"first"
    assert bus.get("t", ["k"]) == [b"first"]


def test_the_states_of_several_topics_are_those_of_each(bus: Bus) -> None:
    bus.create_topic("a", 2)
    bus.create_topic("b", 1)
    bus.publish("a", [Record(b"x", partition=1)])
    assert bus.states(["b", "a"]) == {"b": bus.state("b"), "a": bus.state("a")}
    assert [state.end for state in bus.states(["a"])["a"]] == [0, 1]
    with pytest.raises(BusError, match="no topic unknown"):
        bus.states(["a", "unknown"])


def test_states_are_those_after_a_record_has_come(bus: Bus) -> None:
    bus.create_topic("a", 2)
    bus.create_topic("b", 1)
    bus.publish("a", [Record(b"x", partition=1)])
    a, b = bus.states(["a", "b"]).values()
    assert bus.states_after({("b", 0): 0, ("a", 1): 0}, 60) == {("b", 0): b[0], ("a", 1): a[1]}
    assert bus.states_after({("a", 1): 1}, 0.01, also=[("a", 0), ("a", 1)]) == {("a", 1): a[1], ("a", 0): a[0]}
    with pytest.raises(BusError, match="no partition 2"):
        bus.states_after({("a", 2): 0}, 60)
    timer = threading.Timer(0.05, lambda: bus.publish("b", [Record(b"y")]))
    timer.start()
    found = bus.states_after({("a", 1): 1, ("b", 0): 0}, 60)
    timer.join()
    assert list(found) == [("a", 1), ("b", 0)] and found["b", 0].end == 1


def test_states_are_all_of_one_moment(bus: Bus) -> None:
    """A request this long reaches the server in several pieces."""
    between = [(f"between {number}", partition) for number in range(4) for partition in range(1_000)]
    for topic, count in (("a", 1), ("b", 1), *((topic, 1_000) for topic, partition in between if not partition)):
        bus.create_topic(topic, count)
    stopping = threading.Event()

    def publish() -> None:
        while not stopping.is_set():
            for topic in ("a", "b"):
                bus.publish(topic, [Record(b"x")])

    publisher = threading.Thread(target=publish)
    publisher.start()
    try:
        ahead = set()
        for _ in range(100):
            found = bus.states_after({("a", 0): 0}, 60, also=[*between, ("b", 0)])
            ahead.add(found["a", 0].end - found["b", 0].end)
    finally:
        stopping.set()
        publisher.join()
    assert found["b", 0].end > 10 and ahead <= {0, 1}


def test_a_wait_and_the_states_after_it_are_one_exchange_with_the_server(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.create_topic("a", 1)
    exchange, sent = Store._exchange, threading.Event()
    waited: list[int] = []

    def counted(store: Store, packed: bytes, replies: int) -> Any:
        if threading.current_thread().name == "waiter":
            waited.append(replies)
            sent.set()
        return exchange(store, packed, replies)

    monkeypatch.setattr(Store, "_exchange", counted)
    calls: list[Callable[[dict[tuple[str, int], int], float], object]] = [bus.wait, bus.states_after]
    for end, wait in enumerate(calls):
        sent.clear()
        waiter = threading.Thread(target=wait, args=({("a", 0): end}, 60.0), name="waiter")
        waiter.start()
        assert sent.wait(20)
        bus.publish("a", [Record(b"x")])
        waiter.join(20)
        assert not waiter.is_alive() and len(waited) == end + 1


def test_a_wait_brings_records_if_only_a_few_have_come(bus: Bus) -> None:
    bus.create_topic("a", 3)
    bus.publish("a", [Record(b"old", partition=0), *(Record(b"%d" % i, partition=1) for i in range(20))])
    bus.publish("a", [Record(b"new", partition=0), Record(b"newer", partition=0)])
    waits: list[Callable[..., object]] = [bus.wait, bus.states_after]
    for wait in waits:
        few: FewRecords = {}
        wait({("a", 0): 1, ("a", 1): 10, ("a", 2): 0}, 60.0, few_records=few)
        assert few == {("a", 0): bus.read("a", 0, 1)} and [r.value for r in few["a", 0]] == [b"new", b"newer"]
        few.clear()
        wait({("a", 1): 12, ("a", 0): 3}, 60.0, few_records=few)
        assert few == {("a", 1): bus.read("a", 1, 12)} and len(few["a", 1]) == 8
        few.clear()
        wait({("a", 0): 3}, 0.01, few_records=few)
        wait({("a", 0): 0}, 0.0, few_records=few)
        assert few == {}


def test_a_wait_brings_no_records_after_trimmed_ones(bus: Bus) -> None:
    for number in range(4):
        bus.publish("a", [Record(b"%d" % number, partition=0)])
    bus.hold("a", "reader", {0: 2})
    bus.trim("a", keep_seconds=0)
    waits: list[Callable[..., object]] = [bus.wait, bus.states_after]
    for wait in waits:
        few: FewRecords = {}
        wait({("a", 0): 1}, 60.0, few_records=few)
        assert few == {}
        wait({("a", 0): 2}, 60.0, few_records=few)
        assert [record.offset for record in few["a", 0]] == [2, 3]


def test_a_row_is_replaced_only_if_it_holds_the_expected_value(bus: Bus) -> None:
    bus.put("t", {"outdated": b"0"})
    assert bus.replace("t", "k", None, new=b"1", put={"a": b"x"}, delete=["outdated", "unknown"])
    assert bus.items("t") == {"k": b"1", "a": b"x"}
    # No other client wrote meanwhile; a lost answer makes the call repeat.
    assert bus.replace("t", "k", b"1", new=b"2") and bus.replace("t", "k", b"1", new=b"2")
    assert not bus.replace("t", "k", b"1", new=b"3", put={"a": b"y"}, delete=["a"])
    assert not bus.replace("t", "k", None, new=b"3") and not bus.replace("t", "new", b"", new=b"3")
    assert bus.items("t") == {"k": b"2", "a": b"x"}


# ---- commits
def test_a_commit_replaces_rows_and_appends_records_together(bus: Bus) -> None:
    bus.create_topic("t", 2)
    bus.put("b", {"outdated": b"0"})
    stamp = SequenceStamp("s", tag=b"\x68")
    records = {"t": [Record(b"1", partition=1, sequence=stamp), Record(b"2", b"k", partition=0)], "new": [Record(b"3")]}
    swaps = [Swap("a", "k", None, b"1", {"x": b"y"}), Swap("b", "k", None, b"2", {}, ["outdated", "unknown"])]
    assert bus.commit(swaps, records)
    assert bus.commit(swaps, records), "its answer was lost"
    assert (bus.items("a"), bus.items("b")) == ({"k": b"1", "x": b"y"}, {"k": b"2"})
    assert sum(state.end for state in bus.state("t")) == 2
    assert [record.value for record in bus.read("t", 1, 0) if record.sequence] == [b"1\x68\x01"]
    assert bus.last_sequence("s") == 1
    assert sum(state.end for state in bus.state("new")) == 1
    assert bus.commit([Swap("a", "k", b"1", b"2", {})], {"t": [Record(b"4", partition=1)]})
    many = {f"row {number}": b"%d" % number for number in range(2_501)}
    assert bus.commit([Swap("c", "k", None, b"1", many)], {})
    assert bus.items("c") == {**many, "k": b"1"}
    assert bus.commit([Swap("c", "k", b"1", b"2", {}, list(many)[:2_000])], {})
    assert bus.items("c") == {**dict(list(many.items())[2_000:]), "k": b"2"}
    assert bus.publish("t", [Record(b"5", partition=1)]) == [Position(1, 2)]


@pytest.mark.parametrize(
    "swaps",
    [
        [Swap("a", "k", b"2", b"3", {"x": b"y"})],
        [Swap("a", "k", None, b"3", {"x": b"y"})],
        [Swap("a", "k", b"1", b"3", {"x": b"y"}), Swap("a", "other", b"", b"3", {})],
        [Swap("a", "new", None, b"3", {"x": b"y"}), Swap("a", "k", b"0", b"1", {})],
    ],
)
def test_a_commit_writes_nothing_where_anything_differs(bus: Bus, swaps: list[Swap]) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"0")])
    bus.put("a", {"k": b"1"})
    assert not bus.commit(swaps, {"t": [Record(b"1")]})
    assert bus.items("a") == {"k": b"1"} and bus.state("t")[0].end == 1


def test_a_commit_writes_nothing_where_a_partition_ends_elsewhere(bus: Bus) -> None:
    bus.create_topic("t", 2)
    bus.publish("t", [Record(b"0", partition=1)])
    first = [Swap("a", "k", None, b"1", {})], {"t": [Record(b"1", partition=1)]}
    for ends in ({("t", 1): 0}, {("t", 1): 2}, {("t", 1): 1, ("t", 0): 1}, {("t", 0): 1, ("t", 1): 1}, {("new", 0): 1}):
        assert not bus.commit(*first, ends=ends)
    assert not bus.items("a") and [state.end for state in bus.state("t")] == [0, 1]
    due = {("t", 1): 1, ("t", 0): 0, ("new", 0): 0}
    assert bus.commit(*first, ends=due)
    assert bus.commit(*first, ends=due), "its answer was lost"
    assert not bus.commit([Swap("a", "k", b"0", b"2", {})], first[1], ends={("t", 1): 2})
    assert bus.items("a") == {"k": b"1"} and [record.value for record in bus.read("t", 1, 0)] == [b"0", b"1"]


def test_a_commit_into_a_full_topic_writes_nothing_until_its_readers_continue() -> None:
    bus = FreshBus(1, max_bytes=1_000)
    bus.create_topic("t", 1)
    bus.hold("t", "reader", {0: 0})
    bus.publish("t", [Record(bytes(2_000))])
    full = [Swap("a", "k", None, b"1", {})], {"other": [Record(b"x")], "t": [Record(b"x")]}
    with pytest.raises(BusFull):
        bus.commit(*full)
    assert not bus.items("a") and not bus.partitions("other")
    bus.hold("t", "reader", {0: 1})
    assert bus.commit(*full)
    assert [record.value for record in bus.read("t", 0, 1)] == [b"x"]
    bus.close()


def test_table_entries_may_expire(bus: Bus) -> None:
    bus.put("a", {"x": b"1", "y": b"2"}, keep_seconds=0.02)
    bus.put("a", {"y": b"3"})
    bus.put("a", {"z": b"4"}, keep_seconds=60)
    wait_until(lambda: bus.get("a", ["x"]) == [None])
    assert bus.items("a") == {"y": b"3", "z": b"4"}


# ---- budgets
def test_a_budget_is_shared_and_refills(bus: Bus) -> None:
    assert [bus.take("b", 4, capacity=10, per_second=0.01) for _ in range(2)] == [0, 0]
    assert 150 < bus.take("b", 4, capacity=10, per_second=0.01) <= 200
    assert bus.take("b", 2, capacity=10, per_second=0.01) == 0
    assert bus.take("other", 10, capacity=10, per_second=1) == 0
    assert bus.take("quick", 10, capacity=10, per_second=1_000) == 0
    wait_until(lambda: bus.take("quick", 10, capacity=10, per_second=1_000) == 0)


def test_a_cost_above_the_capacity_is_paid_off_afterwards(bus: Bus) -> None:
    assert bus.take("b", 25, capacity=10, per_second=0.1) == 0
    assert 150 < bus.take("b", 1, capacity=10, per_second=0.1) <= 160


def test_a_blocked_budget_gives_nothing(bus: Bus) -> None:
    bus.block_budget("b", 50)
    bus.block_budget("b", 1)
    assert 40 < bus.take("b", 1, capacity=10, per_second=100) <= 50
    bus.block_budget("c", 0.02)
    wait_until(lambda: bus.take("c", 1, capacity=10, per_second=1) == 0)


def test_a_budget_is_corrected_downwards_only(bus: Bus) -> None:
    assert bus.take("b", 1, capacity=10, per_second=0.01) == 0
    bus.correct_budget("b", 8, capacity=10)
    bus.correct_budget("b", 0, capacity=10)
    assert bus.take("b", 3, capacity=10, per_second=0.01) > 0
    assert bus.take("b", 2, capacity=10, per_second=0.01) == 0


# ---- threads
def test_many_writers_keep_offsets_and_sequences_dense(bus: Bus) -> None:
    bus.create_topic("t", 2)
    positions: list[Position] = []

    def write(n: int) -> None:
        for _ in range(20):
            stamped = [Record(b"%d" % n, partition=p % 2, sequence=SequenceStamp("s")) for p in range(5)]
            positions.extend(bus.publish("t", stamped))

    run_threads(write, 6)
    assert sorted((p.partition, p.offset) for p in positions) == [(0, n) for n in range(360)] + [
        (1, n) for n in range(240)
    ]
    stamps = [r.sequence for p in (0, 1) for r in bus.read("t", p, 0)]
    assert sorted(s for s in stamps if s) == list(range(1, 601))


def test_a_group_shared_by_threads_gives_each_record_once(bus: Bus) -> None:
    bus.create_group("t", "g", at_end=True)
    bus.publish("t", [Record(b"%d" % n, partition=n % 4) for n in range(400)])
    found: list[bytes] = []

    def consume(n: int) -> None:
        while batch := bus.read_group("t", "g", f"c{n}", max_records=7):
            found.extend(r.record.value for r in batch)
            for r in batch:
                bus.acknowledge("t", "g", r.record.partition, offsets=[r.record.offset])

    run_threads(consume, 4)
    assert sorted(found) == sorted(b"%d" % n for n in range(400))
    assert bus.pending("t", "g") == dict.fromkeys(range(4), 0)


def wait_until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, "condition did not come true in time"
        pause.wait(0.005)


def run_threads(work: Callable[[int], None], count: int) -> None:
    errors: list[BaseException] = []

    def guarded(n: int) -> None:
        try:
            work(n)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
