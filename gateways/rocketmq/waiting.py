"""Calls that are held until there are messages, and what bounds their answers."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from bus.api import TopicPartition
from gateways.rocketmq.metrics import WAITING
from gateways.rocketmq.status import RESOURCE_EXHAUSTED, Refused
from gateways.rocketmq.store import Store

MAX_BATCH = 256
#: Of one reply, so that clients with gRPC's own limit of 4 MiB can take it; a larger message goes alone.
REPLY_BYTES = 3 << 20
#: How long a held call goes without a look; partitions are watched for longer.
PATIENCE_SECONDS = 30.0


class Waiting:
    """`most`: calls at the same time."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most
        self.count = 0
        self.is_over = False
        #: By client: what its held calls wait for.
        self._arrived: dict[str, set[asyncio.Event]] = {}
        #: Held calls in order, by topic, group and partition.
        self._in_order: Counter[tuple[str, str, int]] = Counter()

    @contextmanager
    def held(
        self, client_id: str, places: Sequence[TopicPartition], in_order_of: str | None = None
    ) -> Iterator[asyncio.Event]:
        """An event to watch `places` with. `in_order_of`: the group that is served in order. Raises Refused when too
        many calls wait.
        """
        if self.count >= self._most:
            raise Refused(RESOURCE_EXHAUSTED, f"{self.count} calls wait already")
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
        """Whether a call waits for what follows a message of the group."""
        return self._in_order[topic, group, partition] > 0

    def look_again(self, client_id: str) -> None:
        """Let the held calls of a client see that it has gone."""
        for arrived in self._arrived.get(client_id, ()):
            arrived.set()

    def stop(self) -> None:
        """Answer the calls that are held."""
        self.is_over = True
        self._store.nudge_all()

    def _count(self, change: int) -> None:
        self.count += change
        WAITING.set(self.count)
