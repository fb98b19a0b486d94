"""All decisions of an ingestor about slots, jobs and the connection to the broker, without sockets, clocks or
exchanges.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.failures import Failure, FailureCode
from ingestor.commands import Command, Connect, Count, Disconnect, Exit, Send, StartJob, StopJob
from ingestor.events import (
    CancelAsked,
    ConfigChanged,
    ConnectionLost,
    Dispatched,
    DispatchRefused,
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
    Kind,
    ShutdownAsked,
    Started,
    StopAsked,
    StopReason,
    Ticked,
    VenueBlocked,
    VenueReady,
)

#: Stops of unknown (or future) jobs are remembered: this many of the newest, for this long (s).
MAX_RECENT = 1_000
RECENT_SECONDS = 60.0
PROGRESS_SECONDS = 0.5


@dataclass(kw_only=True, frozen=True, slots=True)
class SlotPlan:
    """How many slots of each kind to offer for each venue, and the times (seconds) of the protocol."""

    venues: tuple[str, ...]
    historical: int
    realtime: int
    heartbeat: float = 5.0
    lease: float = 15.0
    silence: float = 15.0
    grace: float = 5.0


@dataclass(slots=True)
class _Slot:
    """`offered_on`: the connection on which the slot was offered; 0 if it is not on offer."""

    venue: str
    kind: Kind
    offered_on: int = 0
    is_busy: bool = False


@dataclass(kw_only=True, slots=True)
class _Running:
    job: Job
    slot: _Slot
    connection: int
    beaten_at: float
    alive_until: float
    stop_reason: StopReason | None = None
    progress_sent_at: float = float("-inf")
    done_candles: int = 0
    progress_sent: int = 0


@dataclass(slots=True)
class _Venue:
    is_ready: bool = False
    blocked_until: float = float("-inf")


@dataclass(slots=True)
class _Recent:
    """Recently seen ids, bounded in number and age."""

    ids: OrderedDict[str, tuple[float, str]] = field(default_factory=OrderedDict)

    def add(self, name: str, at: float, note: str = "") -> None:
        self.ids.pop(name, None)
        self.ids[name] = (at, note)
        if len(self.ids) > MAX_RECENT:
            self.ids.popitem(last=False)

    def holds(self, name: str, at: float) -> bool:
        entry = self.ids.get(name)
        return entry is not None and at - entry[0] <= RECENT_SECONDS

    def note(self, name: str) -> str:
        return self.ids[name][1]


class IngestorState:
    """`handle` takes one event and returns the commands to carry out, in order."""

    def __init__(self, plan: SlotPlan) -> None:
        self._plan = plan
        self._venues = {venue: _Venue() for venue in plan.venues}
        self._slots = [
            _Slot(venue, kind)
            for venue in plan.venues
            for kind, count in ((Kind.HISTORICAL, plan.historical), (Kind.REALTIME, plan.realtime))
            for _ in range(count)
        ]
        self._jobs: dict[str, _Running] = {}
        self._connection = 0
        self._draining: set[int] = set()
        self._heard_at = 0.0
        self._stopped_jobs = _Recent()
        self._fenced_jobs = _Recent()
        self._cancelled_requests = _Recent()
        self._max_concurrent = len(self._slots)
        self._exit_at: float | None = None
        self._has_exited = False

    # ---- for the status page

    @property
    def running(self) -> Mapping[str, Job]:
        # The status page reads from its own thread; copying to a list is atomic.
        return {job_id: running.job for job_id, running in list(self._jobs.items())}

    @property
    def is_shutting_down(self) -> bool:
        return self._exit_at is not None

    @property
    def connection(self) -> int:
        """The number of the newest connection."""
        return self._connection

    @property
    def heard_at(self) -> float:
        """When the broker was last heard, or a connection to it was opened."""
        return self._heard_at

    def offered(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        for slot in self._slots:
            if slot.offered_on:
                name = f"{slot.venue}:{slot.kind.value}"
                counts[name] = counts.get(name, 0) + 1
        return counts

    def blocked_venues(self, at: float) -> dict[str, float]:
        """By venue, the seconds for which it must not be called."""
        return {name: venue.blocked_until - at for name, venue in self._venues.items() if venue.blocked_until > at}

    # ---- the machine

    def handle(self, event: Event) -> list[Command]:
        match event:
            case Started(at):
                return self._reconnect(at, "start")
            case VenueReady(venue, at):
                self._venues[venue].is_ready = True
                return self._offers(at)
            case VenueBlocked(venue, until, _):
                known = self._venues[venue]
                known.blocked_until = max(known.blocked_until, until)
                return []
            case Heard(connection, at):
                if connection == self._connection:
                    self._heard_at = at
                return []
            case HeartbeatCame(connection, at):
                return self._answer_heartbeat(connection, at)
            case Dispatched(connection, job, at):
                return self._dispatched(connection, job, at)
            case DispatchRefused(connection, job_id, failure, at):
                return [*self._refused(connection, job_id, failure), *self._offers(at)]
            case StopAsked(job_id, at):
                return self._stop_asked(job_id, at)
            case CancelAsked(request_id, at):
                return self._cancel_asked(request_id, at)
            case ConfigChanged(max_concurrent, at):
                self._max_concurrent = max_concurrent
                return self._offers(at)
            case ConnectionLost(connection, at):
                return self._reconnect(at, "disconnected") if connection == self._connection else []
            case JobExpects(job_id, until):
                if job_id in self._jobs:
                    self._jobs[job_id].alive_until = until
                return []
            case JobAdvanced(job_id, done_candles, at):
                return self._advanced(job_id, done_candles, at)
            case JobSucceeded(job_id, results, at):
                return self._succeeded(job_id, tuple(results), at)
            case JobFailed(job_id, failure, at):
                return self._failed(job_id, failure, at)
            case JobFenced(job_id, at):
                return self._fenced(job_id, at)
            case JobStopped(job_id, at):
                return self._stopped(job_id, at)
            case ShutdownAsked(at):
                return self._shutdown(at)
            case Ticked(at):
                return self._ticked(at)

    # ---- slots

    def _offers(self, at: float) -> list[Command]:
        if self.is_shutting_down or not self._connection:
            return []
        used = len(self._jobs) + sum(1 for slot in self._slots if slot.offered_on)
        commands: list[Command] = []
        for slot in self._slots:
            if used >= self._max_concurrent:
                break
            venue = self._venues[slot.venue]
            if slot.offered_on or slot.is_busy or not venue.is_ready or at < venue.blocked_until:
                continue
            slot.offered_on = self._connection
            used += 1
            job_type = ing.HISTORICAL if slot.kind is Kind.HISTORICAL else ing.REALTIME
            commands.append(Send(self._connection, ing.WorkerReady(exchanges=[slot.venue], job_type=job_type)))
        return commands

    def _free_slot(self, job: Job, connection: int) -> _Slot | None:
        """The offered slot that the dispatch has consumed: one of its kind, else one that takes any kind."""
        candidates = [slot for slot in self._slots if slot.offered_on == connection and slot.venue == job.venue]
        exact = [slot for slot in candidates if slot.kind is job.kind.slot]
        return next(iter(exact or candidates), None)

    # ---- jobs

    def _dispatched(self, connection: int, job: Job, at: float) -> list[Command]:
        if job.job_id in self._jobs:
            return []
        slot = self._free_slot(job, connection) if connection == self._connection else None
        if slot is None:
            why = "this connection is being replaced" if connection != self._connection else "no slot of mine is free"
            reject = ing.WorkReject(job_id=job.job_id, reason=str(Failure(FailureCode.SHUTDOWN, why)))
            return [Count("rejects"), Send(connection, reject)]
        slot.offered_on = 0
        reason = self._reason_to_refuse(job, at)
        if reason is not None:
            return [*self._refused(connection, job.job_id, reason), *self._offers(at)]
        slot.is_busy = True
        self._jobs[job.job_id] = _Running(
            job=job, slot=slot, connection=connection, beaten_at=at, alive_until=at + self._plan.lease
        )
        return [StartJob(job)]

    def _reason_to_refuse(self, job: Job, at: float) -> Failure | None:
        if self.is_shutting_down:
            return Failure(FailureCode.SHUTDOWN, StopReason.SHUTDOWN.value)
        if self._stopped_jobs.holds(job.job_id, at) or self._is_cancelled(job.request_id, at):
            return Failure(FailureCode.CANCELLED, "stopped before it began")
        return None

    def _is_cancelled(self, request_id: str, at: float) -> bool:
        """Whether the piece, or the client's whole request (the id before `#`), was cancelled."""
        cancelled = self._cancelled_requests
        return cancelled.holds(request_id, at) or cancelled.holds(request_id.partition("#")[0], at)

    def _refused(self, connection: int, job_id: str, failure: Failure) -> list[Command]:
        complete = ing.WorkComplete(job_id=job_id, success=False, error_message=str(failure))
        return [Count("rejects"), Send(connection, complete)]

    def _stop_asked(self, job_id: str, at: float) -> list[Command]:
        running = self._jobs.get(job_id)
        if running is not None:
            return self._stop(running, StopReason.STOPPED)
        self._stopped_jobs.add(job_id, at)
        if not self._fenced_jobs.holds(job_id, at):
            return []
        request_id = self._fenced_jobs.note(job_id)
        return [] if self._is_cancelled(request_id, at) else self._renew_connection(at)

    def _cancel_asked(self, request_id: str, at: float) -> list[Command]:
        self._cancelled_requests.add(request_id, at)
        return [
            command
            for running in self._jobs.values()
            if request_id in (running.job.request_id, running.job.client_request_id)
            for command in self._stop(running, StopReason.CANCELLED)
        ]

    def _stop(self, running: _Running, reason: StopReason) -> list[Command]:
        if running.stop_reason is not None:
            return []
        running.stop_reason = reason
        return [StopJob(running.job.job_id)]

    def _advanced(self, job_id: str, done_candles: int, at: float) -> list[Command]:
        running = self._jobs.get(job_id)
        if running is None:
            return []
        running.done_candles = done_candles
        if at - running.progress_sent_at < PROGRESS_SECONDS or running.stop_reason is not None:
            return []
        running.progress_sent_at = at
        running.progress_sent = done_candles
        return [Send(running.connection, cw.WorkProgress(job_id=job_id, done_candles=done_candles))]

    def _succeeded(self, job_id: str, results: tuple[object, ...], at: float) -> list[Command]:
        running = self._jobs.get(job_id)
        if running is None:
            return []
        sends: list[Command] = []
        if running.done_candles > running.progress_sent:
            progress = cw.WorkProgress(job_id=job_id, done_candles=running.done_candles)
            sends.append(Send(running.connection, progress))
        sends.extend(Send(running.connection, result) for result in results)  # type: ignore[arg-type]
        sends.append(Send(running.connection, ing.WorkComplete(job_id=job_id, success=True)))
        return [Count("succeeded"), *sends, *self._ended(running, at)]

    def _failed(self, job_id: str, failure: Failure, at: float) -> list[Command]:
        running = self._jobs.get(job_id)
        if running is None:
            return []
        complete = ing.WorkComplete(job_id=job_id, success=False, error_message=str(failure))
        return [Count("failed"), Send(running.connection, complete), *self._ended(running, at)]

    def _stopped(self, job_id: str, at: float) -> list[Command]:
        running = self._jobs.get(job_id)
        if running is None:
            return []
        reason = running.stop_reason or StopReason.STOPPED
        code = FailureCode.SHUTDOWN if reason is StopReason.SHUTDOWN else FailureCode.CANCELLED
        failure = Failure(code, reason.value)
        complete = ing.WorkComplete(job_id=job_id, success=False, error_message=str(failure))
        commands: list[Command] = [Count("stopped"), Send(running.connection, complete)]
        return [*commands, *self._after_lost_lease(running, at), *self._ended(running, at)]

    def _fenced(self, job_id: str, at: float) -> list[Command]:
        running = self._jobs.get(job_id)
        if running is None:
            return []
        if running.stop_reason is None:
            # A cancellation may still arrive; a WorkStop without one means that the lease was lost.
            self._fenced_jobs.add(job_id, at, running.job.request_id)
        return [Count("fenced"), *self._after_lost_lease(running, at), *self._ended(running, at)]

    def _after_lost_lease(self, running: _Running, at: float) -> list[Command]:
        """Handle a stop without a preceding cancellation: the lease was lost, even if it should still run by this
        ingestor's setting.
        """
        is_lost = running.stop_reason is StopReason.STOPPED
        return self._renew_connection(at) if is_lost and running.connection == self._connection else []

    def _ended(self, running: _Running, at: float) -> list[Command]:
        del self._jobs[running.job.job_id]
        running.slot.is_busy = False
        commands = self._close_drained()
        if self.is_shutting_down:
            return [*commands, *self._exit_when_idle()]
        return [*commands, *self._offers(at)]

    # ---- the connection

    def _renew_connection(self, at: float) -> list[Command]:
        """Offer slots on a new socket, since the broker does not give a piece with a lost lease to the same connection
        again.

        Jobs stay on the socket that they were dispatched on until they end.
        """
        if self.is_shutting_down:
            return []
        self._draining.add(self._connection)
        return [*self._open(at, "lost lease"), *self._close_drained(), *self._offers(at)]

    def _reconnect(self, at: float, reason: str) -> list[Command]:
        """Move everything to a new socket, because the broker or the connection to it is gone."""
        gone = {self._connection, *self._draining} - {0}
        self._draining.clear()
        commands = self._open(at, reason)
        commands.extend(Disconnect(connection) for connection in sorted(gone))
        for running in self._jobs.values():
            running.connection = self._connection
            commands.extend(self._beat(running, at))
        return [*commands, *self._offers(at)]

    def _open(self, at: float, reason: str) -> list[Command]:
        self._connection += 1
        self._heard_at = at
        # Leases lost on earlier connections need no further new connection.
        self._fenced_jobs.ids.clear()
        for slot in self._slots:
            slot.offered_on = 0
        return [Connect(self._connection, reason)]

    def _close_drained(self) -> list[Command]:
        used = {running.connection for running in self._jobs.values()}
        drained = sorted(self._draining - used)
        self._draining.difference_update(drained)
        return [Disconnect(connection) for connection in drained]

    # ---- time

    def _ticked(self, at: float) -> list[Command]:
        if self._exit_at is not None and at >= self._exit_at:
            return self._exit()
        if at - self._heard_at >= self._plan.silence and not self.is_shutting_down:
            return self._reconnect(at, "silence")
        commands: list[Command] = []
        for running in self._jobs.values():
            commands.extend(self._beat_when_due(running, at))
        return [*commands, *self._offers(at)]

    def _beat_when_due(self, running: _Running, at: float) -> list[Command]:
        return self._beat_if_alive(running, at) if at - running.beaten_at >= self._plan.heartbeat else []

    def _beat_if_alive(self, running: _Running, at: float) -> list[Command]:
        return [] if at > running.alive_until or running.stop_reason else self._beat(running, at)

    def _answer_heartbeat(self, connection: int, at: float) -> list[Command]:
        """Send heartbeats for the connection's jobs. The broker asks at least three times per lease, so its own setting
        applies even if an ingestor has another.
        """
        mine = (running for running in self._jobs.values() if running.connection == connection)
        return [command for running in mine for command in self._beat_if_alive(running, at)]

    def _beat(self, running: _Running, at: float) -> list[Command]:
        running.beaten_at = at
        return [Send(running.connection, ing.WorkHeartbeat(job_id=running.job.job_id))]

    # ---- the end

    def _shutdown(self, at: float) -> list[Command]:
        if self.is_shutting_down:
            return []
        self._exit_at = at + self._plan.grace
        stops = [c for running in self._jobs.values() for c in self._stop(running, StopReason.SHUTDOWN)]
        return [*stops, *self._exit_when_idle()]

    def _exit_when_idle(self) -> list[Command]:
        return [] if self._jobs else self._exit()

    def _exit(self) -> list[Command]:
        if self._has_exited:
            return []
        self._has_exited = True
        # Jobs that did not stop in time are given back anyway; their lease ends with the answer.
        failure = Failure(FailureCode.SHUTDOWN, StopReason.SHUTDOWN.value)
        commands: list[Command] = [
            Send(running.connection, ing.WorkComplete(job_id=job_id, success=False, error_message=str(failure)))
            for job_id, running in self._jobs.items()
        ]
        self._jobs.clear()
        return [*commands, Exit()]
