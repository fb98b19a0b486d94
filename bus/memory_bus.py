"""`MemoryBus`: the bus inside one process, for tests and for tools that need no server."""

import threading
import time
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bus.api import (
    NOBODY,
    GroupRecord,
    Once,
    PartitionState,
    Pending,
    PendingPublish,
    Position,
    Record,
    StoredRecord,
    TopicPartition,
)
from bus.budget import TokenBucket
from bus.limits import DEFAULT_GROUP_EXPIRY_SECONDS, DEFAULT_MAX_BYTES, REFUSED, count_trimmed, group_expired, trim_goal
from bus.messaging import Messaging
from bus.routing import Router, record_bytes, shares
from bus.stamps import stamped
from core.errors import BusError, BusFull, LeaseLost, OffsetOutOfRange


@dataclass(slots=True)
class _Pending:
    consumer: str
    delivered_at: float
    deliveries: int


@dataclass(slots=True)
class _GroupPart:
    """One consumer group in one partition."""

    next_offset: int
    pending: dict[int, _Pending] = field(default_factory=dict)
    #: Read, and to be given out after pending ones of their message group.
    parked: list[int] = field(default_factory=list)

    @property
    def needs(self) -> int:
        return min((*self.pending, *self.parked), default=self.next_offset)


@dataclass(slots=True)
class _Log:
    """One partition; `records[0]` has offset `first`."""

    records: deque[StoredRecord] = field(default_factory=deque)
    first: int = 0
    size_bytes: int = 0

    @property
    def end(self) -> int:
        return self.first + len(self.records)


@dataclass(slots=True)
class _Topic:
    name: str
    logs: list[_Log]
    groups: dict[str, list[_GroupPart]] = field(default_factory=dict)
    group_used_at: dict[str, float] = field(default_factory=dict)
    #: Sequence name -> (first number, position) of each of its records.
    stamps: dict[str, list[tuple[int, Position]]] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return sum(log.size_bytes for log in self.logs)


