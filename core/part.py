"""What every part of the platform does around its work: its status page, and an orderly stop."""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from core.http import Status, StatusServer


def call_to_stop(stop: Callable[[], object]) -> None:
    """Calls `stop` on SIGTERM and Ctrl-C: from the event loop, if one runs in this thread."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop())
    else:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop)


def take_descriptors() -> None:
    """For a part with doors: as many connections as the machine's hard limit allows. The usual soft limit, 1,024, would
    let one peer that only opens connections keep all others out.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def serve_status(bind: str, status: Callable[[], Status]) -> StatusServer:
    """The status page of a part. A supervisor that started it finds the port in the file that it named.

    Raises OSError if the address cannot be bound.
    """
    port_file = os.environ.get("CANDLEWRIGHT_HTTP_PORT_FILE")
    return StatusServer(bind, status, port_file=Path(port_file) if port_file else None)
