"""One connection's stream over its topics: from its position, through missed messages, to live ones."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from candlewright.client import AsyncClient, GapError
from candlewright.client.live.feed import Feed
from candlewright.client.session.session import Ticket
from console.live.channel import Batch, Channel, Event, entry_of, final_name, text_of
from console.live.cursor import Cursor, Delivered
from console.live.feeds import Whole, numbered_feed
from console.live.ring import Entry
from console.messages import message_json

__all__ = ["Event", "Reader", "TooSlow"]

#: The most entries that one turn takes from a topic.
_TURN = 200


class TooSlow(Exception):
    """The next message for a reader was dropped here; a new connection with its cursor gets it from the platform."""

    def __init__(self, topic: str) -> None:
        super().__init__(f"too slow for {topic}; connect again with the last id to continue without a gap")
        self.topic = topic


@dataclass(slots=True)
class _Past:
    """A separate feed, for messages that the channel no longer has."""

    feed: Feed[Whole]
    ticket: Ticket[None]


class Reader:
    """`cursor` says where each topic begins; a topic that is not in it begins with the next message."""

    def __init__(self, client: AsyncClient, channels: Sequence[Channel], cursor: Cursor | None) -> None:
        self._client = client
        self._channels = {channel.topic: channel for channel in channels}
        self._has_news = False
        self._waiter: asyncio.Future[bool] | None = None
        #: A timer that keeps running when a wait ends early, as most waits do. It is set again once it is over, or if a
        #: wait is to end before it.
        self._alarm: asyncio.TimerHandle | None = None
        self._patience = 0.0
        self._now = asyncio.get_running_loop().time
        self._patient_until = 0.0
        self._places: dict[str, int] = {}
        self._past: dict[str, _Past] = {}
        self._at = Cursor()
        #: The topic, if it is the only one and has numbers: many readers are then at the same position.
        self._only = channels[0] if len(channels) == 1 and channels[0].is_numbered else None
        #: Sends what `take_shared` returns, from inside a wait, which then continues; False if that is impossible now.
        self.push: Callable[[], bool] | None = None
        #: Whether the server is stopping.
        self.is_closing = False
        for channel in channels:
            self._begin(channel, cursor)

    @property
    def cursor(self) -> str:
        return self._at.text()

    async def wait(self, seconds: float) -> bool:
        """Whether there may be new messages; False after this many seconds. One call at a time."""
        if self._has_news:
            return True
        loop = asyncio.get_running_loop()
        self._patience = seconds
        self._patient_until = loop.time() + seconds
        if self._alarm is not None and self._alarm.when() > self._patient_until:
            self._alarm.cancel()
            self._alarm = None
        if self._alarm is None:
            self._alarm = loop.call_at(self._patient_until, self._ring)
        self._waiter = loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def wake(self) -> None:
        self._has_news = True
        self._end_wait(is_news=True)

    def hear(self) -> None:
        """A channel has new messages."""
        self._has_news = True
        is_waiting = self._waiter is not None and not self._waiter.done()
        if is_waiting and self.push is not None and not self._past and self.push():
            self._patient_until = self._now() + self._patience
        else:
            self._end_wait(is_news=True)

    def take(self) -> list[Event]:
        """The current messages; an empty list if there are none. Raises TooSlow."""
        self._has_news = False
        found: list[Event] = []
        for channel in self._channels.values():
            found += self._of_past(channel) if channel.topic in self._past else self._of_channel(channel)
        return found

    def take_shared(self) -> Batch:
        """As `take`, but readers at the same position get the same batch. Raises TooSlow."""
        only = self._only
        if only is None or self._past:
            return Batch(self.take())
        topic = only.topic
        position = self._places[topic], self._at.numbers[topic]
        batch = only.batches.get(position)
        if batch is None:
            batch = only.batches[position] = Batch(self.take())
            batch.place, batch.number = self._places[topic], self._at.numbers[topic]
            batch.has_more = self._has_news
            return batch
        self._has_news = False
        self._places[topic], self._at.numbers[topic] = batch.place, batch.number
        if batch.has_more:
            self.wake()
        return batch

    def close(self) -> None:
        for channel in self._channels.values():
            channel.readers.discard(self.hear)
        for past in self._past.values():
            self._client.end_stream(past.ticket)
        self._past.clear()
        if self._alarm is not None:
            self._alarm.cancel()

    # ---- inside
    def _ring(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._patient_until:
            self._alarm = loop.call_at(self._patient_until, self._ring)
            return
        self._alarm = None
        self._end_wait(is_news=False)

    def _end_wait(self, *, is_news: bool) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(is_news)

    def _begin(self, channel: Channel, cursor: Cursor | None) -> None:
        channel.readers.add(self.hear)
        topic, ring = channel.topic, channel.ring
        if not channel.is_numbered:
            # The platform repeats the stored messages; leave out those that this reader has had.
            known = cursor.finals.get(topic) if cursor is not None else None
            self._at.finals[topic] = known or Delivered()
            self._places[topic] = ring.begin
        else:
            number = cursor.numbers.get(topic, ring.next_number) if cursor is not None else ring.next_number
            self._at.numbers[topic] = number
            if ring.covers(number):
                self._places[topic] = ring.place_of(number)
            else:
                self._begin_past(topic, number)
        self.wake()

    def _begin_past(self, topic: str, number: int) -> None:
        feed = numbered_feed(topic, number)
        feed.on_ready = self.wake
        self._past[topic] = _Past(feed, self._client.begin_stream(feed, self.wake))

    def _of_past(self, channel: Channel) -> Iterator[Event]:
        past, topic = self._past[channel.topic], channel.topic
        for _ in range(_TURN):
            if channel.ring.covers(self._at.numbers[topic]):
                self._client.end_stream(past.ticket)
                del self._past[topic]
                self._places[topic] = channel.ring.place_of(self._at.numbers[topic])
                yield from self._of_channel(channel)
                return
            found = self._client.take(past.feed, past.ticket)
            if found is None:
                return
            if (entry := entry_of(topic, found)) is not None:
                yield self._event(channel, entry)
            elif isinstance(found, Whole | GapError):
                self._at.numbers[topic] = found.last + 1
        self.wake()

    def _of_channel(self, channel: Channel) -> Iterator[Event]:
        topic = channel.topic
        entries = channel.ring.read(self._places[topic], _TURN)
        if entries is None:
            raise TooSlow(topic)
        for entry in entries:
            self._places[topic] += 1
            if channel.is_numbered:
                if (event := self._numbered(channel, entry)) is not None:
                    yield event
            elif (event := self._final(topic, entry)) is not None:
                yield event
        if len(entries) == _TURN:
            self.wake()

    def _numbered(self, channel: Channel, entry: Entry) -> Event | None:
        wanted = self._at.numbers[channel.topic]
        if entry.has_numbers and entry.last < wanted:
            return None
        if entry.has_numbers and entry.first < wanted and entry.message is not None:
            made = message_json(entry.message, wanted - _first_of(entry))
            if made is not None:
                entry = Entry(wanted, entry.last, made[0], text_of(channel.topic, made[1]), entry.message)
        return self._event(channel, entry)

    def _event(self, channel: Channel, entry: Entry) -> Event:
        if entry.has_numbers:
            self._at.numbers[channel.topic] = entry.last + 1
        elif entry.kind == "gap":
            self._at.numbers[channel.topic] = entry.first
        return Event(self._at.text(), entry.kind, entry.data)

    def _final(self, topic: str, entry: Entry) -> Event | None:
        named = final_name(entry)
        if named is not None:
            delivered = self._at.finals[topic]
            if not delivered.is_new(*named):
                return None
            delivered.add(*named)
        return Event(self._at.text(), entry.kind, entry.data)


def _first_of(entry: Entry) -> int:
    """The number with which the message itself begins."""
    first = getattr(entry.message, "first_sequence", 0)
    return int(first) or entry.first
