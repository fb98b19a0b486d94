"""Recently published messages, for subscribers that return after a start. For one thread."""

from collections import deque

from relay.doors.notifier import Batch
from relay.topics import served_by


class RecentEvents:
    """Bounded by number and bytes; the oldest are dropped."""

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._by_topic: dict[bytes, deque[bytes]] = {}
        self._order: deque[bytes] = deque()
        self._bytes = 0

    def add(self, batch: Batch) -> None:
        for topic, body in batch:
            self._by_topic.setdefault(topic, deque()).append(body)
            self._order.append(topic)
            self._bytes += len(body)
        while self._order and (len(self._order) > self._max_messages or self._bytes > self._max_bytes):
            self._forget_oldest()

    def under(self, subscription: bytes) -> Batch:
        topics = served_by(subscription, self._by_topic)
        return [(topic, body) for topic in topics for body in self._by_topic[topic]]

    def clear(self) -> None:
        self._by_topic.clear()
        self._order.clear()
        self._bytes = 0

    def _forget_oldest(self) -> None:
        topic = self._order.popleft()
        bodies = self._by_topic[topic]
        self._bytes -= len(bodies.popleft())
        if not bodies:
            del self._by_topic[topic]
