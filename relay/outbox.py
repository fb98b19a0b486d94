"""Answers on their way to clients: in order for each client, bounded, and no slow client in the way of another."""

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

import zmq

from relay import metrics
from relay.events import Peer
from relay.inbox import Wakeup

#: Pages of one answer that wait for a client before the thread that makes them waits as well.
_STREAM_AHEAD = 8
_MORE, _LAST = int(zmq.SNDMORE | zmq.NOBLOCK), int(zmq.NOBLOCK)


class Sent(Enum):
    DONE = auto()
    FULL = auto()
    GONE = auto()


class PeerStalled(Exception):
    """A client did not take a page of a long answer in time."""


class Outbox:
    """`post` and `stream` may be called by any thread; `flush` only by the one that owns the socket."""

    def __init__(self, send: Callable[[list[bytes]], Sent], max_backlog: int) -> None:
        self._send = send
        self._max_backlog = max_backlog
        self._queues: dict[bytes, deque[list[bytes]]] = {}
        self._moved = threading.Condition()
        self._is_abandoned = False
        self.wakeup = Wakeup()

    def post(self, peer: Peer, frames: list[bytes]) -> None:
        """Queue one answer; a client that reads nothing loses what exceeds its bound (counted)."""
        with self._moved:
            queue = self._queues.setdefault(peer.identity, deque())
            if len(queue) >= self._max_backlog:
                metrics.DROPPED_ANSWERS.labels("backlog").inc()
                return
            queue.append(frames)
        self.wakeup.set()

    def stream(self, peer: Peer, frames: list[bytes], timeout_seconds: float) -> None:
        """Queue one part of a long answer at the client's own speed; raises PeerStalled."""
        until = time.monotonic() + timeout_seconds
        with self._moved:
            while len(self._queues.get(peer.identity, ())) >= _STREAM_AHEAD:
                left = until - time.monotonic()
                if left <= 0 or self._is_abandoned:
                    metrics.DROPPED_ANSWERS.labels("stalled").inc()
                    raise PeerStalled
                self._moved.wait(left)
            self._queues.setdefault(peer.identity, deque()).append(frames)
        self.wakeup.set()

    def flush(self) -> bool:
        """Send what clients take; True when some have more to come."""
        self.wakeup.clear()
        with self._moved:
            for identity in list(self._queues):
                queue = self._queues[identity]
                while queue:
                    outcome = self._send(queue[0])
                    if outcome is Sent.FULL:
                        break
                    if outcome is Sent.GONE:
                        metrics.DROPPED_ANSWERS.labels("gone").inc(len(queue))
                        queue.clear()
                        break
                    queue.popleft()
                if not queue:
                    del self._queues[identity]
            self._moved.notify_all()
            return bool(self._queues)

    def abandon(self) -> None:
        """Let nobody wait any more: the socket's thread is about to end."""
        with self._moved:
            self._is_abandoned = True
            self._moved.notify_all()
        self.wakeup.set()

    def close(self) -> None:
        self.wakeup.close()


def send_nowait(router: "zmq.Socket[bytes]", frames: list[bytes]) -> Sent:
    """All frames or none: the first one, the identity, finds out whether the client can take them."""
    try:
        for frame in frames[:-1]:
            router.send(frame, _MORE)
        router.send(frames[-1], _LAST)
    except zmq.Again:
        return Sent.FULL
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return Sent.GONE
        raise
    return Sent.DONE
