"""`candlewright kapacitor-udf`: functions that a Kapacitor daemon runs. Little is loaded before its first answer."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from candlewright.wire.errors import ConfigurationError
from gateways.kapacitor import server
from gateways.kapacitor.functions import function_named
from gateways.kapacitor.log import say

if TYPE_CHECKING:
    from bus.api import Bus
    from core.settings import Settings

#: Where settings may come from; if none is set, a function on stdin reads no settings.
_SETTINGS = ("CANDLEWRIGHT_CONFIG", "CANDLEWRIGHT_GATEWAYS__KAPACITOR", "CANDLEWRIGHT_GATEWAYS__KAPACITOR__SOCKET")


def serve(
    function: str, *, is_batch: bool, path: str | None, http: str | None, data_dir: Path | None, config: Path | None
) -> None:
    """Serve until the daemon closes its side, or SIGTERM arrives. Exit code 1 after an error.

    `http`: the address of the status page of a server on a socket.
    """

    def settings() -> "Settings":
        from candlewright_platform.cli.machine.loading import settings_for

        return settings_for(config, data_dir)

    def open_bus() -> "Bus":
        from bus.connect import connect
        from candlewright_platform.supervisor.parts import bus_url_of

        found = settings()
        url = bus_url_of(found)
        if not url:
            raise ConfigurationError("bus.url is not set, and no platform has run on this data directory")
        return connect(found.bus.model_copy(update={"url": url}))

    if path is None and (config or Path("candlewright.toml").exists() or any(name in os.environ for name in _SETTINGS)):
        path = settings().gateways.kapacitor.socket
    kind = function_named(function, open_bus, lambda: settings().ticks.max_ahead_ns)
    if http and not path:
        raise typer.BadParameter("only a server on a socket has a status page", param_hint="--http")
    if not path:
        raise typer.Exit(0 if server.serve_process(kind, is_batch=is_batch) else 1)
    grace_seconds = settings().gateways.kapacitor.timeout_seconds
    try:
        listening = server.SocketServer(kind, is_batch=is_batch, path=path, grace_seconds=grace_seconds)
    except OSError as error:
        print(f"candlewright: {path}: {error.strerror}", file=sys.stderr)
        raise typer.Exit(1) from error
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: listening.stop())
    with status_page(http, function, listening) if http else nullcontext():
        listening.serve()


@contextmanager
def status_page(bind: str, function: str, listening: server.SocketServer) -> Iterator[None]:
    from core.http import Status, StatusServer

    def status() -> Status:
        details = {"function": function, "connections": listening.connections, "counts": listening.counts}
        return Status(part="kapacitor-udf", is_ready=True, details=details)

    def metrics() -> bytes:
        name, label = "candlewright_kapacitor_udf", f'function="{function}"'
        counted = [f'{name}_total{{{label},what="{key}"}} {count}' for key, count in sorted(listening.counts.items())]
        lines = [
            f"# TYPE {name}_connections gauge", f"{name}_connections{{{label}}} {listening.connections}",
            f"# TYPE {name}_total counter", *counted, "",
        ]  # fmt: skip
        return "\n".join(lines).encode()

    try:
        page = StatusServer(bind, status, metrics)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"no status page at {bind}: {error}") from error
    say("status_page", port=page.port)
    try:
        yield
    finally:
        page.close()
