"""Keeps two drivers on one data directory apart.

A driver is two processes, Python and its JVM, and the JVM outlives a killed Python by some seconds, in which a commit
that was under way may still land. So the lock is a file lock (flock) whose descriptor the JVM inherits: the kernel
holds it until *both* are gone, whatever killed them, and the next driver waits for it before it reads a table.
"""

import fcntl
import os
import time
from pathlib import Path

from candlewright.wire.errors import ConfigurationError


class DriverLock:
    """The lock is held from `acquire` until `close` and the end of every process that inherited `descriptor`."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "run" / "spark-driver.lock"
        self.descriptor = -1

    def acquire(self, timeout_seconds: float = 60.0) -> float:
        """Seconds waited; raises ConfigurationError when another driver still lives after `timeout_seconds`."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() - started > timeout_seconds:
                    self.close()
                    raise ConfigurationError(f"another Spark driver holds {self.path}") from None
                time.sleep(0.05)
            else:
                return time.monotonic() - started

    def close(self) -> None:
        """Let go on this side; an inherited copy of the descriptor keeps the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
