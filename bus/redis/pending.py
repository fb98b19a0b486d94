"""Calls to Redis without a waiting caller: the caller's own poll reports when an answer has arrived."""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import NoReturn

from candlewright.wire.errors import BusUnavailable

_READ_BYTES = 1 << 16


class PendingCall(ABC):
    """Commands in flight over a non-blocking descriptor; `start` gets the connection on which `Store.begin` sent
    them."""

    def start(self, descriptor: int, timeout_seconds: float, give_back: Callable[[bool], None]) -> None:
        """`give_back` is called with whether the connection may be reused, once that is known."""
        self._descriptor = descriptor
        self._until = time.monotonic() + timeout_seconds
        self._give_back = give_back
        self._received = b""

    def fileno(self) -> int:
        return self._descriptor

    def is_done(self) -> bool:
        """Read the available part of the answer, without waiting.

        Raises BusUnavailable, once: the commands may have run or not, and must be repeated.
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
        *lines, rest = self._received.split(b"\r\n")
        if rest:
            return False
        if lines[0][:1] == b"-":
            self._fail(lines[0].decode(errors="replace"))
        if not self._takes(lines):
            return False
        self._give_back(True)
        return True

    @abstractmethod
    def _takes(self, lines: list[bytes]) -> bool:
        """Whether these lines, all complete, are the whole answer."""

    def _fail(self, reason: str) -> NoReturn:
        self._give_back(False)
        raise BusUnavailable(f"the bus does not answer: {reason}")


class PendingNumber(PendingCall):
    """A script that answers with a number."""

    def _takes(self, lines: list[bytes]) -> bool:
        return len(lines) == 1


class PendingAppend(PendingCall):
    """One run of `lua/publish.lua`; `counts`: records by partition."""

    def __init__(self, counts: Mapping[int, int]) -> None:
        self._counts = counts
        self.ends: dict[int, int] = {}

    def _takes(self, lines: list[bytes]) -> bool:
        # An array of strings: how many there are, then the length and the text of each.
        if len(lines) <= 2 * int(lines[0][1:]):
            return False
        what, *places = lines[2::2]
        if what != b"P":
            self._fail(f"publish answered {what!r}")
        for partition, first in zip(map(int, places[::2]), map(int, places[1::2]), strict=True):
            self.ends[partition] = first + self._counts[partition]
        return True
