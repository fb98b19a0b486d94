"""One live topic as a gapless sequence: what arrives in, items in order out. No socket, no clock.

Messages of a topic are numbered densely. One that arrives too early waits until the missing ones have been requested
with TopicReplay; duplicates are dropped. Messages that the platform no longer keeps become a `GapError` in their place.
Both buffers are bounded: if the reader is slow, messages are dropped, and requested again once it has caught up.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from google.protobuf.message import Message

from candlewright.client.errors import (
    GapError,
    Interruption,
    NumbersLost,
    PlatformRefused,
    TickerNotFound,
    TriggerSuspended,
)
from candlewright.client.session.session import Operation, Published, Reply, Send, Session, Subscribe, Wait
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire.errors import BadFrame

T = TypeVar("T")

#: Numbers that one replay requests, at most.
QUESTION_NUMBERS = 5_000
#: Pause before a request without a useful answer is repeated; it doubles up to the second figure.
RETRY_SECONDS, RETRY_MAX_SECONDS = 0.5, 4.0
#: Silence after which the client asks for news, in case messages were missed while the relay was down; it doubles up to
#: the second figure.
SILENCE_SECONDS, SILENCE_MAX_SECONDS = 3.0, 30.0
_SUSPENDED = "TRIGGER_SUSPENDED"
_UNKNOWN_TICKER = "UNKNOWN_TICKER"
_TOO_MANY = "TOO_MANY_TOPICS"
_RECORDS_LOST = "RECORDS_LOST"
#: How many numbers wait for a reader before messages are dropped.
BUFFER_NUMBERS = 50_000

Item = TypeVar("Item", covariant=True)


class Kind(Protocol[Item]):
    """The content of a topic's messages."""

    def span(self, message: Message) -> tuple[int, int] | None:
        """The first number and how many; None for a message that is not of this topic."""
        ...

    def items(self, message: Message, skipped: int) -> Iterable[Item]:
        """The items of a message, without its first `skipped` numbers."""
        ...


@dataclass(frozen=True, slots=True)
class Chunk:
    """Numbers `first` to `last`, without the first `skipped` of the message."""

    first: int
    last: int
    message: Message
    skipped: int = 0

    def __len__(self) -> int:
        return self.last - self.first + 1

    def since(self, number: int) -> "Chunk":
        known = max(0, number - self.first)
        return Chunk(self.first + known, self.last, self.message, self.skipped + known)


@dataclass(slots=True)
class _Question:
    first: int
    last: int
    until: float
    pause: float
    is_probe: bool = False


