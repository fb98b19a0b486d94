"""Queries that a standby starts ahead of its term: their tasks are there when it begins, and wait until then.

Starting a query takes longer than everything else in a take-over: Spark plans it, starts its tasks, and Python its
processes.
"""

import threading
from collections.abc import Callable, Mapping

from flink_replacement_spark.engine.serving_query import ServingQuery

__all__ = ["Prepare", "Prepared"]

#: Starts a query for so many partitions.
Prepare = Callable[[int], ServingQuery]


class Prepared:
    """`prepares`: by the name of a query."""

    def __init__(self, prepares: Mapping[str, Prepare]) -> None:
        self._prepares = prepares
        self._lock = threading.Lock()
        self._found: dict[str, tuple[int, ServingQuery]] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the tasks of every query run."""
        found = list(self._found.values())
        return len(found) == len(self._prepares) and all(query.has_tasks for _, query in found)

    def prepare(self, partitions: int, is_over: Callable[[], bool]) -> None:
        """All that are not there, or have ended, until `is_over`."""
        for name, prepare in self._prepares.items():
            with self._lock:
                if not is_over() and self._waiting(name, partitions) is None:
                    self._found[name] = partitions, prepare(partitions)

    def take(self, name: str, partitions: int) -> ServingQuery:
        """The query that waits, or a new one. Waits for one that is just being started."""
        with self._lock:
            query = self._waiting(name, partitions)
            self._found.pop(name, None)
        return query or self._prepares[name](partitions)

    def stop(self) -> None:
        with self._lock:
            for _, query in self._found.values():
                query.stop()
            self._found.clear()

    def _waiting(self, name: str, partitions: int) -> ServingQuery | None:
        """One that ended, or has other partitions, is stopped: Spark runs one of each name."""
        count, query = self._found.get(name, (0, None))
        if query is None or (count == partitions and query.is_active):
            return query
        query.stop()
        return None
