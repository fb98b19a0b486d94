"""A unix socket's file: who owns it, and when it may be removed."""

import os
import socket
import stat
from pathlib import Path

#: sockaddr_un holds 108 bytes, the last one zero.
MAX_PATH_BYTES = 107


def make_way(path: Path) -> None:
    """Remove the socket that a dead process left at `path`, and make its folder.

    Raises OSError if a process listens there, if the file is not a socket, and if the path is too long.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(f"the path of a unix socket has at most {MAX_PATH_BYTES} bytes: {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(f"{path} is not a socket, and is left unchanged")
    if _answers(path):
        raise OSError(f"another process listens on {path}")
    path.unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Identifies a file among others of the same name; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_own(path: Path, own: tuple[int, int] | None) -> None:
    """Remove `path` unless another process has replaced it."""
    if own is not None and identity(path) == own:
        path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:
            # A process listens, but its backlog is full or it is too slow.
            pass
        return True
