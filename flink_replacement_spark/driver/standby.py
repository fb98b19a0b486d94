"""Queries that a standby starts ahead of its term: their tasks are there when it begins, and wait until then.

Starting a query takes longer than everything else in a take-over: Spark plans it, starts its tasks, and Python its
processes.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import closing

from pyspark.sql import SparkSession

from bus import topics as bus_topics
from bus.connect import connect
from core.settings import Settings
from flink_replacement_spark.driver.warm import warm_streaming
from flink_replacement_spark.engine.serving_query import ServingQuery

__all__ = ["Prepare", "Prepared", "WarmUp"]

_LOOK_SECONDS = 2.0

#: Starts a query for this many partitions.
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
        """Start every query that is missing or has ended, until `is_over`."""
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
        """The query that waits, if any. One that has ended, or has other partitions, is stopped: Spark runs one of each
        name.
        """
        count, query = self._found.get(name, (0, None))
        if query is None or (count == partitions and query.is_active):
            return query
        query.stop()
        return None


class WarmUp:
    """Until `is_over`, keeps the prepared queries running, and has run a streaming query once (`warm_streaming`)."""

    def __init__(self, session: SparkSession, settings: Settings, prepared: Prepared) -> None:
        self._session = session
        self._settings = settings
        self._prepared = prepared
        #: Whether a take-over finds everything ready.
        self.is_done = False

    def run(self, stopping: threading.Event, is_over: Callable[[], bool]) -> None:
        """Raises Py4JError or ConnectionError if the JVM is gone."""
        folder = self._settings.data_dir / "run"
        folder.mkdir(parents=True, exist_ok=True)
        has_run = False
        with closing(connect(self._settings.bus)) as bus:
            while not is_over():
                self.is_done = has_run and self._prepared.is_complete
                # Made by the first driver of a bus.
                if partitions := bus.partitions(bus_topics.TICKS):
                    self._prepared.prepare(partitions, is_over)
                    if not has_run:
                        warm_streaming(self._session, folder, is_over)
                        has_run = True
                        continue
                stopping.wait(_LOOK_SECONDS)
