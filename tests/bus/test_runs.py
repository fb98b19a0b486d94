"""Records that share stamp and key travel together; what is on the bus does not show it."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bus.api import Bus, Record, SequenceStamp
from bus.memory_bus import MemoryBus
from bus.redis_bus import RedisBus
from protobuf.candlewright_pb2 import OHLCV

_KEYS = [b"A", b"B", b""]
#: A sequence lies in one partition: that of its key.
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_RUNS, min_size=1, max_size=2))
def test_runs_of_records_leave_what_single_records_leave(
    redis_url: str, calls: list[list[tuple[int, int, bool, list[bytes]]]]
) -> None:
    bus, single, model = RedisBus(redis_url), RedisBus(redis_url), MemoryBus()
    bus._store.call("FLUSHALL")
    positions = [bus.publish("t", _records(runs)) for runs in calls]
    together, sizes = _content(bus), bus.state("t")
    bus._store.call("FLUSHALL")
    assert positions == [
        [place for record in _records(runs) for place in single.publish("t", [record])] for runs in calls
    ]
    assert (together, sizes) == (_content(single), single.state("t"))
    assert positions == [model.publish("t", _records(runs)) for runs in calls]
    assert together == _content(model)
    bus.close()
    single.close()


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
