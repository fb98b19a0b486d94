"""Spark data source `bus`: records of a topic by offset, as a stream or as explicit ranges.

Stream options: `url`, `topic`, `reader` (the name under which uncommitted records are held on the bus), `max_records`
(per micro-batch, over all partitions). Each bus partition is one input partition. Under LIVES, offsets contain the
history of each partition (bus.lives), which shows whether the bus has lost or replaced records before a checkpoint's
position. Batch options: `url`, `ranges` = JSON list of [topic, partition, first offset, last offset, tag]; each tag is
one input partition, so that ranges that belong together are read by one task, in the given order. Rows carry the tag.
"""

import contextlib
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from bus import Bus, KeyedTables, Log, PartitionState, StoredRecord, TopicPartition
from bus.lives import Lives, agreed
from bus.redis.redis_bus import RedisBus
from candlewright.wire.errors import BusUnavailable, OffsetOutOfRange, RecordsLost
from flink_replacement_spark.spark.worker_daemon import leave_archives

# On a cluster, Spark plans a read in Python workers whose daemon cannot be configured; they drop the archives when they
# first load this module, which saves 0.1 s per micro-batch.
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
#: How long a source waits for news; bounds how long a stop takes. The query of history is stopped without waiting.
POLL_SECONDS, HISTORY_POLL_SECONDS = 0.5, 2.0
_RETRY_SECONDS = 2.0

#: (topic, partition, first offset, last offset, tag)
Range = tuple[str, int, int, int, int]
#: By partition, the next offset to read; and LIVES.
Offsets = dict[str, Any]
Positions = dict[str, int]
#: Consecutive records that were already read.
KnownRecords = Mapping[TopicPartition, Sequence[StoredRecord]]
NOTHING_KNOWN: KnownRecords = MappingProxyType({})

#: The key in offsets for `<topic>:<partition>` -> its history when the offsets were planned. Old checkpoints have none.
LIVES = "lives"


@dataclass(frozen=True, slots=True)
class Awaited:
    """A record at or past one of the offsets `after`, for at most `seconds`; and the states of `also`, too."""

    after: Mapping[TopicPartition, int]
    seconds: float
    also: Sequence[TopicPartition] = ()


@dataclass
class RangesPartition(InputPartition):
    ranges: tuple[Range, ...]


def read_range(
    bus: Log, topic: str, partition: int, *, first: int, last: int, known: KnownRecords = NOTHING_KNOWN
) -> Iterator[list[StoredRecord]]:
    """The records `first` to `last`, both included, in lists. Raises OffsetOutOfRange if one is missing. `known`:
    records that need not be read.
    """
    offset = first
    begun = known.get((topic, partition), ())
    if begun and begun[0].offset == first and (taken := [record for record in begun if record.offset <= last]):
        yield taken
        offset = taken[-1].offset + 1
    while offset <= last:
        wanted = min(_BATCH_RECORDS, last + 1 - offset)
        found = bus.read(topic, partition, offset, max_records=wanted, max_bytes=_BATCH_BYTES)
        if not found:
            raise OffsetOutOfRange(topic, partition, offset, first=0, end=offset)
        yield found
        offset = found[-1].offset + 1


