"""The client's two sockets on one of several relays, and the way to the next one."""

from collections.abc import Sequence

import zmq
from zmq.utils.monitor import parse_monitor_message

from candlewright.client.session.session import Session
from candlewright.client.session.sockets import open_pair
from candlewright.wire.keys import ClientKey

#: With several relays: a stopped one counts as lost after the second figure.
ASK_MILLISECONDS, ALIVE_MILLISECONDS = 1_000, 3_000
#: A relay without a handshake on both sockets by then is skipped; one that refuses, after the second figure.
HANDSHAKE_SECONDS, PAUSE_SECONDS = 2.0, 0.2
_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED


class Relays:
    """`pairs`: addresses for requests and for notifications. Both sockets are on the same relay.

    The sockets themselves stay when the relay changes. Subscriptions move with the socket; unanswered requests are
    resent immediately (`Session.moved`), and gaps in topics are requested.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", pairs: Sequence[tuple[str, str]], key: ClientKey | None
    ) -> None:
        self._pairs = pairs
        self._at = 0
        self._monitors: list[zmq.Socket[bytes]] = []
        self._shaken: set[int] = set()
        self._refused = False
        self._moved_at: float | None = None
        self.requests, self.notifications = self.sockets = open_pair(context, key)
        if len(pairs) > 1:
            for socket in self.sockets:
                socket.setsockopt(zmq.HEARTBEAT_IVL, ASK_MILLISECONDS)
                socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, ALIVE_MILLISECONDS)
                self._monitors.append(socket.get_monitor_socket(_EVENTS))
        for socket, address in zip(self.sockets, pairs[0], strict=True):
            socket.connect(address)

    @property
    def descriptors(self) -> "list[zmq.Socket[bytes]]":
        """The sockets on which there may be news."""
        return [*self.sockets, *self._monitors]

    @property
    def deadline(self) -> float | None:
        """The latest time to call `follow`."""
        if not self._monitors or len(self._shaken) == len(self.sockets):
            return None
        moved_at = self._moved_at or 0.0
        return moved_at + (PAUSE_SECONDS if self._refused else HANDSHAKE_SECONDS)

    def follow(self, session: Session, now: float) -> bool:
        """Switch if the relay is down, never answered, or is cut off from the bus; returns whether it switched."""
        if not self._monitors:
            return False
        is_lost, session.wants_another_relay = session.wants_another_relay, False
        self._moved_at = now if self._moved_at is None else self._moved_at
        for place, monitor in enumerate(self._monitors):
            for event in _events(monitor):
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    self._shaken.add(place)
                elif event == zmq.EVENT_CONNECT_RETRIED:
                    self._refused = True
                elif place in self._shaken:
                    is_lost = True
        deadline = self.deadline
        if not is_lost and (deadline is None or now < deadline):
            return False
        self._move(now)
        return True

    def _move(self, now: float) -> None:
        before, self._at = self._pairs[self._at], (self._at + 1) % len(self._pairs)
        for socket, old, new in zip(self.sockets, before, self._pairs[self._at], strict=True):
            socket.disconnect(old)
            socket.connect(new)
        # The monitors' remaining events about the previous relay would be mistaken for events of this one.
        for monitor in self._monitors:
            _events(monitor)
        self._shaken.clear()
        self._refused, self._moved_at = False, now


def _events(monitor: "zmq.Socket[bytes]") -> list[int]:
    found = []
    while True:
        try:
            found.append(int(parse_monitor_message(monitor.recv_multipart(zmq.NOBLOCK))["event"]))
        except zmq.Again:
            return found
