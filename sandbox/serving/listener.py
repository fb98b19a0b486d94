"""The common interface of exchanges on loopback: an address that is open inside `async with`."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Iterable
from typing import Self

from aiohttp import web


class Listener(ABC):
    """Serves `routes()` on `host`; `port` 0 takes a free one."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._runner: web.AppRunner | None = None
        self._stopping = asyncio.Event()

    @abstractmethod
    def routes(self) -> web.Application:
        """The routes to serve, recreated for each start."""

    @abstractmethod
    def farewells(self) -> Iterable[Awaitable[None]]:
        """Functions that end the open connections."""

    @property
    def port(self) -> int:
        """The port it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """The base URL of the REST API; the websocket has the same host and port."""
        return f"http://{self._host}:{self._port}"

    async def start(self) -> None:
        """Listen. Raises OSError if the port is taken."""
        self._runner = web.AppRunner(self.routes(), access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections and the port."""
        self._stopping.set()
        await asyncio.gather(*self.farewells())
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self.stop()
