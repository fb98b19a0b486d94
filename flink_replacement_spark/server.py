"""The Spark driver of the platform: session, tables, queries, maintenance, and what the status page says of them."""

import operator
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
from core.errors import BusError, BusUnavailable, ConfigurationError
from core.http import Status, StatusServer
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.bus_source import BusSource, pass_on, remembered_plan
from flink_replacement_spark.checkpoints import forget_lost
from flink_replacement_spark.fence import DriverLock
from flink_replacement_spark.history_writer import HistoryWriter
from flink_replacement_spark.live_query import LIVE_QUERY, start_live_query
from flink_replacement_spark.live_source import LiveSource
from flink_replacement_spark.live_writer import LiveWriter
from flink_replacement_spark.maintenance import Maintenance
from flink_replacement_spark.merger import SparkMerger
from flink_replacement_spark.session import STREAMS_POOL, checkpoint_of, is_listening, start_session
from flink_replacement_spark.state import OutcomeRecord
from flink_replacement_spark.trigger_functions import TriggerFunctions
from flink_replacement_spark.trigger_query import TRIGGERS_QUERY, TriggerHealth, start_trigger_query
from flink_replacement_spark.trigger_source import TriggerSource
from flink_replacement_spark.trigger_table import EventTable
from flink_replacement_spark.watched import WatchedQuery
from iceberg import COVERAGE, OHLC, create_tables, load_table, open_catalog, scan_range

log = get_logger()

