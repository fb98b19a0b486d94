"""Reads from the platform's client: whole messages of numbered topics, finals of unnumbered ones."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from google.protobuf.message import Message

from candlewright.client.errors import Interruption
from candlewright.client.live.feed import Feed
from candlewright.client.live.items import Bars, Ticks
from candlewright.client.session.session import Operation, Published, Session, Subscribe, Wait
from candlewright.client.triggers.trigger_events import TriggerEvents
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.periods import parse_period
from candlewright.wire.ticker import Ticker

__all__ = ["Finals", "Whole", "finals_feed", "is_numbered", "numbered_feed"]

_NUMBERED = ("TICKS", "OHLC", "SNAPSHOT", "TRIGGER")
_FINALS = ("RESPONSE", "HISTORY_READY")
#: The most numbers that wait for a channel, which takes them immediately.
_BUFFER = 50_000


@dataclass(frozen=True, slots=True)
class Whole:
    """A message, and how many of its numbers precede those that are wanted."""

    first: int
    last: int
    message: Message
    skipped: int


def is_numbered(topic: str) -> bool:
    """Whether the topic's messages have numbers. Raises InvalidRequest for anything but a complete topic."""
    kind, colon, rest = topic.partition(":")
    if not colon or not rest or kind not in (*_NUMBERED, *_FINALS) or len(topic.encode()) > 400:
        known = ", ".join(f"{each}:…" for each in (*_NUMBERED, *_FINALS))
        raise InvalidRequest(f"{topic[:100]!r} is not a topic; the topics are {known}")
    if kind in ("TICKS", "SNAPSHOT"):
        Ticker.parse(rest)
    if kind == "OHLC":
        ticker, _, seconds = rest.rpartition(":")
        Ticker.parse(ticker)
        if not seconds.isdecimal() or str(parse_period(seconds)) != seconds:
            raise InvalidRequest(f"{topic[:100]!r} does not end with a period in seconds")
    return kind in _NUMBERED


def numbered_feed(topic: str, first: int | None) -> Feed[Whole]:
    return Feed(topic, _Kind(topic), first=first, buffer=_BUFFER)


def finals_feed(topic: str) -> "Finals":
    return Finals(topic, _Kind(topic), None, buffer=_BUFFER)


class Finals(Feed[Whole]):
    """A topic whose messages have no numbers: the platform repeats the stored ones to a new subscriber."""

    def __init__(self, topic: str, kind: "_Kind", first: int | None, *, buffer: int) -> None:
        super().__init__(topic, kind, first=first, buffer=buffer)
        self._arrived: deque[Whole] = deque(maxlen=buffer)

    def take(self) -> Whole | Interruption | None:
        return self._arrived.popleft() if self._arrived else None

    def run(self, session: Session) -> Operation[None]:
        yield Subscribe(self.topic)
        while True:
            event = yield Wait(float("inf"))
            if isinstance(event, Published) and not isinstance(event.message, cw.Error):
                self._arrived.append(Whole(1, 0, event.message, 0))
                if self.on_ready is not None:
                    self.on_ready()


class _Kind:
    """Counts numbers as the client's own kinds do, but returns whole messages."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._name = topic.partition(":")[0]
        rest = topic.partition(":")[2]
        self._ticks = Ticks(rest)
        self._bars = Bars(rest, 0, revisions=True)
        self._events = TriggerEvents(rest)

    def span(self, message: Message) -> tuple[int, int] | None:
        match self._name:
            case "TICKS":
                return self._ticks.span(message)
            case "OHLC":
                return self._bars.span(message)
            case "TRIGGER":
                return self._events.span(message)
            case _:
                is_own = isinstance(message, cw.Snapshot) and message.sequence
                return (message.sequence, 1) if is_own else None  # type: ignore[attr-defined]

    def items(self, message: Message, skipped: int) -> Iterator[Whole]:
        found = self.span(message)
        if found is not None:
            first, count = found
            yield Whole(first + skipped, first + max(1, count) - 1, message, skipped)
