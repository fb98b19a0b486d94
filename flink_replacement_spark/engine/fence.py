"""Has a driver wait for the JVM of the previous one it on the same data directory.

A driver is two processes, Python and its JVM, and the JVM outlives a killed Python by some seconds, in which a commit
that was under way may still land. So the lock is a file lock (flock) whose descriptor the JVM inherits: the kernel
holds it until *both* are gone, whatever killed them, and the next driver waits for it before it starts a JVM of its
own, which needs the same port. It waits for a bounded time: the role decides which of two drivers serves
(`bus.roles`), and each commit is checked against what the table holds.
"""

import fcntl
import os
import time
from pathlib import Path


class DriverLock:
    """The lock is held from `acquire` until `close` and the end of every process that inherited `descriptor`."""

    def __init__(self, data_dir: Path) -> None:
        self.path = data_dir / "run" / "spark-driver.lock"
        self.descriptor = -1

    def acquire(self, timeout_seconds: float = 5.0) -> bool:
        """False where another driver still lives after `timeout_seconds`: this one stands by without the lock."""
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