PART = "flink_replacement_spark"
HISTORY_QUERY = "history-writer"
#: Outcomes in one micro-batch at most.
MAX_OUTCOMES = 1_000
_BUS_CHECK_SECONDS = 5.0
#: A ticker has the same partition in each of them.
_BY_TICKER = (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC)


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
        self.queries: list[WatchedQuery] = []
        self._is_warm = False
        self._bus_problem = ""
        self._lost = ""
        self._threads: list[threading.Thread] = []
        self._writer: HistoryWriter | None = None
        self._live: LiveWriter | None = None
        self._triggers = TriggerHealth()
        self._functions = TriggerFunctions(settings.gateways.kapacitor.udf)
        self._events_published = threading.Event()
        self._event_table: EventTable | None = None
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
        """Wait for an older driver's end, then bring everything up; the queries are running on return."""
        settings = self._settings
        waited = self._lock.acquire()
        started = time.monotonic()
        bus = self._bus = connect(settings.bus)
        prepare_topics(bus)
        catalog = open_catalog(settings)
        create_tables(catalog)
        session = self._session = start_session(settings, self._lock)
        session.dataSource.register(BusSource)
        session.dataSource.register(LiveSource)
        session.dataSource.register(TriggerSource)
        writer = self._writer = make_writer(settings, bus, catalog, session, self.table_lock, self._stopping)
        merger = SparkMerger(session, catalog, settings.bus.url)
        live = self._live = LiveWriter(catalog, merger, self.table_lock, self._stopping)
        checkpoint = checkpoint_of(settings, LIVE_QUERY)
        trigger_checkpoint = checkpoint_of(settings, TRIGGERS_QUERY)
        for url, reader, topic in (
            (checkpoint_of(settings, HISTORY_QUERY), bus_topics.READER_HISTORY_WRITER, bus_topics.HISTORY_OUTCOMES),
            (checkpoint, bus_topics.READER_BAR_MAKER, ""),
            (trigger_checkpoint, bus_topics.READER_TRIGGERS, ""),
        ):
            forget_lost(session, bus, url, reader, topic)
        partitions = bus.partitions(bus_topics.TICKS)
        triggers = WatchedQuery(
            "triggers",
            lambda: start_trigger_query(
                session,
                settings,
                self._triggers,
                trigger_checkpoint,
                partitions,
                self._events_published,
                self._functions,
            ),
            lambda: self._triggers.batches,
        )
        self.queries = [
            WatchedQuery(
                "history", lambda: start_history_query(session, settings, writer), lambda: writer.health.batches
            ),
            WatchedQuery(
                "live", lambda: start_live_query(session, settings, live, checkpoint), lambda: live.health.batches
            ),
            triggers,
        ]
        for query in self.queries[:2]:
            query.start()
        warm_up(session, catalog)
        # Each query starts a Python process, which must answer within a time that a busy machine needs for few.
        triggers.start()
        self._is_warm = True
        tables = settings.iceberg
        self._maintenance = Maintenance(
            session,
            catalog,
            self.table_lock,
            tables.maintenance_minutes,
            ticks_retention_days=tables.ticks_retention_days,
        )
        self._start_thread("maintenance", lambda: self._maintain())
        self._start_thread("bus-check", self._check_bus)
        events = self._event_table = EventTable(bus, catalog, self.table_lock, self._stopping, self._events_published)
        self._start_thread("event-table", events.run)
        log.info(
            "driver_started",
            connect=settings.spark.connect_bind,
            waited_seconds=round(waited, 2),
            start_seconds=round(time.monotonic() - started, 2),
        )

    def run(self) -> None:
        """Watch the queries and start them again when they end; returns after `stop`.

        Raises Py4JError when the JVM is gone, and BusError when the bus has lost records: only a new process can help
        then.
        """
        while not self._stopping.wait(0.25):
            if self._lost:
                raise BusError(self._lost)
            for query in self.queries:
                query.check()

    def stop(self) -> None:
        """Safe in a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        try:
            for query in self.queries:
                query.stop()
            for thread in self._threads:
                thread.join(5)
            self._functions.close()
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
        seen: list[int] = []
        had_plan = False
        while not self._stopping.wait(_BUS_CHECK_SECONDS):
            try:
                ends = [state.end for state in self._bus.state(bus_topics.HISTORY_OUTCOMES)]
                has_plan = remembered_plan(self._bus, bus_topics.READER_HISTORY_WRITER) is not None
                if (had_plan and not has_plan) or any(map(operator.lt, ends, seen)):
                    self._lost = f"the bus has lost records: it ends at {ends} and was at {seen}"
                seen, had_plan = ends, has_plan
                self._bus_problem = ""
            except BusUnavailable as error:
                self._bus_problem = f"the bus does not answer: {error}"
            except BusError as error:
                # A store that was emptied does not even have the topic.
                self._lost = f"the bus has lost records: {error}"

    # ---- status
    def status(self) -> Status:
        problems = [query.problem for query in self.queries] + [self._bus_problem]
        details: dict[str, Any] = {"connect": self._settings.spark.connect_bind}
        for name, writer in (("history", self._writer), ("live", self._live)):
            if writer is not None:
                problems.append(writer.health.problem)
                details[name] = vars(writer.health)
        details["triggers"] = dict(vars(self._triggers))
        if self._event_table is not None:
            problems.append(self._event_table.problem)
            details["triggers"] |= {"stored": self._event_table.stored}
        if self._maintenance is not None:
            details["maintenance"] = self._maintenance.last_problem
        is_running = bool(self.queries) and all(query.is_running for query in self.queries)
        is_ready = self._is_warm and is_running and is_listening(self._settings)
        return Status(PART, is_ready, tuple(filter(None, problems)), details)


def prepare_topics(bus: Bus) -> None:
    """Make the topics that the queries read; the bus may still be starting."""
    for attempt in Retrying(
        retry=retry_if_exception_type(BusUnavailable), stop=stop_after_delay(60), wait=wait_fixed(0.5), reraise=True
    ):
        with attempt:
            for topic in (bus_topics.HISTORY_OUTCOMES, *_BY_TICKER, bus_topics.TRIGGER_EVENTS):
                bus.create_topic(topic)
            for topic in (bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_PROGRESS):
                bus.create_topic(topic, 1)
    counts = {topic: bus.partitions(topic) for topic in _BY_TICKER}
    if len(set(counts.values())) > 1:
        raise ConfigurationError(f"topics that are read side by side differ in their partitions: {counts}")


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


def serve_status(driver: Driver, bind: str, port_file: str | None) -> StatusServer:
    return StatusServer(bind, driver.status, port_file=Path(port_file) if port_file else None)
