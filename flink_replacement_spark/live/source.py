"""Spark data source `live`: plans which records of the live query's topics a micro-batch takes.

Trades and the marks that belong to them are in the same partition of two topics, so one input partition names both.
Options: `url`, `reader` (holds uncommitted records), `max_records` and `max_bytes` (per topic and micro-batch). A row
is a range of offsets, both ends included; `tag` is the index of the topic in `TOPICS`. The task reads the records
itself (`records_of`), since from a reader they would cross the JVM twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from bus import Lives, Log, PartitionState, StoredRecord
from bus import topics as bus_topics
from flink_replacement_spark.engine.bus_source import (
    NOTHING_KNOWN,
    POLL_SECONDS,
    BatchRoom,
    HoldingReader,
    KnownRecords,
    Offsets,
    Positions,
    RangesPartition,
    capped,
    check_start,
    lives_of,
    positions_of,
    read_range,
    remember_plan,
    worker_bus,
    written_lives,
)

__all__ = ["TOPICS", "LiveSource", "LiveStreamReader", "Range", "next_ends", "ranges_of", "records_of"]

TOPICS = (bus_topics.TICKS, bus_topics.TICK_MARKS)

SCHEMA = "tag int, partition int, first bigint, last bigint"
_ARROW_SCHEMA = pa.schema([("tag", pa.int32()), ("partition", pa.int32()), ("first", pa.int64()), ("last", pa.int64())])


class LiveStreamReader(HoldingReader):
    """Offsets map topic and partition to the next offset to read, and contain LIVES."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(options)
        self._room = BatchRoom.of(options, 96 << 20)

    def initialOffset(self) -> Offsets:  # noqa: N802
        lives = Lives()
        self._planned = {topic: self._hold_start(topic, lives) for topic in TOPICS} | written_lives(lives)
        return dict(self._planned)

    def _next(self, bus: Log, planned: Offsets) -> Offsets:
        before, lives = positions_of(planned), lives_of(planned)
        after = {(t, int(p)): offset for t, own in before.items() for p, offset in own.items()}
        bus.wait(after, POLL_SECONDS, lives=lives)
        # Read the ends of trades first, so that a mark published before them is not applied after them. A mark that is
        # read too early waits for its trades.
        states = {topic: bus.state(topic) for topic in TOPICS}
        for topic, found in states.items():
            lives.check_all(topic, {int(p): offset for p, offset in before[topic].items()}, found)
        own = {topic: {str(p): state for p, state in enumerate(found)} for topic, found in states.items()}
        ends = next_ends(before, own, self._room)
        return planned if ends == before else ends | written_lives(lives)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Raises RecordsLost if `end` is before `start`, because the bus has lost records."""
        for topic in TOPICS:
            check_start(topic, start.get(topic, {}), end[topic], start=start, end=end)
        self._planned = dict(end)
        self._ran = end
        remember_plan(self._connected(), self._reader, end)
        ranges: dict[int, list[tuple[str, int, int, int, int]]] = {}
        for tag, topic in enumerate(TOPICS):
            for partition, stop in end[topic].items():
                first = start.get(topic, {}).get(partition, 0)
                if stop > first:
                    ranges.setdefault(int(partition), []).append((topic, int(partition), first, stop - 1, tag))
        return [RangesPartition(tuple(own)) for own in ranges.values()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangesPartition)
        rows = [
            {"tag": tag, "partition": number, "first": first, "last": last}
            for _, number, first, last, tag in partition.ranges
        ]
        yield pa.RecordBatch.from_pylist(rows, schema=_ARROW_SCHEMA)

    def commit(self, end: Offsets) -> None:
        for topic, own in positions_of(end).items():
            self._connected().hold(topic, self._reader, {int(p): offset for p, offset in own.items()})


class LiveSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "live"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return LiveStreamReader(self.options)


def next_ends(
    planned: Mapping[str, Positions], states: Mapping[str, Mapping[str, PartitionState]], room: BatchRoom
) -> dict[str, Positions]:
    """The ends of the next records, by topic, for the partitions in `states`, where those of trades must have been read
    first.
    """
    whole = {topic: {place: state.end for place, state in own.items()} for topic, own in states.items()}
    ends = {topic: capped(planned[topic], own, room.records_of(states[topic].values())) for topic, own in whole.items()}
    trades, marks = (ends[topic] for topic in TOPICS)
    for place, end in whole[bus_topics.TICK_MARKS].items():
        if marks[place] < end:
            # Trades wait until all marks published before them can be read with them.
            trades[place] = planned[bus_topics.TICKS].get(place, 0)
    return ends


class Range(NamedTuple):
    """The records of `TOPICS[tag]` in one partition from offset `first` to `last`, both included."""

    tag: int
    first: int
    last: int


def ranges_of(rows: Iterable[pa.RecordBatch]) -> tuple[int, list[Range]]:
    """The partition of a task's rows, and what they name; without rows -1 and nothing."""
    found = [row for batch in rows for row in batch.to_pylist()]
    partition = int(found[0]["partition"]) if found else -1
    return partition, [Range(row["tag"], row["first"], row["last"]) for row in found]


def records_of(
    url: str, partition: int, ranges: Iterable[Range], *, tag: int, known: KnownRecords = NOTHING_KNOWN
) -> Iterator[list[StoredRecord]]:
    """The records of one topic in these ranges, in order, in lists. `known`: records that need not be read. Raises
    OffsetOutOfRange, BusError.
    """
    for own, first, last in ranges:
        if own == tag:
            yield from read_range(worker_bus(url), TOPICS[tag], partition, first=first, last=last, known=known)
