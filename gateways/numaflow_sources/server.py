"""Reads every source in the settings, each in its own task."""

import asyncio
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bus.api import Bus
from candlewright.wire.errors import BusError
from core.background import start_task
from core.log import get_logger
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow_sources.feed import SourceFeed
from gateways.records import MAX_AHEAD_NS
from gateways.tick_clocks import TickClocks

log = get_logger()

#: How long a stop waits for batches to be published and acknowledged; the source sends the rest again.
_GRACE_SECONDS = 5.0
_CLOCK_SECONDS = 1.0


class NumaflowSources:
    """A `gateways.gateway.Gateway` that does not listen."""

    name = "numaflow_sources"

    def __init__(
        self, sources: Mapping[str, NumaflowSourceSettings], bus: Bus, max_ahead_ns: int = MAX_AHEAD_NS
    ) -> None:
        """Raises ConfigurationError."""
        self._threads = ThreadPoolExecutor(1 + len(sources), thread_name_prefix="numaflow-sources")
        self._clocks = TickClocks(bus)
        self._feeds = [
            SourceFeed(name, settings, bus, threads=self._threads, clocks=self._clocks, max_ahead_ns=max_ahead_ns)
            for name, settings in sources.items()
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._telling: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._tasks = [start_task(feed.run, f"source {feed.name}") for feed in self._feeds]
        self._telling = start_task(self._tell_time, "source clocks", restarts_after=_CLOCK_SECONDS)

    async def stop(self) -> None:
        for feed in self._feeds:
            feed.stop()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_GRACE_SECONDS)
        ending = [*self._tasks, *([self._telling] if self._telling is not None else [])]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _tell_time(self) -> None:
        """Ends the minutes of tickers that fell silent."""
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            try:
                await asyncio.get_running_loop().run_in_executor(self._threads, self._clocks.publish_due)
            except BusError as error:
                log.warning("minutes_not_ended", error=str(error))

    def problems(self) -> tuple[str, ...]:
        return tuple(f"{feed.name}: {feed.problem}" for feed in self._feeds if feed.problem)

    def details(self) -> Mapping[str, Any]:
        return {"sources": {feed.name: feed.details() for feed in self._feeds}}
