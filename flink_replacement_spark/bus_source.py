"""Spark data source `bus`: records of a topic by offset, as a stream or as explicit ranges.

Stream options: `url`, `topic`, `reader` (the name under which what is not yet committed is held on the bus),
`max_records` (records a micro-batch, over all partitions). One input partition a bus partition.
Batch options: `url`, `ranges` = JSON list of [topic, partition, first offset, last offset, tag]; one input partition a
tag, so that what belongs together is read by one task, in the order given. Rows carry the tag.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from bus import Bus, PartitionState, StoredRecord
from bus.redis_bus import RedisBus
from core.errors import BusUnavailable, OffsetOutOfRange
from flink_replacement_spark.worker_daemon import leave_archives

# On a cluster Spark plans a read in Python workers that no setting gives another daemon: they are rid of archives when
# they first load this module, which is 0.1 s a micro-batch.
leave_archives()

SCHEMA = "tag int, partition int, offset bigint, timestamp_ms bigint, key binary, value binary"
_ARROW_SCHEMA = pa.schema(
    [
        ("tag", pa.int32()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp_ms", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
TABLE_PLANNED = "planned_offsets"
_BATCH_RECORDS = 1_000
_BATCH_BYTES = 8 << 20
#: How long a trigger waits for news; bounds how long a stop takes.
_POLL_SECONDS = 0.5
_RETRY_SECONDS = 2.0

#: (topic, partition, first offset, last offset, tag)
Range = tuple[str, int, int, int, int]
Offsets = dict[str, int]


@dataclass
class RangesPartition(InputPartition):
    ranges: tuple[Range, ...]


def read_range(bus: Bus, topic: str, partition: int, first: int, last: int) -> Iterator[list[StoredRecord]]:
    """Records `first` to `last`, both included, in lists. Raises OffsetOutOfRange when one is missing."""
    offset = first
    while offset <= last:
        wanted = min(_BATCH_RECORDS, last + 1 - offset)
        found = bus.read(topic, partition, offset, max_records=wanted, max_bytes=_BATCH_BYTES)
        if not found:
            raise OffsetOutOfRange(topic, partition, offset, 0, offset)
        yield found
        offset = found[-1].offset + 1


def _arrow_batches(bus: Bus, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    for topic, partition, first, last, tag in ranges:
        for found in read_range(bus, topic, partition, first, last):
            count = len(found)
            arrays = [
                pa.array(np.full(count, tag, np.int32)),
                pa.array(np.full(count, partition, np.int32)),
                pa.array(np.arange(found[0].offset, found[0].offset + count)),
                pa.array([record.timestamp_ms for record in found], pa.int64()),
                pa.array([record.key for record in found], pa.binary()),
                pa.array([record.value for record in found], pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, schema=_ARROW_SCHEMA)


class HoldingReader(DataSourceStreamReader):
    """Holds on the bus, under the option `reader`, what it has not committed. Connects to `url` when it is first asked.

    `retry_seconds`: how long a call of it looks for a bus that has gone.
    """

    def __init__(self, options: Mapping[str, str], *, retry_seconds: float = 15.0) -> None:
        self._url = options["url"]
        self._reader = options["reader"]
        self._retry_seconds = retry_seconds
        self._bus: Bus | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bus": None}

    def _connected(self) -> Bus:
        if self._bus is None:
            self._bus = RedisBus(self._url, retry_seconds=self._retry_seconds)
        return self._bus

    def _hold_start(self, topic: str) -> dict[str, int]:
        """By partition what this reader still holds (its checkpoint was lost), else the oldest record that is kept, or
        the end where the bus has lost what was held.
        """
        bus = self._connected()
        held = bus.holds(topic, self._reader)
        first = {p: min(state.end, max(state.first, held.get(p, 0))) for p, state in enumerate(bus.state(topic))}
        bus.hold(topic, self._reader, first)
        return _to_json(first)

    def stop(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None


class BusStreamReader(HoldingReader):
    """Offsets are a map from partition to the next offset to read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options, retry_seconds=_RETRY_SECONDS)
        self._topic = options["topic"]
        self._max_records = int(options.get("max_records", "1000"))
        self._planned: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        self._planned = self._hold_start(self._topic)
        return dict(self._planned)

    def latestOffset(self) -> Offsets:  # noqa: N802
        """The end of the next micro-batch, after waiting a moment for news; while the bus is away, no news."""
        bus = self._connected()
        if self._planned is None:
            self._planned = remembered_plan(bus, self._reader) or self.initialOffset()
        try:
            bus.wait({(self._topic, int(p)): offset for p, offset in self._planned.items()}, _POLL_SECONDS)
            ends = [state.end for state in bus.state(self._topic)]
        except BusUnavailable:
            return dict(self._planned)
        self._planned = capped(self._planned, ends, self._max_records)
        return dict(self._planned)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        self._planned = dict(end)
        remember_plan(self._connected(), self._reader, end)
        wanted = [(p, start.get(p, 0), offset) for p, offset in end.items() if offset > start.get(p, 0)]
        return [RangesPartition(((self._topic, int(p), first, last - 1, -1),)) for p, first, last in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition)
        return read_partition(self._url, partition)

    def commit(self, end: Offsets) -> None:
        self._connected().hold(self._topic, self._reader, {int(p): offset for p, offset in end.items()})


