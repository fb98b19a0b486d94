"""A unix socket's file: whose it is, and when it may be taken away."""

import os
import socket
import stat
from pathlib import Path

#: sockaddr_un holds 108 bytes, the last one zero.
MAX_PATH_BYTES = 107


def make_way(path: Path) -> None:
    """Remove what a dead process left at `path`, and make its folder.

    Raises OSError when somebody listens there, when what lies there is no socket, and for a path that is too long.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise OSError(f"the path of a unix socket has at most {MAX_PATH_BYTES} bytes: {path}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise OSError(f"{path} is no socket: it is left as it is")
    if _answers(path):
        raise OSError(f"another process listens on {path}")
    path.unlink(missing_ok=True)


def identity(path: Path) -> tuple[int, int] | None:
    """Tells a file from another one of the same name; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove_own(path: Path, own: tuple[int, int] | None) -> None:
    """Remove `path` unless it is another's by now."""
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
            # Somebody does, who has no room for one more or no time.
            pass
        return True
