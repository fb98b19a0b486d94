"""The supervisor's page of all parts, and the heartbeat for the whole platform."""

import asyncio
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from alerts.watch import Snapshot
from core.http import SUPERVISOR_PORT_FILE
from core.log import get_logger

__all__ = ["Pages"]

log = get_logger()

_SECONDS = 5.0


class Pages:
    """`data_dir`: that of the platform to which this process belongs."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._session: aiohttp.ClientSession | None = None

    async def look(self) -> Snapshot:
        """A snapshot of the parts; empty if no supervisor answers."""
        page = await self._page(self._data_dir / "run" / SUPERVISOR_PORT_FILE)
        # A process that runs alone may have no data directory yet.
        folder = next(each for each in (self._data_dir, *self._data_dir.parents) if each.exists())
        disk = shutil.disk_usage(folder)
        return Snapshot(page.get("parts", {}), disk.free, disk.total, time.time())

    async def beat(self, url: str) -> None:
        """Report to an external dead-man's switch that this platform is alive. A failure is only logged."""
        try:
            async with asyncio.timeout(_SECONDS), self._open().get(url, allow_redirects=False) as answer:
                if answer.status >= 300:
                    log.warning("heartbeat_failed", status=answer.status)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            log.warning("heartbeat_failed", error=type(error).__name__)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _page(self, port_file: Path) -> Mapping[str, Any]:
        try:
            url = f"http://127.0.0.1:{int(port_file.read_text())}/status"
            async with asyncio.timeout(_SECONDS), self._open().get(url) as answer:
                page = await answer.json()
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError):
            return {}
        return page if isinstance(page, dict) else {}

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        return self._session
