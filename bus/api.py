"""The bus: a partitioned log with dense offsets, consumer groups, small keyed tables, and leases that fence writers.

Seven small interfaces and their sum, `Bus`, which `RedisBus` (bus.redis.redis_bus) implements. A part takes the
smallest one that it needs. A bus object may be shared by threads.

A topic is created by its first record or group, which fixes its number of partitions. Offsets are dense from 0 in each
(topic, partition). Once a call has returned, its effect is as durable as `bus.fsync` specifies.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bus.lives import Lives
from bus.partitions import PartitionState, TopicPartition

__all__ = [
    "NOBODY",
    "Budgets",
    "Bus",
    "FewRecords",
    "GroupRecord",
    "Groups",
    "Holds",
    "KeyedTables",
    "Leases",
    "Lives",
    "Log",
    "Once",
    "PartitionState",
    "Pending",
    "PendingPublish",
    "Position",
    "Record",
    "RecordRun",
    "Registries",
    "SequenceStamp",
    "StoredRecord",
    "Swap",
    "TopicPartition",
    "partition_of",
]


@dataclass(frozen=True, slots=True)
class SequenceStamp:
    """Makes `publish` assign the next `count` numbers of the dense sequence `name` (from 1), in the same atomic step.

    The first of them becomes `StoredRecord.sequence` and is appended to the value: as the uint64 field whose protobuf
    tag is `tag`, or, with `context_tag`, as the entry "sequence" of the map<string, string> field of that tag. In
    protobuf the last occurrence of a field wins, so appending sets it.
    """

    name: str
    count: int = 1
    tag: bytes = b""
    context_tag: bytes = b""


_NO_HEADERS: Mapping[str, str] = {}


class Record(NamedTuple):
    """A record to publish. `key` None differs from the empty key.

    The partition is that of `partition_key` when given, else that of `key` (`partition_of`), else `partition`, else
    any. A named tuple, which takes a fifth of the time of a frozen dataclass.
    """

    value: bytes
    key: bytes | None = None
    headers: Mapping[str, str] = _NO_HEADERS
    partition_key: bytes | None = None
    partition: int | None = None
    sequence: SequenceStamp | None = None


class Position(NamedTuple):
    """A named tuple, because a publish makes one for each record."""

    partition: int
    offset: int


class StoredRecord(NamedTuple):
    """A named tuple, because a read makes one for each record."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes
    headers: Mapping[str, str]
    sequence: int | None = None


class RecordRun(NamedTuple):
    """Consecutive records of a partition, the first one at `offset`, as the bus stores them: neighbours together.
    `values`: of neighbours, one value after the other, which may lack the numbers that the bus has appended; `lengths`
    of each record's value. `counts`, `times_ms`: how many neighbours there are, and when they were published. `records`
    makes the records themselves.
    """

    partition: int
    offset: int
    values: list[bytes]
    lengths: list[int]
    counts: list[int]
    times_ms: list[int]
    records: Callable[[], list[StoredRecord]]


#: Consecutive records by topic and partition.
FewRecords = dict[TopicPartition, list[StoredRecord]]


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A record offered to a consumer group; `deliveries` counts from 1. `life`: of the store, see `bus.lives`; it
    distinguishes this record from one that gets its offset after the store lost it.
    """

    record: StoredRecord
    deliveries: int
    life: str = ""


@dataclass(frozen=True, slots=True)
class Once:
    """Outcome of `publish_once`: `is_first` False means that nothing was written and `content` is the stored
    content."""

    is_first: bool
    content: bytes
    position: Position | None


class Swap(NamedTuple):
    """Replaces `old` (None: no value) with `new` in a row, puts the rows `put` and deletes those of `delete`.
    For keys that never expire.
    """

    table: str
    key: str
    old: bytes | None
    new: bytes
    put: Mapping[str, bytes]
    delete: Sequence[str] = ()


class Pending(Protocol):
    """A call in progress: its guarantees apply once `is_done` is true."""

    def fileno(self) -> int:
        """Readable when part of the answer has arrived."""
        ...

    def is_done(self) -> bool:
        """Never waits. Raises BusUnavailable, once: the call may have been carried out or not, and must be repeated."""
        ...


class PendingPublish(Pending, Protocol):
    """`ends`, once it is done: the offset after the last of its records, by partition."""

    @property
    def ends(self) -> Mapping[int, int]: ...


#: The consumer of records that were given back.
NOBODY = "nobody"


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key: 32-bit FNV-1a, read as signed, truncated remainder, absolute value.

    Source: the observable behaviour of Kafka-Pixy's hash partitioner.
    """
    value = 0x811C9DC5
    for byte in key:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return abs(signed) % partitions