class MemoryBus:
    """See `bus.api.Bus`. Nothing outlives the object; `fork` copies it, it is not shared between processes."""

    def __init__(
        self,
        partitions: int = 4,
        max_bytes: int = DEFAULT_MAX_BYTES,
        group_expiry_seconds: float = DEFAULT_GROUP_EXPIRY_SECONDS,
    ) -> None:
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._group_expiry_seconds = group_expiry_seconds
        self._changed = threading.Condition(threading.RLock())
        self._router = Router()
        self._topics: dict[str, _Topic] = {}
        self._holds: dict[str, dict[str, dict[int, int]]] = {}
        #: One for all, because all that ask for it are to meet there.
        self.messaging: Messaging | None = None
        self._sequences: dict[str, int] = {}
        self._calls: dict[str, tuple[int, list[Position]]] = {}
        self._once: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._leases: dict[str, bytes] = {}
        self._tables: dict[str, dict[str, tuple[bytes, float | None]]] = {}
        self._budgets: dict[str, TokenBucket] = {}

    # ---- log
    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        with self._changed:
            if lease is not None and lease not in self._leases:
                raise LeaseLost(lease)
            if not records:
                return []
            place = self._make(topic)
            chosen = self._router.route(topic, records, len(place.logs))
            self._refuse_when_full(place)
            positions = [self._append(place, part, record) for part, record in zip(chosen, records, strict=True)]
            self._changed.notify_all()
            return positions

    def publish_as(
        self, topic: str, records: Sequence[Record], *, writer: str, number: int, lease: str | None = None
    ) -> list[Position]:
        if not records:
            return []
        with self._changed:
            last, positions = self._calls.get(writer, (-1, []))
            if number < last:
                raise BusError(f"a publish to {topic} came after a later one of the same writer")
            if number > last:
                positions = self.publish(topic, records, lease=lease)
                self._calls[writer] = (number, positions)
            return positions

    def begin_publish_as(
        self, topic: str, records: Sequence[Record], *, writer: str, number: int
    ) -> PendingPublish | None:
        """Never, as with `begin_grant`."""
        return None

    def publish_once(
        self, topic: str, record: Record, *, registry: str, name: str, content: bytes, keep_seconds: float
    ) -> Once:
        with self._changed:
            known = self._recall(registry, name)
            if known is not None:
                return Once(False, known, None)
            position = self.publish(topic, [record])[0]
            self._once[registry, name] = (content, time.monotonic() + keep_seconds)
            return Once(True, content, position)

    def publish_new(
        self, topic: str, records: Sequence[Record], *, registry: str, names: Sequence[str], keep_seconds: float
    ) -> list[bool]:
        with self._changed:
            firsts: dict[str, int] = {}
            for place, name in enumerate(names):
                if self._recall(registry, name) is None:
                    firsts.setdefault(name, place)
            self.publish(topic, [records[place] for place in firsts.values()])
            until = time.monotonic() + keep_seconds
            self._once.update({(registry, name): (b"", until) for name in firsts})
            return [firsts.get(name) == place for place, name in enumerate(names)]

    def recall(self, registry: str, names: Sequence[str]) -> list[bytes | None]:
        with self._changed:
            return [self._recall(registry, name) for name in names]

    def read(
        self, topic: str, partition: int, offset: int, *, max_records: int = 1_000, max_bytes: int = 16 << 20
    ) -> list[StoredRecord]:
        with self._changed:
            log = self._log(topic, partition)
            if not log.first <= offset <= log.end:
                raise OffsetOutOfRange(topic, partition, offset, log.first, log.end)
            found: list[StoredRecord] = []
            size = 0
            for index in range(offset - log.first, min(len(log.records), offset - log.first + max_records)):
                size += len(log.records[index].value)
                if found and size > max_bytes:
                    break
                found.append(log.records[index])
            return found

    def locate(self, topic: str, name: str, sequence: int) -> Position | None:
        with self._changed:
            place = self._topics.get(topic)
            if place is None or not 0 < sequence <= self._sequences.get(name, 0):
                return None
            stamps = place.stamps.get(name, [])
            index = bisect_right(stamps, sequence, key=lambda stamp: stamp[0]) - 1
            if index < 0:
                return None
            position = stamps[index][1]
            return position if position.offset >= place.logs[position.partition].first else None

    def last_sequence(self, name: str) -> int:
        with self._changed:
            return self._sequences.get(name, 0)

    def last_sequences(self, names: Sequence[str]) -> list[int]:
        return [self.last_sequence(name) for name in names]

    def wait(self, after: Mapping[TopicPartition, int], timeout_seconds: float) -> set[TopicPartition]:
        def ready() -> set[TopicPartition]:
            return {place for place, offset in after.items() if self._log(*place).end > offset}

        with self._changed:
            return self._changed.wait_for(ready, max(0.0, timeout_seconds))

    def partitions(self, topic: str) -> int:
        with self._changed:
            place = self._topics.get(topic)
            return len(place.logs) if place else 0

    def create_topic(self, topic: str, partitions: int | None = None) -> int:
        with self._changed:
            return len(self._make(topic, partitions).logs)

    def topics(self) -> list[str]:
        with self._changed:
            return sorted(self._topics)

    def state(self, topic: str) -> list[PartitionState]:
        with self._changed:
            place = self._topics.get(topic)
            if place is None:
                raise BusError(f"no topic {topic}")
            return [PartitionState(log.first, log.end, log.size_bytes) for log in place.logs]

    # ---- retention
    def hold(self, topic: str, reader: str, positions: Mapping[int, int]) -> None:
        with self._changed:
            self._holds.setdefault(topic, {}).setdefault(reader, {}).update(positions)

    def release(self, topic: str, reader: str) -> None:
        with self._changed:
            self._holds.get(topic, {}).pop(reader, None)

    def holds(self, topic: str, reader: str) -> dict[int, int]:
        with self._changed:
            return dict(self._holds.get(topic, {}).get(reader, {}))

    def trim(self, topic: str, *, keep_seconds: float, keep_bytes: int | None = None) -> int:
        with self._changed:
            place = self._topics.get(topic)
            if place is None:
                return 0
            self._expire_groups(place)
            free = [self._protected_from(place, partition) for partition in range(len(place.logs))]
            oldest_kept_ms = time.time() * 1_000 - keep_seconds * 1_000
            dropped = 0
            for log, limit in zip(place.logs, free, strict=True):
                while log.records and log.first < limit and log.records[0].timestamp_ms < oldest_kept_ms:
                    dropped += self._drop_first(log)
            while keep_bytes is not None and place.size_bytes > keep_bytes:
                loose = [log for log, limit in zip(place.logs, free, strict=True) if log.records and log.first < limit]
                if not loose:
                    break
                dropped += self._drop_first(min(loose, key=lambda log: log.records[0].timestamp_ms))
            self._forget_stamps(place)
            count_trimmed(topic, dropped)
            return dropped

    # ---- consumer groups
    def create_group(self, topic: str, group: str, *, at_end: bool) -> None:
        with self._changed:
            place = self._make(topic)
            if group not in place.groups:
                place.groups[group] = [_GroupPart(log.end if at_end else log.first) for log in place.logs]
                place.group_used_at[group] = time.monotonic()

    def delete_group(self, topic: str, group: str) -> bool:
        with self._changed:
            place = self._topics.get(topic)
            if place is None or place.groups.pop(group, None) is None:
                return False
            del place.group_used_at[group]
            return True

    def groups(self, topic: str) -> list[str]:
        with self._changed:
            place = self._topics.get(topic)
            return sorted(place.groups) if place else []

    def read_group(
        self, topic: str, group: str, consumer: str, *, partitions: Sequence[int] | None = None, max_records: int = 100
    ) -> list[GroupRecord]:
        with self._changed:
            place, parts = self._use_group(topic, group)
            order = self._router.rotated((topic, group), partitions, len(parts))
            found: list[GroupRecord] = []
            # A second round gives what quiet partitions left over to the busy ones.
            for quota in (
                *zip(order, shares(max_records, len(order)), strict=True),
                *((p, max_records) for p in order),
            ):
                partition, count = quota[0], min(quota[1], max_records - len(found))
                part, log = parts[partition], place.logs[partition]
                start = max(part.next_offset, log.first)
                for offset in range(start, min(start + count, log.end)):
                    part.pending[offset] = _Pending(consumer, time.monotonic(), 1)
                    part.next_offset = offset + 1
                    found.append(GroupRecord(log.records[offset - log.first], 1))
            return found

    def acknowledge(self, topic: str, group: str, partition: int, offsets: Sequence[int]) -> int:
        with self._changed:
            place = self._topics.get(topic)
            if place is None or group not in place.groups or not 0 <= partition < len(place.logs):
                return 0
            place.group_used_at[group] = time.monotonic()
            pending = place.groups[group][partition].pending
            return sum(pending.pop(offset, None) is not None for offset in offsets)

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
        with self._changed:
            place, parts = self._use_group(topic, group)
            now = time.monotonic()
            found: list[GroupRecord] = []
            for partition in self._router.rotated((topic, group, of_consumer), partitions, len(parts)):
                log = place.logs[partition]
                for offset, entry in sorted(parts[partition].pending.items()):
                    if len(found) == max_records:
                        return found
                    if now - entry.delivered_at >= min_idle_seconds and of_consumer in (None, entry.consumer):
                        entry.consumer, entry.delivered_at = consumer, now
                        entry.deliveries += 1
                        found.append(GroupRecord(log.records[offset - log.first], entry.deliveries))
            return found

    def give_back(self, topic: str, group: str, records: Sequence[GroupRecord]) -> None:
        with self._changed:
            parts = self._group(topic, group)[1]
            for offered in records:
                entry = parts[offered.record.partition].pending.get(offered.record.offset)
                if entry is not None:
                    entry.consumer, entry.delivered_at = NOBODY, time.monotonic()
                    entry.deliveries = offered.deliveries - 1

    def pending(self, topic: str, group: str) -> dict[int, int]:
        with self._changed:
            return {index: len(part.pending) for index, part in enumerate(self._group(topic, group)[1])}

    def pending_by_consumer(self, topic: str, group: str) -> dict[int, dict[str, int]]:
        with self._changed:
            parts = self._group(topic, group)[1]
            return {
                index: dict(Counter(entry.consumer for entry in part.pending.values()))
                for index, part in enumerate(parts)
            }

    def forget_consumer(self, topic: str, group: str, consumer: str) -> None:
        """Nothing is kept of a consumer without records."""

    def next_offsets(self, topic: str, group: str) -> dict[int, int]:
        with self._changed:
            place, parts = self._group(topic, group)
            return {index: max(part.next_offset, place.logs[index].first) for index, part in enumerate(parts)}

    # ---- leases
    def grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> None:
        with self._changed:
            self.revoke(revoking)
            self._leases.update(leases)

    def begin_grant(self, leases: Mapping[str, bytes], *, revoking: Sequence[str] = ()) -> Pending | None:
        """Never: there is no way on which an answer could be."""
        return None

    def revoke(self, names: Sequence[str]) -> None:
        with self._changed:
            for name in names:
                self._leases.pop(name, None)

    def leases(self) -> dict[str, bytes]:
        with self._changed:
            return dict(self._leases)

    # ---- keyed tables
    def put(self, table: str, values: Mapping[str, bytes], *, keep_seconds: float | None = None) -> None:
        with self._changed:
            until = None if keep_seconds is None else time.monotonic() + keep_seconds
            self._tables.setdefault(table, {}).update({key: (value, until) for key, value in values.items()})

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        current = self.items(table)
        return [current.get(key) for key in keys]

    def items(self, table: str) -> dict[str, bytes]:
        with self._changed:
            now = time.monotonic()
            rows = self._tables.get(table, {})
            for key in [key for key, (_, until) in rows.items() if until is not None and until <= now]:
                del rows[key]
            return {key: value for key, (value, _) in rows.items()}

    def delete(self, table: str, keys: Sequence[str]) -> None:
        with self._changed:
            for key in keys:
                self._tables.get(table, {}).pop(key, None)

    # ---- shared rate budgets
    def take(self, budget: str, cost: float, *, capacity: float, per_second: float) -> float:
        with self._changed:
            bucket = self._budgets.setdefault(budget, TokenBucket())
            return bucket.take(cost, capacity=capacity, per_second=per_second, now=time.monotonic())

    def block_budget(self, budget: str, seconds: float) -> None:
        with self._changed:
            self._budgets.setdefault(budget, TokenBucket()).block(time.monotonic() + seconds)

    def correct_budget(self, budget: str, used: float, *, capacity: float) -> None:
        with self._changed:
            self._budgets.setdefault(budget, TokenBucket()).correct(used, capacity=capacity, now=time.monotonic())

    def close(self) -> None:
        """Nothing to give back; the records stay readable."""

    # ---- inside; all of these are called with the lock held
    def _make(self, topic: str, partitions: int | None = None) -> _Topic:
        if topic not in self._topics:
            count = self._partitions if partitions is None else partitions
            if not topic or count < 1:
                raise BusError(f"a topic needs a name and a partition, not {topic!r} and {count}")
            self._topics[topic] = _Topic(topic, [_Log() for _ in range(count)])
        return self._topics[topic]

    def _log(self, topic: str, partition: int) -> _Log:
        place = self._topics.get(topic)
        if place is None:
            return _Log()
        if not 0 <= partition < len(place.logs):
            raise BusError(f"topic {topic} has no partition {partition}: there are {len(place.logs)}")
        return place.logs[partition]

    def _append(self, place: _Topic, partition: int, record: Record) -> Position:
        log = place.logs[partition]
        position = Position(partition, log.end)
        value, first = record.value, None
        if record.sequence is not None:
            first = self._sequences.get(record.sequence.name, 0) + 1
            self._sequences[record.sequence.name] = first + record.sequence.count - 1
            place.stamps.setdefault(record.sequence.name, []).append((first, position))
            value = stamped(value, record.sequence, first)
        now = int(time.time() * 1_000)
        kept = StoredRecord(place.name, partition, log.end, now, record.key, value, dict(record.headers), first)
        log.records.append(kept)
        log.size_bytes += record_bytes(kept)
        return position

    def _refuse_when_full(self, place: _Topic) -> None:
        if place.size_bytes >= self._max_bytes:
            self.trim(place.name, keep_seconds=float("inf"), keep_bytes=trim_goal(self._max_bytes))
            if place.size_bytes >= self._max_bytes:
                REFUSED.labels(place.name).inc()
                raise BusFull(place.name, place.size_bytes, self._max_bytes)

    def _recall(self, registry: str, name: str) -> bytes | None:
        content, until = self._once.get((registry, name), (None, 0.0))
        if content is not None and until <= time.monotonic():
            del self._once[registry, name]
            return None
        return content

    def _protected_from(self, place: _Topic, partition: int) -> int:
        needed = [place.logs[partition].end]
        needed += [parts[partition].needs for parts in place.groups.values()]
        readers = self._holds.get(place.name, {}).values()
        needed += [positions[partition] for positions in readers if partition in positions]
        return min(needed)

    def _expire_groups(self, place: _Topic) -> None:
        oldest = time.monotonic() - self._group_expiry_seconds
        for group in [name for name, used_at in place.group_used_at.items() if used_at < oldest]:
            self.delete_group(place.name, group)
            group_expired(place.name, group)

    def _drop_first(self, log: _Log) -> int:
        log.size_bytes -= record_bytes(log.records.popleft())
        log.first += 1
        return 1

    def _forget_stamps(self, place: _Topic) -> None:
        firsts = [log.first for log in place.logs]
        for name, stamps in place.stamps.items():
            kept = bisect_left(stamps, True, key=lambda stamp: stamp[1].offset >= firsts[stamp[1].partition])
            place.stamps[name] = stamps[kept:]

    def _group(self, topic: str, group: str) -> tuple[_Topic, list[_GroupPart]]:
        place = self._topics.get(topic)
        if place is None or group not in place.groups:
            raise BusError(f"topic {topic} has no group {group}")
        return place, place.groups[group]

    def _use_group(self, topic: str, group: str) -> tuple[_Topic, list[_GroupPart]]:
        found = self._group(topic, group)
        found[0].group_used_at[group] = time.monotonic()
        return found
