"""Forwards requests about triggers over the bus, from every relay to the one that has the registry.

A relay without the registry publishes its clients' requests on the topic `registry_asks`. The registry reads it from
where its predecessor stopped, and publishes answers for the asking relay, and notices of suspensions for every relay,
on `registry_answers`. A request repeated because its answer was lost has an effect only once.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from google.protobuf.message import Message

from bus import topics as bus_topics
from bus.api import Bus, Record, StoredRecord
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame, BusError, OffsetOutOfRange
from candlewright.wire.frames import decode_body, encode_body
from core.log import get_logger
from relay import metrics
from relay.asked import Peer
from relay.doors.notifier import Batch
from relay.triggers.asked import RegisterAsked, ViewAsked
from relay.triggers.events import Event, ListAsked, RemoveAsked, Subscribed, ViewRemoveAsked, ViewsAsked

#: The reader of `registry_asks`, whose hold is where a registry begins.
READER = "registry"
#: Clients that may wait for an answer; beyond this, the oldest are forgotten, and ask again.
MAX_WAITING = 20_000
_WAIT_SECONDS = 1.0
_RETRY_SECONDS = 0.5
_PUBLISH_SECONDS = 0.25
_EVERY_RELAY = "*"
log = get_logger()


@dataclass(frozen=True, slots=True)
class DistantPeer(Peer):
    """A client of another relay, identified by the number that that relay assigned to its request."""

    relay: str = ""
    number: int = 0


class Forwarding:
    """The side of a relay without the registry. `ask` and `subscribed` may be called from any thread; `run` passes
    answers on.
    """

    def __init__(
        self, bus: Bus, relay: str, reply: Callable[[Peer, Message], None], *, publish: Callable[[Batch, float], bool]
    ) -> None:
        self._bus = bus
        self._relay = relay
        self._reply = reply
        self._publish = publish
        self._numbers = itertools.count(1)
        self._waiting: OrderedDict[int, Peer] = OrderedDict()
        self._lock = threading.Lock()

    def ask(self, peer: Peer, message: Message, at_ns: int) -> None:
        """Forward a client's message. Raises BusError."""
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = peer
            if len(self._waiting) > MAX_WAITING:
                self._waiting.popitem(last=False)
        self._put(encode_body(message), {"number": str(number), "at": str(at_ns), "name": peer.name})

    def subscribed(self, topic: bytes) -> None:
        """Ask for the notices of this topic, if any."""
        try:
            self._put(b"", {"topic": topic.decode()})
        except BusError:
            metrics.DROPPED_REPLAYS.inc()

    def _put(self, body: bytes, headers: dict[str, str]) -> None:
        record = Record(body, headers={"relay": self._relay, **headers}, partition=0)
        self._bus.create_topic(bus_topics.RELAY_ASKS, 1)
        self._bus.publish(bus_topics.RELAY_ASKS, [record])

    def run(self, stop: threading.Event) -> None:
        _follow(self._bus, bus_topics.RELAY_ANSWERS, None, self._answered, stop)

    def _answered(self, record: StoredRecord) -> None:
        headers = record.headers
        if headers["relay"] == self._relay:
            with self._lock:
                peer = self._waiting.pop(int(headers["number"]), None)
            if peer is not None:
                self._reply(peer, decode_body(record.value))
        elif headers["relay"] == _EVERY_RELAY and headers["from"] != self._relay:
            self._publish([(headers["topic"].encode(), record.value)], _PUBLISH_SECONDS)


class RegistryDoor:
    """The registry's side: `run` hands requests to the desk, and `answer` and `notify` publish the results."""

    def __init__(self, bus: Bus, relay: str, ask: Callable[[Event], bool]) -> None:
        self._bus = bus
        self._relay = relay
        self._ask = ask

    def run(self, stop: threading.Event) -> None:
        _follow(self._bus, bus_topics.RELAY_ASKS, READER, self._asked, stop)

    def _asked(self, record: StoredRecord) -> None:
        headers = record.headers
        if "topic" in headers:
            self._ask(Subscribed(headers["topic"].encode()))
            return
        number, at_ns = int(headers["number"]), int(headers["at"])
        peer = DistantPeer(b"", False, headers["name"], relay=headers["relay"], number=number)
        try:
            message = decode_body(record.value)
        except BadFrame as error:
            self.answer(peer, cw.Error(code=error.code, text=error.text))
            return
        if (event := asked_of(peer, message, at_ns)) is not None and not self._ask(event):
            self.answer(peer, cw.Error(code="BUSY", text="Too many requests about triggers wait; try again later."))

    def answer(self, peer: DistantPeer, message: Message) -> None:
        """Publish an answer. If it finds no room it is lost, and the client asks again."""
        self._put(encode_body(message), {"relay": peer.relay, "number": str(peer.number)})

    def notify(self, batch: Batch) -> None:
        for topic, body in batch:
            self._put(body, {"relay": _EVERY_RELAY, "from": self._relay, "topic": topic.decode()})

    def _put(self, body: bytes, headers: dict[str, str]) -> None:
        try:
            self._bus.create_topic(bus_topics.RELAY_ANSWERS, 1)
            self._bus.publish(bus_topics.RELAY_ANSWERS, [Record(body, headers=headers, partition=0)])
        except BusError as error:
            log.warning("answer_lost", error=str(error))
            metrics.BUS_FAILURES.labels("registry_answers").inc()


def asked_of(peer: Peer, message: Message, at_ns: int) -> Event | None:
    match message:
        case cw.ViewRequest():
            return ViewAsked(peer, message, at_ns)
        case cw.ViewRemove():
            return ViewRemoveAsked(peer, message)
        case cw.ViewQuery():
            return ViewsAsked(peer, message)
        case cw.TriggerQuery():
            return ListAsked(peer, message)
        case cw.TriggerRemove():
            return RemoveAsked(peer, message.trigger_id)
        case ing.CEPTriggerRequest():
            return RegisterAsked(peer, message, at_ns)
    return None


def _follow(
    bus: Bus, topic: str, reader: str | None, take: Callable[[StoredRecord], None], stop: threading.Event
) -> None:
    """Hand every record of a topic with one partition to `take`, from the hold of `reader` on, or without a reader only
    new ones.
    """
    offset: int | None = None
    while not stop.is_set():
        try:
            if offset is None:
                bus.create_topic(topic, 1)
                (state,) = bus.state(topic)
                held = None if reader is None else bus.holds(topic, reader).get(0, state.first)
                offset = state.end if held is None else min(state.end, max(held, state.first))
            if not bus.wait({(topic, 0): offset}, _WAIT_SECONDS):
                continue
            for record in bus.read(topic, 0, offset):
                take(record)
                offset = record.offset + 1
            if reader is not None:
                bus.hold(topic, reader, {0: offset})
        except OffsetOutOfRange as error:
            offset = error.first
        except BusError as error:
            log.warning("registry_topic_unread", topic=topic, error=str(error))
            metrics.BUS_FAILURES.labels(topic).inc()
            offset = None if reader is not None else offset
            stop.wait(_RETRY_SECONDS)