class Log(Protocol):
    """Topics: append, read from an offset, wait for new records."""

    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        """Append `records` in order, in one atomic step per partition group; returns one position per record.

        Raises LeaseLost (nothing written) when `lease` is not granted, BusFull (nothing written) if the topic's unread
        records have reached the limit.
        """
        ...

    def publish_as(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        writer: str,
        number: int,
        lease: str | None = None,
        is_contiguous: bool = False,
    ) -> list[Position]:
        """`publish` that may be repeated, also by another process: call `number` of `writer` appends once, and its
        repetitions, with the same records, return the first positions. Repetitions with other records append nothing
        either, but their positions have no meaning. Raises BusError for a number below the last.

        `is_contiguous`: the writer numbers its calls from 1 without a gap, also over topics: raises CallsLost (nothing
        written) if the store has lost the previous call.
        """
        ...

    def begin_publish_as(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        writer: str,
        number: int,
        lease: str | None = None,
        is_contiguous: bool = False,
    ) -> PendingPublish | None:
        """`publish_as` for a caller that must not wait; None if it cannot be started immediately."""
        ...

    def read(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_records: int = 1_000,
        max_bytes: int = 16 << 20,
        lives: Lives | None = None,
    ) -> list[StoredRecord]:
        """Records from `offset` on, at least one if there is any; an empty list at the end.

        Raises OffsetOutOfRange when `offset` was trimmed; with `lives`, the reader's knowledge of these partitions,
        RecordsLost if the store has lost records before `offset`.
        """
        ...

    def read_runs(self, topic: str, partition: int, *, first: int, end: int) -> Iterator[RecordRun]:
        """The records from offset `first` to before `end`, for a reader of many that needs their values. Raises
        OffsetOutOfRange if one is missing.
        """
        ...

    def locate(self, topic: str, name: str, sequence: int) -> Position | None:
        """The position from which to read to find number `sequence` of `name`: at or before its record; None if it is
        no longer kept or was never assigned. When reading from there, skip records of other names.
        """
        ...

    def last_sequence(self, name: str) -> int:
        """The newest assigned number; 0 if there is none."""
        ...

    def last_sequences(self, names: Sequence[str]) -> list[int]:
        """`last_sequence` of each name, in one call, but not at one moment."""
        ...

    def wait(
        self,
        after: Mapping[TopicPartition, int],
        timeout_seconds: float,
        *,
        lives: Lives | None = None,
        few_records: FewRecords | None = None,
    ) -> set[TopicPartition]:
        """Block until a record exists at or past one of the offsets given; the partitions that have one.

        With `lives` it raises RecordsLost as `read` does, at its start and its end. `few_records`: as of
        `states_after`.
        """
        ...

    def states_after(
        self,
        after: Mapping[TopicPartition, int],
        timeout_seconds: float,
        *,
        lives: Lives | None = None,
        also: Iterable[TopicPartition] = (),
        few_records: FewRecords | None = None,
    ) -> dict[TopicPartition, PartitionState]:
        """The state of each partition of `after` and `also`, all at one moment, once any partition of `after` has a
        record at or past its offset, or after `timeout_seconds`. With `lives` it raises
        RecordsLost as `read` does.

        `few_records` gets the new records of partitions to which only a few have come, so that they need not be read.
        """
        ...

    def partitions(self, topic: str) -> int:
        """Number of partitions; 0 for a topic that does not exist."""
        ...

    def create_topic(self, topic: str, partitions: int | None = None) -> int:
        """Make `topic` unless it exists; returns the number of its partitions."""
        ...

    def topics(self) -> list[str]: ...

    def state(self, topic: str) -> list[PartitionState]:
        """One entry a partition; raises BusError for an unknown topic."""
        ...

    def states(self, topics: Sequence[str]) -> dict[str, list[PartitionState]]:
        """`state` of each topic, one after the other, in one call."""
        ...


