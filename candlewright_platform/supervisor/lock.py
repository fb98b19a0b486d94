"""One supervisor per data directory."""

import fcntl
import json
import os
from pathlib import Path
from typing import Self

from candlewright.wire.errors import ConfigurationError


class DataDirectoryLock:
    """Held until `release()` or the end of the process, even by a kill.

    `previous_run` is the run id of the previous supervisor, whose processes may still run if it was killed; empty in a
    copy of a directory, since those processes belong to the original.
    """

    def __init__(self, descriptor: int, previous_run: str) -> None:
        self._descriptor = descriptor
        self.previous_run = previous_run

    @classmethod
    def acquire(cls, data_dir: Path) -> Self:
        """Raises ConfigurationError when another supervisor holds it, or the directory cannot be written."""
        file = data_dir / "run" / "up.lock"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(f"data_dir {data_dir} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            known = _content(descriptor)
            os.close(descriptor)
            owner = f" (process {known['pid']})" if "pid" in known else ""
            raise ConfigurationError(
                f"another `candlewright up`{owner} runs on {data_dir}: stop it, or choose another --data-dir"
            ) from error
        known = _content(descriptor)
        is_copy = known.get("inode", _inode(descriptor)) != _inode(descriptor)
        return cls(descriptor, "" if is_copy else str(known.get("run", "")))

    def announce(self, run: str) -> None:
        content = json.dumps({"pid": os.getpid(), "run": run, "inode": _inode(self._descriptor)}).encode()
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, content, 0)

    def release(self) -> None:
        os.close(self._descriptor)


def _inode(descriptor: int) -> int:
    return os.fstat(descriptor).st_ino


def _content(descriptor: int) -> dict[str, object]:
    try:
        known = json.loads(os.pread(descriptor, 4_096, 0) or b"{}")
    except ValueError:
        return {}
    return known if isinstance(known, dict) else {}
