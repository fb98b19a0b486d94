"""Serves the daemon: over this process's own input and output, or over a socket with a connection for each use."""

import os
import select
import socket
import stat
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from candlewright.wire.errors import ConfigurationError
from core.background import only_noted, start_thread
from gateways.kapacitor.connection import Connection
from gateways.kapacitor.log import say
from gateways.kapacitor.session import FunctionKind

__all__ = ["SocketServer", "serve_process"]

MAX_CONNECTIONS = 1_000
_BACKLOG = 128


def serve_process(kind: FunctionKind, *, is_batch: bool) -> bool:
    """Serves one use over file descriptors 0 and 1; returns whether it ended politely.

    The two are moved first: all other output of this process goes to stderr, and never between frames.
    """
    source, target = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)

    # If the output is no longer read, the input may stay open forever, for example if another process holds its pipe.
    woken, wake = os.pipe()
    news = select.poll()
    for descriptor in (source, woken):
        news.register(descriptor, select.POLLIN | select.POLLHUP)

    def read(size: int) -> bytes:
        ready = {descriptor for descriptor, _ in news.poll()}
        return b"" if woken in ready else os.read(source, size)

    def write(data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(target, rest) :]
        except OSError:
            os.write(wake, b"!")
            raise

    try:
        # The daemon must receive any other error: keep reading from it until it closes the input.
        return Connection(kind, is_batch=is_batch, read=read, write=write, give_up=lambda: None).run()
    finally:
        for descriptor in (target, source, woken, wake):
            os.close(descriptor)


class SocketServer:
    """Serves `kind` on a unix socket; each connection has a separate state. `grace_seconds`: how long `stop` waits for
    connections to end.

    Raises ConfigurationError if another process serves that path, and OSError if the path cannot be used.
    """

    def __init__(self, kind: FunctionKind, *, is_batch: bool, path: str, grace_seconds: float) -> None:
        self._kind = kind
        self._is_batch = is_batch
        self._path = Path(path)
        self._grace_seconds = grace_seconds
        self._open: dict[threading.Thread, socket.socket] = {}
        self._running: dict[threading.Thread, Connection] = {}
        #: The counts of connections that have ended.
        self._ended: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._is_stopping = False
        self._socket = _listening(self._path)

    def serve(self) -> None:
        """Runs until `stop` is called, from a signal or another thread."""
        say("listening", socket=str(self._path), function=self._kind.name)
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError as error:
                if self._is_stopping:
                    break
                # The peer left while it was being accepted, or no descriptor is free at the moment.
                say("connection_not_taken", error=str(error))
                continue
            self._begin(peer)
        with self._lock:
            threads = dict(self._open)
        for peer in threads.values():
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RD)
        for thread in threads:
            thread.join(self._grace_seconds)
        with suppress(OSError):
            self._path.unlink()

    def stop(self) -> None:
        self._is_stopping = True
        # Ends the accept that is under way.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    @property
    def connections(self) -> int:
        return len(self._open)

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts of all uses so far; `ended`, `failed` and `refused_connections` count connections."""
        with self._lock:
            found = Counter(self._ended)
            for connection in self._running.values():
                found.update(connection.counts)
        return found

    def _begin(self, peer: socket.socket) -> None:
        with self._lock:
            if len(self._open) >= MAX_CONNECTIONS:
                say("connection_refused", connections=len(self._open))
                self._ended["refused_connections"] += 1
                peer.close()
                return
            # It waits for the lock. Its failure affects only this use, whose daemon sees the connection end.
            thread = start_thread("connection", lambda: self._serve_one(peer), on_failure=only_noted)
            self._open[thread] = peer

    def _serve_one(self, peer: socket.socket) -> None:
        def give_up() -> None:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RD)

        thread = threading.current_thread()
        connection = Connection(
            self._kind, is_batch=self._is_batch, read=peer.recv, write=peer.sendall, give_up=give_up
        )
        with self._lock:
            self._running[thread] = connection
        is_polite = False
        try:
            is_polite = connection.run()
        finally:
            with self._lock:
                del self._open[thread], self._running[thread]
                self._ended.update({"ended": 1, "failed": int(not is_polite)} | connection.counts)
            peer.close()


def _listening(path: Path) -> socket.socket:
    """A socket at `path`, replacing one that a killed process left behind."""
    with suppress(FileNotFoundError):
        if stat.S_ISSOCK(path.stat().st_mode):
            with socket.socket(socket.AF_UNIX) as other:
                if other.connect_ex(str(path)) == 0:
                    raise ConfigurationError(f"another process serves {path}")
            path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(str(path))
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
