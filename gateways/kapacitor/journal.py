"""Lines for the daemon's log: short, for a daemon stops reading after one line over 64 KiB, and a function whose log
no process reads hangs. Written without the logging library, which takes longer to load than the first answer should.
"""

import os
import threading
import time

__all__ = ["MAX_LINE", "say"]

MAX_LINE = 1_000
_STDERR = 2
_lock = threading.Lock()


def say(event: str, **fields: object) -> None:
    """One line on stderr, at most `MAX_LINE` bytes with its end."""
    clock = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = " ".join(
        f"{name}={value!r}" if isinstance(value, str) else f"{name}={value}" for name, value in fields.items()
    )
    line = f"{clock} {event} {told}".encode(errors="replace")[: MAX_LINE - 1].replace(b"\n", b" ") + b"\n"
    try:
        with _lock:
            os.write(_STDERR, line)
    except OSError:
        # No process reads the log; the work continues.
        pass
