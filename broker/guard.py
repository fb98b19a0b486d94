"""Guards the broker's socket with keys on: accepts only ingestors with a known key, each under its own name."""

import threading
from collections.abc import Collection
from pathlib import Path

import zmq

from broker.events import Connection
from broker.metrics import REFUSED_KEYS, UNKNOWN_FRAMES
from core.background import start_thread
from core.doors import Doorkeeper, KeyFolder, KnownKeys, Role


class Guard:
    """Raises ConfigurationError if the folder of keys cannot be read or written."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", data_dir: Path) -> None:
        folder = KeyFolder(data_dir)
        pair = folder.platform()
        self._keys = KnownKeys(folder, Role.ingestor)
        self._doorkeeper = Doorkeeper(context, pair, self._keys, refused=REFUSED_KEYS)
        self._owners: dict[Connection, str] = {}
        self._revocations = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def guard(self, router: "zmq.Socket[bytes]") -> None:
        """Configure the socket; call before it is bound."""
        self._doorkeeper.guard(router)
        # Otherwise a connection could take over another one's name, and with it the frames sent there.
        router.setsockopt(zmq.ROUTER_HANDOVER, 0)

    def start(self) -> None:
        self._thread = start_thread("broker-keys", lambda: self._doorkeeper.run(self._stop))

    def admits(self, head: zmq.Frame) -> bool:
        """Whether to accept the message that begins with this frame: its key must be known, and match the connection's
        name.
        """
        try:
            public = str(head.get("User-Id"))
        except zmq.ZMQError:
            public = ""
        is_known = bool(self._keys.name_of(public)) and self._owners.setdefault(head.bytes, public) == public
        if not is_known:
            UNKNOWN_FRAMES.inc()
        return is_known

    def revoked(self) -> list[Connection]:
        """Connections whose key was removed since the last call: nothing more is sent there."""
        self._keys.refresh(is_fresh=False)
        if self._keys.revocations == self._revocations:
            return []
        self._revocations = self._keys.revocations
        return [connection for connection, public in self._owners.items() if not self._keys.name_of(public)]

    def forget(self, connected: Collection[Connection]) -> None:
        """Forget all connections except these."""
        for connection in [each for each in self._owners if each not in connected]:
            del self._owners[connection]

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._doorkeeper.close()
