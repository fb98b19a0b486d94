"""Consumer groups of a bus on Redis."""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from bus.api import NOBODY, GroupRecord
from bus.limits import pending_lost
from bus.lives import LATE_ACKNOWLEDGEMENTS, life_of
from bus.redis.replies import stored
from bus.redis.topics import CALL_SECONDS, RedisTopics, log_of, milliseconds
from candlewright.wire.errors import BusError, BusLimit
from core.log import get_logger

__all__ = ["RedisGroups"]

_UNPACK_CHUNK = 2_000
log = get_logger()


class RedisGroups(RedisTopics):
    """`bus.api.Groups`."""

    def create_group(self, topic: str, group: str, *, at_end: bool) -> None:
        count = self.partitions(topic) or self._partitions
        limits = self._limits.topics, self._limits.groups
        while isinstance(made := self._store.run("create_group", topic, count, group, int(at_end), *limits), int):
            if made > 0:
                self._counts[topic] = made
                return
            for partition in range(-made):
                while self._store.run("unpack", topic, partition, _UNPACK_CHUNK):
                    pass
        if made[0] == b"T":
            raise BusLimit("topics", made[1], self._limits.topics)
        raise BusLimit(f"groups of topic {topic}", made[1], self._limits.groups)

    def delete_group(self, topic: str, group: str) -> bool:
        self._touched.pop((topic, group), None)
        return bool(self._store.run("delete_group", topic, group))

    def groups(self, topic: str) -> list[str]:
        return sorted(self._group_positions(topic))

    def read_group(
        self, topic: str, group: str, consumer: str, *, partitions: Sequence[int] | None = None, max_records: int = 100
    ) -> list[GroupRecord]:
        self._touch(topic, group)
        order = self._router.rotated((topic, group), partitions, self.partitions(topic))
        if not order or max_records < 1:
            return []
        call = self._next_call()
        reply = self._store.run("read_group", topic, group, consumer, max_records, *call, CALL_SECONDS, *order)
        return [
            GroupRecord(record, 1, life_of((lives or b"").decode(), record.offset))
            for partition, entries, lives in zip(reply[::3], reply[1::3], reply[2::3], strict=True)
            for record in stored(topic, int(partition), entries)
        ]

    def acknowledge(
        self, topic: str, group: str, partition: int, *, offsets: Sequence[int], lives: Mapping[int, str] | None = None
    ) -> int:
        if not offsets:
            return 0
        self._touch(topic, group, must_exist=False)
        if not lives:
            command = ("XACK", log_of(topic, partition), group, *(f"{offset}-1" for offset in offsets))
            return int(self._store.write([command])[0])
        pairs = (part for offset in offsets for part in (offset, lives.get(offset, "")))
        done, late = self._store.run("acknowledge", topic, group, partition, *pairs)
        if late:
            LATE_ACKNOWLEDGEMENTS.labels(topic).inc(late)
            log.warning("late_acknowledgements", topic=topic, group=group, partition=partition, records=late)
        return int(done)

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
        self._touch(topic, group)
        idle = milliseconds(min_idle_seconds)
        order = self._router.rotated((topic, group, of_consumer), partitions, self.partitions(topic))
        if not order:
            return []
        of = () if of_consumer is None else (of_consumer,)
        waiting = self._store.calls(
            [("XPENDING", log_of(topic, p), group, "IDLE", idle, "-", "+", max_records, *of) for p in order]
        )
        found: list[GroupRecord] = []
        for partition, entries in zip(order, waiting, strict=True):
            entries = entries[: max_records - len(found)]
            if entries:
                found += self._claim(topic, partition, group, consumer, idle, entries)
        return found

    def give_back(self, topic: str, group: str, records: Sequence[GroupRecord]) -> None:
        if records:
            self._store.write([_give_back(topic, group, record) for record in records])

    def pending(self, topic: str, group: str) -> dict[int, int]:
        return {partition: int(reply[0]) for partition, reply in enumerate(self._pending(topic, group))}

    def pending_by_consumer(self, topic: str, group: str) -> dict[int, dict[str, int]]:
        return {
            partition: {consumer.decode(): int(count) for consumer, count in reply[3] or ()}
            for partition, reply in enumerate(self._pending(topic, group))
        }

    def forget_consumer(self, topic: str, group: str, consumer: str) -> None:
        self._store.run("forget_consumer", topic, group, consumer)

    def next_offsets(self, topic: str, group: str) -> dict[int, int]:
        positions = self._check_group(topic, group)
        return {
            p: max(position, part.first)
            for p, (position, part) in enumerate(zip(positions, self.state(topic), strict=True))
        }

    def _claim(
        self, topic: str, partition: int, group: str, consumer: str, idle: str, waiting: Sequence[Any]
    ) -> list[GroupRecord]:
        stream = log_of(topic, partition)
        deliveries = {int(entry[0].partition(b"-")[0]): entry[3] + 1 for entry in waiting}
        # A claim by another consumer resets a record's idle time.
        least = max(int(idle), min(entry[2] for entry in waiting))
        command = ("XCLAIM", stream, group, consumer, least, *(entry[0] for entry in waiting))
        # On one connection, which ends with its server, so no other life can begin in between.
        entries, lives = self._store.write([command, ("HGET", f"cw:topic:{topic}", f"{partition}:lives")])
        claimed = stored(topic, partition, [entry for entry in entries if entry is not None])
        if len(claimed) < len(deliveries):
            # Claimed by another consumer meanwhile, or removed from the stream, which only a writer outside the bus can
            # do.
            there = {record.offset for record in claimed}
            missing = [offset for offset in deliveries if offset not in there]
            kept = self._store.calls([("XRANGE", stream, f"{offset}-1", f"{offset}-1") for offset in missing])
            if lost := [offset for offset, found in zip(missing, kept, strict=True) if not found]:
                pending_lost(topic, group, len(lost))
                self.acknowledge(topic, group, partition, offsets=lost)
        history = (lives or b"").decode()
        return [GroupRecord(record, deliveries[record.offset], life_of(history, record.offset)) for record in claimed]

    def _pending(self, topic: str, group: str) -> list[Any]:
        """Redis itself refuses an unknown group; listing them first would cost more with each group."""
        count = self.partitions(topic)
        if not count:
            raise BusError(f"topic {topic} has no group {group}")
        return self._store.calls([("XPENDING", log_of(topic, p), group) for p in range(count)])

    def _touch(self, topic: str, group: str, *, must_exist: bool = True) -> None:
        """Keep `group` from expiring; Redis is only updated occasionally."""
        now = time.monotonic()
        if now - self._touched.get((topic, group), -math.inf) < min(60.0, self._group_expiry_seconds / 10):
            return
        if self._store.run("touch_group", topic, group):
            self._touched[topic, group] = now
        elif must_exist:
            self._check_group(topic, group)

    def _check_group(self, topic: str, group: str) -> list[int]:
        positions = self._group_positions(topic).get(group)
        if positions is None:
            raise BusError(f"topic {topic} has no group {group}")
        return positions

    def _group_positions(self, topic: str) -> dict[str, list[int]]:
        """The next offset by group and partition, for groups that exist on every partition."""
        count = self.partitions(topic)
        found: dict[str, list[int]] = {}
        exists = self._store.calls([("EXISTS", log_of(topic, p)) for p in range(count)])
        if not count or not all(exists):
            return {}
        for flats in self._store.calls([("XINFO", "GROUPS", log_of(topic, p)) for p in range(count)]):
            for flat in flats:
                group = dict(zip(flat[::2], flat[1::2], strict=True))
                offset, _, part = group[b"last-delivered-id"].partition(b"-")
                found.setdefault(group[b"name"].decode(), []).append(int(offset) + (part != b"0"))
        return {group: positions for group, positions in found.items() if len(positions) == count}


def _give_back(topic: str, group: str, offered: GroupRecord) -> tuple[str | int, ...]:
    partition, offset = offered.record.partition, offered.record.offset
    counted = ("RETRYCOUNT", offered.deliveries - 1, "JUSTID")
    return ("XCLAIM", log_of(topic, partition), group, NOBODY, 0, f"{offset}-1", *counted)
