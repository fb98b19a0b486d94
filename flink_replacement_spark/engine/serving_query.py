"""Starts the streaming query whose tasks serve (`engine.serving`), and reads the reports of its tasks."""

import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import KeyedTables
from candlewright.wire.errors import BusError, RoleLost
from core.background import start_thread
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.serving import Chain, Reports, Serving, task
from flink_replacement_spark.engine.sizing import Sizing
from flink_replacement_spark.engine.steps import Done
from flink_replacement_spark.spark.conf import STREAMS_POOL, serving_tasks

__all__ = ["TABLE_SERVING", "ServingQuery", "query_id_of"]

#: Query -> the id under which its tasks keep steps and state.
TABLE_SERVING = "serving"
#: Until every task has begun.
_FIRST_SECONDS = 0.05
#: How often (s) the tasks of a cluster are compared with its cores.
_CORES_SECONDS = 1.0
#: A task that does not report for this long (s), although the bus answers, is stuck; the query is restarted without it.
_SILENT_SECONDS = 30.0
log = get_logger()


def query_id_of(bus: KeyedTables, name: str) -> str:
    """The query's id, which stays the same as long as the bus keeps it."""
    return bus.put_new(TABLE_SERVING, name, str(uuid.uuid4()).encode()).decode()


@contextmanager
def _interpreted(session: SparkSession) -> Iterator[None]:
    """Streaming queries that start within run without generated code: compiling it takes more than half of the time in
    which Spark starts this query's only batch, which has one row a task.
    """
    conf = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    for name, value in conf.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in conf:
            session.conf.unset(name)


class ServingQuery:
    """Runs on return; its tasks wait until `begin`. `chains`: of owners, of any term."""

    def __init__(self, session: SparkSession, settings: Settings, name: str, *, chains: Sequence[Chain]) -> None:
        self._name, self._context, self._settings = name, session.sparkContext, settings
        self._most_tasks = len(chains)
        self._serving = Serving(
            settings.bus.url,
            name,
            uuid.uuid4().hex,
            self._wanted_tasks(),
            settings.spark.interval_seconds,
        )
        #: Whether each task has reported once since `begin`.
        self.is_serving = False
        #: Why an owner is not served, while the others are.
        self.problem = ""
        self._sizing = Sizing(self._serving.tasks)
        # The tasks' positions are on the bus, so the next query does not need Spark's own offsets.
        checkpoint = settings.data_dir / "run" / "serving" / name
        shutil.rmtree(checkpoint, ignore_errors=True)
        session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
        numbers = (
            session.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", str(self._serving.tasks))
            .option("numPartitions", str(self._serving.tasks))
            .load()
        )
        with _interpreted(session):
            self.query = (
                numbers.mapInArrow(task(self._serving, chains), "none int")
                .writeStream.format("noop")
                .queryName(name)
                .option("checkpointLocation", f"file://{Path(checkpoint).absolute()}")
                .start()
            )

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    @property
    def has_tasks(self) -> bool:
        """Whether they all run: a cluster may have no core for them."""
        tracker = self._context.statusTracker()
        jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup(str(self.query.runId)))
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numActiveTasks for stage in stages if stage is not None) == self._serving.tasks

    def _wanted_tasks(self) -> int:
        """The number of tasks that the present cores allow."""
        return min(self._most_tasks, serving_tasks(self._settings, self._context.defaultParallelism))

    def _must_begin_anew(self) -> bool:
        wanted, tasks = self._wanted_tasks(), self._serving.tasks
        all_run = wanted == tasks or self.has_tasks
        if not self._sizing.must_begin_anew(wanted, all_run=all_run, at=time.monotonic()):
            return False
        log.warning("cores_changed", query=self._name, tasks=wanted, before=tasks)
        return True

    def stop(self) -> None:
        self.query.stop()

    def begin(
        self,
        url: str,
        query_ids: Mapping[str, str],
        on_news: Mapping[str, Callable[[int, Done], object]],
        *,
        stopping: threading.Event,
    ) -> StreamingQuery:
        """`on_news`: by query, called with the number of steps since the last call, and their results."""
        reports = Reports(worker_bus(url), self._serving)
        reports.clear()
        self._serving.begin(url, query_ids)

        is_cluster = not self._settings.spark.master.startswith("local")
        pause = min(self._serving.interval_seconds, _CORES_SECONDS) if is_cluster else self._serving.interval_seconds

        def read() -> None:
            while not stopping.wait(pause if reports.is_complete else _FIRST_SECONDS):
                try:
                    is_active = self.query.isActive
                    if is_active and is_cluster and self._must_begin_anew():
                        self.query.stop()
                        return
                    for query, news in reports.news().items():
                        on_news[query](*news)
                    self.is_serving = reports.is_complete
                    self.problem = reports.problem
                except (Py4JError, RoleLost):
                    # The driver itself notices that its JVM or its role is lost, and ends.
                    return
                except BusError as error:
                    log.warning("reports_unreadable", query=self._name, error=str(error))
                if not is_active:
                    return
                if reports.silent_seconds > _SILENT_SECONDS + 3 * self._serving.interval_seconds:
                    log.error("task_silent", query=self._name, seconds=round(reports.silent_seconds))
                    self.query.stop()
                    return

        start_thread(f"{self._name}-reports", read)
        return self.query
