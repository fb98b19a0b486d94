"""The thread that answers libzmq's authentication requests (ZAP, RFC 27): it accepts public keys with the role of this
door."""

import threading
import time

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
log = get_logger()


class Doorkeeper:
    """Create it before the sockets of its context are bound. A connection's User-Id is its public key, as Z85 text.

    `refused` counts rejected connections.
    """

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", pair: Pair, keys: KnownKeys, *, refused: Counter
    ) -> None:
        self._pair = pair
        self._keys = keys
        self._refused = refused
        self._tell_at = 0.0
        self._socket = context.socket(zmq.REP)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.bind(_ADDRESS)

    def guard(self, socket: "zmq.Socket[bytes]") -> None:
        """Before it is bound. Without this thread no client can connect."""
        socket.setsockopt(zmq.CURVE_SERVER, 1)
        socket.setsockopt(zmq.CURVE_SECRETKEY, self._pair.secret.encode())
        socket.setsockopt(zmq.ZAP_DOMAIN, DOMAIN)
        socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            if self._socket.poll(_LOOK_MILLISECONDS):
                self._socket.send_multipart(self._answer(self._socket.recv_multipart()))

    def close(self) -> None:
        self._socket.close()

    def _answer(self, parts: list[bytes]) -> list[bytes]:
        request_id = parts[1] if len(parts) > 1 else b""
        if len(parts) == _PARTS and parts[0] == _VERSION and parts[2] == DOMAIN and parts[5] == b"CURVE":
            public = z85.encode(parts[6]).decode() if len(parts[6]) == 32 else ""
            name = self._keys.name_of(public, is_fresh=True)
            if name:
                log.info("key_accepted", name=name, address=parts[3].decode(errors="replace"))
                return [_VERSION, request_id, b"200", b"OK", public.encode(), b""]
        self._refused.inc()
        # A refused client retries several times a second.
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + _TELL_SECONDS
            log.warning("key_refused", address=parts[3].decode(errors="replace") if len(parts) > 3 else "")
        return [_VERSION, request_id, b"400", b"this key is not known", b"", b""]
