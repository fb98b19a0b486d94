"""The supervisor's loop: signals, exits and probes become events, commands become processes."""

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from candlewright.wire.errors import BusUnavailable, CandlewrightError
from candlewright_platform.supervisor import metrics, processes
from candlewright_platform.supervisor.logs import PartLog
from candlewright_platform.supervisor.probes import Probe
from candlewright_platform.supervisor.state import (
    REFUSED,
    AllReady,
    AllStandBy,
    BecameReady,
    BecameStandby,
    BeganToWait,
    Begun,
    BusAsked,
    BusChanged,
    Command,
    Event,
    Exited,
    Finish,
    Kill,
    Part,
    PartPlan,
    Probed,
    Refused,
    Restarting,
    Start,
    Started,
    StopAsked,
    Supervision,
    Terminate,
    TimePassed,
)
from core.background import start_task
from core.http import SUPERVISOR_PORT_FILE, Status, StatusServer
from core.metrics import render

if TYPE_CHECKING:
    from bus.roles import RoleState

PROBE_SECONDS, STARTING_PROBE_SECONDS = 2.0, 0.1
MEASURE_SECONDS = 5.0
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class PartSpec:
    """`environment` is added to that of the supervisor; `when_ready` is called each time the part becomes ready."""

    plan: PartPlan
    command: tuple[str, ...]
    environment: Mapping[str, str]
    probe: Probe
    port_file: Path | None = None
    when_ready: Callable[[], None] | None = None

    @property
    def name(self) -> str:
        return self.plan.name


@dataclass(slots=True)
class Running:
    process: "subprocess.Popen[bytes]"
    log: PartLog
    prober: "asyncio.Task[None]"
    output: "_Output"
    details: Mapping[str, Any] = field(default_factory=dict)


