"""The broker's door with keys on: only ingestors whose key is known, each heard as itself alone."""

import threading
from collections.abc import Collection
from pathlib import Path

import zmq

from broker.events import Connection
from broker.instruments import REFUSED_KEYS, UNKNOWN_FRAMES
from core.background import start_thread
from core.doors import Doorkeeper, KeyFolder, KnownKeys, Role


class Guard:
    """Raises ConfigurationError when the folder of keys cannot be read or written."""

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
        """Before it is bound."""
        self._doorkeeper.guard(router)
        # No connection takes over another one's name, and with it what is sent there.
        router.setsockopt(zmq.ROUTER_HANDOVER, 0)

    def start(self) -> None:
        self._thread = start_thread("broker-keys", lambda: self._doorkeeper.run(self._stop))

    def admits(self, head: zmq.Frame) -> bool:
        """Whether the message that begins with this frame is taken: its key is known, and its connection's own."""
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
        """Keep what is known of these connections only."""
        for connection in [each for each in self._owners if each not in connected]:
            del self._owners[connection]

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        self._doorkeeper.close()
