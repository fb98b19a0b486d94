"""One topic for all its readers: one subscription, and each message is encoded only once."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import orjson

from candlewright.client import AsyncClient, GapError, TickerNotFound, TriggerSuspended
from candlewright.client.errors import Interruption, NumbersLost
from candlewright.client.session.session import Ticket
from candlewright.wire.errors import BadFrame
from candlewright.wire.ingestor_pb2 import HistoryReadyNotification
from console.live.feeds import Whole, finals_feed, is_numbered, numbered_feed
from console.live.ring import Entry, Ring
from console.messages import message_json
from console.times import iso

__all__ = ["Channel", "entry_of", "text_of"]


@dataclass(frozen=True, slots=True)
class Event:
    """`id` is the cursor after it."""

    id: str
    kind: str
    data: bytes


class Batch:
    """Events for all readers that are at one position of a topic, and the position after them."""

    __slots__ = ("encoded", "events", "has_more", "number", "place")

    def __init__(self, events: list[Event]) -> None:
        self.events = events
        #: The bytes that connections send, encoded for the first one.
        self.encoded: bytes | None = None
        self.place = 0
        self.number = 0
        #: Whether there are more messages after it.
        self.has_more = False


class Channel:
    """Made when a topic gets its first reader; `close` ends the subscription."""

    def __init__(self, client: AsyncClient, topic: str) -> None:
        self.topic = topic
        self.is_numbered = is_numbered(topic)
        self.readers: set[Callable[[], None]] = set()
        self.ring = Ring(1)
        #: By position, of the messages that are being delivered.
        self.batches: dict[tuple[int, int], Batch] = {}
        self._client = client
        self._feed = numbered_feed(topic, None) if self.is_numbered else finals_feed(topic)
        self._ticket: Ticket[None] | None = None
        self._opening = asyncio.Lock()
        self._is_drained_soon = False

    async def open(self) -> None:
        """Returns once subscribed, with the topic's position known. Raises what the client raises."""
        async with self._opening:
            if self._ticket is not None:
                return
            if self.is_numbered:
                newest = await self._client.run(lambda ask: ask.newest(self.topic))
                self.ring = Ring(newest.number + 1)
                self._feed.begin_at(newest.number + 1, newest.at)
            self._feed.on_ready = self._drain_soon
            self._ticket = self._client.begin_stream(self._feed, self._drain_soon)
            self._drain_soon()

    def close(self) -> None:
        if self._ticket is not None:
            self._client.end_stream(self._ticket)
            self._ticket = None

    def _drain_soon(self) -> None:
        """Not immediately, because the client is still running its own callback."""
        if not self._is_drained_soon:
            self._is_drained_soon = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        self._is_drained_soon = False
        has_news = False
        while self._ticket is not None and (found := self._client.take(self._feed, self._ticket)) is not None:
            if isinstance(found, NumbersLost):
                self.ring.go_back(found.first)
            if (entry := entry_of(self.topic, found)) is not None:
                self.ring.add(entry)
                has_news = True
        if has_news:
            self.batches.clear()
            for hear in self.readers:
                hear()
            self.batches.clear()


def entry_of(topic: str, found: Whole | Interruption) -> Entry | None:
    """None for a message that does not belong on a topic."""
    if isinstance(found, Whole):
        try:
            made = message_json(found.message, found.skipped)
        except BadFrame:
            return None
        if made is None:
            return None
        kind, content = made
        return Entry(found.first, found.last, kind, text_of(topic, content), found.message)
    if isinstance(found, GapError):
        lost = {"first": found.first, "last": found.last, "reason": str(found)}
        if isinstance(found, NumbersLost):
            return Entry(found.first, found.first - 1, "gap", text_of(topic, lost))
        return Entry(found.first, found.last, "gap", text_of(topic, lost))
    if isinstance(found, TriggerSuspended):
        told = {"trigger_id": found.trigger_id, "reason": found.reason, "registered_at": iso(found.registered_at)}
        return Entry(1, 0, "suspended", text_of(topic, told))
    code = "UNKNOWN_TICKER" if isinstance(found, TickerNotFound) else found.code
    return Entry(1, 0, "error", text_of(topic, {"code": code, "reason": str(found)}))


def text_of(topic: str, content: Mapping[str, object]) -> bytes:
    return orjson.dumps({"topic": topic, **content})


def final_name(entry: Entry) -> tuple[str, int] | None:
    """A name that distinguishes a final from others, and its time."""
    message = entry.message
    if isinstance(message, HistoryReadyNotification):
        return message.request_id, message.completed_at
    context = getattr(message, "context", None)
    return (context["event_id"], message.timestamp) if context and context["event_id"] else None  # type: ignore[union-attr]
