"""The Spark driver of the platform: session, tables, queries, maintenance, and what the status page says of them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from bus import Bus
from bus import topics as bus_topics
from bus.connect import connect
from core import metrics
from core.errors import BusUnavailable, ConfigurationError
from core.http import Status, StatusServer
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.bus_source import BusSource, pass_on
from flink_replacement_spark.fence import DriverLock
from flink_replacement_spark.history_writer import HistoryWriter
from flink_replacement_spark.maintenance import Maintenance
from flink_replacement_spark.merger import SparkMerger
from flink_replacement_spark.session import STREAMS_POOL, is_listening, start_session
from flink_replacement_spark.state import OutcomeRecord
from iceberg import COVERAGE, OHLC, create_tables, load_table, open_catalog, scan_range

log = get_logger()

PART = "flink_replacement_spark"
HISTORY_QUERY = "history-writer"
#: Outcomes in one micro-batch at most.
MAX_OUTCOMES = 1_000
_FIRST_BACKOFF_SECONDS = 0.5
_MAX_BACKOFF_SECONDS = 15.0
_BUS_CHECK_SECONDS = 5.0

_RESTARTS = metrics.Counter(
    "candlewright_spark_query_restarts_total", "Queries started again after an error.", registry=metrics.REGISTRY
)


class Driver:
    """Call `start`, then `run`, which returns after `stop`; `close` frees everything. Needs `bus.url`.

    Whoever writes a table in this process holds `table_lock` meanwhile.
    """

    def __init__(self, settings: Settings) -> None:
        if not settings.bus.url:
            raise ConfigurationError("bus.url is needed: candlewright up sets it for the parts that it starts")
        self._settings = settings
        self._stopping = threading.Event()
        self.table_lock = threading.Lock()
        self._lock = DriverLock(settings.data_dir)
        self.query: StreamingQuery | None = None
        self._is_warm = False
        self._query_problem = ""
        self._bus_problem = ""
        self._restart_at = 0.0
        self._backoff = _FIRST_BACKOFF_SECONDS
        self._threads: list[threading.Thread] = []
        self._writer: HistoryWriter | None = None
        self._maintenance: Maintenance | None = None
        self._session: SparkSession | None = None
        self._bus: Bus | None = None

    @property
    def session(self) -> SparkSession:
        """Of a started driver."""
        if self._session is None:
            raise ConfigurationError("the driver is not started")
        return self._session

    @property
    def batches(self) -> int:
        """Micro-batches carried out since the start."""
        return self._writer.health.batches if self._writer else 0

    # ---- life
    def start(self) -> None:
        """Wait for an older driver's end, then bring everything up; the history query is running on return."""
        settings = self._settings
        waited = self._lock.acquire()
        started = time.monotonic()
        bus = self._bus = connect(settings.bus)
        prepare_topics(bus)
        catalog = open_catalog(settings)
        create_tables(catalog)
        session = self._session = start_session(settings, self._lock)
        session.dataSource.register(BusSource)
        self._writer = make_writer(settings, bus, catalog, session, self.table_lock, self._stopping)
        self._start_query()
        warm_up(session, catalog)
        self._is_warm = True
        self._maintenance = Maintenance(session, catalog, self.table_lock, settings.iceberg.maintenance_minutes)
        self._start_thread("maintenance", lambda: self._maintain())
        self._start_thread("bus-check", self._check_bus)
        log.info(
            "driver_started",
            connect=settings.spark.connect_bind,
            waited_seconds=round(waited, 2),
            start_seconds=round(time.monotonic() - started, 2),
        )

    def run(self) -> None:
        """Watch the query and start it again when it ends; returns after `stop`.

        Raises Py4JError when the JVM is gone: only a new process can help then.
        """
        while not self._stopping.wait(0.25):
            query = self.query
            if query is not None:
                if query.isActive:
                    continue
                self._note_end_of_query(query)
            if time.monotonic() >= self._restart_at:
                self._start_query()

    def stop(self) -> None:
        """Safe in a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
            for thread in self._threads:
                thread.join(5)
            if self._session is not None:
                self._session.stop()
        except (Py4JError, PySparkException, OSError) as error:
            log.warning("driver_closed_hard", error=str(error))
        if self._bus is not None:
            self._bus.close()
        self._lock.close()

    def _start_thread(self, name: str, body: Callable[[], None]) -> None:
        thread = threading.Thread(target=body, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _maintain(self) -> None:
        assert self._maintenance is not None
        self._maintenance.run_until(self._stopping)

    def _check_bus(self) -> None:
        assert self._bus is not None
        while not self._stopping.wait(_BUS_CHECK_SECONDS):
            try:
                self._bus.state(bus_topics.HISTORY_OUTCOMES)
                self._bus_problem = ""
            except BusUnavailable as error:
                self._bus_problem = f"the bus does not answer: {error}"

    # ---- the query
    def _start_query(self) -> None:
        assert self._session is not None and self._writer is not None
        try:
            self.query = start_history_query(self._session, self._settings, self._writer)
            self._query_problem = ""
        except PySparkException as error:
            self._plan_restart(str(error))

    def _note_end_of_query(self, query: StreamingQuery) -> None:
        error = query.exception()
        self.query = None
        self._plan_restart(str(error) if error else "it stopped")

    def _plan_restart(self, reason: str) -> None:
        self._query_problem = f"the history query stopped: {reason.splitlines()[0]}"
        self._restart_at = time.monotonic() + self._backoff
        self._backoff = min(2 * self._backoff, _MAX_BACKOFF_SECONDS)
        _RESTARTS.inc()
        log.error("query_stopped", reason=reason[-4_000:])

    # ---- status
    def status(self) -> Status:
        writer, query = self._writer, self.query
        problems = [self._query_problem, self._bus_problem]
        details: dict[str, Any] = {"connect": self._settings.spark.connect_bind}
        if writer is not None:
            problems.append(writer.health.problem)
            details |= {"history": vars(writer.health)}
            if writer.health.batches and not self._query_problem:
                self._backoff = _FIRST_BACKOFF_SECONDS
        if self._maintenance is not None:
            details["maintenance"] = self._maintenance.last_problem
        is_ready = self._is_warm and query is not None and not self._query_problem and is_listening(self._settings)
        return Status(PART, is_ready, tuple(filter(None, problems)), details)


def prepare_topics(bus: Bus) -> None:
    """Make the topics that the queries read; the bus may still be starting."""
    for attempt in Retrying(
        retry=retry_if_exception_type(BusUnavailable), stop=stop_after_delay(60), wait=wait_fixed(0.5), reraise=True
    ):
        with attempt:
            bus.create_topic(bus_topics.HISTORY_OUTCOMES)


def warm_up(session: SparkSession, catalog: Catalog) -> None:
    """Start the Python workers and load what the first request would otherwise wait seconds for."""
    session.range(1).mapInArrow(pass_on, "id bigint").toArrow()
    for definition in (OHLC, COVERAGE):
        load_table(catalog, definition)
    scan_range(load_table(catalog, OHLC), "", 0, 0, 1)


def make_writer(
    settings: Settings,
    bus: Bus,
    catalog: Catalog,
    session: SparkSession,
    table_lock: threading.Lock,
    stopping: threading.Event,
) -> HistoryWriter:
    merger = SparkMerger(session, catalog, settings.bus.url)
    keep_finals_seconds = settings.relay.keep_notifications_hours * 3_600
    is_distributed = not settings.spark.master.startswith("local")
    return HistoryWriter(bus, catalog, merger, table_lock, stopping, keep_finals_seconds, is_distributed=is_distributed)


def checkpoint_of(settings: Settings, query: str) -> str:
    """Where a query keeps its offsets: beside the data, or in the object store where the driver may move."""
    warehouse = settings.iceberg.warehouse
    if "://" in warehouse and not warehouse.startswith("file://"):
        return f"{warehouse.rstrip('/')}/_checkpoints/{query}".replace("s3://", "s3a://", 1)
    return f"file://{settings.data_dir / 'checkpoints' / query}"


def start_history_query(session: SparkSession, settings: Settings, writer: HistoryWriter) -> StreamingQuery:
    """The one streaming query over `history_outcomes`."""

    def write_batch(frame: DataFrame, batch_id: int) -> None:
        query_id = session.sparkContext.getLocalProperty("sql.streaming.queryId") or HISTORY_QUERY
        rows = (
            frame.select("partition", "offset", "value")
            .toArrow()
            .sort_by([("partition", "ascending"), ("offset", "ascending")])
        )
        partitions, offsets, values = (column.to_pylist() for column in rows.columns)
        writer.write(query_id, batch_id, [OutcomeRecord(*row) for row in zip(partitions, offsets, values, strict=True)])

    session.sparkContext.setLocalProperty("spark.scheduler.pool", STREAMS_POOL)
    outcomes = (
        session.readStream.format("bus")
        .option("url", settings.bus.url)
        .option("topic", bus_topics.HISTORY_OUTCOMES)
        .option("reader", bus_topics.READER_HISTORY_WRITER)
        .option("max_records", str(MAX_OUTCOMES))
        .load()
    )
    return (
        outcomes.writeStream.queryName(HISTORY_QUERY)
        .foreachBatch(write_batch)
        .option("checkpointLocation", checkpoint_of(settings, HISTORY_QUERY))
        .trigger(processingTime=f"{settings.spark.trigger_milliseconds} milliseconds")
        .start()
    )


def serve_status(driver: Driver, port_file: str | None) -> StatusServer:
    return StatusServer("127.0.0.1:0", driver.status, port_file=Path(port_file) if port_file else None)
