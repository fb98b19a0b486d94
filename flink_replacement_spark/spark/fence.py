"""Makes a driver wait for the JVM of the previous driver on the same data directory.

A driver is two processes, Python and its JVM, and the JVM outlives a killed Python by some seconds, in which a commit
under way may still succeed. So the lock is a file lock (flock) whose descriptor the JVM inherits. The kernel holds it
until *both* have ended, however they ended, and the next driver waits for it before it starts its own JVM, which needs
the same port. The wait is bounded, because the role decides which of two drivers serves (`bus.roles`), and each commit
is checked against the table.
"""

import fcntl
import os
import time
from pathlib import Path


class DriverLock:
    """The lock is held from `acquire` until `close`, and until every process that inherited `descriptor` has ended."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "run" / "spark-driver.lock"
        self.descriptor = -1

    def acquire(self, timeout_seconds: float = 5.0) -> bool:
        """Take the lock; False if another driver is still alive after `timeout_seconds`, so this one stands by without
        the lock.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        started = time.monotonic()
        while True:
            try:
                fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() - started > timeout_seconds:
                    return False
                time.sleep(0.05)
            else:
                return True

    def close(self) -> None:
        """Release it on this side; an inherited copy of the descriptor keeps the lock."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
