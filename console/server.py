"""The process: one listening socket, with uvicorn in front of the application."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from candlewright.wire.errors import ConfigurationError
from console.app import application
from console.connection import Connection
from console.services import Services
from core.http import Status
from core.log import get_logger
from core.settings import Settings

__all__ = ["Console"]

log = get_logger()

_BACKLOG = 2_048
_KEEP_ALIVE_SECONDS = 30
#: How long a stop waits for running calls.
_STOP_SECONDS = 3
_MAX_FRAME_BYTES = 64 << 10
#: How often (s) the date of answers is set.
_DATE_SECONDS = 1.0


class Console:
    """Binds when created; raises ConfigurationError if that fails."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._services = Services(settings)
        self._socket = _listen(settings.console.bind)
        config = uvicorn.Config(
            application(self._services),
            http=Connection,
            ws="websockets-sansio",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_STOP_SECONDS,
            ws_max_size=_MAX_FRAME_BYTES,
            # Do not trust what a client says about its own address.
            proxy_headers=False,
        )
        self._server = _Server(config)

    @property
    def port(self) -> int:
        """The port in use, even if the settings ask for any free port."""
        return int(self._socket.getsockname()[1])

    async def serve(self) -> None:
        """Runs until `stop` is called."""
        log.info("console_serves", bind=self._settings.console.bind)
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            await self._services.close()

    def stop(self) -> None:
        # A reader whose stream ends reconnects immediately, and must not reach a server that is stopping.
        for server in getattr(self._server, "servers", ()):
            server.close()
        self._services.hub.close()
        self._server.leave()

    def status(self) -> Status:
        """For the status page; may be called from any thread."""
        settings = self._settings.console
        warnings = () if settings.is_open else _unencrypted(settings.bind)
        return Status(
            part="console",
            is_ready=self._server.started,
            problems=(),
            details={"bind": settings.bind},
            warnings=warnings,
        )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._leaving = asyncio.Event()

    async def main_loop(self) -> None:
        """Sleeps between two dates; uvicorn's own loop wakes ten times a second."""
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), _DATE_SECONDS)

    def leave(self) -> None:
        """Call from the event loop."""
        self.should_exit = True
        self._leaving.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process has its own signal handlers."""
        yield


def _unencrypted(bind: str) -> tuple[str, ...]:
    return (f"{bind} is reached without encryption: put a TLS proxy in front of it",)


def _listen(bind: str) -> socket.socket:
    host, _, port = bind.rpartition(":")
    name = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in name else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((name, int(port)))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"console.bind = {bind}: {error.strerror or error}") from error
    listener.setblocking(False)
    return listener
