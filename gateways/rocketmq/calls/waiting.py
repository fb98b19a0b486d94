"""Calls held until there are messages, and the limits of their answers."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bus.api import TopicPartition
from gateways.rocketmq.door.status import RESOURCE_EXHAUSTED, Refused
from gateways.rocketmq.metrics import WAITING
from gateways.rocketmq.store import Store

MAX_BATCH = 256
#: Size limit of one reply, so that clients with gRPC's default limit of 4 MiB can take it; a larger message goes alone.
REPLY_BYTES = 3 << 20
#: How long a held call waits between looks; partitions are watched for longer.
PATIENCE_SECONDS = 30.0


class Waiting:
    """`most`: how many calls may be held at a time."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self.count = 0
        self.is_over = False
        #: Keyed by client: what its held calls wait for.
        self._arrived: dict[str, set[asyncio.Event]] = {}
        #: Held ordered calls, by topic, group and partition.
        self._in_order: Counter[tuple[str, str, int]] = Counter()

    @contextmanager
    def held(
        self, client_id: str, places: Sequence[TopicPartition], in_order_of: str | None = None
    ) -> Iterator[asyncio.Event]:
        """An event with which to watch `places`. `in_order_of`: the group, if served in order. Raises Refused if too
        many calls wait.
        """
        if self.count >= self._most:
            raise Refused(RESOURCE_EXHAUSTED, f"{self.count} calls are already waiting")
        arrived = asyncio.Event()
        own = self._arrived.setdefault(client_id, set())
        own.add(arrived)
        followed = [(topic, in_order_of, partition) for topic, partition in places if in_order_of is not None]
        self._in_order.update(followed)
        self._count(1)
        try:
            yield arrived
        finally:
            self._store.unwatch(places, arrived)
            own.discard(arrived)
            if not own:
                self._arrived.pop(client_id, None)
            for place in followed:
                self._in_order[place] -= 1
                if not self._in_order[place]:
                    del self._in_order[place]
            self._count(-1)

    def is_in_order(self, topic: str, group: str, partition: int) -> bool:
        """Whether a call waits for the messages after one of the group."""
        return self._in_order[topic, group, partition] > 0

    def look_again(self, client_id: str) -> None:
        """Notify the held calls of a client that it has gone."""
        for arrived in self._arrived.get(client_id, ()):
            arrived.set()

    def stop(self) -> None:
        """Answer the held calls."""
        self.is_over = True
        self._store.nudge_all()

    def _count(self, change: int) -> None:
        self.count += change
        WAITING.set(self.count)
