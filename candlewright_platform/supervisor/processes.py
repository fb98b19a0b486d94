"""One part as a process: started in a session of its own, found again by a mark in its environment, killed whole."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
#: `<run id>/<part>`: every process that a part starts inherits it, whatever process group it moves to.
MARK = "CANDLEWRIGHT_SUPERVISED"
_PROC = Path("/proc")
#: glibc gives each thread a heap of its own, up to eight a core. What one frees is of no use to the others, so that the
#: parts, above all Spark with its many threads, grow for hours before they are as large as they get. Arrow's own
#: allocator has a heap for each thread as well, and gives back that of the thread that asks; what it takes from glibc
#: goes back with the rest.
MEMORY = {"MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def spawn(command: Sequence[str], environment: Mapping[str, str], mark: str, *, cwd: Path) -> "subprocess.Popen[bytes]":
    """Start `command` with its output on one pipe. Must be called in the main thread: the kernel's parent-death signal
    goes by the thread that forked. Raises OSError.
    """
    return subprocess.Popen(
        [sys.executable, "-S", "-E", str(GUARD), str(os.getpid()), *command],
        env={**MEMORY, **environment, MARK: mark},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        start_new_session=True,
    )


def terminate(process: "subprocess.Popen[bytes]") -> None:
    """Ask the part itself to stop; what it started is its own to stop."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)


def kill(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """Kill the part's process group and everything else that carries its mark."""
    if process.poll() is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    kill_marked(mark)


def kill_marked(mark: str) -> int:
    """Kill every process whose mark is `mark`, or lies under it (`mark/…`); returns how many there were."""
    found = marked(mark)
    for pid in found:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    return len(found)


def marked(mark: str) -> list[int]:
    """Process ids that carry the mark, this process excepted."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in _PROC.glob("[0-9]*"):
        pid = int(folder.name)
        if pid == os.getpid():
            continue
        with suppress(OSError):
            for entry in (folder / "environ").read_bytes().split(b"\0"):
                if entry == wanted or entry.startswith(wanted + b"/"):
                    found.append(pid)
                    break
    return found


def session_of(leader: int) -> list[int]:
    """Process ids in the session that `leader` leads: redis-server writes its title over its environment."""
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):
            # The name in brackets may hold anything; after it come state, parent, group and session.
            if int((folder / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(int(folder.name))
    return found


def resident_bytes(pids: Iterable[int]) -> int:
    """Memory of these processes together; pages that they share count once for each."""
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
