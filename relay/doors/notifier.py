"""The notifications socket: one thread takes its subscriptions, and sends what other threads hand over.

A thread with a few messages sends them itself if the socket is free, which spares the wake-up of the other thread. A
lock makes this permissible. It also requires that the socket is waited for by its descriptor, which becomes readable
once for each change and stays so only until the next call of the socket: any thread that has called it looks for
subscriptions.

XPUB_VERBOSE reports every subscription, and when the last subscriber of a topic unsubscribes or disconnects. libzmq
itself keeps the set of connections per topic, so nothing needs to be counted here. A subscription is active before it
is reported, so a kept final is either sent live after it or found by the replay. (In XPUB_MANUAL mode, a frame that is
not a subscription makes libzmq assign the next ones to another connection, and one connection that subscribes twice
looks like two.) With keys on, XPUB_MANUAL is used anyway, guarded by `relay.doors.gate`.
"""

import select
import threading
import time
from collections.abc import Sequence

import zmq

from candlewright.wire.frames import VERSION
from core.log import get_logger
from relay import metrics
from relay.door import address_of
from relay.doors.gate import Gate, OnSubscribed, OnTopic, subscriber_of
from relay.doors.inbox import Inbox
from relay.settings import RelayLimits

#: (topic, body) pairs to send in order.
Batch = Sequence[tuple[bytes, bytes]]

_MAX_SUBSCRIPTION_FRAME = 4_096
_SUBSCRIBE, _UNSUBSCRIBE = 1, 0
_PER_ROUND = 1_000
#: How often, with keys on, the folder of keys and ended connections are checked.
_GATE_MILLISECONDS = 250
_REBIND_SECONDS = 0.02
#: Handing over small batches keeps reader and sender in step, so subscribers work while the rest is read.
_BATCHES = 4
#: A thread sends at most this many messages itself.
_FEW_MESSAGES = 16
#: Plain integers and single sends, because pyzmq's send_multipart takes three times as long for small frames.
_MORE, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)
log = get_logger()


class Notifier:
    """`gate`: with keys on, decides who may subscribe to what."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", limits: RelayLimits, gate: Gate | None = None
    ) -> None:
        self._context = context
        self._limits = limits
        self._gate = gate
        self._address = ""
        self._inbox: Inbox[Batch] = Inbox(_BATCHES)
        #: Held while the socket is used.
        self._lock = threading.Lock()
        self._is_serving = False
        self._topics: set[bytes] = set()
        self._socket = self._open()

    def _open(self) -> "zmq.Socket[bytes]":
        socket = self._context.socket(zmq.XPUB)
        if self._gate is not None:
            self._gate.prepare(socket)
        else:
            socket.setsockopt(zmq.XPUB_VERBOSE, 1)
        # Without dropping, a full queue becomes visible; the send is then repeated with dropping, and counted.
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        socket.setsockopt(zmq.SNDHWM, self._limits.subscriber_queue)
        socket.setsockopt(zmq.MAXMSGSIZE, _MAX_SUBSCRIPTION_FRAME)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 5_000)
        socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 15_000)
        return socket

    def bind(self, address: str) -> str:
        """Bind the socket; returns the address with the actual port. Raises ZMQError."""
        self._socket.bind(address)
        self._address = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)
        return self._address

    def publish(self, batch: Batch, timeout_seconds: float) -> bool:
        """Send or queue a batch, from any thread. False, with nothing queued, if the socket's thread did not keep up
        in time.
        """
        return (len(batch) <= _FEW_MESSAGES and self._sent(batch)) or self._inbox.put(batch, timeout_seconds)

    def _sent(self, batch: Batch) -> bool:
        """Send at once; False if the socket is in use, or earlier batches wait for it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if not self._is_serving or not self._inbox.is_empty:
                return False
            self._send(batch)
            if self._has_subscriptions():
                self._inbox.wakeup.set()
            return True
        finally:
            self._lock.release()

    def run(self, stop: threading.Event, on_subscribed: OnSubscribed, on_last_left: OnTopic) -> None:
        """Serve until `stop`. Both callbacks are called with a topic or prefix, in the order of events; neither may
        block.
        """
        while not stop.is_set():
            with self._lock:
                self._is_serving = True
                self._round(stop, on_subscribed, on_last_left)
                descriptor, is_idle = self._option(zmq.FD), not self._has_subscriptions()
            if is_idle:
                poller = select.poll()
                poller.register(descriptor, select.POLLIN)
                poller.register(self._inbox.wakeup, select.POLLIN)
                poller.poll(1_000 if self._gate is None else _GATE_MILLISECONDS)
        with self._lock:
            self._is_serving = False

    def _round(self, stop: threading.Event, on_subscribed: OnSubscribed, on_last_left: OnTopic) -> None:
        if self._gate is None:
            self._take_subscriptions(on_subscribed, on_last_left)
        else:
            self._gate.take(self._socket, _PER_ROUND, on_subscribed, on_last_left=on_last_left)
            if not self._gate.look(on_last_left):
                self._start_anew(stop)
                self._gate.start_anew(on_last_left)
            metrics.SUBSCRIPTIONS.set(len(self._gate))
        for batch in self._inbox.take():
            self._send(batch)

    def _has_subscriptions(self) -> bool:
        return bool(self._option(zmq.EVENTS) & zmq.POLLIN)

    def _option(self, name: int) -> int:
        return int(self._socket.getsockopt(name))

    def _start_anew(self, stop: threading.Event) -> None:
        """End all connections; permitted clients reconnect by themselves and subscribe again."""
        log.warning("subscribers_disconnected", reason="a key was removed")
        self._socket.close()
        self._socket = self._open()
        while not stop.is_set():
            try:
                self._socket.bind(self._address)
                return
            except zmq.ZMQError as error:
                # libzmq's own thread closes the old socket.
                if error.errno != zmq.EADDRINUSE:
                    raise
                time.sleep(_REBIND_SECONDS)

    def wake(self) -> None:
        """Have `run` check its stop event."""
        self._inbox.wakeup.set()

    def close(self) -> None:
        self._socket.close()
        self._inbox.close()

    def _take_subscriptions(self, on_subscribed: OnSubscribed, on_last_left: OnTopic) -> None:
        for _ in range(_PER_ROUND):
            try:
                message = self._socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            frame = message.bytes
            is_part = bool(self._socket.getsockopt(zmq.RCVMORE))
            topic = frame[1:]
            if is_part or not frame or frame[0] > _SUBSCRIBE or len(topic) > self._limits.max_topic_bytes:
                metrics.REFUSED_SUBSCRIPTIONS.inc()
            elif frame[0] == _UNSUBSCRIBE:
                self._topics.discard(topic)
                on_last_left(topic)
            else:
                metrics.SUBSCRIBED.inc()
                self._topics.add(topic)
                on_subscribed(topic, subscriber_of(address_of(message), message))
            metrics.SUBSCRIPTIONS.set(len(self._topics))

    def _send(self, batch: Batch) -> None:
        send = self._socket.send
        for topic, body in batch:
            try:
                send(topic, _MORE)
            except zmq.Again:
                self._send_to_those_with_room(topic, body)
                continue
            # Room is counted in whole messages, so room found for the first part is still there.
            send(VERSION, _MORE)
            send(body, _LAST)

    def _send_to_those_with_room(self, topic: bytes, body: bytes) -> None:
        metrics.OVERFLOWS.inc()
        self._socket.setsockopt(zmq.XPUB_NODROP, 0)
        self._socket.send_multipart((topic, VERSION, body), zmq.NOBLOCK)
        self._socket.setsockopt(zmq.XPUB_NODROP, 1)
