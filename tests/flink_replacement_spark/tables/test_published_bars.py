"""The rows of published bars do not depend on which commit takes which record."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hyp

from bus import Record, RecordRun, SequenceStamp, StoredRecord
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import bar_columns
from candlewright.wire.candlewright_pb2 import OHLCV
from flink_replacement_spark.tables.follower import Taken
from flink_replacement_spark.tables.published_bars import published_bars
from flink_replacement_spark.tables.taken_records import TakenRecords

TICKER = "BTC/USDT.BINANCE"
PARTITIONS = 2


def record(partition: int, offset: int, time_ms: int) -> StoredRecord:
    bar = OHLCV(
        ticker=TICKER, period_seconds=60, open_time=offset * 60_000_000_000, open=1.0, high=1.0, low=1.0, close=1.0,
        volume=1.0, complete=True, source="ticks",
    )  # fmt: skip
    return StoredRecord(
        topic="ohlc",
        partition=partition,
        offset=offset,
        timestamp_ms=time_ms,
        key=TICKER.encode(),
        value=bar.SerializeToString(),
        headers={},
    )


@given(
    hyp.lists(hyp.lists(hyp.integers(0, 2), min_size=1, max_size=12), min_size=PARTITIONS, max_size=PARTITIONS),
    hyp.lists(hyp.tuples(*[hyp.integers(0, 12)] * PARTITIONS), max_size=4),
)
def test_a_millisecond_that_two_commits_share_is_counted_through(
    steps: list[list[int]], cuts: list[tuple[int, ...]]
) -> None:
    logs = []
    for partition, waits in enumerate(steps):
        times = [1_000 + sum(waits[: place + 1]) for place in range(len(waits))]
        logs.append([record(partition, 7 + place, time_ms) for place, time_ms in enumerate(times)])
    whole = [part for log in logs for part in published_bars(log).to_pylist()]

    ends = [(0,) * PARTITIONS, *sorted(cuts), (12,) * PARTITIONS]
    bounds = [tuple(map(max, zip(*ends[: place + 1], strict=True))) for place in range(len(ends))]
    taken = Taken(number=0, name="", start={}, end={}, records=(), is_repeat=False)
    found: list[pa.Table] = []
    for starts, stops in pairwise(bounds):
        records = [part for log, a, b in zip(logs, starts, stops, strict=True) for part in log[a:b]]
        taken = Taken(
            number=0, name="", start={}, end={}, records=records, is_repeat=False, moments=taken.moments_after()
        )
        found.append(published_bars(taken.records, taken.moments))
    rows = [row for part in found for row in part.to_pylist()]
    assert sorted(map(str, rows)) == sorted(map(str, whole))
    for log in logs:
        known = [row["known_at"] for row in published_bars(log).to_pylist()]
        assert all(first < second for first, second in pairwise(known))


def test_runs_of_records_have_the_rows_and_moments_of_the_records_themselves(redis: EmbeddedRedis) -> None:
    bus = RedisBus(redis.url)
    bus.create_topic("ohlc", 1)
    stamp = SequenceStamp("bars", tag=b"\x68")
    for first in (0, 5, 300):
        values = [record(0, 1 + first + place, 0).value for place in range(300)]
        bus.publish("ohlc", [Record(value, key=TICKER.encode(), sequence=stamp) for value in values])
    single = bus.read("ohlc", 0, 3, max_records=800)
    runs = TakenRecords(list(bus.read_runs("ohlc", 0, first=3, end=803)))
    assert list(runs) == single
    decoded = [bar_columns.decode(run.values, run.lengths) for run in bus.read_runs("ohlc", 0, first=3, end=803)]
    moments = {0: (single[0].timestamp_ms, 1)}
    assert published_bars(runs, moments) == published_bars(single, moments)
    assert published_bars(TakenRecords(runs._runs, decoded), moments) == published_bars(single, moments)
    one, other = (
        Taken(number=0, name="", start={}, end={}, records=records, is_repeat=False, moments=moments).moments_after()
        for records in (runs, single)
    )
    assert one == other
    bus.close()


def test_bars_become_rows_without_an_object_for_each() -> None:
    def never() -> list[StoredRecord]:
        pytest.fail("the records were made")

    values = [record(0, 1 + place, 0).value for place in range(20)]
    joined = [b"".join(values[:12]), b"".join(values[12:])]
    run = RecordRun(0, 7, joined, list(map(len, values)), [12, 8], [5, 6], never)
    rows = published_bars(TakenRecords([run]))
    assert rows["known_at"].cast(pa.int64()).to_pylist() == [5_000 + n for n in range(12)] + [
        6_000 + n for n in range(8)
    ]
