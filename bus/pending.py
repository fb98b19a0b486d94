"""A call to Redis whose answer nobody waits for: the caller's own poll says when something of it has come."""

import os
import time
from collections.abc import Callable

from core.errors import BusUnavailable

_READ_BYTES = 1 << 16


class PendingCall:
    """Commands that are answered by a number each, on their way over a non-blocking descriptor.

    `give_back` gets the outcome: whether the connection may be used again.
    """

    def __init__(
        self, descriptor: int, replies: int, timeout_seconds: float, give_back: Callable[[bool], None]
    ) -> None:
        self._descriptor = descriptor
        self._replies = replies
        self._until = time.monotonic() + timeout_seconds
        self._give_back = give_back
        self._received = b""

    def fileno(self) -> int:
        return self._descriptor

    def is_done(self) -> bool:
        """Take what has come of the answer, without waiting for more.

        Raises BusUnavailable, once: the commands may have run or not, and must be given again.
        """
        try:
            chunk = os.read(self._descriptor, _READ_BYTES)
        except BlockingIOError:
            if time.monotonic() < self._until:
                return False
            self._fail("no answer in time")
        except OSError as error:
            self._fail(str(error))
        if not chunk:
            self._fail("the server closed the connection")
        self._received += chunk
        if not self._received.endswith(b"\r\n") or self._received.count(b"\r\n") < self._replies:
            return False
        if not all(line.startswith(b":") for line in self._received.splitlines()):
            self._fail(repr(self._received[:200]))
        self._give_back(True)
        return True

    def _fail(self, reason: str) -> None:
        self._give_back(False)
        raise BusUnavailable(f"the bus does not answer: {reason}")
