"""Tracks which gateways are alive, so that others take over the records of a killed one immediately.

Each gateway beats every second, and is forgotten a few seconds after its last beat. A gateway on the machine where
another was killed sees immediately that the process is gone. While the bus is down no gateway can beat, so for a few
seconds after an outage only gateways whose process is visibly gone count as ended.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bus.api import KeyedTables

TABLE = "kafka_pixy_instances"
#: Prefix of gateways' consumer names, which distinguishes them from other consumers of a group.
PREFIX = "kafka-pixy-"
BEAT_SECONDS = 1.0
KEEP_SECONDS = 6.0


class Instances:
    """`name`: this gateway as a consumer of its groups; `is_alone`: no other gateway was alive at the last beat."""

    def __init__(self, bus: KeyedTables, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = PREFIX + secrets.token_hex(8)
        self.is_alone = False
        self._bus = bus
        self._clock = clock
        self._beaten_at = math.inf
        self._sure_from = -math.inf
        self._place = _place()
        self._own = f"{self._place} {os.getpid()} {_started(os.getpid())}".encode()

    def beat(self) -> None:
        """Announce this gateway before it takes any record. Raises BusError."""
        self._bus.put(TABLE, {self.name: self._own}, keep_seconds=KEEP_SECONDS)
        now = self._clock()
        if self._was_silent(now):
            self._sure_from = now + KEEP_SECONDS
        self._beaten_at = now
        known = self._bus.items(TABLE)
        self.is_alone = all(name == self.name or self._has_ended(process) for name, process in known.items())

    def ended(self, consumers: Iterable[str]) -> set[str]:
        """The gateways among `consumers` that are no longer alive. Raises BusError.

        The bus is queried only if there are other gateways at all.
        """
        others = {name for name in consumers if name.startswith(PREFIX)} - {self.name}
        if not others:
            return set()
        known = self._bus.items(TABLE)
        gone = {name for name in others & known.keys() if self._has_ended(known[name])}
        now = self._clock()
        is_sure = now >= self._sure_from and not self._was_silent(now)
        return gone | (others - known.keys() if is_sure else set())

    def leave(self) -> None:
        """Raises BusError."""
        self._bus.delete(TABLE, [self.name])

    def _was_silent(self, now: float) -> bool:
        """Whether the last beat is so old that other gateways' beats may have been forgotten too."""
        return now - self._beaten_at > KEEP_SECONDS / 2

    def _has_ended(self, process: bytes) -> bool:
        """Whether the process is certainly gone; never certain for a process on another machine."""
        place, _, rest = process.decode(errors="replace").partition(" ")
        pid, _, started = rest.partition(" ")
        return place == self._place and pid.isdecimal() and _started(int(pid)) != started


def _place() -> str:
    """Identifies this boot of this machine, and the namespace of its process ids."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return secrets.token_hex(8)


def _started(pid: int) -> str:
    """When a process started, in kernel ticks; empty if it is not running."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    # A killed process that its parent has not reaped yet is a zombie.
    return "" if fields[0] in "ZX" else fields[19]
