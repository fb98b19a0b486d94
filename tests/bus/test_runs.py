"""Records with the same stamp and key are stored together, which no reader of the bus can notice."""

import time
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.api import Bus, Record, RecordRun, SequenceStamp
from bus.redis.redis_bus import RedisBus
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import OffsetOutOfRange
from candlewright.wire.varint import varint
from tests.fresh_bus import FreshBus
from tests.rounds import rounds

_KEYS = [b"A", b"B", b""]
#: A sequence belongs to one partition: that of its key.
_STAMPS = [
    [
        SequenceStamp(f"one:{key!r}", tag=b"\x68"),
        SequenceStamp(f"two:{key!r}", tag=b"\x68"),
        SequenceStamp(f"bare:{key!r}"),
        SequenceStamp(f"many:{key!r}", 3, b"\x68"),
        SequenceStamp(f"context:{key!r}", context_tag=b"\x2a"),
        None,
    ]
    for key in _KEYS
]
_RUNS = st.lists(
    st.tuples(
        st.integers(0, len(_KEYS) - 1),
        st.integers(0, len(_STAMPS[0]) - 1),
        st.booleans(),
        st.lists(st.binary(max_size=3), min_size=1, max_size=40),
    ),
    min_size=1,
    max_size=6,
)


def _records(runs: list[tuple[int, int, bool, list[bytes]]]) -> list[Record]:
    return [
        Record(value, _KEYS[key], {"h": "1"} if has_headers else {}, sequence=_STAMPS[key][stamp])
        for key, stamp, has_headers, values in runs
        for value in values
    ]


def _content(bus: Bus) -> list[tuple[object, ...]]:
    return [
        (r.partition, r.offset, r.key, r.value, dict(r.headers), r.sequence)
        for partition in range(bus.partitions("t"))
        for r in bus.read("t", partition, 0, max_records=10_000)
    ]


@settings(max_examples=rounds(40), deadline=None)
@given(st.lists(_RUNS, min_size=1, max_size=2))
def test_runs_of_records_have_the_same_effect_as_single_records(
    calls: list[list[tuple[int, int, bool, list[bytes]]]],
) -> None:
    bus, single = FreshBus(), FreshBus()
    positions = [bus.publish("t", _records(runs)) for runs in calls]
    together, sizes = _content(bus), bus.state("t")
    assert positions == [
        [place for record in _records(runs) for place in single.publish("t", [record])] for runs in calls
    ]
    assert (together, sizes) == (_content(single), single.state("t"))
    bus.close()
    single.close()


@settings(max_examples=rounds(40), deadline=None)
@given(_RUNS, st.data())
def test_runs_that_are_read_have_the_records_of_a_read(
    runs: list[tuple[int, int, bool, list[bytes]]], data: st.DataObject
) -> None:
    bus = FreshBus()
    bus.publish("t", _records(runs))
    for partition, state in enumerate(bus.state("t")):
        first = data.draw(st.integers(0, state.end))
        end = data.draw(st.integers(first, state.end))
        wanted = bus.read("t", partition, first, max_records=end - first) if end > first else []
        found = list(bus.read_runs("t", partition, first=first, end=end))
        assert [record for run in found for record in run.records()] == wanted
        times_ms = [
            time_ms
            for run in found
            for time_ms, count in zip(run.times_ms, run.counts, strict=True)
            for _ in range(count)
        ]
        assert times_ms == [record.timestamp_ms for record in wanted]
        assert [run.offset + place for run in found for place in range(len(run.lengths))] == [
            record.offset for record in wanted
        ]
        for record, value in zip(wanted, (value for run in found for value in _values(run)), strict=True):
            numbered = value + b"\x68" + varint(record.sequence or 0)
            assert record.value in (value, numbered)
    bus.close()


def _values(run: RecordRun) -> list[bytes]:
    lengths, found = iter(run.lengths), []
    for joined, count in zip(run.values, run.counts, strict=True):
        at = 0
        for length in islice(lengths, count):
            found.append(joined[at : at + length])
            at += length
        assert at == len(joined)
    return found


