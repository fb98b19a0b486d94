"""Queues answers to clients: in order per client, bounded, and without a slow client delaying another."""

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

import zmq

from relay import metrics
from relay.asked import Peer
from relay.doors.inbox import Wakeup

#: Pages of one answer that may wait for a client; beyond this, the thread that makes them waits too.
_STREAM_AHEAD = 8
#: libzmq copies answers up to this size; its limit on their number also bounds their bytes.
SMALL_BYTES = 64 << 10
_MORE, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)


class Sent(Enum):
    DONE = auto()
    FULL = auto()
    GONE = auto()


class PeerStalled(Exception):
    """A client did not read a page of a long answer in time."""


class Tracker(Protocol):
    """Tracks an answer that the socket has taken over without copying it."""

    @property
    def done(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits in bytes: answers that wait for one client, and for all, and large answers held by the socket."""

    client: int = 64 << 20
    total: int = 256 << 20
    client_in_hand: int = 16 << 20
    total_in_hand: int = 256 << 20


@dataclass(slots=True)
class _Backlog:
    """The answers that wait for one client, and those that the socket holds for it."""

    queue: deque[list[bytes]] = field(default_factory=deque)
    size: int = 0
    in_hand: deque[tuple[Tracker, int]] = field(default_factory=deque)
    in_hand_size: int = 0


class Outbox:
    """Any thread may call `post` and `stream`; only the socket's owner may call `flush`."""

    def __init__(
        self, send: Callable[[list[bytes]], Sent | Tracker], max_backlog: int, bounds: Bounds = Bounds()
    ) -> None:
        self._send = send
        self._max_backlog = max_backlog
        self._bounds = bounds
        self._clients: dict[bytes, _Backlog] = {}
        #: Bytes that wait for all clients.
        self._size = 0
        self._in_hand_size = 0
        self._moved = threading.Condition()
        self._is_abandoned = False
        self.wakeup = Wakeup()

    def post(self, peer: Peer, frames: list[bytes]) -> None:
        """Queue one answer; for a client that reads nothing, answers beyond its bound are dropped and counted."""
        size = _size_of(frames)
        with self._moved:
            client = self._clients.setdefault(peer.identity, _Backlog())
            is_too_large = bool(client.queue) and client.size + size > self._bounds.client
            if len(client.queue) >= self._max_backlog or is_too_large:
                metrics.DROPPED_ANSWERS.labels("backlog").inc()
                return
            self._append(client, frames, size)
            self._make_room(client)
        self.wakeup.set()

    def stream(self, peer: Peer, frames: list[bytes], timeout_seconds: float) -> None:
        """Queue one part of a long answer, at the client's own speed; raises PeerStalled."""
        until = time.monotonic() + timeout_seconds
        size = _size_of(frames)
        with self._moved:
            while not self._has_room(peer, size):
                left = until - time.monotonic()
                if left <= 0 or self._is_abandoned:
                    metrics.DROPPED_ANSWERS.labels("stalled").inc()
                    raise PeerStalled
                self._moved.wait(left)
            self._append(self._clients.setdefault(peer.identity, _Backlog()), frames, size)
        self.wakeup.set()

    def flush(self) -> bool:
        """Send what clients accept; True if answers remain."""
        self.wakeup.clear()
        with self._moved:
            for identity in list(self._clients):
                client = self._clients[identity]
                self._forget_sent(client)
                self._flush(client)
                if not client.queue and not client.in_hand:
                    del self._clients[identity]
            metrics.WAITING_ANSWER_BYTES.set(self._size + self._in_hand_size)
            self._moved.notify_all()
            return any(client.queue for client in self._clients.values())

    def _flush(self, client: _Backlog) -> None:
        while client.queue:
            size = _size_of(client.queue[0])
            if client.in_hand and client.in_hand_size + size > self._bounds.client_in_hand:
                return
            if self._in_hand_size and self._in_hand_size + size > self._bounds.total_in_hand and size > SMALL_BYTES:
                return
            outcome = self._send(client.queue[0])
            if outcome is Sent.FULL:
                return
            if outcome is Sent.GONE:
                metrics.DROPPED_ANSWERS.labels("gone").inc(len(client.queue))
                self._drop(client)
                return
            client.queue.popleft()
            client.size -= size
            self._size -= size
            if not isinstance(outcome, Sent):
                client.in_hand.append((outcome, size))
                client.in_hand_size += size
                self._in_hand_size += size

    def _forget_sent(self, client: _Backlog) -> None:
        """Forget the answers that the socket has sent."""
        while client.in_hand and client.in_hand[0][0].done:
            _, size = client.in_hand.popleft()
            client.in_hand_size -= size
            self._in_hand_size -= size

    def _has_room(self, peer: Peer, size: int) -> bool:
        client = self._clients.get(peer.identity)
        if client is not None and client.queue and client.size + size > self._bounds.client:
            return False
        if client is not None and len(client.queue) >= _STREAM_AHEAD:
            return False
        return not self._size or self._size + size <= self._bounds.total

    def _append(self, client: _Backlog, frames: list[bytes], size: int) -> None:
        client.queue.append(frames)
        client.size += size
        self._size += size

    def _make_room(self, newest: _Backlog) -> None:
        """Beyond the bound for all, drop the answers of the client with the most bytes waiting, so that no other pays
        for it.
        """
        while self._size > self._bounds.total:
            largest = max(self._clients.values(), key=lambda client: client.size)
            if largest is newest and len(largest.queue) == 1:
                return
            metrics.DROPPED_ANSWERS.labels("memory").inc(len(largest.queue))
            self._drop(largest)

    def _drop(self, client: _Backlog) -> None:
        self._size -= client.size
        client.size = 0
        client.queue.clear()

    def abandon(self) -> None:
        """Release all waiting callers, because the socket's thread is about to end."""
        with self._moved:
            self._is_abandoned = True
            self._moved.notify_all()
        self.wakeup.set()

    def close(self) -> None:
        self.wakeup.close()


def send_nowait(router: "zmq.Socket[bytes]", frames: list[bytes]) -> Sent | Tracker:
    """Send all frames or none; sending the first one, the identity, shows whether the client has room.

    A large answer is not copied, and its tracker reports when it was sent, because libzmq limits its queues only by
    messages.
    """
    try:
        for frame in frames[:-1]:
            router.send(frame, _MORE)
        if len(frames[-1]) <= SMALL_BYTES:
            router.send(frames[-1], _LAST)
            return Sent.DONE
        tracker: Tracker = router.send(frames[-1], _LAST, copy=False, track=True)
        return tracker
    except zmq.Again:
        return Sent.FULL
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return Sent.GONE
        raise


def _size_of(frames: list[bytes]) -> int:
    return sum(map(len, frames))
