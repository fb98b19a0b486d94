"""A bounded cache of computed values, shared by all markets so that memory has one limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from cachetools import LRUCache

_Value = TypeVar("_Value")


class Recent(Generic[_Value]):
    """Keeps the `capacity` most recently used values; thread-safe (a value may be computed twice)."""

    def __init__(self, capacity: int) -> None:
        self._values: LRUCache[Hashable, _Value] = LRUCache(capacity)
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], _Value]) -> _Value:
        """The cached value, or a new one from make()."""
        with self._lock:
            if key in self._values:
                return self._values[key]
        value = make()
        with self._lock:
            self._values[key] = value
        return value

    def __len__(self) -> int:
        return len(self._values)