def test_a_run_that_was_trimmed_or_never_written_is_out_of_range(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.publish("t", _bars(1_000))
    with pytest.raises(OffsetOutOfRange):
        list(bus.read_runs("t", 0, first=990, end=1_001))
    bus.hold("t", "reader", {0: 500})
    bus.trim("t", keep_seconds=-1)
    with pytest.raises(OffsetOutOfRange):
        list(bus.read_runs("t", 0, first=499, end=1_000))
    assert sum(len(run.lengths) for run in bus.read_runs("t", 0, first=500, end=1_000)) == 500
    bus.close()


def test_a_number_inside_a_long_run_is_located(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    stamp = SequenceStamp("bars", tag=b"\x68")
    for _ in range(2):
        bus.publish("t", [Record(b"", key=b"A", sequence=stamp) for _ in range(7_000)])
    start = bus.locate("t", "bars", 13_000)
    assert start is not None
    assert 12_999 - 2_048 <= start.offset <= 12_999
    (found,) = bus.read("t", 0, 12_999, max_records=1)
    assert (found.sequence, OHLCV.FromString(found.value).sequence) == (13_000, 13_000)
    bus.close()


def _bars(count: int, key: bytes = b"A") -> list[Record]:
    stamp = SequenceStamp(f"bars:{key!r}", tag=b"\x68")
    return [Record(OHLCV(trade_count=n).SerializeToString(), key=key, sequence=stamp) for n in range(count)]


def _read_all(bus: Bus, topic: str = "t") -> list[tuple[object, ...]]:
    first = bus.state(topic)[0].first
    return [(r.offset, r.key, r.value, r.sequence) for r in bus.read(topic, 0, first, max_records=100_000)]


def test_a_long_run_takes_few_entries_and_is_read_from_any_offset(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.publish("t", _bars(1_000))
    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("cw:log:t:0") < 20
    everything = _read_all(bus)
    assert [(offset, sequence) for offset, _, _, sequence in everything] == [(n, n + 1) for n in range(1_000)]
    for offset in range(0, 1_000, 7):
        for limit in (1, 10, 200):
            found = [(r.offset, r.key, r.value, r.sequence) for r in bus.read("t", 0, offset, max_records=limit)]
            assert found == everything[offset : offset + limit]
    bus.close()


def test_numbers_at_the_trimmed_front_of_a_pack_are_not_located(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.publish("t", _bars(100, b"B") + _bars(5_000))
    for first in (0, 30, 1_111, 2_147, 2_149, 4_500, 5_099):
        bus.hold("t", "reader", {0: first})
        bus.trim("t", keep_seconds=-1)
        assert bus.state("t")[0].first == first
        for number in range(1, 5_001, 13):
            found = bus.locate("t", "bars:b'A'", number)
            if number + 99 < first:
                assert found is None
            else:
                assert found is not None and first <= found.offset <= number + 99
    bus.close()


def test_values_larger_than_a_pack_are_stored_alone(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    stamp, key = SequenceStamp("s", tag=b"\x68"), b"A"
    values = [b"x" * size for size in (1, 2, 20_000, 3, 9_000, 9_000, 9_000)]
    bus.publish("t", [Record(value, key=key, sequence=stamp) for value in values])
    assert [r.value for r in bus.read("t", 0, 0)] == [value + b"\x68%c" % (n + 1) for n, value in enumerate(values)]
    assert [len(bus.read("t", 0, 3, max_bytes=limit)) for limit in (1, 8_999, 9_010, 18_010)] == [1, 1, 2, 3]
    bus.close()


def test_a_group_is_given_the_records_of_packs_one_by_one(redis_url: str) -> None:
    """Includes a topic that is trimmed up to the middle of a pack, and to which others publish meanwhile."""
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"plain", headers={"h": "1"}), *_bars(300), Record(b"last")])
    bus.hold("t", "reader", {0: 25})
    assert bus.trim("t", keep_seconds=-1) == 25
    before, size = _read_all(bus), bus.state("t")[0].size_bytes
    # What `create_group` does internally.
    while bus._store.run("unpack", "t", 0, 50):
        bus.publish("t", [Record(b"meanwhile")])
        assert _read_all(bus)[: len(before)] == before
    assert bus.state("t")[0].size_bytes > size
    bus.publish("t", _bars(200, b"B"))
    before = _read_all(bus)
    bus.create_group("t", "g", at_end=False)
    assert _read_all(bus) == before
    bus.publish("t", _bars(100, b"B"))
    with redis.Redis.from_url(redis_url) as client:
        state = bus.state("t")[0]
        assert client.xlen("cw:log:t:0") == state.end - state.first
        assert client.exists("cw:unpacked:t:0") == 0
    given = []
    while found := bus.read_group("t", "g", "c", max_records=7):
        assert len(found) <= 7
        given += [(r.record.offset, r.record.key, r.record.value, r.record.sequence) for r in found]
        bus.acknowledge("t", "g", 0, offsets=[r.record.offset for r in found[1:]])
    assert given == _read_all(bus)
    left = bus.claim_expired("t", "g", "d", min_idle_seconds=0, max_records=1_000)
    assert [r.record.offset for r in left] == [offset for offset, *_ in given[::7]]
    assert bus.trim("t", keep_seconds=-1) == 0
    bus.acknowledge("t", "g", 0, offsets=[r.record.offset for r in left])
    bus.release("t", "reader")
    assert bus.trim("t", keep_seconds=-1) == len(given)
    assert bus.state("t")[0].size_bytes == 0
    bus.close()


def test_packs_come_again_when_the_last_group_is_gone(redis_url: str) -> None:
    bus = RedisBus(redis_url, group_expiry_seconds=0)
    with redis.Redis.from_url(redis_url) as client:
        bus.create_topic("t", 1)
        bus.create_group("t", "g", at_end=True)
        bus.publish("t", _bars(100))
        assert client.xlen("cw:log:t:0") == 100
        bus.delete_group("t", "g")
        bus.publish("t", _bars(100))
        assert client.xlen("cw:log:t:0") < 110
        bus.create_group("t", "h", at_end=True)
        assert client.xlen("cw:log:t:0") == 200
        deadline = time.monotonic() + 10
        while bus.groups("t") and time.monotonic() < deadline:
            bus.trim("t", keep_seconds=3_600)
        bus.publish("t", _bars(100))
        assert client.xlen("cw:log:t:0") < 210
    assert [offset for offset, *_ in _read_all(bus)] == list(range(300))
    bus.close()


def test_groups_of_an_older_data_directory_get_no_packs(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.create_group("t", "g", at_end=False)
    with redis.Redis.from_url(redis_url) as client:
        client.hdel("cw:topic:t", "plain")
    bus.publish("t", _bars(100))
    assert len(bus.read_group("t", "g", "c", max_records=30)) == 30
    bus.close()


def test_a_full_topic_drops_the_oldest_records_of_a_pack(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 2)
    # Keys of the two partitions.
    bus.publish("t", _bars(100, b"A") + _bars(100, b""))
    total = sum(state.size_bytes for state in bus.state("t"))
    dropped = bus.trim("t", keep_seconds=1e9, keep_bytes=total // 3)
    states = bus.state("t")
    assert dropped == sum(state.first for state in states)
    assert total // 3 - 100 < sum(state.size_bytes for state in states) <= total // 3
    for partition, state in enumerate(states):
        found = bus.read("t", partition, state.first)
        assert [r.offset for r in found] == list(range(state.first, 100))
        assert state.size_bytes == sum(32 + len(r.value) + len(r.key or b"") for r in found)
    bus.close()


def test_a_waiting_reader_wakes_for_a_pack(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    bus.publish("t", _bars(10))
    assert bus.wait({("t", 0): 5}, 0) == {("t", 0)}
    assert bus.wait({("t", 0): 10}, 0.05) == set()
    with ThreadPoolExecutor(1) as waiting:
        woken = waiting.submit(bus.wait, {("t", 0): 10}, 30)
        bus.publish("t", _bars(10))
        assert woken.result(20) == {("t", 0)}
    bus.close()


def test_records_with_keys_alone_take_few_entries_and_become_those_of_a_group(redis_url: str) -> None:
    bus = RedisBus(redis_url)
    bus.create_topic("t", 1)
    records = [Record(b"v" * (n % 7), key=b"k" * (n % 3), partition_key=b"p") for n in range(1_000)]
    records[500] = Record(b"x" * 20_000, key=b"long", partition_key=b"p")
    wanted = [(n, record.key, record.value, None) for n, record in enumerate(records)]
    for part in (records[:700], records[700:]):
        bus.publish("t", part)
    with redis.Redis.from_url(redis_url) as client:
        assert client.xlen("cw:log:t:0") < 40
        for offset in range(0, 1_000, 17):
            found = [(r.offset, r.key, r.value, r.sequence) for r in bus.read("t", 0, offset, max_records=200)]
            assert found == wanted[offset : offset + 200]
        size = bus.state("t")[0].size_bytes
        assert size == sum(32 + len(record.key or b"") + len(record.value) for record in records)
        bus.hold("t", "reader", {0: 45})
        assert bus.trim("t", keep_seconds=-1) == 45
        dropped = sum(32 + len(record.key or b"") + len(record.value) for record in records[:45])
        assert bus.state("t")[0].size_bytes == size - dropped
        bus.create_group("t", "g", at_end=False)
        assert client.xlen("cw:log:t:0") == 955
        bus.publish("t", records[:100])
        assert client.xlen("cw:log:t:0") == 1_055
    again = [(1_000 + n, key, value, None) for n, key, value, _ in wanted[:100]]
    given = [r.record for r in bus.read_group("t", "g", "c", max_records=2_000)]
    assert [(r.offset, r.key, r.value, r.sequence) for r in given] == wanted[45:] + again
    bus.close()
