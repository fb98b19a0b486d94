"""The Spark driver of the platform: session, tables, queries, maintenance, and their status."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bus import Bus
from bus.connect import connect
from bus.roles import DRIVER, Keeper
from candlewright.wire.errors import (
    BusError,
    BusUnavailable,
    CandlewrightError,
    ConfigurationError,
    RoleLost,
)
from core.background import only_noted, spare_startup, start_thread
from core.http import Status
from core.log import get_logger
from core.settings import Settings
from flink_replacement_spark.driver.executors import cores_of
from flink_replacement_spark.driver.losses import LossWatch
from flink_replacement_spark.driver.observer import Observer
from flink_replacement_spark.driver.queries import Queries
from flink_replacement_spark.driver.standby import WarmUp
from flink_replacement_spark.driver.topics import prepare_topics
from flink_replacement_spark.driver.vitals import SLOW_SECONDS, STUCK_SECONDS, Vitals
from flink_replacement_spark.engine.bus_source import BusSource
from flink_replacement_spark.engine.waiting import Awaited
from flink_replacement_spark.engine.watched import WatchedQuery
from flink_replacement_spark.history.importer import Importer
from flink_replacement_spark.history.merger import SparkMerger
from flink_replacement_spark.history.prover import Prover
from flink_replacement_spark.live.source import LiveSource
from flink_replacement_spark.live.tables import FOLLOWED_BARS, FOLLOWED_TICKS, BarTable, TickTable
from flink_replacement_spark.spark.conf import is_listening, leaves_a_core
from flink_replacement_spark.spark.session import Starting, add_vector_functions
from flink_replacement_spark.tables.deliveries import APPENDED_DELIVERIES
from flink_replacement_spark.tables.followers import Followers
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.maintenance import Maintenance
from flink_replacement_spark.tables.revisions import FOLLOWED_REVISIONS, RevisionTable, fill_once, must_fill
from flink_replacement_spark.tables.trigger_events import APPENDED_EVENTS
from flink_replacement_spark.triggers.functions import FOLLOWED_ROWS, TriggerFunctions
from flink_replacement_spark.triggers.source import TriggerSource
from iceberg import COVERAGE, OHLC, create_tables, is_shared, load_table, open_catalog, scan_range, settle_origin

log = get_logger()

PART = "flink_replacement_spark"
#: The entry in a snapshot's summary that names its driver's term.
EPOCH_NAME = "candlewright.driver-epoch"
_LOOK_SECONDS = 2.0
#: How long (s) a successful check of Spark Connect stays valid.
_CONNECT_SECONDS = 5.0
#: How often (s) ended queries are restarted, and the loss of the role is noticed.
_WATCH_SECONDS = 1.0
#: The same while a query waits to be started.
_FIRST_WATCH_SECONDS = 0.1
#: A writer that waits longer (s) for its turn at a table is shown on the status page.
_LONG_WAIT_SECONDS = 5.0
_RESTART_SECONDS = 5.0
#: How long after its start (s) Spark gets functions that few use and that take processor time.
_FUNCTIONS_SECONDS = 15.0


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

    Each writer of a table in this process takes its turn in `locks`. `spark`: the Spark that has begun to start.
    """

    def __init__(self, settings: Settings, seat: str = "", spark: Starting | None = None) -> None:
        if not settings.bus.url:
            raise ConfigurationError("bus.url is needed: candlewright up sets it for the parts that it starts")
        self._settings = settings
        self._stopping = threading.Event()
        self.locks = TableLocks(self._sign)
        self._spark = spark
        self._keeper = Keeper.of(settings.bus.url, DRIVER, settings.roles.lease_seconds, seat=seat)
        self._keeper.on_lost = self._thread_failed
        # What is asked below needs only the JVM, and the bus, whose calls end.
        self._keeper.moved_at, self._keeper.hang_seconds = lambda: self._asked_at, STUCK_SECONDS
        self._vitals = Vitals()
        self._awaited = Awaited(settings, self._stopping)
        self._must_fill = False
        self._too_small = ""
        self._connect_at = 0.0
        #: Since when Spark has been asked how it is; None once it has answered.
        self._asked_at: float | None = None
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None
        self._session: SparkSession | None = None
        self._warm_up: WarmUp | None = None
        self._bus: Bus | None = None
        self._losses: LossWatch | None = None
        self._queries: Queries | None = None
        self._tables: Followers | None = None
        self._functions: TriggerFunctions | None = None
        self._prover: Prover | None = None
        self._maintenance: Maintenance | None = None

    @property
    def session(self) -> SparkSession:
        """The session of a started driver."""
        if self._session is None:
            raise ConfigurationError("the driver is not started")
        return self._session

    @property
    def queries(self) -> Sequence[WatchedQuery]:
        """Empty before it serves."""
        return self._queries.watched if self._queries else ()

    @property
    def batches(self) -> int:
        """Micro-batches of history carried out since the start."""
        return self._queries.history.batches if self._queries and self._queries.history else 0

    # ---- start and stop
    def start(self, on_standby: Callable[[], object] = lambda: None) -> None:
        """Bring up Spark, wait for the role, then bring up the rest; the queries are running on return, unless `stop`
        was called before.
        """
        settings, started = self._settings, time.monotonic()
        spark = self._spark = self._spark or Starting.of(settings)
        # Spark starts on other threads.
        if (catalog := self._awaited.run(self._open_tables)) is None:
            return
        session = self._session = spark.session()
        queries = self._queries = Queries(session, settings, self._stopping)
        for source in (BusSource, LiveSource, TriggerSource):
            session.dataSource.register(source)
        start_thread("vector-functions", partial(self._add_functions, session), on_failure=only_noted)
        if (
            term := self._keeper.wait(self._stopping, lambda: self._stand_by(session, queries, on_standby))
        ) is not None:
            took_at = time.monotonic()
            url = term.address(settings.bus.url)
            self._settings = settings.model_copy(update={"bus": settings.bus.model_copy(update={"url": url})})
            self._leave_a_core(session, queries)
            self._serve(session, catalog, queries)
            log.info(
                "driver_started",
                connect=settings.spark.connect_bind,
                epoch=term.epoch,
                start_seconds=round(time.monotonic() - started, 2),
                serve_seconds=round(time.monotonic() - took_at, 2),
            )
        elif self._failure is not None:
            raise DriverBroke(self._failure)

    def _add_functions(self, session: SparkSession) -> None:
        if not self._stopping.wait(_FUNCTIONS_SECONDS):
            add_vector_functions(session)

    def _leave_a_core(self, session: SparkSession, queries: Queries) -> None:
        """Use micro-batches on a small cluster, where tasks that do not end would take all cores and history would wait
        forever.
        """
        spark = self._settings.spark
        if leaves_a_core(self._settings, partial(cores_of, session), self._stopping.wait):
            return
        self._too_small = (
            "the cluster has a single core, so live data runs in micro-batches: start the driver again when it has "
            "more, or set spark.mode = batch"
        )
        log.warning("cluster_too_small", text=self._too_small)
        self._settings = self._settings.model_copy(update={"spark": spark.model_copy(update={"mode": "batch"})})
        queries.prepared.stop()

    def _stand_by(self, session: SparkSession, queries: Queries, on_standby: Callable[[], object]) -> None:
        """Wait for the role; preparations run alongside, so that they do not delay the take-over."""
        on_standby()
        # Spark's planning workers load what they need meanwhile.
        start_thread("first-source", partial(_load_source, session), on_failure=only_noted)
        warm_up = self._warm_up = WarmUp(session, self._settings, queries.prepared)

        def run() -> None:
            try:
                warm_up.run(self._stopping, self._is_over)
            except (Py4JError, ConnectionError) as error:
                # Without a JVM it could not take over. A new connection to a JVM that is gone is refused
                # (ConnectionError) before py4j gets it.
                if not self._is_over():
                    self._thread_failed(error)
                    self._stopping.set()

        start_thread("warm-up", run, restarts_after=_RESTART_SECONDS, stopping=self._stopping)

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

    def _serve(self, session: SparkSession, catalog: Catalog, queries: Queries) -> None:
        settings, stopping = self._settings, self._stopping
        bus = self._bus = connect(settings.bus)
        prepare_topics(bus)
        if self._must_fill:
            self._awaited.run(lambda: self._fill(session, catalog))
        losses = self._losses = LossWatch(bus)
        losses.check()
        queries.start(settings, bus, catalog, locks=self.locks)
        maintenance = self._maintenance = Maintenance(
            session=session,
            catalog=catalog,
            locks=self.locks,
            minutes=settings.iceberg.maintenance_minutes,
            ticks_retention_days=settings.iceberg.ticks_retention_days,
        )
        self._threads.append(
            start_thread(
                "maintenance",
                lambda: maintenance.run_until(stopping),
                restarts_after=_RESTART_SECONDS,
                stopping=stopping,
            )
        )
        self._start_thread("bus-check", lambda: losses.run(stopping, self._thread_failed))
        observer = Observer(self._vitals, session, settings, bus=bus, queries=queries)
        self._start_thread("vitals", lambda: self._look(observer))
        merger = SparkMerger(session, catalog, settings.bus.url)
        tables = self._tables = Followers(bus, stopping, self._start_thread)
        tables.append("triggers", APPENDED_EVENTS, catalog, locks=self.locks)
        tables.append("deliveries", APPENDED_DELIVERIES, catalog, locks=self.locks)
        tables.follow("bars", FOLLOWED_BARS, BarTable(catalog, merger, self.locks).store)
        tables.follow("ticks", FOLLOWED_TICKS, TickTable(catalog, self.locks).store)
        tables.follow("revisions", FOLLOWED_REVISIONS, RevisionTable(catalog, self.locks).store)
        functions = self._functions = TriggerFunctions(
            bus,
            settings.gateways.kapacitor.udf,
            most_waiting=settings.triggers.max_waiting_rows,
            on_outcome=queries.triggers.count_functions,
        )
        tables.follow("functions", FOLLOWED_ROWS, functions.store)
        prover = self._prover = Prover(bus, catalog, stopping)
        self._start_thread("prover", prover.run)
        importer = Importer(bus, catalog, self.locks, data_dir=settings.data_dir, stopping=stopping)
        self._start_thread("importer", importer.run)
        spare_startup()

    def _fill(self, session: SparkSession, catalog: Catalog) -> None:
        # Another driver may have taken over during the wait for the catalog.
        self._sign({})
        fill_once(session, catalog)

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
        while not self._stopping.wait(
            _FIRST_WATCH_SECONDS if self._queries and self._queries.are_waiting else _WATCH_SECONDS
        ):
            if self._losses is not None and self._losses.lost:
                raise BusError(self._losses.lost)
            if isinstance(self._failure, RoleLost):
                raise self._failure
            if self._failure is not None:
                raise DriverBroke(self._failure)
            if self._vitals.must_begin_anew(now := time.monotonic()):
                raise ExecutorsLost(self._vitals.lost_executors_seconds(now))
            if self._queries is not None:
                # Without the bus no query can start, and trying takes processor time from a driver that has taken over.
                self._queries.check(may_start=not self._keeper.is_cut_off)

    def stop(self) -> None:
        """Stop the driver; may be called in a signal handler."""
        self._stopping.set()

    def close(self) -> None:
        self._stopping.set()
        try:
            if self._queries is not None:
                self._queries.stop()
            for thread in self._threads:
                thread.join(5)
            if self._functions is not None:
                self._functions.close()
            if self._session is not None:
                self._session.stop()
        except (Py4JError, PySparkException, OSError) as error:
            log.warning("driver_close_failed", error=str(error))
        if self._bus is not None:
            self._bus.close()
        self._keeper.close()
        if self._spark is not None:
            self._spark.lock.close()

    def _start_thread(self, name: str, body: Callable[[], None]) -> None:
        self._threads.append(start_thread(name, body, on_failure=self._thread_failed))

    def _thread_failed(self, error: BaseException) -> None:
        self._failure = error

    def _look(self, observer: Observer) -> None:
        """Observe the queries, the executors, and external services."""
        while not self._stopping.wait(_LOOK_SECONDS):
            self._asked_at = time.monotonic()
            try:
                observer.observe(self._asked_at)
            except BusUnavailable:
                # The check for lost records reports this.
                pass
            except RoleLost as error:
                self._failure = error
            except (Py4JError, PySparkException):
                # The JVM ends while this process does.
                if self._stopping.is_set():
                    return
                raise
            finally:
                self._asked_at = None
            if self._troubles():
                self._awaited.look()
            else:
                self._awaited.clear()

    def _troubles(self) -> tuple[str, ...]:
        found = list(self._vitals.problems(time.monotonic()))
        for watched in (self._queries, self._tables):
            if watched is not None:
                found += watched.problems
        if self._prover is not None:
            found.append(self._prover.problem)
        return tuple(filter(None, found))

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
        problems = [*self._troubles(), self._losses.problem if self._losses else ""]
        warnings = [self._too_small, *self._vitals.warnings(now)]
        if (asked_at := self._asked_at) is not None and now - asked_at >= SLOW_SECONDS:
            warnings.append(f"Spark has not answered for {now - asked_at:.0f} s")
        details: dict[str, Any] = {"connect": self._settings.spark.connect_bind, "role": self._keeper.status()}
        if self._keeper.is_standby:
            details["role"] = {**details["role"], "warm": self._warm_up is not None and self._warm_up.is_done}
            return Status(part=PART, is_ready=False, problems=(), details=details, is_standby=True)
        if self._queries is not None:
            details |= self._queries.status()
        details["tables"] = {}
        if self._tables is not None:
            warnings += self._tables.warnings
            details["tables"] = self._tables.status()
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
        is_running = self._queries is not None and self._queries.are_running and self._queries.are_serving
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


def _load_source(session: SparkSession) -> None:
    session.read.format(BusSource.name()).options(url="", ranges="[]").load()


def warm_up(catalog: Catalog) -> None:
    """Load what would otherwise delay the first request by seconds."""
    for definition in (OHLC, COVERAGE):
        load_table(catalog, definition)
    scan_range(load_table(catalog, OHLC), "", 0, start_ns=0, end_ns=1)
