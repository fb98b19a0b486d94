"""Decides which subscriptions are accepted when keys are on.

With XPUB_MANUAL, the application installs each subscription. libzmq assigns an installation to the connection of the
last message read, but picks the wrong connection while a message of another kind is waiting. No client library sends
such a message. If one arrives, nothing is installed until everything waiting has been read, its sender is shut out, and
all connections are recreated and subscribe again.
"""

import os
import time
from collections.abc import Callable, Iterable

import zmq

from core.doors import KnownKeys
from core.log import get_logger
from relay import metrics
from relay.doors.ownership import may_subscribe
from relay.doors.shares import Holder as Subscriber

OnTopic = Callable[[bytes], None]
OnSubscribed = Callable[[bytes, Subscriber], None]
#: A file descriptor, and the inode of its socket at that time.
Holder = tuple[int, int]

_SUBSCRIBE = 1
#: How often, and for how long (s), to look for a connection that ended.
_SWEEP_SECONDS, _SWEEPING_SECONDS = 0.25, 5.0
_LOOK_SECONDS = 0.5
log = get_logger()


def inode_of(descriptor: int) -> int:
    """The inode of a descriptor's socket; 0 if it is closed."""
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return 0


class Holders:
    """The connections that hold each topic. libzmq reports that some connection with a topic has ended, but not which
    one; the descriptors of this process show that.
    """

    def __init__(self, inode: Callable[[int], int] = inode_of) -> None:
        self._inode = inode
        self._by_topic: dict[bytes, set[Holder]] = {}

    def __len__(self) -> int:
        return len(self._by_topic)

    def add(self, topic: bytes, descriptor: int) -> None:
        self._by_topic.setdefault(topic, set()).add((descriptor, self._inode(descriptor)))

    def remove(self, topic: bytes, descriptor: int) -> bool:
        """Remove the connection from the topic; returns whether it was the last one."""
        holders = self._by_topic.get(topic, set())
        holder = (descriptor, self._inode(descriptor))
        if holder not in holders:
            return False
        holders.remove(holder)
        if not holders:
            del self._by_topic[topic]
        return not holders

    def sweep(self) -> list[bytes]:
        """Forget connections that have ended; returns the topics that no connection holds any more."""
        inodes: dict[int, int] = {}
        left = []
        for topic, holders in list(self._by_topic.items()):
            for holder in list(holders):
                descriptor, inode = holder
                if descriptor not in inodes:
                    inodes[descriptor] = self._inode(descriptor)
                if not inode or inodes[descriptor] != inode:
                    holders.remove(holder)
            if not holders:
                del self._by_topic[topic]
                left.append(topic)
        return left

    def clear(self) -> Iterable[bytes]:
        topics = list(self._by_topic)
        self._by_topic.clear()
        return topics


class Gate:
    """Used by the thread of the notifications socket."""

    def __init__(self, keys: KnownKeys, guard: Callable[["zmq.Socket[bytes]"], None], max_topic_bytes: int) -> None:
        self._keys = keys
        self._guard = guard
        self._max_topic_bytes = max_topic_bytes
        self._holders = Holders()
        self._is_misaligned = False
        self._sweep_at = self._sweep_until = 0.0
        self._look_at = 0.0
        self._revocations = keys.revocations

    def __len__(self) -> int:
        return len(self._holders)

    def prepare(self, socket: "zmq.Socket[bytes]") -> None:
        """Configure the socket; call before it is bound."""
        self._guard(socket)
        socket.setsockopt(zmq.XPUB_MANUAL, 1)

    def take(
        self, socket: "zmq.Socket[bytes]", count: int, on_subscribed: OnSubscribed, *, on_last_left: OnTopic
    ) -> None:
        for _ in range(count):
            try:
                frame = socket.recv(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                self._is_misaligned = False
                return
            # Do not call the socket between receipt and installation.
            body, public = frame.bytes, _user_id(frame)
            if not body or body[0] > _SUBSCRIBE:
                self._shut_out(public)
            elif body[0] == _SUBSCRIBE:
                self._subscribe(socket, body[1:], frame, public, on_subscribed)
            elif not public:
                self._sweep_until = time.monotonic() + _SWEEPING_SECONDS
            elif not self._is_misaligned:
                socket.setsockopt(zmq.UNSUBSCRIBE, body[1:])
                if self._holders.remove(body[1:], _descriptor(frame)):
                    on_last_left(body[1:])

    def look(self, on_last_left: OnTopic) -> bool:
        """Check keys and ended connections; call regularly. False if a key was removed, so that all connections must be
        recreated.
        """
        now = time.monotonic()
        if self._sweep_at <= now < self._sweep_until:
            self._sweep_at = now + _SWEEP_SECONDS
            for topic in self._holders.sweep():
                on_last_left(topic)
        if now >= self._look_at:
            self._look_at = now + _LOOK_SECONDS
            self._keys.refresh()
        return self._revocations == self._keys.revocations

    def start_anew(self, on_last_left: OnTopic) -> None:
        """Forget all topics after the socket was closed."""
        self._revocations = self._keys.revocations
        self._is_misaligned = False
        for topic in self._holders.clear():
            on_last_left(topic)

    def _subscribe(
        self, socket: "zmq.Socket[bytes]", topic: bytes, frame: zmq.Frame, public: str, on_subscribed: OnSubscribed
    ) -> None:
        name = self._keys.name_of(public) if public else ""
        if self._is_misaligned or not name or len(topic) > self._max_topic_bytes or not may_subscribe(name, topic):
            metrics.REFUSED_SUBSCRIPTIONS.inc()
            log.warning("subscription_refused", client=name, topic=topic[:200].decode(errors="replace"))
            return
        socket.setsockopt(zmq.SUBSCRIBE, topic)
        metrics.SUBSCRIBED.inc()
        self._holders.add(topic, _descriptor(frame))
        on_subscribed(topic, subscriber_of(name, frame))

    def _shut_out(self, public: str) -> None:
        self._is_misaligned = True
        metrics.REFUSED_SUBSCRIPTIONS.inc()
        name = self._keys.name_of(public)
        if self._keys.bar(public):
            log.error("key_blocked", client=name, reason="it sent something other than a subscription")


def subscriber_of(sender: str, frame: zmq.Frame) -> Subscriber:
    descriptor = _descriptor(frame)
    return Subscriber(sender, descriptor, inode_of(descriptor) if descriptor >= 0 else 0)


def _user_id(frame: zmq.Frame) -> str:
    """The client's public key; empty for libzmq's own message about a connection that has ended."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""


def _descriptor(frame: zmq.Frame) -> int:
    try:
        return int(frame.get(zmq.SRCFD))
    except zmq.ZMQError:
        return -1
