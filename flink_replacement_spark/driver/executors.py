"""Runs a task on each executor that joins, so that it can take over the tasks of a lost one at once.

An executor fetches jars and code, and starts its Python daemon, with its first task: tens of seconds on a busy machine.
An executor whose first task comes from a lost one is as slow as a new executor.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator

import pyarrow as pa
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from core.background import only_noted, start_thread
from core.log import get_logger

__all__ = ["WarmExecutors", "cores_of", "executors_of", "run_everywhere"]

#: Long enough (s) that no core takes another one's task.
_TASK_SECONDS = 0.2
log = get_logger()


def _wait(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(_TASK_SECONDS)
    yield from batches


def executors_of(session: SparkSession) -> list[str]:
    """`host:port` of each executor, and of the driver, which counts as one."""
    scheduler = session.sparkContext._jsc.sc()
    return str(scheduler.getExecutorMemoryStatus().keySet().mkString(" ")).split()


def cores_of(session: SparkSession) -> int:
    """The cores of the executors; of a cluster without any, Spark itself gives two."""
    return int(session.sparkContext.defaultParallelism) if len(executors_of(session)) > 1 else 0


def run_everywhere(session: SparkSession) -> None:
    """Run a task on each free core."""
    cores = int(session.sparkContext.defaultParallelism)
    session.range(0, cores, 1, cores).mapInArrow(_wait, "id bigint").toArrow()


class WarmExecutors:
    """`run` runs a task on each executor that has a free core; the others run tasks already."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._warm: frozenset[str] = frozenset()
        self._thread: threading.Thread | None = None

    def count_of(self, executors: Collection[str]) -> int:
        """How many of these executors are warm."""
        return len(self._warm.intersection(executors))

    def look(self, executors: Collection[str]) -> None:
        """Call often; `run` is called on a thread if some are new."""
        names = frozenset(executors)
        if names <= self._warm or (self._thread is not None and self._thread.is_alive()):
            return

        def run() -> None:
            try:
                self._run()
            except (Py4JError, PySparkException, OSError) as error:
                log.warning("executors_not_warmed", error=str(error)[:300])
            else:
                self._warm = names

        self._thread = start_thread("warm-executors", run, on_failure=only_noted)
