"""Appending to a bus on Redis, each call all or nothing and repeatable."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from bus.api import Once, Position, Record, Swap, TopicPartition
from bus.limits import REFUSED, trim_goal
from bus.redis import appending
from bus.redis.pending import PendingAppend
from bus.redis.retention import RedisRetention
from bus.redis.store import Argument, bulks
from bus.redis.topics import CALL_SECONDS, milliseconds
from bus.topics import ENDING, REFUSING_REGISTRIES
from candlewright.wire.errors import BusError, BusFull, BusLimit, CallsLost, LeaseLost

__all__ = ["RedisPublishing"]

#: How long a call with a writer's own number is remembered, which outlives the process.
_NAMED_CALL_SECONDS = 30 * 86_400


class Known(tuple[int, ...]):
    """The positions of names that were already known."""


class RedisPublishing(RedisRetention):
    """`bus.api.Registries`, the writing half of `bus.api.Log`, and `commit`."""

    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        if not records:
            if lease is not None and not self._store.call("HEXISTS", "cw:leases", lease):
                raise LeaseLost(lease)
            return []
        positions: list[Position] = self._append(topic, records, lease=lease, once=())
        return positions

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
        if not records:
            return []
        call = f"as:{writer}", number
        positions: list[Position] = self._append(
            topic, records, lease=lease, once=(), call=call, is_contiguous=is_contiguous
        )
        return positions

    def begin_publish_as(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        writer: str,
        number: int,
        lease: str | None = None,
        is_contiguous: bool = False,
    ) -> PendingAppend | None:
        count = self._counts.get(topic)
        if not records or count is None:
            return None
        chosen = self._router.route(topic, records, count)
        pending = PendingAppend(Counter(chosen))
        call = f"as:{writer}", number
        head = self._head(topic, count, call, _NAMED_CALL_SECONDS, lease=lease, is_contiguous=is_contiguous)
        arguments, packed = appending.packed(records, chosen, head)
        return pending if self._store.begin_script(pending, "publish", arguments, arguments=packed) else None

    def publish_once(
        self, topic: str, record: Record, *, registry: str, name: str, content: bytes, keep_seconds: float
    ) -> Once:
        once = (_once_key(registry, name), content, milliseconds(keep_seconds))
        found = self._append(topic, [record], lease=None, once=once, registry=registry)
        if isinstance(found, bytes):
            return Once(False, found, None)
        return Once(True, content, found[0])

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
        firsts: dict[str, int] = {}
        for place, name in enumerate(names):
            firsts.setdefault(name, place)
        while firsts:
            keys = [_once_key(registry, name).encode() for name in firsts]
            own = [contents[place] for place in firsts.values()] if contents else []
            lengths = "*" + " ".join(str(len(key)) for key in keys) + "=" + " ".join(str(len(each)) for each in own)
            once = (lengths, b"".join((*keys, *own)), milliseconds(keep_seconds))
            chosen = [records[place] for place in firsts.values()]
            found = self._append(topic, chosen, lease=None, once=once, registry=registry)
            if not isinstance(found, Known):
                break
            # Nothing was written.
            asked = list(firsts)
            for known in found:
                del firsts[asked[known]]
        return [firsts.get(name) == place for place, name in enumerate(names)]

    def recall(self, registry: str, names: Sequence[str]) -> list[bytes | None]:
        if not names:
            return []
        found: list[bytes | None] = self._store.call("MGET", *(_once_key(registry, name) for name in names))
        return found

    def commit(
        self,
        swaps: Sequence[Swap],
        records: Mapping[str, Sequence[Record]],
        *,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> bool:
        head: list[Argument] = [int(all(topic in ENDING for topic in records)), len(swaps)]
        for swap in swaps:
            head += (swap.table, swap.key, b"" if swap.old is None else b"=" + swap.old, swap.new, len(swap.put))
            head += (part for row in swap.put.items() for part in row)
            head += (len(swap.delete), *swap.delete)
        head.append(len(ends or ()))
        head += (part for (topic, partition), end in (ends or {}).items() for part in (topic, partition, end))
        wanted = {topic: own for topic, own in records.items() if own}
        trimmed: set[str] = set()
        while True:
            count, packed = len(head), [bulks(*head)]
            for topic, own in wanted.items():
                partitions = self.partitions(topic) or self._partitions
                chosen = self._router.route(topic, own, partitions)
                known = self._heads.get((topic, partitions))
                if known is None:
                    known = self._heads[topic, partitions] = self._head(topic, partitions, ("", 0), 0)
                arguments, each = appending.packed(own, chosen, known)
                packed += (b"$%d\r\n%d\r\n" % (len(str(arguments)), arguments), each)
                count += arguments + 1
            reply = self._store.run_packed("commit", count, b"".join(packed))
            if reply[0] in (b"P", b"X"):
                return bool(reply[0] == b"P")
            topic, why, number = list(wanted)[int(reply[0])], reply[1], int(reply[2])
            if why == b"N":
                self._counts[topic] = number
            elif why == b"T":
                raise BusLimit("topics", number, self._limits.topics)
            else:
                self._make_room(topic, number, is_trimmed=topic in trimmed)
                trimmed.add(topic)

    def _append(
        self,
        topic: str,
        records: Sequence[Record],
        *,
        lease: str | None,
        once: Sequence[bytes | str],
        call: tuple[str, int] | None = None,
        registry: str = "",
        is_contiguous: bool = False,
    ) -> Any:
        """Positions, or the content (bytes) that `publish_once` found, or the positions of the names that `publish_new`
        found. `call`: a writer and its call's number that outlive this process.
        """
        if not topic:
            raise BusError("a topic needs a name")
        writer, number = call or self._next_call()
        keep_seconds = CALL_SECONDS if call is None else _NAMED_CALL_SECONDS
        has_trimmed = False
        count = self.partitions(topic) or self._partitions
        while True:
            chosen = self._router.route(topic, records, count)
            head = self._head(
                topic, count, (writer, number), keep_seconds,
                lease=lease, once=once, is_refusing=registry in REFUSING_REGISTRIES, is_contiguous=is_contiguous,
            )  # fmt: skip
            arguments, packed = appending.packed(records, chosen, head)
            reply = self._store.run_packed("publish", arguments, packed)
            match reply[0]:
                case b"P":
                    self._counts[topic] = count
                    return appending.positions(chosen, reply[1:])
                case b"N":
                    self._counts[topic] = count = int(reply[1])
                case b"L":
                    raise LeaseLost(str(lease))
                case b"S":
                    raise BusError(f"a publish to {topic} came after a later one of the same writer")
                case b"G":
                    raise CallsLost(writer.removeprefix("as:"), number, int(reply[1]))
                case b"T":
                    raise BusLimit("topics", int(reply[1]), self._limits.topics)
                case b"M":
                    raise BusLimit(f"names of {registry}", int(reply[1]), self._limits.names)
                case b"K":
                    return reply[1]
                case b"D":
                    return Known(map(int, reply[1:]))
                case _:
                    self._make_room(topic, int(reply[1]), is_trimmed=has_trimmed)
                    has_trimmed = True

    def _make_room(self, topic: str, size: int, *, is_trimmed: bool) -> None:
        """`is_trimmed`: trimming has not helped. Raises BusFull."""
        if is_trimmed:
            REFUSED.labels(topic).inc()
            raise BusFull(topic, size, self._max_bytes)
        self.trim(topic, keep_seconds=math.inf, keep_bytes=trim_goal(self._max_bytes))

    def _head(
        self,
        topic: str,
        partitions: int,
        call: tuple[str, int],
        keep_seconds: int,
        *,
        lease: str | None = None,
        once: Sequence[bytes | str] = (),
        is_refusing: bool = False,
        is_contiguous: bool = False,
    ) -> tuple[int, bytes]:
        """The arguments of `lua/publish.lua` before the records, packed."""
        head = (topic, partitions, self._max_bytes, "" if lease is None else f"={lease}", *call)
        limits = self._limits
        bounds = (
            int(topic in ENDING),
            limits.topics,
            limits.sequence_seconds,
            limits.names,
            int(is_refusing),
            int(is_contiguous),
        )
        return appending.packed_head((*head, *(once or ("", "", "")), keep_seconds, *bounds))


def _once_key(registry: str, name: str) -> str:
    if ":" in registry:
        raise BusError(f"a registry's name has no colon: {registry}")
    return f"cw:once:{registry}:{name}"