class Registries(Protocol):
    """Write-once names: a record is appended, and its name remembered, in one atomic step."""

    def publish_once(
        self, topic: str, record: Record, *, registry: str, name: str, content: bytes, keep_seconds: float
    ) -> Once:
        """Append `record` and remember `content` under (registry, name), in one atomic step, unless the name is known.
        Names are forgotten after `keep_seconds`.
        """
        ...

    def publish_new(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        registry: str,
        names: Sequence[str],
        keep_seconds: float,
        contents: Sequence[bytes] = (),
    ) -> list[bool]:
        """`publish_once` for many: append those of `records` whose names are not known, in order and in one atomic
        step, and remember their names with their `contents` (empty ones if none are given); whether each was appended.
        If a name occurs twice, the first record counts. Raises BusFull (nothing written).
        """
        ...

    def recall(self, registry: str, names: Sequence[str]) -> list[bytes | None]:
        """The contents that `publish_once` and `publish_new` remembered under these names."""
        ...


class Holds(Protocol):
    """Records that readers outside the consumer groups still need, and the trimming of all others."""

    def hold(self, topic: str, reader: str, positions: Mapping[int, int]) -> None:
        """Declare that `reader` (outside the consumer groups) still needs `positions` and everything after them.

        A reader without a hold on a partition does not protect it. Moving a hold backwards is allowed, but does not
        restore trimmed records.
        """
        ...

    def release(self, topic: str, reader: str) -> None:
        """Drop all holds of `reader`."""
        ...

    def holds(self, topic: str, reader: str) -> dict[int, int]: ...

    def trim(self, topic: str, *, keep_seconds: float, keep_bytes: int | None = None) -> int:
        """Drop records that are at least `keep_seconds` old (or exceed `keep_bytes`), but never one that a hold or a
        group still needs; returns how many were dropped.
        """
        ...


class Groups(Protocol):
    """Consumer groups; a group's name is that of its Redis group."""

    def create_group(self, topic: str, group: str, *, at_end: bool) -> None:
        """Make `group` on every partition at once, unless it exists."""
        ...

    def delete_group(self, topic: str, group: str) -> bool: ...

    def groups(self, topic: str) -> list[str]: ...

    def read_group(
        self, topic: str, group: str, consumer: str, *, partitions: Sequence[int] | None = None, max_records: int = 100
    ) -> list[GroupRecord]:
        """New records for `consumer`, pending until acknowledged; partitions take turns. Does not block: see `wait`."""
        ...

    def acknowledge(
        self, topic: str, group: str, partition: int, *, offsets: Sequence[int], lives: Mapping[int, str] | None = None
    ) -> int:
        """Acknowledge `offsets`; returns how many of them were pending.

        `lives`: `GroupRecord.life` by offset, if known. If the store has lost the record since, nothing is
        acknowledged, which is counted.
        """
        ...

    def claim_expired(
        self,
        topic: str,
        group: str,
        consumer: str,
        *,
        min_idle_seconds: float,
        partitions: Sequence[int] | None = None,
        max_records: int = 100,
        of_consumer: str | None = None,
    ) -> list[GroupRecord]:
        """Take over, in offset order, records that were delivered at least `min_idle_seconds` ago and not
        acknowledged; with `of_consumer`, only its records.
        """
        ...

    def give_back(self, topic: str, group: str, records: Sequence[GroupRecord]) -> None:
        """Return records that `read_group` or `claim_expired` returned but no consumer saw: they go to the consumer
        NOBODY, and their delivery does not count. Records acknowledged meanwhile stay acknowledged.
        """
        ...

    def pending(self, topic: str, group: str) -> dict[int, int]:
        """Unacknowledged records by partition."""
        ...

    def pending_by_consumer(self, topic: str, group: str) -> dict[int, dict[str, int]]:
        """Unacknowledged records by partition and consumer; a consumer without any is left out."""
        ...

    def forget_consumer(self, topic: str, group: str, consumer: str) -> None:
        """Remove a consumer from each partition where it has no unacknowledged record."""
        ...

    def next_offsets(self, topic: str, group: str) -> dict[int, int]:
        """The next offset that the group will be given, by partition."""
        ...


