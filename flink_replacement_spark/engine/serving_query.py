"""The streaming query whose tasks serve (`engine.serving`): it is started here, and what its tasks report is read."""

import shutil
import threading
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from bus import Bus
from candlewright.wire.errors import BusError, RoleLost
from core.background import start_thread
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.engine.bus_source import worker_bus
from flink_replacement_spark.engine.serving import Done, Owner, Reports, Serving, Steps, task
from flink_replacement_spark.engine.session import STREAMS_POOL, serving_tasks

__all__ = ["TABLE_SERVING", "query_id_of", "start_serving"]

#: Query -> the id under which its tasks keep steps and state.
TABLE_SERVING = "serving"
#: Until every task has begun.
_FIRST_SECONDS = 0.25
#: A task that says nothing for this long, although the bus answers, is stuck: the query is started again without it.
_SILENT_SECONDS = 30.0
log = get_logger()


def query_id_of(bus: Bus, name: str) -> str:
    """The same for as long as the bus remembers."""
    return bus.put_new(TABLE_SERVING, name, str(uuid.uuid4()).encode()).decode()


def start_serving(
    session: SparkSession,
    settings: Settings,
    name: str,
    *,
    query_id: str,
    owners: Sequence[Owner],
    on_news: Callable[[int, Done], object],
    stopping: threading.Event,
) -> StreamingQuery:
    """`on_news`: called with how many steps were taken since the last call, and what they did."""
    bus = worker_bus(settings.bus.url)
    serving = Serving(
        settings.bus.url,
        name,
        query_id,
        uuid.uuid4().hex,
        min(len(owners), serving_tasks(settings, session.sparkContext.defaultParallelism)),
        settings.spark.interval_seconds,
    )
    reports = Reports(bus, serving)
    reports.clear()
    Steps(bus, query_id, serving.run_id).begin_run()
    # Where the tasks are is on the bus, so that Spark's own offsets are of no use to the next query.
    checkpoint = settings.data_dir / "run" / "serving" / name
    shutil.rmtree(checkpoint, ignore_errors=True)
    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    numbers = (
        session.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", str(serving.tasks))
        .option("numPartitions", str(serving.tasks))
        .load()
    )
    query = (
        numbers.mapInArrow(task(serving, owners), "none int")
        .writeStream.format("noop")
        .queryName(name)
        .option("checkpointLocation", f"file://{Path(checkpoint).absolute()}")
        .start()
    )

    def read() -> None:
        while not stopping.wait(serving.interval_seconds if reports.is_complete else _FIRST_SECONDS):
            try:
                is_active = query.isActive
                on_news(*reports.news())
            except (Py4JError, RoleLost):
                # The driver itself notices that its JVM or its role is gone, and ends.
                return
            except BusError as error:
                log.warning("reports_not_read", query=name, error=str(error))
            if not is_active:
                return
            if reports.silent_seconds > _SILENT_SECONDS + 3 * serving.interval_seconds:
                log.error("task_silent", query=name, seconds=round(reports.silent_seconds))
                query.stop()
                return

    start_thread(f"{name}-reports", read)
    return query
