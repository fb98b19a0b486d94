"""One part as a process: started in a new session, found again by a mark in its environment, and killed with all its
processes.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
#: `<run id>/<part>`: every process that a part starts inherits it, whatever process group it moves to.
MARK = "CANDLEWRIGHT_SUPERVISED"
_PROC = Path("/proc")
#: glibc gives each thread its own heap, up to eight a core. Memory that one thread frees is not available to the
#: others, so that the parts, above all Spark with its many threads, grow for hours before they are as large as they
#: get. Arrow's own allocator has a heap for each thread as well, and gives back that of the thread that asks; what it
#: takes from glibc goes back with the rest. The threads of numpy's library for linear algebra first look for work
#: without a pause, for a tenth of a second of processor time in each process; at the lowest value they sleep at once.
LIBRARIES = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_THREAD_TIMEOUT": "4"}


def spawn(command: Sequence[str], environment: Mapping[str, str], mark: str, *, cwd: Path) -> "subprocess.Popen[bytes]":
    """Start `command` with its output on one pipe. Must be called in the main thread: the kernel's parent-death signal
    depends on the thread that forked. Raises OSError.
    """
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), *command],
        env={**LIBRARIES, **environment, MARK: mark},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )


def terminate(process: "subprocess.Popen[bytes]") -> None:
    """Ask the part itself to stop; it stops the processes that it started."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


def kill(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill the part's process group and everything else that carries its mark."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    kill_marked(mark)


def kill_marked(mark: str) -> int:
    """Kill every process whose mark is `mark`, or begins with `mark/`; returns how many there were."""
    found = marked(mark)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def marked(mark: str) -> list[int]:
    """Ids of the processes with the mark, except this one."""
    return [pid for pid, own in _marks() if own == mark or own.startswith(f"{mark}/")]


def of_parts(run: str, leaders: Mapping[str, int]) -> dict[str, set[int]]:
    """The process ids of each part: those with its mark, and the session of its leader, because redis-server overwrites
    its environment with its title.
    """
    found = {name: {leader} for name, leader in leaders.items()}
    by_leader = {leader: name for name, leader in leaders.items()}
    for pid, own in _marks():
        of_run, _, place = own.partition("/")
        name = place.partition("/")[0] if own else by_leader.get(_session(pid))
        if name in found and of_run in ("", run):
            found[name].add(pid)
    return found


def _marks() -> Iterator[tuple[int, str]]:
    """Every other process whose environment may be read, with its mark; empty if it has none."""
    start = f"\0{MARK}=".encode()
    for name in os.listdir(_PROC):  # noqa: PTH208
        if name.isdecimal() and int(name) != os.getpid():
            with suppress(OSError):
                own = (b"\0" + Path(f"{_PROC}/{name}/environ").read_bytes()).partition(start)[2]
                yield int(name), own.partition(b"\0")[0].decode(errors="replace")


def _session(pid: int) -> int:
    """The leader of its session; 0 if unknown."""
    try:
        # The name in brackets may hold anything; after it come state, parent, group and session.
        return int(Path(f"{_PROC}/{pid}/stat").read_text().rpartition(")")[2].split()[3])
    except (OSError, IndexError, ValueError):
        return 0


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes together; shared pages count once per process."""
    total = 0
    for pid in pids:
        with suppress(OSError, IndexError, ValueError):
            total += int((_PROC / str(pid) / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return total


def open_files(pids: Iterable[int]) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError):
            total += len(os.listdir(_PROC / str(pid) / "fd"))  # noqa: PTH208
    return total