class Leases(Protocol):
    """A lease is the permission to publish for a job."""

    def grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> None:
        """Allow `publish(lease=name)`; the value is the granter's note, stored with it.

        `revoking`: names to revoke first, as `revoke` does, at the cost of this one call.
        """
        ...

    def begin_grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> Pending | None:
        """`grant` for a caller that must not wait; None if it cannot be started immediately."""
        ...

    def revoke(self, names: Sequence[str]) -> None:
        """Once this call has returned, nothing is written under these leases."""
        ...

    def leases(self) -> dict[str, bytes]: ...


class KeyedTables(Protocol):
    """The newest value of each key, for small shared data."""

    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None: ...

    def put_new(self, table: str, key: str, value: bytes) -> bytes:
        """Store `value` unless `key` exists, in one atomic step; returns the stored value. For keys that never
        expire.
        """
        ...

    def replace(
        self,
        table: str,
        key: str,
        old: bytes | None,
        *,
        new: bytes,
        put: Mapping[str, bytes] | None = None,
        delete: Sequence[str] = (),
    ) -> bool:
        """Store `new` if `key` holds `old` (None: no value), put the rows `put` and delete those of `delete`, all in
        one atomic step. False, with nothing written, if it holds a value other than `old` and `new`. For keys that
        never expire.
        """
        ...

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]: ...

    def items(self, table: str) -> dict[str, bytes]: ...

    def delete(self, table: str, keys: Sequence[str]) -> None: ...


class Budgets(Protocol):
    """Rate budgets that all processes share."""

    def take(self, budget: str, cost: float, *, capacity: float, per_second: float) -> float:
        """Take `cost` from a token bucket shared by all processes; returns 0.0, or the seconds to wait if nothing was
        taken. Uses the store's clock.
        """
        ...

    def block_budget(self, budget: str, seconds: float) -> None:
        """Close `budget` for `seconds`, because an exchange demanded a pause."""
        ...

    def correct_budget(self, budget: str, used: float, *, capacity: float) -> None:
        """Lower the remaining budget to `capacity - used` if the exchange counted more than we did."""
        ...


class Bus(Log, Registries, Holds, Groups, Leases, KeyedTables, Budgets, Protocol):
    """All interfaces over one connection; use the smallest one that you need. All methods raise BusUnavailable if the
    store cannot be reached in time, or temporarily refuses writes (BusRefusing).
    """

    def commit(
        self,
        swaps: Sequence[Swap],
        records: Mapping[str, Sequence[Record]],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        """Replace rows, at least one, and append `records` by topic, all in one atomic step. True if that is done,
        perhaps by an earlier call: each row holds its new value. False, with nothing written, if a row holds any other
        value, or a partition does not end where `ends` says. Raises BusFull, with nothing written.
        """
        ...

    def count_evicted(self) -> None:
        """Update the counter of entries removed before their time, for the one process that reports it."""
        ...

    def refusal(self) -> str:
        """Why the store currently refuses writes, as a sentence that names the cause; empty if it accepts them."""
        ...

    def close(self) -> None: ...
