"""The topics that have readers, and the number of streams."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

from candlewright.client import AsyncClient
from candlewright.wire.errors import InvalidRequest
from console import metrics
from console.live.channel import Channel
from console.live.cursor import Cursor
from console.live.feeds import is_numbered
from console.live.reader import Reader
from console.problems import Problem

__all__ = ["Hub"]

#: The most topics of one stream.
MAX_TOPICS = 100
#: How long a topic without readers is kept for readers that return.
_LINGER_SECONDS = 5.0


class Hub:
    """`client`: returns the platform's client."""

    def __init__(self, client: Callable[[], Awaitable[AsyncClient]], max_streams: int) -> None:
        self._client = client
        self._max_streams = max_streams
        self._channels: dict[str, Channel] = {}
        self._users: Counter[str] = Counter()
        self._streams: Counter[str] = Counter()
        self._readers: set[Reader] = set()
        self.is_closing = False

    async def attach(self, who: str, topics: Sequence[str], cursor: str, *, from_sequence: int | None) -> Reader:
        """A new reader, to be returned with `detach`. Raises InvalidRequest, Problem, and what the client raises."""
        wanted = list(dict.fromkeys(topics))
        start = self._start(wanted, cursor, from_sequence)
        if self._streams.total() >= self._max_streams or self._streams[who] >= max(1, self._max_streams // 2):
            text = f"{self._streams.total()} streams are open, {self._streams[who]} of them by {who}; close some first"
            raise Problem(503, "too_many_streams", text, headers={"Retry-After": "5"})
        client = await self._client()
        self._count(who, 1)
        channels = [self._taken(client, topic) for topic in wanted]
        try:
            for channel in channels:
                await channel.open()
        except BaseException:
            self._give_back(who, wanted)
            raise
        reader = Reader(client, channels, start)
        reader.is_closing = self.is_closing
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        """End every stream with its reason."""
        self.is_closing = True
        for reader in self._readers:
            reader.is_closing = True
            reader.wake()

    def detach(self, who: str, topics: Sequence[str], reader: Reader) -> None:
        self._readers.discard(reader)
        reader.close()
        self._give_back(who, list(dict.fromkeys(topics)))

    @staticmethod
    def _start(topics: Sequence[str], cursor: str, from_sequence: int | None) -> Cursor | None:
        if not 1 <= len(topics) <= MAX_TOPICS:
            raise InvalidRequest(f"a stream has 1 to {MAX_TOPICS} topics, not {len(topics)}")
        numbered = [topic for topic in topics if is_numbered(topic)]
        if cursor:
            return Cursor.parse(cursor, numbered, [topic for topic in topics if topic not in numbered])
        if from_sequence is None:
            return None
        if len(topics) != 1 or not numbered:
            raise InvalidRequest("from_sequence needs exactly one topic, whose messages have numbers")
        return Cursor({topics[0]: from_sequence})

    def _taken(self, client: AsyncClient, topic: str) -> Channel:
        self._users[topic] += 1
        if topic not in self._channels:
            self._channels[topic] = Channel(client, topic)
        return self._channels[topic]

    def _give_back(self, who: str, topics: Sequence[str]) -> None:
        self._count(who, -1)
        for topic in topics:
            self._users[topic] -= 1
            if not self._users[topic]:
                asyncio.get_running_loop().call_later(_LINGER_SECONDS, self._end, topic)

    def _end(self, topic: str) -> None:
        if not self._users[topic]:
            del self._users[topic]
            if (channel := self._channels.pop(topic, None)) is not None:
                channel.close()

    def _count(self, who: str, by: int) -> None:
        self._streams[who] += by
        if not self._streams[who]:
            del self._streams[who]
        metrics.STREAMS.set(self._streams.total())
