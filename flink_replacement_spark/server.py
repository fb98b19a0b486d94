"""The Spark driver of the platform: session, tables, queries, maintenance, and their status."""

import itertools
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from bus import Bus, Lives, Log
from bus import topics as bus_topics
from bus.connect import connect
from bus.lost import report
from bus.roles import DRIVER, Keeper
from candlewright.wire.errors import (
    BusError,
    BusUnavailable,
    CandlewrightError,
    ConfigurationError,
    RecordsLost,
    RoleLost,
)
from core.background import spare_startup, start_thread
from core.http import Status
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.driver.live_tickers import live_numbers
from flink_replacement_spark.driver.metrics import export
from flink_replacement_spark.driver.standby import Prepared
from flink_replacement_spark.driver.vitals import Reading, Vitals
from flink_replacement_spark.driver.warm import warm_streaming
from flink_replacement_spark.engine.bus_source import BusSource, pass_on, remembered_plan
from flink_replacement_spark.engine.checkpoints import SharedCheckpoint, forget_lost
from flink_replacement_spark.engine.fence import DriverLock
from flink_replacement_spark.engine.micro_batches import start_query
from flink_replacement_spark.engine.serving_query import ServingQuery
from flink_replacement_spark.engine.session import (
    QUERIES_SERVING,
    checkpoint_of,
    is_listening,
    leaves_a_core,
    start_session,
)
from flink_replacement_spark.engine.waiting import Awaited
from flink_replacement_spark.engine.watched import WatchedQuery
from flink_replacement_spark.history.importer import Importer
from flink_replacement_spark.history.merger import SparkMerger
from flink_replacement_spark.history.outcomes import OutcomeRecord
from flink_replacement_spark.history.prover import Prover
from flink_replacement_spark.history.writer import Health, HistoryWriter
from flink_replacement_spark.live.query import (
    LIVE_QUERY,
    prepare_live,
    serve_live,
    settle_live_mode,
    start_live_query,
)
from flink_replacement_spark.live.results import LiveHealth
from flink_replacement_spark.live.source import LiveSource
from flink_replacement_spark.live.tables import FOLLOWED_BARS, FOLLOWED_TICKS, BarTable, TickTable
from flink_replacement_spark.tables.appended import Appended, AppendedTable
from flink_replacement_spark.tables.deliveries import APPENDED_DELIVERIES
from flink_replacement_spark.tables.follower import Followed, Follower, Taken
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.maintenance import Maintenance
from flink_replacement_spark.tables.revisions import FOLLOWED_REVISIONS, RevisionTable, fill_once, must_fill
from flink_replacement_spark.tables.trigger_events import APPENDED_EVENTS
from flink_replacement_spark.triggers.functions import TriggerFunctions
from flink_replacement_spark.triggers.query import (
    TRIGGERS_QUERY,
    TriggerHealth,
    held_for_triggers,
    is_served,
    prepare_triggers,
    serve_triggers,
    settle_trigger_mode,
    start_trigger_query,
)
from flink_replacement_spark.triggers.source import TriggerSource
from iceberg import COVERAGE, OHLC, create_tables, is_shared, load_table, open_catalog, scan_range, settle_origin

log = get_logger()

PART = "flink_replacement_spark"
HISTORY_QUERY = "history-writer"
#: The entry in a snapshot's summary that names its driver's term.
EPOCH_NAME = "candlewright.driver-epoch"
#: The most outcomes in one micro-batch.
MAX_OUTCOMES = 1_000
_BUS_CHECK_SECONDS = 5.0
_LOOK_SECONDS = 2.0
#: How long (s) a successful check of Spark Connect stays valid.
_CONNECT_SECONDS = 5.0
#: How often (s) ended queries are restarted, and the loss of the role is noticed.
_WATCH_SECONDS = 0.5
#: A writer that waits longer (s) for its turn at a table is shown on the status page.
_LONG_WAIT_SECONDS = 5.0
_RESTART_SECONDS = 5.0
#: Topics in which a ticker has the same partition.
_BY_TICKER = (bus_topics.TICKS, bus_topics.TICK_MARKS, bus_topics.OHLC)
#: The topics that the queries read.
_READ = (bus_topics.HISTORY_OUTCOMES, *_BY_TICKER, bus_topics.TRIGGER_CONTROLS)


