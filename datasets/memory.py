"""A limit for reading files of unknown origin, whose libraries allocate whatever the files claim."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_STATUS = Path("/proc/self/status")


@contextmanager
def at_most(more_bytes: int) -> Iterator[None]:
    """Until the end of the block, this process cannot allocate more than this on top of what it has: MemoryError.

    Only Linux has such a limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _allocated() + more_bytes
    if not _STATUS.exists() or resource.RLIM_INFINITY != soft <= wanted:
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _allocated() -> int:
    lines = _STATUS.read_text().splitlines()
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmData:")), 0)
