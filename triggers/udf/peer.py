"""The other side of a function: a process that is started here, or a connection to a server on a unix socket."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Protocol

from core.background import start_thread
from core.settings_gateways import KapacitorFunctionSettings

__all__ = ["LogLine", "Peer", "open_peer"]

LogLine = Callable[[str], None]
_CHUNK = 64 << 10
_LINE = 1_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0


class Peer(Protocol):
    def read(self, size: int) -> bytes:
        """Read up to this many bytes, as soon as there are any; b"" at the end."""
        ...

    def write(self, data: bytes) -> None:
        """Write all of it; blocks while the other side does not read. Raises OSError if the other side has gone."""
        ...

    def end_input(self) -> None:
        """End the input, which is the polite way to end the function."""
        ...

    def wait(self, timeout_seconds: float) -> bool:
        """Whether the other side ended within that time."""
        ...

    def kill(self) -> None:
        """End the other side, and any reads and writes of other threads in progress."""
        ...

    def close(self) -> None:
        """Call after `kill`, once no thread reads or writes any more."""
        ...


def open_peer(settings: KapacitorFunctionSettings, log_line: LogLine) -> Peer:
    """`log_line`: called from a thread for each line of a process's log. Raises OSError if the function cannot be
    started, or reached within its timeout.
    """
    return _Process(settings, log_line) if settings.prog else _Connection(settings.socket, settings.timeout_seconds)


class _Process:
    def __init__(self, settings: KapacitorFunctionSettings, log_line: LogLine) -> None:
        pipe = subprocess.PIPE
        # A separate session, so that its child processes end with it.
        self._process = subprocess.Popen(
            [settings.prog, *settings.args],
            env={**os.environ, **settings.env},
            stdin=pipe,
            stdout=pipe,
            stderr=pipe,
            bufsize=0,
            start_new_session=True,
        )
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin, self._stdout, self._stderr = stdin, stdout, stderr
        self._kill_once = threading.Lock()
        # A process whose log is not read hangs.
        self._drain = start_thread("udf-log", lambda: self._drain_log(log_line), on_failure=lambda _: self.kill())

    def read(self, size: int) -> bytes:
        return os.read(self._stdout.fileno(), size)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._stdin.fileno(), rest) :]

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._stdin.close()

    def wait(self, timeout_seconds: float) -> bool:
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        # Only once: the number may later belong to another process.
        if self._kill_once.acquire(blocking=False):
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        self._drain.join(_LONGEST_PAUSE)
        for pipe in (self._stdin, self._stdout, self._stderr):
            with contextlib.suppress(OSError):
                pipe.close()

    def _drain_log(self, log_line: LogLine) -> None:
        """Always keep reading, because a process whose log is full hangs. Only the beginning of a long line is passed
        on.
        """
        line, length = bytearray(), 0
        while True:
            try:
                chunk = os.read(self._stderr.fileno(), _CHUNK)
            except (OSError, ValueError):
                chunk = b""
            *ended, last = chunk.split(b"\n")
            for piece in ended:
                line += piece[: _LINE - len(line)]
                log_line(_told(line, length + len(piece)))
                line, length = bytearray(), 0
            line += last[: max(0, _LINE - len(line))]
            length += len(last)
            if not chunk:
                if line:
                    log_line(_told(line, length))
                return


def _told(line: bytearray, length: int) -> str:
    text = line.decode(errors="replace")
    return text if length <= _LINE else f"{text} … {length} bytes"


class _Connection:
    def __init__(self, path: str, timeout_seconds: float) -> None:
        self._socket = _dialled(path, timeout_seconds)
        self._has_ended = threading.Event()

    def read(self, size: int) -> bytes:
        data = self._socket.recv(size)
        if not data:
            self._has_ended.set()
        return data

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def end_input(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def wait(self, timeout_seconds: float) -> bool:
        return self._has_ended.wait(timeout_seconds)

    def kill(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def _dialled(path: str, timeout_seconds: float) -> socket.socket:
    """Retries with growing pauses, because a server that restarts is back soon."""
    end, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE
    while True:
        found = socket.socket(socket.AF_UNIX)
        try:
            found.connect(path)
        except OSError:
            found.close()
            if time.monotonic() + pause > end:
                raise
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
        else:
            return found
