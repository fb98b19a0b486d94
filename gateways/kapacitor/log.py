"""Writes lines for the daemon's log.

They are short, because a daemon stops reading after a line of more than 64 KiB, and a function whose log is not read
hangs. The logging library is not used, because importing it takes longer than the first answer should.
"""

import os
import threading
import time

__all__ = ["MAX_LINE", "say"]

MAX_LINE = 1_000
_STDERR = 2
_lock = threading.Lock()


def say(event: str, **fields: object) -> None:
    """Writes one line to stderr, of at most `MAX_LINE` bytes including its end."""
    clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = " ".join(
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in fields.items()
    )
    line = f"{clock} {event} {told}".encode(errors="replace")[: MAX_LINE - 1].replace(b"\n", b" ") + b"\n"
    try:
        with _lock:
            os.write(_STDERR, line)
    except OSError:
        # The log is no longer read; the work continues.
        pass
