"""What the processes of a benchmark use: peaks of resident memory and processor time, by part, from /proc."""

import os
import threading
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = ["ProcessTree"]

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAUSE_SECONDS = 0.2
_PARTS = {"java": "jvm", "redis-server": "redis"}


class ProcessTree:
    """This process (`driver`) and its descendants: `jvm`, `redis`, and `workers`, which stand for all others.

    Within `with`, `peak_bytes` keeps the largest resident memory of each part, and `cpu_seconds` gives what each has
    used since. Pages that forked workers share are counted in each of them.
    """

    def __init__(self) -> None:
        self.peak_bytes: dict[str, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="process-tree", daemon=True)
        self._cpu_at_start: dict[tuple[str, int], float] = {}
        self._cpu: dict[tuple[str, int], float] = {}

    @property
    def cpu_seconds(self) -> dict[str, float]:
        used: dict[str, float] = defaultdict(float)
        for (part, pid), seconds in self._cpu.items():
            used[part] += seconds - self._cpu_at_start.get((part, pid), 0.0)
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

    def _look(self) -> None:
        processes = dict(_processes())
        children = defaultdict(list)
        for pid, (parent, *_) in processes.items():
            children[parent].append(pid)
        used: dict[str, int] = defaultdict(int)
        waiting = [os.getpid()]
        while waiting:
            pid = waiting.pop()
            waiting += children[pid]
            _, name, cpu_seconds, resident = processes[pid]
            part = "driver" if pid == os.getpid() else _PARTS.get(name, "workers")
            used[part] += resident
            self._cpu[part, pid] = cpu_seconds
        for part, resident in used.items():
            self.peak_bytes[part] = max(resident, self.peak_bytes.get(part, 0))


def _processes() -> list[tuple[int, tuple[int, str, float, int]]]:
    """(pid, (parent, name, processor seconds, resident bytes)) of all that are there."""
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
        entry = int(fields[1]), start.partition("(")[2], cpu_seconds, int(fields[21]) * _PAGE_BYTES
        found.append((int(folder.name), entry))
    return found
