"""The topics of a bus on Redis and their partitions: what every other call asks for first."""

import math
import os
import secrets
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from bus.api import PartitionState, TopicPartition
from bus.limits import Limits
from bus.redis.store import Store, pack
from bus.routing import Router
from candlewright.wire.errors import BusError, BusLimit

__all__ = ["CALL_SECONDS", "RedisTopics", "log_of", "milliseconds", "pairs", "states_of"]

#: How long a call is remembered, so that its repetition writes nothing: after a lost connection.
CALL_SECONDS = 600


class RedisTopics:
    """What the interfaces of the bus have in common (`bus.redis.redis_bus`)."""

    def __init__(
        self, store: Store, *, partitions: int, max_bytes: int, group_expiry_seconds: float, limits: Limits
    ) -> None:
        self._store = store
        self._limits = limits
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._group_expiry_seconds = group_expiry_seconds
        self._router = Router()
        self._counts: dict[str, int] = {}
        #: By topic and partitions, see `_ask_for_state`.
        self._questions: dict[tuple[str, Sequence[int]], bytes] = {}
        #: Of the records of a `commit`, by topic and number of partitions, see `appending.packed`.
        self._heads: dict[tuple[str, int], tuple[int, bytes]] = {}
        #: When a group was last kept from expiring.
        self._touched: dict[tuple[str, str], float] = {}
        #: Bytes of a record and records of an entry, by partition, as of the newest read.
        self._means: dict[TopicPartition, tuple[float, float]] = {}
        self._writer = threading.local()

    def partitions(self, topic: str) -> int:
        count = self._counts.get(topic)
        if count is None:
            count = int(self._store.call("HGET", "cw:topics", topic) or 0)
            if count:
                self._counts[topic] = count
        return count

    def create_topic(self, topic: str, partitions: int | None = None) -> int:
        count = self._partitions if partitions is None else partitions
        if not topic or count < 1:
            raise BusError(f"a topic needs a name and a partition, not {topic!r} and {count}")
        made = int(self._store.run("create_topic", topic, count, self._limits.topics))
        if made < 0:
            raise BusLimit("topics", -made, self._limits.topics)
        self._counts[topic] = made
        return made

    def topics(self) -> list[str]:
        return sorted(name.decode() for name in self._store.call("HKEYS", "cw:topics"))

    def state(self, topic: str) -> list[PartitionState]:
        return self.states([topic])[topic]

    def states(self, topics: Sequence[str]) -> dict[str, list[PartitionState]]:
        commands = b"".join(self._ask_for_state(topic, range(self.partitions(topic))) for topic in topics)
        replies = self._store.packed_calls(commands, len(topics))
        return {topic: states_of(reply) for topic, reply in zip(topics, replies, strict=True)}

    def _ask_for_state(self, topic: str, partitions: Sequence[int]) -> bytes:
        """The command whose reply `states_of` reads."""
        if not self.partitions(topic):
            raise BusError(f"no topic {topic}")
        found = self._questions.get((topic, partitions))
        if found is None:
            for partition in partitions:
                self._check_partition(topic, partition)
            names = [f"{p}:{name}" for p in partitions for name in ("first", "end", "size", "lives")]
            found = self._questions[topic, partitions] = pack(("HMGET", f"cw:topic:{topic}", *names))
        return found

    def _check_partition(self, topic: str, partition: int) -> None:
        count = self.partitions(topic)
        if count and not 0 <= partition < count:
            raise BusError(f"topic {topic} has no partition {partition}: there are {count}")

    def _next_call(self) -> tuple[str, int]:
        """A name for this thread and a number for this call, by which Redis recognises a repetition."""
        local = self._writer
        if getattr(local, "pid", None) != os.getpid():
            local.pid, local.name, local.number = os.getpid(), secrets.token_hex(12), 0
        local.number += 1
        return local.name, local.number


def states_of(reply: Sequence[Any]) -> list[PartitionState]:
    return [
        PartitionState(int(first or 0), int(end or 0), int(size or 0), (lives or b"").decode())
        for first, end, size, lives in zip(*[iter(reply)] * 4, strict=True)
    ]


def log_of(topic: str, partition: int) -> str:
    return f"cw:log:{topic}:{partition}"


def milliseconds(seconds: float) -> str:
    return "inf" if math.isinf(seconds) else str(round(seconds * 1_000))


def pairs(flat: Sequence[bytes]) -> Iterable[tuple[bytes, bytes]]:
    return zip(flat[::2], flat[1::2], strict=True)
