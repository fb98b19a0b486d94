"""The ingestor's loop: turns frames and ends of jobs into events, and carries out the state's commands."""

import asyncio
import contextlib
import math
import time
from collections.abc import Mapping, Sequence

import zmq
import zmq.asyncio

from bus import Bus
from bus.topics import KEEP_PREFIX, SERVING_KEY, TABLE_BROKER
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BadFrame, BusUnavailable, CandlewrightError, ConfigurationError, LeaseLost
from candlewright.wire.keys import ClientKey
from core.background import awaited_task, start_task
from core.failures import Failure, FailureCode
from core.http import Status
from core.log import get_logger
from core.settings import Settings
from ingestor import metrics
from ingestor.commands import Command, Connect, Count, Disconnect, Exit, Send, StartJob, StopJob
from ingestor.connection import Connection
from ingestor.door import dispatch_of, message_of
from ingestor.events import (
    CancelAsked,
    ConfigChanged,
    ConnectionLost,
    Event,
    Heard,
    HeartbeatCame,
    Job,
    JobAdvanced,
    JobExpects,
    JobFailed,
    JobFenced,
    JobStopped,
    JobSucceeded,
    ShutdownAsked,
    Started,
    StopAsked,
    Ticked,
    VenueBlocked,
    VenueReady,
)
from ingestor.exchange import stock as exchange
from ingestor.exchange.budget import Budget
from ingestor.exchange.client import VenueClient
from ingestor.exchange.errors import failure_of
from ingestor.exchange.venue_keeper import VenueKeeper
from ingestor.jobs import JobRunner
from ingestor.progress import Progress
from ingestor.realtime.service import RealtimeService
from ingestor.settings import IngestorConfig
from ingestor.state import IngestorState, SlotPlan
from ingestor.threads import BusThreads
from ingestor.venues import venue_of

log = get_logger()

TICK_SECONDS = 0.25
#: Seconds between checks of which broker serves.
FOLLOW_SECONDS = 1.0
#: The reason for a new connection to the next broker.
MOVING_REASONS = frozenset({"disconnected", "silence"})


