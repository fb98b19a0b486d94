"""Resource use of a benchmark's processes: peaks of memory and CPU time, by part, from /proc.

Memory is anonymous memory: allocations, without mapped files. Python workers are forked from a process with their
modules loaded, and share its pages; each is charged its share of a page (PSS), so that the sum counts the page once.
Reading PSS takes milliseconds per process, so it is skipped for workers whose resident memory has not changed, and for
the other parts, which have no forks.

The executors of a cluster are children of its workers. Those of this machine that serve a driver in this tree are found
by the driver's port, which they have among their arguments, and counted with their Python workers.
"""

import os
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["ProcessTree", "cpu_seconds_of", "family", "spark_workers"]

#: Parent, name, CPU seconds, resident pages.
_Process = tuple[int, str, float, int]

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAUSE_SECONDS = 0.25
_PARTS = {"java": "jvm", "redis-server": "redis"}
#: The option for the driver's port, among the arguments of an executor.
_DRIVER_PORT = re.compile(rb"CoarseGrainedExecutorBackend\x00.*--driver-url\x00[^\x00]*:(\d+)\x00", re.DOTALL)
#: The state of a listening socket in /proc/net/tcp.
_LISTENING = "0A"
_ANONYMOUS = re.compile(r"^(?:RssAnon|Pss_Anon):\s+(\d+) kB$", re.MULTILINE)


class ProcessTree:
    """This process (`driver`) and its descendants: `jvm`, `redis`, `executors` (JVMs), and `workers`: all others.

    Within `with`, `peak_bytes` is the largest anonymous memory of each part, and `cpu_seconds` the CPU time that each
    has used since, excluding the cost of measuring.
    """

    def __init__(self) -> None:
        self.peak_bytes: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-tree", daemon=True)
        self._cpu_at_start: dict[tuple[str, int], float] = {}
        self._cpu: dict[tuple[str, int], float] = {}
        self._own_cpu_seconds = 0.0
        #: By process: resident pages, and the anonymous bytes measured with them.
        self._found: dict[int, tuple[int, int]] = {}

    @property
    def cpu_seconds(self) -> dict[str, float]:
        used: dict[str, float] = defaultdict(float)
        for (part, pid), seconds in self._cpu.items():
            used[part] += seconds - self._cpu_at_start.get((part, pid), 0.0)
        used["driver"] -= self._own_cpu_seconds
        return dict(used)

    def __enter__(self) -> Self:
        self._look()
        self._cpu_at_start = dict(self._cpu)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._stopping.wait(_PAUSE_SECONDS):
            self._look()
        self._own_cpu_seconds = time.thread_time()

    def _look(self) -> None:
        processes = dict(_processes())
        used: dict[str, int] = defaultdict(int)
        found, executors = _family([os.getpid()], processes)
        for pid in found:
            _, name, cpu_seconds, pages = processes[pid]
            part = "driver" if pid == os.getpid() else _PARTS.get(name, "workers")
            if pid in executors:
                part = "executors"
            if pid not in self._found or self._found[pid][0] != pages:
                self._found[pid] = pages, _anonymous_bytes(pid, is_forked=part == "workers")
            used[part] += self._found[pid][1]
            self._cpu[part, pid] = cpu_seconds
        for part, size in used.items():
            self.peak_bytes[part] = max(size, self.peak_bytes.get(part, 0))


def family(pids: Iterable[int]) -> set[int]:
    """These processes, their descendants, and the executors on this machine that serve one of them, with theirs."""
    return _family(pids, dict(_processes()))[0]


def cpu_seconds_of(pids: Iterable[int]) -> float:
    """CPU time of these processes and their descendants so far; a process that has ended does not count."""
    processes = dict(_processes())
    return sum(processes[pid][2] for pid in _family(pids, processes)[0] if pid in processes)


def spark_workers() -> set[int]:
    """The Python processes of this process's Spark that run tasks, without the daemons that fork them."""
    processes = dict(_processes())

    def parent_of(pid: int) -> int:
        return processes[pid][0] if pid in processes else 0

    found, _ = _family([os.getpid()], processes)
    return {
        pid
        for pid in found
        if (ancestor := processes.get(parent_of(parent_of(pid)))) is not None and ancestor[1] == "java"
    }


def _family(pids: Iterable[int], processes: Mapping[int, _Process]) -> tuple[set[int], set[int]]:
    """All, and the executors among them."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, (parent, *_) in processes.items():
        children[parent].append(pid)
    own = _below(pids, children)
    executors = _executors_of([pid for pid in own if pid in processes and processes[pid][1] == "java"], processes)
    return {*own, *_below(executors, children)}, executors


def _anonymous_bytes(pid: int, *, is_forked: bool) -> int:
    """0 for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/{'smaps_rollup' if is_forked else 'status'}").read_text()
    except OSError:
        return 0
    found = _ANONYMOUS.search(text)
    return 0 if found is None else int(found[1]) << 10


def _below(pids: Iterable[int], children: Mapping[int, Sequence[int]]) -> list[int]:
    """These processes and their descendants."""
    found = list(pids)
    for pid in found:
        found += children.get(pid, ())
    return found


def _executors_of(jvms: Sequence[int], processes: Mapping[int, _Process]) -> set[int]:
    """The JVMs that run tasks for one of `jvms`."""
    drivers = {}
    for pid, (_, name, *_) in processes.items():
        if name == "java":
            with suppress(OSError):
                found = _DRIVER_PORT.search((Path("/proc") / str(pid) / "cmdline").read_bytes())
                if found is not None:
                    drivers[pid] = int(found[1])
    if not drivers:
        return set()
    ports = set().union(*map(_ports_of, jvms))
    return {pid for pid, port in drivers.items() if port in ports}


def _ports_of(pid: int) -> set[int]:
    """The ports on which a process listens."""
    process = Path("/proc") / str(pid)
    sockets, ports = set(), set()
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):
                sockets.add(str(entry.readlink()).removeprefix("socket:[").removesuffix("]"))
        for table in ("tcp", "tcp6"):
            for line in (process / "net" / table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING and fields[9] in sockets:
                    ports.add(int(fields[1].rpartition(":")[2], 16))
    return ports


def _processes() -> list[tuple[int, _Process]]:
    """All processes, by pid."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            text = (folder / "stat").read_text()
        except OSError:
            continue
        start, _, rest = text.rpartition(")")
        fields = rest.split()
        cpu_seconds = (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
        entry = int(fields[1]), start.partition("(")[2], cpu_seconds, int(fields[21])
        found.append((int(folder.name), entry))
    return found
