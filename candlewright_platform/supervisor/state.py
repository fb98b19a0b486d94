"""What to start, restart and stop, and when. Pure: events in, commands out; times are monotonic seconds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

FIRST_BACKOFF_SECONDS = 0.2
MAX_BACKOFF_SECONDS = 10.0
#: A part that ran this long without problems is restarted after the shortest pause again.
QUIET_SECONDS = 60.0
#: After this long without an answer from the status page, the process is considered hung, and is replaced.
DEAD_SECONDS = 30.0
#: After problems have been reported for this long, the part is restarted.
SICK_SECONDS = 180.0
#: If killing a part that reported problems, or had not answered yet, did not help, the next process gets twice as long,
#: up to this bound.
MAX_PATIENCE_SECONDS = 3_600.0
#: How long a part that has never been ready may take to stop.
UNREADY_STOP_SECONDS = 3.0
#: Until a part that starts first is ready, the others start one by one and leave it a processor: this long (s) after
#: the one before, or as soon as that is ready. `TURN_LOOK_SECONDS`: how often it is checked whose turn it is.
TURN_SECONDS, TURN_LOOK_SECONDS = 5.0, 0.1
#: The exit code of a part that refuses its settings: another start would end the same way.
REFUSED = 2
#: By stage of a part: parts of a stage below this one must be ready before it starts. So only ingestors and doors wait
#: for the sandbox.
READY_BELOW = {2: 1, 3: 2}


@dataclass(frozen=True, slots=True)
class PartPlan:
    """`stage` orders starting (upwards) and stopping (downwards); `start_seconds`: patience for the first answer.

    `starts_first`: takes longest to start, and waits by itself for what it needs.
    """

    name: str
    stage: int
    start_seconds: float = 60.0
    stop_seconds: float = 10.0
    starts_first: bool = False


# ---- events
@dataclass(frozen=True, slots=True)
class Begun:
    at: float


@dataclass(frozen=True, slots=True)
class Started:
    part: str
    at: float


@dataclass(frozen=True, slots=True)
class Exited:
    part: str
    code: int
    at: float


@dataclass(kw_only=True, frozen=True, slots=True)
class Probed:
    """`answered` False: the status page did not answer in time."""

    part: str
    answered: bool
    is_ready: bool
    problems: tuple[str, ...]
    at: float
    is_standby: bool = False
    #: A service that the part needs, and that does not answer.
    waits_for: str = ""


@dataclass(frozen=True, slots=True)
class BusAsked:
    """`problem`: why the bus that all parts share does not serve them; empty if it does."""

    problem: str
    at: float


@dataclass(frozen=True, slots=True)
class TimePassed:
    at: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    at: float


Event = Begun | Started | Exited | Probed | BusAsked | TimePassed | StopAsked


# ---- commands
@dataclass(frozen=True, slots=True)
class Start:
    part: str


@dataclass(frozen=True, slots=True)
class Terminate:
    part: str


@dataclass(frozen=True, slots=True)
class Kill:
    part: str
    reason: str


@dataclass(frozen=True, slots=True)
class Restarting:
    """To be shown to the operator: the part died with `code` and starts again after `pause_seconds`."""

    part: str
    code: int
    pause_seconds: float


@dataclass(frozen=True, slots=True)
class Refused:
    """To be reported to the operator: the part cannot start with these settings, and the platform stops."""

    part: str


@dataclass(frozen=True, slots=True)
class BecameReady:
    part: str


@dataclass(frozen=True, slots=True)
class BecameStandby:
    part: str


@dataclass(frozen=True, slots=True)
class BeganToWait:
    """The part is healthy, and waits for a service: a restart would not help."""

    part: str
    what: str


@dataclass(frozen=True, slots=True)
class BusChanged:
    """`problem` is new, or over if it is empty."""

    problem: str


@dataclass(frozen=True, slots=True)
class AllReady:
    """Every part is ready for the first time."""


@dataclass(frozen=True, slots=True)
class AllStandBy:
    """For the first time every part is ready or a standby, and at least one is a standby."""


@dataclass(frozen=True, slots=True)
class Finish:
    pass


Command = (
    Start
    | Terminate
    | Kill
    | Restarting
    | Refused
    | BecameReady
    | BecameStandby
    | BeganToWait
    | BusChanged
    | AllReady
    | AllStandBy
    | Finish
)


class Phase(StrEnum):
    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    STOPPED = "stopped"


@dataclass(kw_only=True, slots=True)
class Part:
    plan: PartPlan
    phase: Phase = Phase.WAITING
    start_at: float | None = None
    started_at: float = 0.0
    answered_at: float = 0.0
    well_at: float = 0.0
    has_answered: bool = False
    is_ready: bool = False
    is_standby: bool = False
    #: Ready or a standby, at any time.
    was_ready: bool = False
    problems: tuple[str, ...] = ()
    waits_for: str = ""
    failures: int = 0
    #: Kills because of problems since it was last healthy for a while.
    sick_kills: int = 0
    #: Kills of processes that had not answered yet, since one did.
    silent_kills: int = 0
    restarts: int = 0
    kill_at: float | None = None

    @property
    def is_alive(self) -> bool:
        return self.phase in (Phase.STARTING, Phase.RUNNING)


@dataclass(kw_only=True, slots=True)
class Supervision:
    plans: Sequence[PartPlan]
    parts: dict[str, Part] = field(init=False)
    is_stopping: bool = False
    #: A part did not accept its settings.
    is_refused: bool = False
    is_announced: bool = False
    is_standby_announced: bool = False
    bus_problem: str = ""
    _stopping_stage: int | None = None
    _is_finished: bool = False

    def __post_init__(self) -> None:
        self.parts = {plan.name: Part(plan=plan) for plan in self.plans}

    @property
    def is_ready(self) -> bool:
        return not self.is_stopping and all(part.is_ready for part in self.parts.values())

    @property
    def is_standing_by(self) -> bool:
        """Every part is ready or a standby, and at least one is a standby."""
        parts = self.parts.values()
        return (
            not self.is_stopping
            and all(part.is_ready or part.is_standby for part in parts)
            and any(part.is_standby for part in parts)
        )

    def handle(self, event: Event) -> list[Command]:
        match event:
            case Begun(at):
                for part in self.parts.values():
                    part.start_at = at
                return self._start_due(at)
            case Started(name, at):
                self._started(self.parts[name], at)
                return []
            case Exited(name, code, at):
                return self._exited(self.parts[name], code, at)
            case Probed():
                return self._probed(self.parts[event.part], event)
            case BusAsked(problem, at):
                return self._bus_asked(problem, at)
            case TimePassed(at):
                return self._time_passed(at)
            case StopAsked(at):
                return [] if self.is_stopping else self._stop(at)

    def next_deadline(self) -> float | None:
        """When TimePassed has something to do next."""
        times = [part.start_at for part in self.parts.values() if part.start_at is not None and self._may_start(part)]
        times += [part.kill_at for part in self.parts.values() if part.kill_at is not None and part.is_alive]
        return min(times, default=None)

    def _started(self, part: Part, at: float) -> None:
        part.phase, part.start_at, part.kill_at = Phase.STARTING, None, None
        part.started_at = part.answered_at = part.well_at = at
        part.has_answered, part.is_ready, part.is_standby, part.problems, part.waits_for = False, False, False, (), ""

    def _exited(self, part: Part, code: int, at: float) -> list[Command]:
        ran_quietly = part.is_alive and at - part.started_at >= QUIET_SECONDS
        part.phase, part.is_ready, part.is_standby, part.kill_at = Phase.STOPPED, False, False, None
        part.problems, part.waits_for = (f"exited with code {code}",), ""
        if self.is_stopping:
            return self._stop_next(at)
        if code == REFUSED and not part.was_ready:
            self.is_refused = True
            return [Refused(part.plan.name), *self._stop(at)]
        part.failures = 0 if ran_quietly else part.failures
        pause = min(FIRST_BACKOFF_SECONDS * 2 ** min(part.failures, 16), MAX_BACKOFF_SECONDS)
        part.failures += 1
        part.restarts += 1
        part.start_at = at + pause
        return [Restarting(part.plan.name, code, pause)]

    def _probed(self, part: Part, event: Probed) -> list[Command]:
        if not part.is_alive:
            return []
        commands: list[Command] = []
        if event.answered:
            part.phase, part.has_answered, part.answered_at = Phase.RUNNING, True, event.at
            part.silent_kills = 0
            part.problems = event.problems
            if not event.problems:
                part.well_at = event.at
            if part.is_ready and event.is_ready and event.at - part.started_at >= SICK_SECONDS:
                part.sick_kills = 0
            if event.waits_for:
                # The time that it waits does not count as time with a problem.
                part.well_at = event.at
                if not part.waits_for:
                    commands.append(BeganToWait(part.plan.name, event.waits_for))
            part.waits_for = event.waits_for
            if event.is_ready and not part.is_ready:
                commands.append(BecameReady(part.plan.name))
            if event.is_standby and not part.is_standby:
                commands.append(BecameStandby(part.plan.name))
            part.is_ready, part.is_standby = event.is_ready, event.is_standby
            part.was_ready = part.was_ready or event.is_ready or event.is_standby
        elif part.has_answered:
            part.problems = ("the status page does not answer",)
            part.is_ready = part.is_standby = False
        if self.is_ready and not self.is_announced:
            self.is_announced = True
            commands.append(AllReady())
        elif self.is_standing_by and not self.is_standby_announced:
            self.is_standby_announced = True
            commands.append(AllStandBy())
        return commands + self._start_due(event.at) + self._replace_if_dead(part, event.at)

    def _bus_asked(self, problem: str, at: float) -> list[Command]:
        """Every part needs the bus, and a restart does not help, so this time does not count as a part's problem."""
        is_news = problem != self.bus_problem
        self.bus_problem = problem
        for part in self.parts.values():
            if problem and part.is_alive:
                part.well_at = at
        return [BusChanged(problem)] if is_news else []

    def _replace_if_dead(self, part: Part, at: float) -> list[Command]:
        if self.is_stopping or part.kill_at is not None:
            return []
        sick = _longer(SICK_SECONDS, part.sick_kills)
        patience = DEAD_SECONDS if part.has_answered else _longer(part.plan.start_seconds, part.silent_kills)
        if at - part.answered_at >= patience:
            part.silent_kills += not part.has_answered
            reason = f"its status page has not answered for {patience:g} s"
        elif part.has_answered and part.was_ready and at - part.well_at >= sick:
            part.sick_kills += 1
            reason = f"it has reported a problem for {sick:g} s: {'; '.join(part.problems)}"
        else:
            return []
        # Repeated, in case the kill itself was lost.
        part.kill_at = at + DEAD_SECONDS
        return [Kill(part.plan.name, reason)]

    def _time_passed(self, at: float) -> list[Command]:
        commands = self._start_due(at)
        for part in self.parts.values():
            if part.is_alive and part.kill_at is not None and at >= part.kill_at:
                part.kill_at = at + 1.0
                commands.append(Kill(part.plan.name, "it did not stop in time"))
        return commands

    def _may_start(self, part: Part) -> bool:
        if self.is_stopping or part.is_alive:
            return False
        if part.restarts or part.plan.starts_first:
            return True
        stage = READY_BELOW.get(part.plan.stage, 0)
        return all(each.was_ready for each in self.parts.values() if each.plan.stage < stage)

    def _start_due(self, at: float) -> list[Command]:
        due: list[Command] = []
        is_turn_taken = self._is_turn_taken(at)
        for part in sorted(self.parts.values(), key=lambda part: not part.plan.starts_first):
            if part.start_at is None or part.start_at > at or not self._may_start(part):
                continue
            if is_turn_taken and not part.plan.starts_first:
                part.start_at = at + TURN_LOOK_SECONDS
                continue
            part.start_at = None
            due.append(Start(part.plan.name))
            is_turn_taken = self._has_first and not part.plan.starts_first
        return due

    @property
    def _has_first(self) -> bool:
        return any(part.plan.starts_first and not part.was_ready for part in self.parts.values())

    def _is_turn_taken(self, at: float) -> bool:
        return self._has_first and any(
            part.is_alive and not part.plan.starts_first and not part.was_ready and at - part.started_at < TURN_SECONDS
            for part in self.parts.values()
        )

    def _stop(self, at: float) -> list[Command]:
        self.is_stopping = True
        return self._stop_next(at)

    def _stop_next(self, at: float) -> list[Command]:
        """Stop the highest stage that still runs; the next one follows when it has ended."""
        alive = [part for part in self.parts.values() if part.is_alive]
        if not alive:
            if self._is_finished:
                return []
            self._is_finished = True
            return [Finish()]
        stage = max(part.plan.stage for part in alive)
        if stage == self._stopping_stage:
            return []
        self._stopping_stage = stage
        commands: list[Command] = []
        for part in alive:
            if part.plan.stage == stage:
                # A part that is still starting has no state to save, and Spark receives no signal until its JVM runs.
                patience = (
                    part.plan.stop_seconds if part.was_ready else min(UNREADY_STOP_SECONDS, part.plan.stop_seconds)
                )
                part.kill_at = at + patience
                commands.append(Terminate(part.plan.name))
        return commands


def _longer(seconds: float, kills: int) -> float:
    """The patience with a part after `kills` that did not help."""
    return float(min(seconds * 2 ** min(kills, 16), MAX_PATIENCE_SECONDS))
