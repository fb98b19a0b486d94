"""`candlewright kapacitor-udf`: functions that a Kapacitor daemon runs. Little is loaded before its first answer."""

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from core.errors import ConfigurationError
from gateways.kapacitor import server
from gateways.kapacitor.functions import function_named

if TYPE_CHECKING:
    from bus.api import Bus
    from core.settings import Settings

#: Where settings can be; without any of them there is nothing to read for a function on stdin.
_SETTINGS = ("CANDLEWRIGHT_CONFIG", "CANDLEWRIGHT_GATEWAYS__KAPACITOR", "CANDLEWRIGHT_GATEWAYS__KAPACITOR__SOCKET")


def serve(function: str, is_batch: bool, path: str | None, data_dir: Path | None, config: Path | None) -> None:
    """Until the daemon closes its side, or SIGTERM. Exit code 1 where it ended with an error."""

    def settings() -> "Settings":
        from candlewright.cli.loading import settings_for

        return settings_for(config, data_dir)

    def open_bus() -> "Bus":
        from bus.connect import connect
        from candlewright.supervisor.parts import bus_url_of

        found = settings()
        url = bus_url_of(found)
        if not url:
            raise ConfigurationError("bus.url is not set, and no platform has run on this data directory")
        return connect(found.bus.model_copy(update={"url": url}))

    if path is None and (config or Path("candlewright.toml").exists() or any(name in os.environ for name in _SETTINGS)):
        path = settings().gateways.kapacitor.socket
    kind = function_named(function, open_bus)
    if not path:
        raise typer.Exit(0 if server.serve_process(kind, is_batch) else 1)
    grace_seconds = settings().gateways.kapacitor.timeout_seconds
    try:
        listening = server.SocketServer(kind, is_batch, path, grace_seconds)
    except OSError as error:
        print(f"candlewright: {path}: {error.strerror}", file=sys.stderr)
        raise typer.Exit(1) from error
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: listening.stop())
    listening.serve()