class IngestorServer:
    """`run` serves until `shut_down` is called or the broker sends SHUTDOWN. The caller closes the bus.

    Raises ConfigurationError if a key file cannot be read.
    """

    def __init__(self, settings: Settings, bus: Bus, config: IngestorConfig | None = None) -> None:
        self._settings = settings
        self._config = config or IngestorConfig.of(settings)
        self._bus = bus
        self._threads = BusThreads()
        self._clients: dict[str, VenueClient] = {}
        self._keepers: dict[str, VenueKeeper] = {}
        self._unknown_venues: list[str] = []
        self._connections: dict[int, Connection] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._is_over = asyncio.Event()
        #: The index of the current broker, and when any broker was last heard.
        self._broker = 0
        self._heard_at = -math.inf
        self._ticked_at = time.monotonic()
        if settings.security.curve and not settings.ingestor.key:
            raise ConfigurationError("security.curve is on: set ingestor.key (`candlewright keys new --role ingestor`)")
        self._key = ClientKey.read(settings.ingestor.key) if settings.ingestor.key else None
        self._context = zmq.asyncio.Context()
        self._build_clients()
        self._state = IngestorState(self._plan())
        self._realtime = RealtimeService(bus, self._threads, self._config, url_of=settings.exchange_url)
        self._runner = JobRunner(
            bus, self._threads, self._clients, patience=self._config.patience, realtime=self._realtime
        )

    def _plan(self) -> SlotPlan:
        config = self._config
        return SlotPlan(
            venues=tuple(self._clients),
            historical=config.slots_historical,
            realtime=config.slots_realtime,
            heartbeat=config.heartbeat,
            lease=config.lease,
            silence=config.silence,
            grace=config.grace,
        )

    def _build_clients(self) -> None:
        config = self._config
        for venue in config.venues:
            description, url = venue_of(venue), self._settings.exchange_url(venue)
            try:
                stock = exchange.build(description, url=url, timeout_seconds=config.request_timeout)
            except ConfigurationError as error:
                self._unknown_venues.append(str(error))
                log.error("venue_not_served", venue=venue, error=str(error))
                continue
            budget = Budget(
                self._bus,
                self._threads,
                venue=venue,
                limits=description.limits,
                exchange=stock,
                egress=self._settings.ingestor.egress,
                share=config.budget_share,
                background_share=config.background_share,
                is_limited=config.rate_limit,
                patience=config.patience,
                on_blocked=lambda until, venue=venue: self._blocked(venue, until),  # type: ignore[misc]
            )
            client = VenueClient(
                description, stock, budget, request_timeout=config.request_timeout, patience=config.patience
            )
            self._clients[venue] = client
            self._keepers[venue] = VenueKeeper(
                client,
                self._bus,
                self._threads,
                config=config,
                on_ready=lambda venue=venue: self._apply(VenueReady(venue, time.monotonic())),  # type: ignore[misc]
            )

    # ---- the loop

    async def run(self) -> None:
        keepers = [awaited_task(keeper.run()) for keeper in self._keepers.values()]
        ticker = awaited_task(self._tick())
        if len(self._config.brokers) > 1:
            keepers.append(awaited_task(self._follow_broker()))
        self._apply(Started(time.monotonic()))
        watched = awaited_task(self._is_over.wait())
        try:
            # Keepers and the ticker never end by themselves; if one does, its error ends the process.
            done, _ = await asyncio.wait({watched, ticker, *keepers}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await self._close([watched, ticker, *keepers])

    def shut_down(self) -> None:
        """Give the jobs back and end `run`; may be called from a signal handler of the loop."""
        self._apply(ShutdownAsked(time.monotonic()))

    async def _tick(self) -> None:
        while True:
            self._ticked_at = time.monotonic()
            self._apply(Ticked(self._ticked_at))
            metrics.RUNNING.set(len(self._tasks))
            await asyncio.sleep(TICK_SECONDS)

    async def _follow_broker(self) -> None:
        """Leave a broker that is running but no longer serves; if it is cut off from the bus, it does not know of its
        successor. A connection opened since the last check leads to the successor, or breaks by itself.
        """
        serving: bytes | None = None
        seen_on = 0
        while True:
            with contextlib.suppress(BusUnavailable):
                (found,) = await self._threads.run(lambda: self._bus.get(TABLE_BROKER, [SERVING_KEY]))
                if serving is not None and found != serving and self._state.connection == seen_on:
                    self._apply(ConnectionLost(self._state.connection, time.monotonic()))
                serving, seen_on = found, self._state.connection
            await asyncio.sleep(FOLLOW_SECONDS)

    async def _close(self, tasks: Sequence["asyncio.Task[object]"]) -> None:
        running = [*tasks, *self._tasks.values()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._realtime.close()
        for connection in self._connections.values():
            connection.close()
        self._context.term()
        for client in self._clients.values():
            with contextlib.suppress(Exception):
                await client.exchange.close()
        self._threads.close()

    # ---- events

    def _apply(self, event: Event) -> None:
        for command in self._state.handle(event):
            self._carry_out(command)

    def _frames_came(self, number: int, parts: Sequence[bytes]) -> None:
        at = time.monotonic()
        try:
            message = message_of(parts)
            self._heard_at = at
            self._apply(Heard(number, at))
            self._message_came(number, message, at)
        except BadFrame as error:
            metrics.BAD_FRAMES.inc()
            log.warning("bad_frame", error=str(error))

    def _message_came(
        self, number: int, message: ing.DataRequest | ing.WorkStop | ing.IngestorControl | cw.Error, at: float
    ) -> None:
        if isinstance(message, ing.DataRequest):
            self._apply(dispatch_of(number, message, at))
        elif isinstance(message, ing.WorkStop):
            self._apply(StopAsked(message.job_id, at))
        elif isinstance(message, cw.Error):
            metrics.REFUSALS.labels(message.code).inc()
            log.warning("broker_refused", code=message.code, text=message.text)
        elif message.action == ing.IngestorControl.HEARTBEAT:
            self._apply(HeartbeatCame(number, at))
        elif message.action == ing.IngestorControl.CANCEL:
            self._apply(CancelAsked(message.request_id, at))
        elif message.action == ing.IngestorControl.SHUTDOWN:
            self._apply(ShutdownAsked(at))
        elif message.action == ing.IngestorControl.CONFIG_UPDATE:
            self._configure(message.config, at)

    def _configure(self, config: ing.IngestorConfig, at: float) -> None:
        if config.HasField("timeout_seconds") and config.timeout_seconds > 0:
            for client in self._clients.values():
                client.set_request_timeout(config.timeout_seconds)
        if config.HasField("max_concurrent"):
            self._apply(ConfigChanged(config.max_concurrent, at))

    def _blocked(self, venue: str, until: float) -> None:
        now = time.monotonic()
        self._apply(VenueBlocked(venue, now + max(until - time.time(), 0.0), now))

    # ---- commands

    def _carry_out(self, command: Command) -> None:
        match command:
            case Connect(number, reason):
                if reason != "start":
                    metrics.RECONNECTS.labels(reason).inc()
                brokers = self._config.brokers
                if reason in MOVING_REASONS:
                    self._broker = (self._broker + 1) % len(brokers)
                address = brokers[self._broker]
                log.info("connecting", broker=address, connection=number, reason=reason)
                self._connections[number] = Connection(
                    self._context,
                    address,
                    on_frames=lambda parts: self._frames_came(number, parts),
                    on_lost=lambda: self._apply(ConnectionLost(number, time.monotonic())),
                    moves_on=len(brokers) > 1,
                    key=self._key,
                )
            case Disconnect(number):
                self._connections.pop(number).close()
            case Send(number, message):
                if number in self._connections:
                    self._connections[number].send(message)
            case StartJob(job):
                task = self._tasks[job.job_id] = start_task(lambda: self._run_job(job), "job")
                task.add_done_callback(lambda _: self._task_ended(job.job_id))
            case StopJob(job_id):
                self._tasks[job_id].cancel()
            case Count(what):
                _COUNTERS[what].inc()
            case Exit():
                self._is_over.set()

    async def _run_job(self, job: Job) -> None:
        log.info("job_started", job_id=job.job_id, request_id=job.request_id, ticker=job.ticker)
        is_background = job.request_id.startswith(KEEP_PREFIX)
        progress = Progress(lambda until: self._apply(JobExpects(job.job_id, until)), is_background=is_background)
        try:
            ending = await self._ending_of(job, progress)
        finally:
            del self._tasks[job.job_id]
        log.info("job_ended", job_id=job.job_id, ending=type(ending).__name__)
        self._apply(ending)

    def _task_ended(self, job_id: str) -> None:
        """Report the end of a job's task, since a task cancelled at its creation never runs."""
        if self._tasks.pop(job_id, None) is not None:
            self._apply(JobStopped(job_id, time.monotonic()))

    async def _ending_of(self, job: Job, progress: Progress) -> Event:
        def on_published(rows: int) -> None:
            self._apply(JobAdvanced(job.job_id, rows, time.monotonic()))

        try:
            results = await self._runner.run(job, progress, on_published)
        except asyncio.CancelledError:
            return JobStopped(job.job_id, time.monotonic())
        except LeaseLost as error:
            log.warning("job_fenced", job_id=job.job_id, error=str(error))
            return JobFenced(job.job_id, time.monotonic())
        except CandlewrightError as error:
            failure = failure_of(error)
            log.warning("job_failed", job_id=job.job_id, ticker=job.ticker, failure=str(failure))
            return JobFailed(job.job_id, failure, time.monotonic())
        except Exception as error:
            # An internal error must end only this job; the broker retries it elsewhere a few times.
            log.exception("job_crashed", job_id=job.job_id, ticker=job.ticker)
            return JobFailed(job.job_id, Failure(FailureCode.UNKNOWN, repr(error)[:300]), time.monotonic())
        return JobSucceeded(job.job_id, results, time.monotonic())

    # ---- the status page

    def status(self) -> Status:
        now = time.monotonic()
        keepers = dict(self._keepers)
        problems = [keeper.problem for keeper in keepers.values() if keeper.problem]
        is_stuck = now - self._ticked_at > 10
        if is_stuck:
            problems.append(f"the main loop has been stuck for {now - self._ticked_at:.0f} s")
        # A single broker is given the usual silence to answer; with several, each new connection would restart that
        # time.
        heard_at = self._state.heard_at if len(self._config.brokers) == 1 else self._heard_at
        has_broker = now - heard_at < self._config.silence
        details: Mapping[str, object] = {
            "broker": self._config.brokers[self._broker],
            "broker_heard_seconds_ago": round(now - heard_at, 1) if math.isfinite(heard_at) else None,
            "slots_offered": self._state.offered(),
            "running_jobs": {job_id: job.ticker for job_id, job in self._state.running.items()},
            "last_frame_seconds_ago": {ticker: round(age, 1) for ticker, age in self._realtime.ages().items()},
            "trades_per_second": {ticker: round(rate, 1) for ticker, rate in self._realtime.rates(now).items()},
            "venues": {venue: len(client.markets) for venue, client in self._clients.items()},
            "rate_limited_seconds": {
                venue: round(seconds, 1) for venue, seconds in self._state.blocked_venues(now).items()
            },
        }
        is_serving = any(client.markets for client in self._clients.values())
        return Status(
            part="ingestor",
            is_ready=has_broker and is_serving and not is_stuck,
            problems=tuple(problems),
            details=details,
            warnings=tuple(self._unknown_venues),
            waits_for="" if is_stuck else ", ".join(venue for venue, keeper in keepers.items() if keeper.has_failed),
        )


_COUNTERS = {
    "rejects": metrics.REJECTS,
    "fenced": metrics.FENCED,
    "succeeded": metrics.JOBS.labels("succeeded"),
    "failed": metrics.JOBS.labels("failed"),
    "stopped": metrics.JOBS.labels("stopped"),
}
