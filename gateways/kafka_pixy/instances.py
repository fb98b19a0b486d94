"""Which gateways live, so that what a killed one held goes to others at once.

Each says so every second, and is forgotten some seconds after its last word. One that starts on the machine where
another was killed sees at once that there is no such process any more.
"""

import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from bus.api import Bus

TABLE = "kafka_pixy_instances"
#: Consumers of gateways, told from those of others that share a group.
PREFIX = "kafka-pixy-"
BEAT_SECONDS = 1.0
KEEP_SECONDS = 6.0


class Instances:
    """`name`: of this gateway, as a consumer of its groups."""

    def __init__(self, bus: Bus) -> None:
        self.name = PREFIX + secrets.token_hex(8)
        self._bus = bus
        self._place = _place()
        self._own = f"{self._place} {os.getpid()} {_started(os.getpid())}".encode()

    def beat(self) -> None:
        """Say that this one lives, before it takes anything. Raises BusError."""
        self._bus.put(TABLE, {self.name: self._own}, keep_seconds=KEEP_SECONDS)

    def living(self) -> frozenset[str]:
        """Raises BusError."""
        known = self._bus.items(TABLE)
        return frozenset(name for name, process in known.items() if not self._has_ended(process))

    def leave(self) -> None:
        """Raises BusError."""
        self._bus.delete(TABLE, [self.name])

    def _has_ended(self, process: bytes) -> bool:
        """Whether it is certain that the process is no more; of another machine that cannot be known here."""
        place, _, rest = process.decode(errors="replace").partition(" ")
        pid, _, started = rest.partition(" ")
        return place == self._place and pid.isdecimal() and _started(int(pid)) != started


def ended(consumers: Iterable[str], living: Callable[[], frozenset[str]]) -> set[str]:
    """Those that were gateways and live no more; `living` is asked only where there are gateways at all."""
    gateways = {name for name in consumers if name.startswith(PREFIX)}
    return gateways - living() if gateways else set()


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