class DriverBroke(CandlewrightError):
    def __init__(self, error: BaseException) -> None:
        super().__init__(f"a thread of the driver has ended: {error!r}")


class ExecutorsLost(CandlewrightError):
    def __init__(self, seconds: float) -> None:
        super().__init__(f"the executors have been gone for {seconds:.0f} s: this application starts afresh")


class Driver:
    """Call `start`, then `run`, which returns after `stop`; `close` frees everything. Needs `bus.url`.

    `start` brings up Spark, and waits as a standby while another driver has the role. From then on, `bus.url` of the
    settings names the driver's term, and everything that threads, queries and tasks write carries its epoch
    (`Term.of`).

    Each writer of a table in this process takes its turn in `locks`.
    """

    def __init__(self, settings: Settings, seat: str = "") -> None:
        if not settings.bus.url:
            raise ConfigurationError("bus.url is needed: candlewright up sets it for the parts that it starts")
        self._settings = settings
        self._stopping = threading.Event()
        self.locks = TableLocks(self._sign)
        self._lock = DriverLock(settings.data_dir)
        self._keeper = Keeper.of(settings.bus.url, DRIVER, settings.roles.lease_seconds, seat=seat)
        self._keeper.on_lost = self._thread_failed
        self.queries: list[WatchedQuery] = []
        self._is_warm = False
        self._bus_problem = ""
        self._lost = ""
        self._vitals = Vitals()
        self._awaited = Awaited(settings, self._stopping)
        self._must_fill = False
        self._too_small = ""
        self._connect_at = 0.0
        self._lives = Lives()
        self._ends: dict[str, dict[int, int]] = {}
        self._had_plan = False
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._writer: HistoryWriter | None = None
        self._live = LiveHealth()
        self._triggers = TriggerHealth()
        self._functions = TriggerFunctions(settings.gateways.kapacitor.udf)
        self._events_published = threading.Event()
        self._tables: dict[str, Follower] = {}
        self._prover: Prover | None = None
        self._maintenance: Maintenance | None = None
        self._session: SparkSession | None = None
        self._bus: Bus | None = None
        self._prepared = Prepared(
            {
                **({LIVE_QUERY: self._prepare_live} if settings.spark.mode == "continuous" else {}),
                **({TRIGGERS_QUERY: self._prepare_triggers} if is_served(settings) else {}),
            }
        )

    @property
    def session(self) -> SparkSession:
        """The session of a started driver."""
        if self._session is None:
            raise ConfigurationError("the driver is not started")
        return self._session

    @property
    def batches(self) -> int:
        """Micro-batches carried out since the start."""
        return self._writer.health.batches if self._writer else 0

    # ---- start and stop
    def start(self, on_standby: Callable[[], object] = lambda: None) -> None:
        """Bring up Spark, wait for the role, then bring up the rest; the queries are running on return, unless `stop`
        was called before.
        """
        settings, started = self._settings, time.monotonic()
        if not self._lock.acquire() and is_listening(settings):
            raise ConfigurationError(
                f"another Spark driver uses {self._lock.path} and spark.connect_bind {settings.spark.connect_bind}: "
                "a standby on the same machine needs its own address"
            )
        session = self._session = start_session(settings, self._lock)
        for source in (BusSource, LiveSource, TriggerSource):
            session.dataSource.register(source)
        # A standby has already done this when it takes over.
        session.range(1).mapInArrow(pass_on, "id bigint").toArrow()
        if (catalog := self._awaited.run(self._open_tables)) is None:
            return
        if (term := self._keeper.wait(self._stopping, lambda: self._stand_by(session, on_standby))) is not None:
            took_at = time.monotonic()
            url = term.address(settings.bus.url)
            self._settings = settings.model_copy(update={"bus": settings.bus.model_copy(update={"url": url})})
            self._leave_a_core(session)
            self._serve(session, catalog)
            log.info(
                "driver_started",
                connect=settings.spark.connect_bind,
                epoch=term.epoch,
                start_seconds=round(time.monotonic() - started, 2),
                serve_seconds=round(time.monotonic() - took_at, 2),
            )
        elif self._failure is not None:
            raise DriverBroke(self._failure)

    def _leave_a_core(self, session: SparkSession) -> None:
        """Use micro-batches on a small cluster, where tasks that do not end would take all cores and history would wait
        forever.
        """
        spark = self._settings.spark
        if leaves_a_core(self._settings, lambda: int(session.sparkContext.defaultParallelism)):
            return
        self._too_small = (
            f"the cluster has fewer than {QUERIES_SERVING + 1} cores, so live data runs in micro-batches: start the "
            "driver again when it has more, or set spark.mode = batch"
        )
        log.warning("cluster_too_small", text=self._too_small)
        self._settings = self._settings.model_copy(update={"spark": spark.model_copy(update={"mode": "batch"})})
        self._prepared.stop()

    def _stand_by(self, session: SparkSession, on_standby: Callable[[], object]) -> None:
        """Wait for the role; preparations run alongside, so that they do not delay the take-over."""
        on_standby()
        start_thread(
            "warm-up", lambda: self._warm_up(session), restarts_after=_RESTART_SECONDS, stopping=self._stopping
        )

    def _warm_up(self, session: SparkSession) -> None:
        """Until the term begins, restart queries that have ended."""
        folder = self._settings.data_dir / "run"
        folder.mkdir(parents=True, exist_ok=True)
        has_run = False
        try:
            with closing(connect(self._settings.bus)) as bus:
                while not self._is_over():
                    self._is_warm = has_run and self._prepared.is_complete
                    # Made by the first driver of a bus.
                    if partitions := bus.partitions(bus_topics.TICKS):
                        self._prepared.prepare(partitions, self._is_over)
                        if not has_run:
                            warm_streaming(session, folder, self._is_over)
                            has_run = True
                            continue
                    self._stopping.wait(_LOOK_SECONDS)
        except (Py4JError, ConnectionError) as error:
            # Without a JVM it could not take over. A new connection to one that is gone is refused, before py4j has it.
            if not self._is_over():
                self._thread_failed(error)
                self._stopping.set()

    def _is_over(self) -> bool:
        """Whether the time as a standby is over."""
        return self._stopping.is_set() or self._keeper.term is not None

    def _open_tables(self) -> Catalog:
        settings = self._settings
        catalog = open_catalog(settings)
        create_tables(catalog)
        if settings.origin is not None and is_shared(settings):
            settle_origin(catalog, settings.origin)
        warm_up(catalog)
        self._must_fill = must_fill(catalog)
        return catalog

    def _serve(self, session: SparkSession, catalog: Catalog) -> None:
        settings = self._settings
        bus = self._bus = connect(settings.bus)
        prepare_topics(bus)
        if self._must_fill:
            self._awaited.run(lambda: self._fill(session, catalog))
        writer = self._writer = make_writer(
            settings, bus, catalog, session=session, locks=self.locks, stopping=self._stopping
        )
        merger = SparkMerger(session, catalog, settings.bus.url)
        self._look_for_lost_records()
        checkpoint = checkpoint_of(settings, LIVE_QUERY)
        trigger_checkpoint = checkpoint_of(settings, TRIGGERS_QUERY)
        for url, reader, topic in (
            (checkpoint_of(settings, HISTORY_QUERY), bus_topics.READER_HISTORY_WRITER, bus_topics.HISTORY_OUTCOMES),
            (checkpoint, bus_topics.READER_BAR_MAKER, ""),
            (trigger_checkpoint, bus_topics.READER_TRIGGERS, ""),
        ):
            shared = SharedCheckpoint(bus, url)
            if not forget_lost(session, bus, url, reader=reader, topic=topic):
                shared.restore()
                continue
            shared.forget()
            if topic:
                # The broker would count records written again as already read.
                held = bus.holds(topic, reader)
                bus.put(bus_topics.TABLE_HISTORY_WRITTEN, {str(p): b"%d" % end for p, end in held.items()})
        partitions = bus.partitions(bus_topics.TICKS)
        settle_live_mode(session, settings, checkpoint, partitions=partitions)
        settle_trigger_mode(session, settings, trigger_checkpoint, partitions=partitions)
        history = WatchedQuery(
            "history", lambda: start_history_query(session, settings, writer), lambda: writer.health.batches
        )
        live = WatchedQuery(
            "live", lambda: self._start_live(session, checkpoint, partitions), lambda: self._live.batches
        )
        triggers = WatchedQuery(
            "triggers",
            lambda: self._start_triggers(session, trigger_checkpoint, partitions),
            lambda: self._triggers.batches,
        )
        self.queries = [history, live, triggers]
        # Users wait for bars and events; history starts a Python process, which takes the processor from them.
        for query in (live, triggers, history):
            query.start()
        tables = settings.iceberg
        self._maintenance = Maintenance(
            session=session,
            catalog=catalog,
            locks=self.locks,
            minutes=tables.maintenance_minutes,
            ticks_retention_days=tables.ticks_retention_days,
        )
        maintenance = self._maintenance
        self._threads.append(
            start_thread(
                "maintenance",
                lambda: maintenance.run_until(self._stopping),
                restarts_after=_RESTART_SECONDS,
                stopping=self._stopping,
            )
        )
        self._start_thread("bus-check", self._check_bus)
        self._start_thread("vitals", self._look)
        self._append("triggers", APPENDED_EVENTS, catalog, self._events_published)
        self._append("deliveries", APPENDED_DELIVERIES, catalog)
        self._follow("bars", FOLLOWED_BARS, BarTable(catalog, merger, self.locks).store)
        self._follow("ticks", FOLLOWED_TICKS, TickTable(catalog, self.locks).store)
        self._follow("revisions", FOLLOWED_REVISIONS, RevisionTable(catalog, self.locks).store)
        prover = self._prover = Prover(bus, catalog, self._stopping)
        self._start_thread("prover", prover.run)
        importer = Importer(bus, catalog, self.locks, data_dir=self._settings.data_dir, stopping=self._stopping)
        self._start_thread("importer", importer.run)
        spare_startup()

    def _fill(self, session: SparkSession, catalog: Catalog) -> None:
        # Another driver may have taken over during the wait for the catalog.
        self._sign({})
        fill_once(session, catalog)

    def _start_live(self, session: SparkSession, checkpoint: str, partitions: int) -> StreamingQuery:
        if self._settings.spark.mode == "continuous":
            prepared = self._prepared.take(LIVE_QUERY, partitions)
            return serve_live(prepared, self._settings, self._live, stopping=self._stopping)
        return start_live_query(session, self._settings, self._live, checkpoint=checkpoint)

    def _prepare_live(self, partitions: int) -> ServingQuery:
        return prepare_live(self.session, self._settings, partitions)

    def _prepare_triggers(self, partitions: int) -> ServingQuery:
        return prepare_triggers(self.session, self._settings, partitions)

    def _start_triggers(self, session: SparkSession, checkpoint: str, partitions: int) -> StreamingQuery:
        settings = self._settings
        if is_served(settings):
            prepared = self._prepared.take(TRIGGERS_QUERY, partitions)
            return serve_triggers(prepared, settings, self._triggers, stopping=self._stopping)
        return start_trigger_query(
            session,
            settings,
            self._triggers,
            checkpoint=checkpoint,
            partitions=partitions,
            published=self._events_published,
            functions=self._functions,
        )

    def _sign(self, summary: Mapping[str, str]) -> dict[str, str]:
        """The summary of an imminent commit, with the epoch; see `TableLocks`."""
        term = self._keeper.term
        if term is None:
            return dict(summary)
        self._keeper.roles.check(term)
        return {**summary, EPOCH_NAME: str(term.epoch)}

    def run(self) -> None:
        """Watch the queries and restart them when they end; returns after `stop`.

        Raises Py4JError if the JVM is gone, BusError if the bus has lost records, ExecutorsLost, and DriverBroke if one
        of its threads has ended; these need a new process.
        """
        while not self._stopping.wait(_WATCH_SECONDS):
            if self._lost:
                raise BusError(self._lost)
            if isinstance(self._failure, RoleLost):
                raise self._failure
            if self._failure is not None:
                raise DriverBroke(self._failure)
            if self._vitals.must_begin_anew(now := time.monotonic()):
                raise ExecutorsLost(self._vitals.lost_executors_seconds(now))
            for query in self.queries:
                # Without the bus no query can start, and trying takes processor time from a driver that has taken over.
                query.check(may_start=not self._keeper.is_cut_off)

    def stop(self) -> None:
        """Stop the driver; may be called in a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        try:
            for query in self.queries:
                query.stop()
            self._prepared.stop()
            for thread in self._threads:
                thread.join(5)
            self._functions.close()
            if self._session is not None:
                self._session.stop()
        except (Py4JError, PySparkException, OSError) as error:
            log.warning("driver_close_failed", error=str(error))
        if self._bus is not None:
            self._bus.close()
        self._keeper.close()
        self._lock.close()

    def _follow(
        self,
        name: str,
        followed: Followed,
        store: Callable[[Taken], None],
        published: threading.Event | None = None,
    ) -> None:
        assert self._bus is not None
        follower = self._tables[name] = Follower(
            self._bus, followed, store, stopping=self._stopping, published=published
        )
        self._start_thread(followed.reader, follower.run)

    def _append(
        self, name: str, appended: Appended, catalog: Catalog, published: threading.Event | None = None
    ) -> None:
        self._follow(name, appended.followed, AppendedTable(catalog, self.locks, appended).store, published)

    def _start_thread(self, name: str, body: Callable[[], None]) -> None:
        self._threads.append(start_thread(name, body, on_failure=self._thread_failed))

    def _thread_failed(self, error: BaseException) -> None:
        self._failure = error

    def _look_for_lost_records(self) -> None:
        """Raises BusError if the bus has lost any record since the last check."""
        assert self._bus is not None
        for topic in _READ:
            states = self._bus.state(topic)
            self._lives.check_all(topic, self._ends.get(topic, {}), states)
            self._ends[topic] = {partition: state.end for partition, state in enumerate(states)}
        has_plan = remembered_plan(self._bus, bus_topics.READER_HISTORY_WRITER) is not None
        if self._had_plan and not has_plan:
            raise BusError("it has forgotten the batches that it had received")
        self._had_plan = has_plan

    def _check_bus(self) -> None:
        assert self._bus is not None
        while not self._stopping.wait(_BUS_CHECK_SECONDS):
            try:
                self._look_for_lost_records()
                self._bus_problem = ""
            except BusUnavailable as error:
                self._bus_problem = f"the bus does not answer: {error}"
            except RecordsLost as error:
                report(self._bus, error)
                self._lost = str(error)
            except RoleLost as error:
                self._failure = error
            except BusError as error:
                # An emptied store does not even have the topic.
                self._lost = f"the bus has lost records: {error}"

    def _look(self) -> None:
        """Observe the queries, the executors, and external services."""
        looks = itertools.count()
        while not self._stopping.wait(_LOOK_SECONDS):
            try:
                self._observe(next(looks), time.monotonic())
            except BusUnavailable:
                # `_check_bus` reports this.
                pass
            except RoleLost as error:
                self._failure = error
            except (Py4JError, PySparkException):
                # The JVM ends while this process does.
                if self._stopping.is_set():
                    return
                raise
            if self._troubles():
                self._awaited.look()
            else:
                self._awaited.clear()

    def _observe(self, look: int, at: float) -> None:
        assert self._bus is not None and self._writer is not None
        if not self._settings.spark.master.startswith("local"):
            scheduler = self.session.sparkContext._jsc.sc()
            # The driver counts as one.
            self._vitals.observe_executors(scheduler.getExecutorMemoryStatus().size() - 1, at)
        looked_at = (bus_topics.HISTORY_OUTCOMES, bus_topics.TICKS, bus_topics.OHLC)
        ends = {topic: [state.end for state in states] for topic, states in self._bus.states(looked_at).items()}
        self._vitals.observe_bars(ends[bus_topics.TICKS], ends[bus_topics.OHLC], at)
        self._vitals.observe_tickers(*live_numbers(self._bus, look), at)
        healths: tuple[Health | LiveHealth | TriggerHealth, ...] = (self._writer.health, self._live, self._triggers)
        topics = (bus_topics.HISTORY_OUTCOMES, bus_topics.TICKS, bus_topics.TICKS)
        holds = (
            self._bus.holds(bus_topics.HISTORY_OUTCOMES, bus_topics.READER_HISTORY_WRITER),
            self._bus.holds(bus_topics.TICKS, bus_topics.READER_BAR_MAKER),
            held_for_triggers(self._settings, self._bus, len(ends[bus_topics.TICKS])),
        )
        for query, health, topic, held in zip(self.queries, healths, topics, holds, strict=True):
            # Without a trigger, no batch runs, and only holds move.
            marker = (health.batches, tuple(sorted(held.items())))
            stepped_at = at - max(0.0, time.time() - health.last_batch_at)
            self._vitals.observe_query(query.name, Reading(marker, stepped_at, ends[topic], held, query.is_idle), at)
        export(self._vitals, at)

    def _troubles(self) -> tuple[str, ...]:
        now = time.monotonic()
        found = [query.problem for query in self.queries]
        if self._writer is not None:
            found.append(self._writer.health.problem)
        found += [follower.problem for follower in list(self._tables.values())]
        if self._prover is not None:
            found.append(self._prover.problem)
        return tuple(filter(None, [*found, *self._vitals.problems(now)]))

    def _takes_clients(self, now: float) -> bool:
        """Whether Spark Connect accepts clients. A check opens a connection, which wakes threads of Spark Connect, so a
        success stays valid for a while.
        """
        if now >= self._connect_at and is_listening(self._settings):
            self._connect_at = now + _CONNECT_SECONDS
        return now < self._connect_at

    # ---- status
    def status(self) -> Status:
        now = time.monotonic()
        problems = [*self._troubles(), self._bus_problem]
        warnings = [self._too_small, *self._vitals.warnings(now)]
        details: dict[str, Any] = {"connect": self._settings.spark.connect_bind, "role": self._keeper.status()}
        if self._keeper.is_standby:
            details["role"] = {**details["role"], "warm": self._is_warm}
            return Status(part=PART, is_ready=False, problems=(), details=details, is_standby=True)
        if self._writer is not None:
            details["history"] = vars(self._writer.health)
        details["live"] = vars(self._live)
        details["triggers"] = dict(vars(self._triggers))
        followers = dict(self._tables)
        warnings += [follower.warning for follower in followers.values()]
        details["tables"] = {name: follower.status() for name, follower in followers.items()}
        details |= self._vitals.to_json(now)
        warnings += [turn.describe() for turn in self.locks.waiting(_LONG_WAIT_SECONDS)]
        if self._maintenance is not None:
            details["maintenance"] = {
                "problem": self._maintenance.last_problem,
                "worst_hold_seconds": {
                    table: round(seconds, 3) for table, seconds in self.locks.worst_hold_seconds.items()
                },
            }
            warnings.append(self._maintenance.last_problem)
        held_up = self.locks.held_by_maintenance(_LONG_WAIT_SECONDS)
        warnings += [f"maintenance holds table {table}" for table in sorted({turn.table for turn in held_up})]
        is_running = bool(self.queries) and all(query.is_running for query in self.queries)
        is_well = self._vitals.is_well(now) and not held_up and not self._awaited.names
        is_ready = is_running and is_well and self._takes_clients(now)
        problems.append(self._awaited.problem)
        return Status(
            part=PART,
            is_ready=is_ready,
            problems=tuple(filter(None, problems)),
            details=details,
            warnings=tuple(filter(None, warnings)),
            waits_for=self._awaited.names,
        )


def prepare_topics(bus: Log) -> None:
    """Create the topics that the queries read; the bus may still be starting."""
    for attempt in Retrying(
        retry=retry_if_exception_type(BusUnavailable), stop=stop_after_delay(60), wait=wait_fixed(0.5), reraise=True
    ):
        with attempt:
            for topic in (bus_topics.HISTORY_OUTCOMES, *_BY_TICKER, bus_topics.TRIGGER_EVENTS):
                bus.create_topic(topic)
            for topic in (bus_topics.TRIGGER_CONTROLS, bus_topics.TRIGGER_PROGRESS, bus_topics.DELIVERIES):
                bus.create_topic(topic, 1)
            bus.create_topic(bus_topics.TICK_ROWS, bus.partitions(bus_topics.TICKS))
    counts = {topic: bus.partitions(topic) for topic in (*_BY_TICKER, bus_topics.TRIGGER_EVENTS)}
    if len(set(counts.values())) > 1:
        raise ConfigurationError(f"topics that are read side by side differ in their partitions: {counts}")


def warm_up(catalog: Catalog) -> None:
    """Load what would otherwise delay the first request by seconds."""
    for definition in (OHLC, COVERAGE):
        load_table(catalog, definition)
    scan_range(load_table(catalog, OHLC), "", 0, start_ns=0, end_ns=1)


def make_writer(
    settings: Settings,
    bus: Bus,
    catalog: Catalog,
    *,
    session: SparkSession,
    locks: TableLocks,
    stopping: threading.Event,
) -> HistoryWriter:
    merger = SparkMerger(session, catalog, settings.bus.url)
    keep_finals_seconds = settings.relay.keep_notifications_hours * 3_600
    is_distributed = not settings.spark.master.startswith("local")
    return HistoryWriter(
        bus,
        catalog,
        merger,
        locks=locks,
        stopping=stopping,
        keep_finals_seconds=keep_finals_seconds,
        is_distributed=is_distributed,
    )


def start_history_query(session: SparkSession, settings: Settings, writer: HistoryWriter) -> StreamingQuery:
    """The one streaming query over `history_outcomes`."""

    def write(frame: DataFrame, query_id: str, batch_id: int) -> None:
        rows = (
            frame.select("partition", "offset", "value")
            .toArrow()
            .sort_by([("partition", "ascending"), ("offset", "ascending")])
        )
        partitions, offsets, values = (column.to_pylist() for column in rows.columns)
        writer.write(query_id, batch_id, [OutcomeRecord(*row) for row in zip(partitions, offsets, values, strict=True)])

    outcomes = (
        session.readStream.format("bus")
        .option("url", settings.bus.url)
        .option("topic", bus_topics.HISTORY_OUTCOMES)
        .option("reader", bus_topics.READER_HISTORY_WRITER)
        .option("max_records", str(MAX_OUTCOMES))
        .load()
    )
    checkpoint = checkpoint_of(settings, HISTORY_QUERY)
    return start_query(session, settings, outcomes, name=HISTORY_QUERY, checkpoint=checkpoint, write=write)