class Feed(Generic[T]):
    """`first` is the number to begin at (None: the first that arrives); `buffer` counts numbers."""

    def __init__(self, topic: str, kind: Kind[T], *, first: int | None, buffer: int = BUFFER_NUMBERS) -> None:
        self.topic = topic
        self.duplicates = 0
        self.replayed = 0
        #: Called when there may be new items.
        self.on_ready: Callable[[], None] | None = None
        self._kind = kind
        self._buffer = buffer
        #: The number that goes to `_ready` next, and the newest that is known to exist.
        self._next = first
        self._seen = 0
        self._ready: deque[Chunk | GapError] = deque()
        self._ready_numbers = 0
        #: Chunks that came too early, and a heap of their first numbers.
        self._early: dict[int, Chunk] = {}
        self._early_firsts: list[int] = []
        self._early_numbers = 0
        self._out: Iterator[T] = iter(())
        self._question: _Question | None = None
        self._most = QUESTION_NUMBERS
        self._silence = SILENCE_SECONDS
        self._quiet_until = 0.0 if first is not None else float("inf")
        #: While searching for the oldest kept number: the largest known to be dropped, the smallest known to be kept.
        self._gone: tuple[int, int] | None = None
        #: For a trigger's topic: its suspension, the number after which it comes, and the suspensions already known.
        self._suspension: tuple[int, TriggerSuspended] | None = None
        self._known_until = 0
        self._began_at = 0
        #: Why nothing arrives for now, until this is raised; and the text of the reason that was already raised.
        self._refusal: TickerNotFound | PlatformRefused | None = None
        self._refused_with = ""

    # ---- the reader's side
    def take(self) -> T | Interruption | None:
        """The next item, or the error in its place; None if none has arrived yet."""
        while True:
            for item in self._out:
                return item
            if not self._ready:
                refusal, self._refusal = self._refusal, None
                return refusal or self._suspension_in_its_place()
            chunk = self._ready.popleft()
            if isinstance(chunk, GapError):
                return chunk
            self._ready_numbers -= len(chunk)
            self._out = iter(self._kind.items(chunk.message, chunk.skipped))
            self._use_early()

    @property
    def next_sequence(self) -> int | None:
        """The number after the newest one that is in order here."""
        return self._next

    @property
    def has_work(self) -> bool:
        """Whether messages are missing, fit, and are not being requested; or a caller wants news."""
        return self._question is None and (self._missing() is not None or self._quiet_until == 0.0)

    def begin_at(self, number: int, at: int = 0) -> None:
        """Set where to begin, if that is only known after the feed was made, at a time of the platform's clock (ns)."""
        self._next, self._quiet_until, self._began_at = number, 0.0, at

    def registered(self, *, is_new: bool) -> None:
        """The trigger of this topic was registered. Messages may have been missed: request them with the next `take`.
        If the trigger is new, an earlier registration under its id may have been suspended.
        """
        if is_new:
            self._known_until = max(self._known_until, self._began_at - 1)
            if self._suspension is not None and self._suspension[1].registered_at < self._began_at:
                self._suspension = None
        if self._next is not None:
            self._silence, self._quiet_until = SILENCE_SECONDS, 0.0

    # ---- the session's side
    def run(self, session: Session) -> Operation[None]:
        """The operation that keeps the topic subscribed and its gaps closed, until it is abandoned."""
        yield Subscribe(self.topic)
        while True:
            for question in self.questions(session.now):
                yield Send(question)
            event = yield Wait(self.deadline)
            if isinstance(event, Published):
                self.arrived(event.message, session.now)
            elif isinstance(event, Reply):
                self.answered(event.message, session.now)

    @property
    def deadline(self) -> float:
        return self._question.until if self._question is not None else self._quiet_until

    def questions(self, now: float) -> list[cw.TopicReplay]:
        """The requests to send now."""
        question = self._question
        if question is not None:
            if now < question.until:
                return []
            if question.is_probe:
                self._question = None
        if self._next is not None and self._question is None and self._missing() is None and now >= self._quiet_until:
            self._silence = min(self._silence * 2, SILENCE_MAX_SECONDS)
            self._quiet_until = now + self._silence
            return [self._ask(self._next, self._next + self._most - 1, now, RETRY_MAX_SECONDS, is_probe=True)]
        wanted = self._missing()
        if wanted is None:
            self._question = None
            return []
        pause = RETRY_SECONDS if question is None or question.is_probe else min(question.pause * 2, RETRY_MAX_SECONDS)
        return [self._ask(*wanted, now, pause)]

    def arrived(self, message: Message, now: float) -> None:
        """A message of the topic, live."""
        if isinstance(message, cw.Error):
            self._hear(message)
            return
        opened = self._open(message)
        if opened is None:
            return
        self._silence = SILENCE_SECONDS
        self._quiet_until = now + self._silence
        self._accept(opened)

    def answered(self, message: Message, now: float) -> None:
        """A record of a replay, or its failure."""
        question = self._question
        if isinstance(message, cw.Error):
            if question is not None and message.from_sequence == question.first:
                if question.is_probe:
                    # No news; a gap found meanwhile is requested immediately.
                    self._question = None
                    if message.HasField("newest_sequence") and message.newest_sequence + 1 < question.first:
                        self._go_back(message.newest_sequence)
                else:
                    self._refused(message.code, question)
            return
        if not isinstance(message, cw.TopicRecord):
            return
        try:
            opened = self._open(frames.decode_body(message.body, frames.ON_TOPIC)) if message.body else None
        except BadFrame:
            opened = None
        if opened is not None:
            before = self._next
            if self._gone is not None and self._gone[0] < opened.first < self._gone[1]:
                self._gone = (self._gone[0], opened.first)
            self._accept(opened)
            if before is not None and self._next is not None:
                self.replayed += self._next - before
        if question is not None and message.is_final and opened is not None:
            # More may follow a full answer; after an empty one, the request is repeated after the pause.
            is_full = opened.last >= question.last
            if question.is_probe:
                self._question = None
                self._quiet_until = now if is_full else self._quiet_until
            elif is_full and (self._gone is not None or question.first < (self._next or 0)):
                self._question = None
        self._settle()

    def _hear(self, error: cw.Error) -> None:
        """The platform repeats it to every new subscriber, and therefore to this client after each restart of the
        relay."""
        if error.code in (_UNKNOWN_TICKER, _TOO_MANY) and error.text != self._refused_with:
            self._refused_with = error.text
            is_wrong = error.code == _UNKNOWN_TICKER
            self._refusal = (
                TickerNotFound(self.topic, error.text) if is_wrong else PlatformRefused(_TOO_MANY, error.text)
            )
            self._tell()
        if error.code == _RECORDS_LOST:
            self._go_back(error.newest_sequence)
        if error.code != _SUSPENDED or error.registered_at <= self._known_until:
            return
        self._known_until = error.registered_at
        suspended = TriggerSuspended(error.request_id, error.text, error.registered_at)
        self._suspension = (error.newest_sequence, suspended)
        self._seen = max(self._seen, error.newest_sequence)
        self._tell()

    def _go_back(self, newest: int) -> None:
        """The platform's store has lost the messages after number `newest`: their numbers are assigned again."""
        if self._next is None or newest + 1 >= self._next:
            return
        self._ready.append(NumbersLost(self.topic, newest + 1, self._next - 1))
        self._next, self._seen = newest + 1, newest
        self._early.clear()
        self._early_firsts.clear()
        self._early_numbers = 0
        self._question = self._gone = None
        self._tell()

    def _suspension_in_its_place(self) -> TriggerSuspended | None:
        """After the events that the trigger had fired."""
        if self._suspension is None or (self._next is not None and self._next <= self._suspension[0]):
            return None
        suspended, self._suspension = self._suspension[1], None
        return suspended

    def _ask(self, first: int, last: int, now: float, pause: float, *, is_probe: bool = False) -> cw.TopicReplay:
        self._question = _Question(first, last, now + pause, pause, is_probe)
        return cw.TopicReplay(topic=self.topic, from_sequence=first, to_sequence=last)

    def _refused(self, code: str, question: _Question) -> None:
        if code == "NOT_KEPT":
            lo, hi = self._gone or (question.first, self._end_of_missing() + 1)
            self._gone = (max(lo, question.first), hi)
            self._question = None
            self._settle()
        elif code == "INVALID" and self._most > 1:
            # More bytes than one answer may have.
            self._most //= 2
            self._question = None

    def _missing(self) -> tuple[int, int] | None:
        """The numbers to ask for next, both included."""
        if self._next is None or self._next > self._seen or self._ready_numbers > self._buffer // 2:
            return None
        if self._gone is not None:
            gone, kept = self._gone
            middle = (gone + kept) // 2
            return middle, middle
        return self._next, min(self._end_of_missing(), self._next + self._most - 1)

    def _end_of_missing(self) -> int:
        return self._early_firsts[0] - 1 if self._early_firsts else self._seen

    def _settle(self) -> None:
        """Once the oldest kept number is found, all numbers before it are lost permanently."""
        if self._gone is None or self._gone[1] - self._gone[0] > 1:
            return
        kept, self._gone = self._gone[1], None
        if self._next is not None and self._next < kept:
            self._ready.append(GapError(self.topic, self._next, kept - 1))
            self._next = kept
            self._use_early()
            self._tell()

    def _open(self, message: Message) -> Chunk | None:
        found = self._kind.span(message)
        return Chunk(found[0], found[0] + max(1, found[1]) - 1, message) if found is not None else None

    def _accept(self, chunk: Chunk) -> None:
        self._seen = max(self._seen, chunk.last)
        if self._next is None:
            self._next = chunk.first
        if chunk.last < self._next:
            self.duplicates += 1
        elif chunk.first > self._next:
            self._keep_early(chunk)
        elif self._ready_numbers < self._buffer:
            self._append(chunk)
            self._use_early()
            self._tell()

    def _append(self, chunk: Chunk) -> None:
        assert self._next is not None
        rest = chunk.since(self._next)
        self._ready.append(rest)
        self._ready_numbers += len(rest)
        self._next = rest.last + 1
        if self._gone is not None and self._gone[0] < self._next:
            self._gone = None

    def _keep_early(self, chunk: Chunk) -> None:
        if chunk.first in self._early:
            self.duplicates += 1
        elif self._early_numbers < self._buffer:
            self._early[chunk.first] = chunk
            self._early_numbers += len(chunk)
            heapq.heappush(self._early_firsts, chunk.first)

    def _use_early(self) -> None:
        """Pass on items whose missing predecessors have arrived."""
        while self._early_firsts and self._next is not None and self._early_firsts[0] <= self._next:
            chunk = self._early[self._early_firsts[0]]
            if chunk.last >= self._next and self._ready_numbers >= self._buffer:
                return
            del self._early[heapq.heappop(self._early_firsts)]
            self._early_numbers -= len(chunk)
            if chunk.last >= self._next:
                self._append(chunk)

    def _tell(self) -> None:
        if self.on_ready is not None:
            self.on_ready()
