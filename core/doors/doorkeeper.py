"""The thread that answers libzmq's authentication requests (ZAP, RFC 27): it accepts public keys with the role of this
door, and counts connections that show none."""

import itertools
import sys
import threading
import time
from collections import deque

import zmq
from zmq.utils import z85

from core.doors.keys import KnownKeys, Pair
from core.log import get_logger
from core.metrics import Counter

DOMAIN = b"candlewright"
_ADDRESS = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_PARTS = 7
_LOOK_MILLISECONDS = 100
_TELL_SECONDS = 1.0
#: Of libzmq's monitor: a peer that shows no key. If it closes the connection before its greeting is read, there is no
#: detail.
_KEYLESS = zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_ENDED = zmq.EVENT_MONITOR_STOPPED
_NUMBERS = itertools.count()
log = get_logger()


class Doorkeeper:
    """Create it before the sockets of its context are bound. A connection's User-Id is its public key, as Z85 text.

    `refused` counts rejected connections. Close the guarded sockets first.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", pair: Pair, keys: KnownKeys, *, refused: Counter
    ) -> None:
        self._context = context
        self._pair = pair
        self._keys = keys
        self._refused = refused
        self._tell_at = 0.0
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ADDRESS)
        #: Monitors of guarded sockets, and those that the thread does not read yet.
        self._monitors: list[zmq.Socket[bytes]] = []
        self._new: deque[zmq.Socket[bytes]] = deque()

    def guard(self, socket: "zmq.Socket[bytes]") -> None:
        """Before it is bound. Without this thread no client can connect."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._pair.secret.encode())
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        address = f"inproc://door-{next(_NUMBERS)}"
        socket.monitor(address, _KEYLESS | _ENDED)
        monitor = self._context.socket(zmq.PAIR)
        monitor.setsockopt(zmq.LINGER, 0)
        # libzmq waits for room, and would stop serving meanwhile.
        monitor.setsockopt(zmq.RCVHWM, 0)
        monitor.connect(address)
        self._new.append(monitor)

    def run(self, stop: threading.Event) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        while not stop.is_set():
            while self._new:
                self._monitors.append(self._new.popleft())
                poller.register(self._monitors[-1], zmq.POLLIN)
            for socket, _ in poller.poll(_LOOK_MILLISECONDS):
                if socket is self._socket:
                    self._socket.send_multipart(self._answer(self._socket.recv_multipart()))
                elif not self._note(socket.recv_multipart()):
                    poller.unregister(socket)
                    self._monitors.remove(socket)
                    socket.close()

    def close(self) -> None:
        for socket in (self._socket, *self._monitors, *self._new):
            socket.close()

    def _note(self, parts: list[bytes]) -> bool:
        """Take an event of a monitor; False if its socket is closed."""
        event = int.from_bytes(parts[0][:2], sys.byteorder)
        if event & _KEYLESS:
            self._refused.inc()
            self._tell(reason="no key was shown")
        return event != _ENDED

    def _answer(self, parts: list[bytes]) -> list[bytes]:
        request_id = parts[1] if len(parts) > 1 else b""
        if len(parts) == _PARTS and parts[0] == _VERSION and parts[2] == DOMAIN and parts[5] == b"CURVE":
            public = z85.encode(parts[6]).decode() if len(parts[6]) == 32 else ""
            name = self._keys.name_of(public, is_fresh=True)
            if name:
                log.info("key_accepted", name=name, address=parts[3].decode(errors="replace"))
                return [_VERSION, request_id, b"200", b"OK", public.encode(), b""]
        self._refused.inc()
        self._tell(address=parts[3].decode(errors="replace") if len(parts) > 3 else "")
        return [_VERSION, request_id, b"400", b"this key is not known", b"", b""]

    def _tell(self, **details: str) -> None:
        # A refused client retries several times a second.
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_SECONDS
            log.warning("key_refused", **details)