def _arrow_batches(bus: Bus, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    for topic, partition, first, last, tag in ranges:
        for found in read_range(bus, topic, partition, first=first, last=last):
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
    """Holds uncommitted records on the bus, under the option `reader`. Connects to `url` on first use.

    `retry_seconds`: how long a call looks for a bus that cannot be reached.
    """

    def __init__(self, options: Mapping[str, str], *, retry_seconds: float = 15.0) -> None:
        self._url = options["url"]
        self._reader = options["reader"]
        self._retry_seconds = retry_seconds
        self._bus: Bus | None = None
        #: The last result of `latestOffset`; None before the first one.
        self._planned: Offsets | None = None
        #: The end of the last planned batch, until it is committed.
        self._ran: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_bus": None}

    def _connected(self) -> Bus:
        if self._bus is None:
            self._bus = RedisBus(self._url, retry_seconds=self._retry_seconds)
        return self._bus

    def latestOffset(self) -> Offsets:  # noqa: N802
        """The end of the next micro-batch, after waiting briefly for new records; unchanged while the bus is down.

        Raises RecordsLost.
        """
        bus = self._connected()
        if self._planned is None:
            self._planned = remembered_plan(bus, self._reader) or self.initialOffset()
        try:
            following = self._next(bus, self._planned)
        except BusUnavailable:
            return dict(self._planned)
        if following == self._planned:
            self._let_go_of_last()
        self._planned = following
        return dict(following)

    @abstractmethod
    def _next(self, bus: Bus, planned: Offsets) -> Offsets:
        """The end of the micro-batch after `planned`, which is returned if there is nothing new after a moment."""

    def _hold_start(self, topic: str, lives: Lives) -> Positions:
        """By partition, where to start: the reader's hold (if its checkpoint was lost), else the oldest kept record, or
        the end if the bus has lost the held records.
        """
        bus = self._connected()
        held, states = bus.holds(topic, self._reader), bus.state(topic)
        first = {p: min(state.end, max(state.first, held.get(p, 0))) for p, state in enumerate(states)}
        bus.hold(topic, self._reader, first)
        lives.start(topic, states)
        return {str(partition): offset for partition, offset in first.items()}

    def _let_go_of_last(self) -> None:
        """Release the last batch's records when there is nothing to plan. Spark commits a batch only when it plans the
        next one, which may never happen, because writers may be waiting for the room that these records take. Spark
        asks for an end only after the last batch is done.
        """
        if self._ran is not None:
            with contextlib.suppress(BusUnavailable):
                self.commit(self._ran)
                self._ran = None

    def stop(self) -> None:
        if self._bus is not None:
            self._bus.close()
            self._bus = None


class BusStreamReader(HoldingReader):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options, retry_seconds=_RETRY_SECONDS)
        self._topic = options["topic"]
        self._max_records = int(options.get("max_records", "1000"))

    def initialOffset(self) -> Offsets:  # noqa: N802
        lives = Lives()
        self._planned = self._hold_start(self._topic, lives) | written_lives(lives)
        return dict(self._planned)

    def _next(self, bus: Log, planned: Offsets) -> Offsets:
        before, lives = positions_of(planned), lives_of(planned)
        after = {int(p): offset for p, offset in before.items()}
        bus.wait({(self._topic, p): offset for p, offset in after.items()}, HISTORY_POLL_SECONDS, lives=lives)
        states = bus.state(self._topic)
        lives.check_all(self._topic, after, states)
        ends = capped(before, ends_of(states), self._max_records)
        return planned if ends == before else ends | written_lives(lives)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Raises RecordsLost if `end` is before `start`, because the bus has lost records."""
        before, after = positions_of(start), positions_of(end)
        check_start(self._topic, before, after, start=start, end=end)
        self._planned = dict(end)
        self._ran = end
        remember_plan(self._connected(), self._reader, end)
        wanted = [(p, before.get(p, 0), offset) for p, offset in after.items() if offset > before.get(p, 0)]
        return [RangesPartition(((self._topic, int(p), first, last - 1, -1),)) for p, first, last in wanted]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition)
        return read_partition(self._url, partition)

    def commit(self, end: Offsets) -> None:
        self._connected().hold(self._topic, self._reader, {int(p): at for p, at in positions_of(end).items()})


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
    """One connection per Python worker, which Spark uses for many tasks."""
    return RedisBus(url)


def remember_plan(bus: KeyedTables, reader: str, end: Mapping[str, Any]) -> None:
    """Store the end of a planned micro-batch; call before it runs."""
    bus.put(TABLE_PLANNED, {reader: json.dumps(end).encode()})


def remembered_plan(bus: KeyedTables, reader: str) -> dict[str, Any] | None:
    """The end of the last planned micro-batch; None for a reader that never planned one.

    A source that continues from a checkpoint is not given its position, and must not plan anything before it; its hold
    may lag by one batch.
    """
    (found,) = bus.get(TABLE_PLANNED, [reader])
    return None if found is None else dict(json.loads(found))


def positions_of(offsets: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in offsets.items() if name != LIVES}


def lives_of(offsets: Mapping[str, Any]) -> Lives:
    known = {}
    for name, history in offsets.get(LIVES, {}).items():
        topic, _, partition = name.rpartition(":")
        known[topic, int(partition)] = history
    return Lives(known)


def written_lives(lives: Lives) -> dict[str, dict[str, str]]:
    """The lives in the form in which offsets contain them."""
    return {LIVES: {f"{topic}:{partition}": history for (topic, partition), history in sorted(lives.known.items())}}


def lives_at(bus: Log, topics: Iterable[str]) -> Lives:
    """The current lives of all partitions of these topics."""
    lives = Lives()
    for topic in topics:
        lives.start(topic, bus.state(topic))
    return lives


def check_start(
    topic: str, first: Positions, past: Positions, *, start: Mapping[str, Any], end: Mapping[str, Any]
) -> None:
    """A source that continues from a checkpoint plans from the position that it stored on the bus, which may be older.
    Raises RecordsLost if the records before `first` are not from the bus on which `end` was planned.
    """
    before, now = lives_of(start).known, lives_of(end).known
    for partition, offset in first.items():
        place, stop = (topic, int(partition)), past.get(partition, 0)
        kept = agreed(before.get(place, ""), now[place], stop) if place in now else stop
        if offset > kept:
            raise RecordsLost(*place, offset, kept=kept)


@dataclass(frozen=True, slots=True)
class BatchRoom:
    """The most that a micro-batch takes of a topic."""

    max_records: int
    max_bytes: int

    @classmethod
    def of(cls, options: Mapping[str, str], max_bytes: int) -> "BatchRoom":
        """The room given in the options; by default 100,000 records and `max_bytes`."""
        return cls(int(options.get("max_records", "100000")), int(options.get("max_bytes", str(max_bytes))))

    def records_of(self, states: Iterable[PartitionState]) -> int:
        """How many of a topic's records fit, by the mean size in these partitions; at least one."""
        size = count = 0
        for state in states:
            size += state.size_bytes
            count += state.end - state.first
        return min(self.max_records, max(1, self.max_bytes * count // max(1, size)))


def ends_of(states: Sequence[PartitionState]) -> Positions:
    return {str(p): state.end for p, state in enumerate(states)}


def capped(planned: Positions, ends: Positions, max_records: int) -> Positions:
    """Advance from `planned` towards `ends` by at most `max_records` in total; partitions take equal shares first."""
    behind = {p: max(0, end - planned.get(p, 0)) for p, end in ends.items()}
    if sum(behind.values()) <= max_records:
        return {p: planned.get(p, 0) + count for p, count in behind.items()}
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
    """Pass rows on unchanged; running it in a Python worker loads this module there."""
    yield from batches
