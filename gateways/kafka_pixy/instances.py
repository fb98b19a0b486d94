"""Which gateways live, so that what a killed one held goes to others at once.

Each says so every second, and is forgotten some seconds after its last word. One that starts on the machine where
another was killed sees at once that there is no such process any more. While the bus is away nobody can say anything:
for some seconds after that only those are ended of which it can be seen.
"""

import math
import os
import secrets
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from bus.api import Bus

TABLE = "kafka_pixy_instances"
#: Consumers of gateways, told from those of others that share a group.
PREFIX = "kafka-pixy-"
BEAT_SECONDS = 1.0
KEEP_SECONDS = 6.0


class Instances:
    """`name`: of this gateway, as a consumer of its groups; `is_alone`: whether no other one lived at the last beat."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = PREFIX + secrets.token_hex(8)
        self.is_alone = False
        self._bus = bus
        self._clock = clock
        self._beaten_at = math.inf
        self._sure_from = -math.inf
        self._place = _place()
        self._own = f"{self._place} {os.getpid()} {_started(os.getpid())}".encode()

    def beat(self) -> None:
        """Say that this one lives, before it takes anything. Raises BusError."""
        self._bus.put(TABLE, {self.name: self._own}, keep_seconds=KEEP_SECONDS)
        now = self._clock()
        if self._was_silent(now):
            self._sure_from = now + KEEP_SECONDS
        self._beaten_at = now
        known = self._bus.items(TABLE)
        self.is_alone = all(name == self.name or self._has_ended(process) for name, process in known.items())

    def ended(self, consumers: Iterable[str]) -> set[str]:
        """Those of `consumers` that were gateways, and live no more. Raises BusError.

        The bus is asked only where there are other gateways at all.
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
        """Whether so much time passed since the last word that those of others may be forgotten as well."""
        return now - self._beaten_at > KEEP_SECONDS / 2

    def _has_ended(self, process: bytes) -> bool:
        """Whether it is certain that the process is no more; of another machine that cannot be known here."""
        place, _, rest = process.decode(errors="replace").partition(" ")
        pid, _, started = rest.partition(" ")
        return place == self._place and pid.isdecimal() and _started(int(pid)) != started


def _place() -> str:
    """This boot of this machine, and the namespace that process ids are of."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return secrets.token_hex(8)


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks; empty for one that does not run."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return ""
    # A killed process that nobody has waited for yet is a zombie.
    return "" if fields[0] in "ZX" else fields[19]