class Supervisor:
    """`tell` gets what the operator should read. `announce` is called with `ready` when every part is ready for the
    first time, and with `standby` when every part is, except those whose role another process has.
    """

    def __init__(
        self,
        specs: Sequence[PartSpec],
        run: str,
        data_dir: Path,
        *,
        http_bind: str,
        tell: Callable[[str], None],
        announce: Callable[[str], None],
        read_roles: Callable[[], Mapping[str, "RoleState"]] = dict,
    ) -> None:
        self._specs = {spec.name: spec for spec in specs}
        self._run_id = run
        self._data_dir = data_dir
        self._http_bind = http_bind
        self._tell = tell
        self._announce = announce
        self._read_roles = read_roles
        self._roles: dict[str, Any] = {}
        self._memory: dict[str, int] = {}
        self._disk: dict[str, int] = {}
        self._state = Supervision(plans=[spec.plan for spec in specs])
        self._running: dict[str, Running] = {}
        self._logs: dict[str, PartLog] = {}
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._is_finished = False
        self._page = self._compose_page()

    async def run(self) -> int:
        """Runs until the parts have stopped after SIGTERM, SIGINT or SIGHUP; a second signal kills those that still
        run. Returns the exit code: 2 if a part refused its settings, else 0.
        """
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._stop_asked)
        page = StatusServer(
            self._http_bind, self._status, self._metrics, port_file=self._data_dir / "run" / SUPERVISOR_PORT_FILE
        )
        self._tell(f"status page on http://127.0.0.1:{page.port}/status")
        followed = start_task(self._follow_roles, "roles", restarts_after=PROBE_SECONDS)
        measured = start_task(self._follow_resources, "resources", restarts_after=MEASURE_SECONDS)
        try:
            self._handle(Begun(time.monotonic()))
            while not self._is_finished:
                self._handle(await self._next_event())
        finally:
            followed.cancel()
            measured.cancel()
            processes.kill_marked(self._run_id)
            for log in self._logs.values():
                log.close()
            page.close()
            for number in (*_SIGNALS, signal.SIGCHLD):
                loop.remove_signal_handler(number)
        return REFUSED if self._state.is_refused else 0

    async def _next_event(self) -> Event:
        if not self._events.empty():
            # Before time passes: a part that has ended needs no kill.
            return self._events.get_nowait()
        deadline = self._state.next_deadline()
        wait = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            return await asyncio.wait_for(self._events.get(), wait)
        except TimeoutError:
            return TimePassed(time.monotonic())

    async def _follow_roles(self) -> None:
        """The holder of each role, on any machine; the last answer stays while the bus is down."""
        while True:
            problem = ""
            try:
                roles = await asyncio.to_thread(self._read_roles)
                self._roles = {name: state.to_json() for name, state in sorted(roles.items())}
            except BusUnavailable as error:
                problem = str(error)
            except CandlewrightError:
                # Not judged here, because the parts report it.
                pass
            # Until it has served, starting parts wait for it.
            if self._roles:
                self._events.put_nowait(BusAsked(problem, time.monotonic()))
            await asyncio.sleep(PROBE_SECONDS)

    async def _follow_resources(self) -> None:
        while True:
            leaders = {name: running.process.pid for name, running in self._running.items()}
            self._memory = await asyncio.to_thread(self._measure, leaders)
            self._disk = await asyncio.to_thread(_disk_of, self._data_dir)
            await asyncio.sleep(MEASURE_SECONDS)

    def _measure(self, leaders: Mapping[str, int]) -> dict[str, int]:
        """Memory by part, in bytes."""
        found = processes.of_parts(self._run_id, leaders)
        return {name: processes.resident_bytes(pids) for name, pids in found.items()}

    def _handle(self, event: Event) -> None:
        for command in self._state.handle(event):
            self._carry_out(command)
        self._page = self._compose_page()

    def _carry_out(self, command: Command) -> None:
        match command:
            case Start(part):
                self._start(self._specs[part])
            case Terminate(part):
                self._tell(f"stopping {part}")
                if part in self._running:  # otherwise it has just ended, and that is the next event
                    processes.terminate(self._running[part].process)
            case Kill(part, reason):
                self._tell(f"killing {part}: {reason}")
                if part in self._running:
                    processes.kill(self._running[part].process, self._mark(part))
            case Restarting(part, code, pause):
                metrics.RESTARTS.labels(part).inc()
                self._tell(f"{part} exited with code {code}, restarting it in {pause:g} s; it wrote last:")
                self._tell_last_lines(part)
            case Refused(part):
                self._tell(f"{part} cannot start with these settings; it wrote last:")
                self._tell_last_lines(part)
            case BecameReady(part):
                self._call_when_ready(part)
                took = time.monotonic() - self._state.parts[part].started_at
                self._tell(f"{part} is ready ({took:.1f} s)")
            case BeganToWait(part, what):
                self._tell(f"{part} waits for {what}")
            case BusChanged(problem):
                self._tell(f"the parts wait for the bus: {problem}" if problem else "the bus serves the parts again")
            case BecameStandby(part):
                self._tell(f"{part} is a standby: another process has its role")
            case AllReady():
                self._announce("ready")
            case AllStandBy():
                self._announce("standby")
            case Finish():
                self._is_finished = True

    def _tell_last_lines(self, part: str) -> None:
        for line in list(self._logs[part].last_lines)[-5:] if part in self._logs else []:
            self._tell(f"  {part}: {line}")

    def _call_when_ready(self, part: str) -> None:
        try:
            if (call := self._specs[part].when_ready) is not None:
                call()
        except CandlewrightError as error:
            self._tell(f"{part}: {error}")

    def _mark(self, part: str) -> str:
        return f"{self._run_id}/{part}"

    def _start(self, spec: PartSpec) -> None:
        # A part may have children that outlive it for a while: the JVM, Spark's workers.
        processes.kill_marked(self._mark(spec.name))
        if spec.port_file is not None:
            spec.port_file.unlink(missing_ok=True)
        self._tell(f"starting {spec.name}")
        if spec.name not in self._logs:
            self._logs[spec.name] = PartLog(
                self._data_dir / "logs", spec.name, lambda line: self._tell(f"{spec.name}: {line}")
            )
        log = self._logs[spec.name]
        log.last_lines.clear()
        try:
            process = processes.spawn(spec.command, spec.environment, self._mark(spec.name), cwd=Path.cwd())
        except OSError as error:
            self._tell(f"{spec.name} cannot be started: {error}")
            self._events.put_nowait(Exited(spec.name, 127, time.monotonic()))
            return
        self._state.handle(Started(spec.name, time.monotonic()))
        prober = start_task(lambda: self._probe(spec), f"probe of {spec.name}", restarts_after=PROBE_SECONDS)
        output = _Output(process, log)
        self._running[spec.name] = Running(process, log, prober, output)

    async def _probe(self, spec: PartSpec) -> None:
        while True:
            answer = await spec.probe.ask()
            if answer.answered and spec.name in self._running:
                self._running[spec.name].details = answer.details
            self._events.put_nowait(
                Probed(
                    part=spec.name,
                    answered=answer.answered,
                    is_ready=answer.is_ready,
                    problems=answer.problems,
                    at=time.monotonic(),
                    is_standby=answer.is_standby,
                    waits_for=answer.waits_for,
                )
            )
            part = self._state.parts[spec.name]
            is_settled = part.is_ready or part.is_standby
            await asyncio.sleep(PROBE_SECONDS if is_settled else STARTING_PROBE_SECONDS)

    def _reap(self) -> None:
        for name, running in list(self._running.items()):
            code = running.process.poll()
            if code is not None:
                running.prober.cancel()
                running.output.drain()
                del self._running[name]
                self._events.put_nowait(Exited(name, code, time.monotonic()))

    def _stop_asked(self) -> None:
        if not self._state.is_stopping:
            self._events.put_nowait(StopAsked(time.monotonic()))
            return
        self._tell("second signal: killing the parts that still run")
        for name, running in self._running.items():
            processes.kill(running.process, self._mark(name))

    # ---- the page; these are called by the page's own threads
    def _compose_page(self) -> Status:
        parts = {name: self._describe(name, part) for name, part in self._state.parts.items()}
        problems = [
            f"{name}: {problem}"
            for name, part in self._state.parts.items()
            for problem in (part.problems or (() if part.is_alive else ("not running",)))
        ]
        is_starting = not (self._state.is_announced or self._state.is_standby_announced)
        return Status(
            part="supervisor",
            is_ready=self._state.is_ready,
            problems=() if is_starting and not problems else tuple(problems),
            details={"data_dir": str(self._data_dir), "parts": parts, "roles": self._roles, "disk": self._disk},
            warnings=(
                *((f"the parts wait for the bus: {self._state.bus_problem}",) if self._state.bus_problem else ()),
                *(f"{name}: {text}" for name, part in parts.items() for text in part["warnings"]),
            ),
        )

    def _describe(self, name: str, part: Part) -> dict[str, Any]:
        running = self._running.get(name)
        return {
            "pid": running.process.pid if running else None,
            "phase": part.phase.value,
            "waits_for": part.waits_for,
            "ready": part.is_ready,
            "standby": part.is_standby,
            "healthy": part.is_alive and not part.problems,
            "restarts": part.restarts,
            "memory_bytes": self._memory.get(name) if running else None,
            "problems": list(part.problems),
            "warnings": list(running.details.get("warnings", ())) if running else [],
            "status": dict(running.details) if running else {},
        }

    def _status(self) -> Status:
        return self._page

    def _metrics(self) -> bytes:
        ports = {name: port for name, spec in self._specs.items() if (port := spec.probe.port()) is not None}
        parts = self._page.details["parts"]
        found = processes.of_parts(self._run_id, {name: part["pid"] for name, part in parts.items() if part["pid"]})
        for name in parts:
            pids = found.get(name, set[int]())
            metrics.RESIDENT.labels(name).set(processes.resident_bytes(pids))
            metrics.OPEN_FILES.labels(name).set(processes.open_files(pids))
        return metrics.merge({"supervisor": render().decode(), **metrics.fetch(ports)})


def _disk_of(folder: Path) -> dict[str, int]:
    """The space of the file system of `folder`, in bytes."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return {}
    return {"free_bytes": usage.free, "total_bytes": usage.total}


class _Output:
    """Copies a part's output to its log as it arrives; children of the part may continue to write after its end."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: PartLog) -> None:
        assert process.stdout is not None
        self._pipe = process.stdout
        self._log = log
        os.set_blocking(self._pipe.fileno(), False)
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._read)

    def drain(self) -> None:
        while self._read():
            pass

    def _read(self) -> bool:
        if self._pipe.closed:
            return False
        try:
            data = os.read(self._pipe.fileno(), 64 << 10)
        except BlockingIOError:
            return False
        if data:
            self._log.feed(data)
            return True
        asyncio.get_running_loop().remove_reader(self._pipe.fileno())
        self._pipe.close()
        return False
