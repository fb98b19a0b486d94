"""The client without sockets or clock: operations run as generators, the session routes messages to them.

An operation yields steps (`Send`, `Subscribe`, `Wait`) and is resumed from a `Wait` with an event. A client, sync or
async, passes in the messages of its sockets and carries out `take_commands()`. Nothing here blocks.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BUS_AWAY, BadFrame

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    message: Message


@dataclass(frozen=True, slots=True)
class Subscribe:
    """Receive `topic` until the operation ends; with `keep`, until the client is closed."""

    topic: str
    keep: bool = False


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    topic: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Sleep until a message for this operation arrives, or until the session's clock shows `until`."""

    until: float


@dataclass(frozen=True, slots=True)
class Reply:
    message: Message


@dataclass(frozen=True, slots=True)
class Published:
    topic: str
    message: Message


@dataclass(frozen=True, slots=True)
class TimedOut:
    pass


Step = Send | Subscribe | Unsubscribe | Wait
Event = Reply | Published | TimedOut
Command = Send | Subscribe | Unsubscribe
Operation = Generator[Step, Event | None, T]
#: Ties a reply to its request.
Key = tuple[str, str]
_TRIGGER = "trigger"


@dataclass(kw_only=True, eq=False, slots=True)
class Ticket(Generic[T]):
    """A running operation; when `is_done`, `result()` returns or raises."""

    operation: Operation[T]
    keys: set[Key] = field(default_factory=set)
    topics: Counter[str] = field(default_factory=Counter)
    #: How many answers with a key belong to requests of earlier operations.
    stale: Counter[Key] = field(default_factory=Counter)
    #: Whether an Error without an id may answer this operation's request.
    takes_nameless: bool = True
    until: float = 0.0
    is_done: bool = False
    _result: T | None = None
    _error: Exception | None = None
    when_done: Callable[[], None] | None = None

    def result(self) -> T:
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def finish(self, result: T | None, error: Exception | None) -> None:
        self._result, self._error, self.is_done = result, error, True
        if self.when_done is not None:
            self.when_done()


def key_of(message: Message) -> Key | None:
    """The key that a request and its replies share; None for an Error that names neither request nor topic."""
    if isinstance(message, cw.TopicReplay | cw.TopicRecord):
        return ("topic", message.topic)
    if isinstance(message, ing.CEPTriggerRequest | ing.CEPTriggerAck | cw.TriggerRemove):
        return (_TRIGGER, message.trigger_id)
    if isinstance(message, cw.TriggerQuery | cw.TriggerList):
        return ("triggers", "")
    if isinstance(message, cw.RefreshHistoricalRequest):
        message = message.request
    request_id = getattr(message, "request_id", "")
    if request_id:
        return ("request", request_id)
    return ("topic", message.topic) if isinstance(message, cw.Error) and message.topic else None


def is_cut_off(message: Message) -> bool:
    """Whether a relay answers that it cannot reach the bus."""
    if isinstance(message, cw.Error):
        return message.code == "UNAVAILABLE"
    return getattr(message, "error_message", "") == BUS_AWAY


