"""`FreshBus`: an empty bus for each test, on one redis-server that all tests of a process share.

Each object gets its own database, so nothing has to be cleared between tests, and two buses of one test do not
meet. The server starts with the first bus (in about 0.1 s) and ends with the process.
"""

import itertools
import shutil
import tempfile
import weakref
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path

from bus.limits import DEFAULT_GROUP_EXPIRY_SECONDS, DEFAULT_MAX_BYTES, Limits
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus

_DATABASES = 4_096
_numbers = itertools.count()


class _Server(EmbeddedRedis):
    def command(self) -> list[str]:
        return [*super().command(), "--databases", str(_DATABASES), "--appendonly", "no"]


@cache
def _server() -> EmbeddedRedis:
    folder = Path(tempfile.mkdtemp(prefix="fresh-bus-"))
    server = _Server(folder, fsync="no").start()

    def end() -> None:
        server.kill()
        server.stop()  # nothing but the lock is left to close
        shutil.rmtree(folder, ignore_errors=True)

    # Unlike atexit, this also runs at the end of a fork of the tests, and only in the process that registered it.
    Finalize(None, end, exitpriority=0)
    return server


class FreshBus(RedisBus):
    def __init__(
        self,
        partitions: int = 4,
        max_bytes: int = DEFAULT_MAX_BYTES,
        group_expiry_seconds: float = DEFAULT_GROUP_EXPIRY_SECONDS,
        *,
        limits: Limits | None = None,
    ) -> None:
        number = next(_numbers) % _DATABASES
        url = _server().url.removesuffix("/0") + f"/{number}"
        super().__init__(
            url, partitions, max_bytes, group_expiry_seconds=group_expiry_seconds, limits=limits or Limits()
        )
        # A test that leaves one open would have its sockets found by the collector, in a test of another file.
        weakref.finalize(self, self._store.close)
        self._store.call("FLUSHDB")
