"""A relay with real sockets over a bus, clients for it, and a stand-in for the history writer."""

from contextlib import ExitStack
from itertools import count
from typing import Any

import zmq
from google.protobuf.message import Message

from bus import topics as bus_topics
from bus.api import Bus, Record
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import CLIENT_TO_RELAY, ON_TOPIC, RELAY_TO_CLIENT, decode, encode
from protobuf import records_pb2 as rec
from relay.server import Relay
from relay.settings import SECOND_NS, RelayConfig, RelayLimits

START = 1_704_067_200 * SECOND_NS
HOUR = 3_600 * SECOND_NS
PATIENCE_MILLISECONDS = 10_000
#: Numbers for markers, each used once.
MARKERS = count()


def config(**changes: Any) -> RelayConfig:
    values: dict[str, Any] = {
        "requests_bind": "tcp://127.0.0.1:*",
        "notifications_bind": "tcp://127.0.0.1:*",
        "keep_seconds": 86_400.0,
        "timeout_ns": 3_600 * SECOND_NS,
        "limits": RelayLimits(),
    }
    return RelayConfig(**(values | changes))


def submit(request_id: str, **changes: Any) -> ing.SubmitHistoricalRequest:
    values: dict[str, Any] = {
        "request_id": request_id,
        "ticker": "BTC/USDT.BINANCE",
        "start_time": START,
        "end_time": START + HOUR,
        "period_seconds": 60,
    }
    return ing.SubmitHistoricalRequest(**(values | changes))


def finish(bus: Bus, request_id: str, **fields: Any) -> ing.HistoryReadyNotification:
    """Publish a final, as the history writer does at the end of a request."""
    final = ing.HistoryReadyNotification(request_id=request_id, ticker="BTC/USDT.BINANCE", period_seconds=60, **fields)
    content = final.SerializeToString()
    bus.publish_once(
        bus_topics.NOTIFICATIONS,
        Record(content, key=request_id.encode()),
        registry=bus_topics.REGISTRY_FINALS,
        name=request_id,
        content=content,
        keep_seconds=86_400,
    )
    return final


class Client:
    """A DEALER or REQ client of the requests socket."""

    def __init__(self, socket: "zmq.Socket[bytes]", address: str) -> None:
        self.socket = socket
        socket.linger = 0
        socket.rcvtimeo = PATIENCE_MILLISECONDS
        socket.connect(address)

    def ask(self, message: Message) -> Any:
        self.socket.send_multipart(encode(message))
        return self.answer()

    def answer(self) -> Any:
        # A control message is echoed as it came.
        return decode(self.socket.recv_multipart(), (*RELAY_TO_CLIENT, *CLIENT_TO_RELAY))


class Subscriber:
    def __init__(self, socket: "zmq.Socket[bytes]", address: str, *subscriptions: str) -> None:
        self.socket = socket
        socket.linger = 0
        socket.rcvtimeo = PATIENCE_MILLISECONDS
        for subscription in subscriptions:
            socket.subscribe(subscription)
        socket.connect(address)

    def next(self) -> tuple[str, Any]:
        topic, *frames = self.socket.recv_multipart()
        return topic.decode(), decode(frames, ON_TOPIC)

    def drain(self) -> list[str]:
        """Topics of everything that arrives until a short quiet moment."""
        topics = []
        while self.socket.poll(200):
            topics.append(self.next()[0])
        return topics


class Platform:
    """The relay under test, its bus, and sockets that are closed with it."""

    def __init__(self, bus: Bus, relay: Relay, stack: ExitStack, *, context: "zmq.Context[zmq.Socket[bytes]]") -> None:
        self.bus = bus
        self.relay = relay
        self._stack = stack
        self._context = context

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        return self._stack.enter_context(self._context.socket(kind))

    def client(self, kind: int = zmq.DEALER) -> Client:
        return Client(self._socket(kind), self.relay.requests_address)

    def subscriber(self, *subscriptions: str) -> Subscriber:
        return Subscriber(self._socket(zmq.SUB), self.relay.notifications_address, *subscriptions)

    def ready_subscriber(self, *subscriptions: str) -> Subscriber:
        """Returns once the relay has taken the subscriptions, shown by a kept final that is replayed on one more."""
        marker = f"HISTORY_READY:marker-{next(MARKERS)}"
        finish(self.bus, marker.removeprefix("HISTORY_READY:"))
        subscriber = self.subscriber(*subscriptions, marker)
        while subscriber.next()[0] != marker:
            pass
        subscriber.socket.unsubscribe(marker)
        subscriber.drain()
        return subscriber

    def queued(self) -> list[Any]:
        """Records of the topic `requests`."""
        return [rec.Request.FromString(record.value) for record in self.bus.read(bus_topics.REQUESTS, 0, 0)]


def no_rows(*_: object) -> Any:
    raise AssertionError("this test reads no rows")
