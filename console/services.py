"""What handlers need from outside: the platform's client, the tables, the supervisor's page."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

from candlewright.client import AsyncClient, Market, aconnect
from console.live.hub import Hub
from console.stored import Tables
from console.work.pool import Workers
from core.doors import KeyFolder, KnownTokens, Role
from core.http import supervisor_page
from core.settings import Settings

__all__ = ["Services"]

#: The platform compares requests by their client's name, so it stays the same over restarts.
_NAME = "console"


class Services:
    """Made once per process; the client is opened by the first call that needs it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.tokens = KnownTokens(KeyFolder(settings.data_dir))
        self.tables = Tables(settings)
        self.workers = Workers(settings)
        self.hub = Hub(self.client, settings.console.max_streams)
        self._client: AsyncClient | None = None
        self._markets: dict[str, tuple[float, Sequence[Market]]] = {}

    async def client(self) -> AsyncClient:
        """One client for all calls: it runs any number at once, and reconnects to the relay by itself."""
        if self._client is None:
            settings = self.settings
            key = KeyFolder(settings.data_dir).own(_NAME, Role.client) if settings.security.curve else None
            self._client = aconnect(settings=settings, client_id=_NAME, key=key)
        return await self._client

    async def markets(self, venue: str, fresh_seconds: float) -> Sequence[Market]:
        """The markets of a venue, at most this old. Raises InvalidRequest for an unknown venue."""
        at, found = self._markets.get(venue, (-math.inf, ()))
        if time.monotonic() - at > fresh_seconds:
            found = tuple(await (await self.client()).markets(venue))
            self._markets[venue] = time.monotonic(), found
        return found

    async def supervisor(self) -> Mapping[str, Any] | None:
        """The status page of all parts; None if no supervisor runs here, as in containers."""
        return await asyncio.to_thread(supervisor_page, self.settings.data_dir)

    async def close(self) -> None:
        await self.workers.close()
        if self._client is not None:
            await self._client.close()