class BusRangesReader(DataSourceReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        self._url = options["url"]
        self._ranges: list[Range] = [tuple(entry) for entry in json.loads(options["ranges"])]

    def partitions(self) -> Sequence[InputPartition]:
        in_order = sorted(self._ranges, key=lambda entry: entry[-1])
        return [RangesPartition(tuple(group)) for _, group in groupby(in_order, key=lambda entry: entry[-1])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition)
        return read_partition(self._url, partition)


class BusSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bus"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return BusRangesReader(self.options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return BusStreamReader(self.options)


def read_partition(url: str, partition: RangesPartition) -> Iterator[pa.RecordBatch]:
    yield from _arrow_batches(worker_bus(url), partition.ranges)


@lru_cache(maxsize=4)
def worker_bus(url: str) -> Bus:
    """One connection a Python worker, which Spark uses for many tasks."""
    return RedisBus(url)


def remember_plan(bus: Bus, reader: str, end: Mapping[str, Any]) -> None:
    """Call before a micro-batch runs."""
    bus.put(TABLE_PLANNED, {reader: json.dumps(end).encode()})


def remembered_plan(bus: Bus, reader: str) -> dict[str, Any] | None:
    """The end of the last micro-batch that was planned; None for a reader that never planned one.

    A source that goes on from a checkpoint is not told how far that is, and must plan nothing before it; what it holds
    may lie one batch behind.
    """
    (found,) = bus.get(TABLE_PLANNED, [reader])
    return None if found is None else dict(json.loads(found))


def _to_json(offsets: Mapping[int, int]) -> Offsets:
    return {str(partition): offset for partition, offset in offsets.items()}


@dataclass(frozen=True, slots=True)
class BatchRoom:
    """What a micro-batch takes at most of a topic."""

    max_records: int
    max_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str], max_bytes: int) -> "BatchRoom":
        """As the options say, or 100,000 records and `max_bytes`."""
        return cls(int(options.get("max_records", "100000")), int(options.get("max_bytes", str(max_bytes))))

    def records_of(self, states: Sequence[PartitionState]) -> int:
        """How many of its records, by the mean size of what it holds; at least one."""
        size = sum(state.size_bytes for state in states)
        count = sum(state.end - state.first for state in states)
        return min(self.max_records, max(1, self.max_bytes * count // max(1, size)))


def capped(planned: Offsets, ends: Sequence[int], max_records: int) -> Offsets:
    """From `planned` towards `ends` by at most `max_records` in all, partitions taking equal shares first."""
    behind = {str(p): max(0, end - planned.get(str(p), 0)) for p, end in enumerate(ends)}
    left = max_records
    result = {p: planned.get(p, 0) for p in behind}
    for remaining, (partition, count) in zip(
        range(len(behind), 0, -1), sorted(behind.items(), key=lambda item: item[1]), strict=True
    ):
        step = min(count, -(-left // remaining))
        result[partition] += step
        left -= step
    return result


def pass_on(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """Rows as they come; that a Python worker runs it leaves the worker with this module loaded."""
    yield from batches