class Session:
    """Routes replies by request id (or topic), publications by their whole topic frame, and time to all operations."""

    def __init__(self, *, has_other_relays: bool = False) -> None:
        self.now = 0.0
        self.has_other_relays = has_other_relays
        #: Set when the current relay cannot reach the bus, but another one may.
        self.wants_another_relay = False
        self.bad_frames = 0
        self._running: list[Ticket[Any]] = []
        self._commands: deque[Command] = deque()
        self._subscribed: Counter[str] = Counter()
        self._kept: set[str] = set()
        #: Subscribed topics on which the platform has repeated its notices to new subscribers.
        self._standing: set[str] = set()
        #: Acknowledgements of triggers still missing: they do not say which request they answer.
        self._unanswered: Counter[Key] = Counter()

    @property
    def running(self) -> int:
        return len(self._running)

    def begin(
        self,
        operation: Operation[T],
        now: float,
        *,
        when_done: Callable[[], None] | None = None,
        takes_nameless: bool = True,
    ) -> Ticket[T]:
        self.now = max(self.now, now)
        ticket = Ticket(operation=operation, when_done=when_done, takes_nameless=takes_nameless)
        self._running.append(ticket)
        self._resume(ticket, None)
        return ticket

    def abandon(self, ticket: Ticket[Any]) -> None:
        """Stop an operation that no caller waits for."""
        if not ticket.is_done:
            ticket.operation.close()
            self._end(ticket, None, None)

    def wake(self, ticket: Ticket[Any], now: float) -> None:
        """End an operation's wait, because something changed for it outside the session."""
        self.now = max(self.now, now)
        if not ticket.is_done:
            self._resume(ticket, TimedOut())

    def receive_reply(self, parts: Sequence[bytes], now: float) -> None:
        """A message on the requests socket (an empty delimiter in front is accepted)."""
        self.now = max(self.now, now)
        try:
            message = frames.decode(parts[1:] if parts and not parts[0] else parts, frames.RELAY_TO_CLIENT)
        except BadFrame:
            self.bad_frames += 1
            return
        if self.has_other_relays and is_cut_off(message):
            self.wants_another_relay = True
        key = key_of(message)
        if key is None:
            # An Error about unreadable bytes can only belong to the oldest request.
            for ticket in [each for each in self._running if each.keys and each.takes_nameless][:1]:
                self._resume(ticket, Reply(message))
            return
        if isinstance(message, ing.CEPTriggerAck):
            self._unanswered[key] -= 1
            self._unanswered += Counter()
        for ticket in [each for each in self._running if key in each.keys]:
            if ticket.stale[key]:
                ticket.stale[key] -= 1
            else:
                self._resume(ticket, Reply(message))

    def receive_publication(self, parts: Sequence[bytes], now: float) -> None:
        """A message on the notifications socket; the topic frame must equal a subscription as a whole."""
        self.now = max(self.now, now)
        try:
            topic = parts[0].decode() if parts else ""
            message = frames.decode(parts[1:], frames.ON_TOPIC)
        except (BadFrame, UnicodeDecodeError):
            self.bad_frames += 1
            return
        if isinstance(message, cw.Error) and topic in self._subscribed:
            self._standing.add(topic)
        for ticket in [each for each in self._running if topic in each.topics]:
            self._resume(ticket, Published(topic, message))

    def advance(self, now: float) -> None:
        """Let time pass: operations whose wait is over continue."""
        self.now = max(self.now, now)
        for ticket in [each for each in self._running if each.until <= self.now]:
            if not ticket.is_done:
                self._resume(ticket, TimedOut())

    def moved(self, now: float) -> None:
        """The sockets are on another relay: operations that wait for an answer of the previous one resend their
        requests."""
        self.now = max(self.now, now)
        for ticket in [each for each in self._running if each.keys]:
            if not ticket.is_done:
                self._resume(ticket, TimedOut())

    def next_deadline(self) -> float | None:
        return min((ticket.until for ticket in self._running), default=None)

    def take_commands(self) -> list[Command]:
        taken = list(self._commands)
        self._commands.clear()
        return taken

    def _resume(self, ticket: Ticket[Any], event: Event | None) -> None:
        try:
            step = ticket.operation.send(event)
            while not isinstance(step, Wait):
                self._take_step(ticket, step)
                step = ticket.operation.send(None)
        except StopIteration as stop:
            self._end(ticket, stop.value, None)
        except Exception as error:
            # Handed to the caller that waits for the ticket, not swallowed.
            self._end(ticket, None, error)
        else:
            ticket.until = step.until

    def _take_step(self, ticket: Ticket[Any], step: Command) -> None:
        match step:
            case Send(message):
                key = key_of(message)
                if key is not None:
                    if key[0] == _TRIGGER:
                        self._expect_acknowledgement(ticket, key)
                    ticket.keys.add(key)
                self._commands.append(step)
            case Subscribe(topic, keep):
                ticket.topics[topic] += 1
                # ZeroMQ counts subscriptions on one side only: subscribe each topic once for all streams that want it.
                if keep and topic not in self._kept:
                    self._kept.add(topic)
                    self._subscribe(topic)
                self._subscribe(topic)
            case Unsubscribe(topic):
                if ticket.topics[topic]:
                    ticket.topics[topic] -= 1
                    self._unsubscribe(topic)
                ticket.topics += Counter()

    def _expect_acknowledgement(self, ticket: Ticket[Any], key: Key) -> None:
        if key not in ticket.keys:
            ticket.stale[key] = self._unanswered[key]
            # An Error may name the trigger in place of a request.
            ticket.keys.add(("request", key[1]))
        self._unanswered[key] += 1

    def _end(self, ticket: Ticket[Any], result: Any, error: Exception | None) -> None:
        self._running.remove(ticket)
        for topic, count in ticket.topics.items():
            for _ in range(count):
                self._unsubscribe(topic)
        ticket.finish(result, error)

    def _subscribe(self, topic: str) -> None:
        self._subscribed[topic] += 1
        if topic in self._standing:
            # Messages missed meanwhile show up as a gap.
            self._standing.discard(topic)
            self._commands.append(Unsubscribe(topic))
            self._commands.append(Subscribe(topic))
        elif self._subscribed[topic] == 1:
            self._commands.append(Subscribe(topic))

    def _unsubscribe(self, topic: str) -> None:
        self._subscribed[topic] -= 1
        if self._subscribed[topic] == 0:
            del self._subscribed[topic]
            self._standing.discard(topic)
            self._commands.append(Unsubscribe(topic))
