"""All tables that follow topics: a thread for each, and what their followers report."""

import threading
from collections.abc import Callable
from typing import Any

from pyiceberg.catalog import Catalog

from bus import Bus
from flink_replacement_spark.tables.appended import Appended, AppendedTable
from flink_replacement_spark.tables.follower import Followed, Follower, Taken
from flink_replacement_spark.tables.locks import TableLocks

__all__ = ["Followers"]


class Followers:
    """`start`: starts a thread with this name."""

    def __init__(self, bus: Bus, stopping: threading.Event, start: Callable[[str, Callable[[], None]], object]) -> None:
        self._bus = bus
        self._stopping = stopping
        self._start = start
        self._followers: dict[str, Follower] = {}

    def follow(self, name: str, followed: Followed, store: Callable[[Taken], None]) -> None:
        follower = Follower(self._bus, followed, store, stopping=self._stopping)
        self._followers[name] = follower
        self._start(followed.reader, follower.run)

    def append(self, name: str, appended: Appended, catalog: Catalog, *, locks: TableLocks) -> None:
        self.follow(name, appended.followed, AppendedTable(catalog, locks, appended).store)

    @property
    def problems(self) -> list[str]:
        return [follower.problem for follower in list(self._followers.values())]

    @property
    def warnings(self) -> list[str]:
        return [follower.warning for follower in list(self._followers.values())]

    def status(self) -> dict[str, Any]:
        return {name: follower.status() for name, follower in list(self._followers.items())}
