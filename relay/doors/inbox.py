"""A bounded queue from any thread to one thread that polls ZeroMQ sockets."""

import socket
import threading
import time
from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Wakeup:
    """A file descriptor that becomes readable by `set` and stays so until `clear`."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._lock = threading.Lock()
        self._is_set = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        with self._lock:
            if not self._is_set:
                self._is_set = True
                self._writer.send(b"\0")

    def clear(self) -> None:
        with self._lock:
            if self._is_set:
                self._is_set = False
                self._reader.recv(16)

    def close(self) -> None:
        self._reader.close()
        self._writer.close()


class Inbox(Generic[Item]):
    """When it is full, `put` waits, so the writer is slowed down and nothing is lost."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: deque[Item] = deque()
        self._space = threading.Condition()
        self.wakeup = Wakeup()

    def put(self, item: Item, timeout_seconds: float) -> bool:
        """Add an item; False if there was no room in time."""
        until = time.monotonic() + timeout_seconds
        with self._space:
            while len(self._items) >= self._size:
                left = until - time.monotonic()
                if left <= 0 or not self._space.wait(left):
                    return False
            self._items.append(item)
        self.wakeup.set()
        return True

    @property
    def is_empty(self) -> bool:
        return not self._items

    def take(self) -> list[Item]:
        """All queued items; may be empty."""
        with self._space:
            self.wakeup.clear()
            items = list(self._items)
            self._items.clear()
            self._space.notify_all()
        return items

    def close(self) -> None:
        self.wakeup.close()
