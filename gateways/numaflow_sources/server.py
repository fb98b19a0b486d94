"""All sources that the settings name, each read by a task of its own."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bus.api import Bus
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow_sources.reader import SourceReader

#: How long a stop waits for batches to be published and acknowledged; what is not comes again.
_GRACE_SECONDS = 5.0


class NumaflowSources:
    """A `gateways.gateway.Gateway` that listens nowhere."""

    name = "numaflow_sources"

    def __init__(self, sources: Mapping[str, NumaflowSourceSettings], bus: Bus) -> None:
        """Raises ConfigurationError."""
        self._threads = ThreadPoolExecutor(max(1, len(sources)), thread_name_prefix="numaflow-sources")
        self._readers = [SourceReader(name, settings, bus, self._threads) for name, settings in sources.items()]
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(reader.run()) for reader in self._readers]

    async def stop(self) -> None:
        for reader in self._readers:
            reader.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def problems(self) -> tuple[str, ...]:
        return tuple(f"{reader.name}: {reader.problem}" for reader in self._readers if reader.problem)

    def details(self) -> Mapping[str, Any]:
        return {"sources": {reader.name: reader.details() for reader in self._readers}}
