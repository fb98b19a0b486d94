"""The consumer group for the event loop: runs the feed's blocking calls on threads."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from candlewright.wire.errors import BusError, BusUnavailable
from core.background import awaited_task
from core.log import get_logger
from gateways.numaflow import metrics
from gateways.numaflow.feed import Fetched, GroupFeed
from gateways.numaflow.partitions import RecordId
from gateways.numaflow.state import Fetch

log = get_logger()

Result = TypeVar("Result")

#: How often the thread that waits for records checks whether the process is stopping.
_WAIT_SECONDS = 0.5
#: How long a stop waits for a bus that is down.
_LEAVE_SECONDS = 1.0


class GroupCalls:
    """Reads, acknowledgements and the wait for new records have separate threads, so none blocks another. All raise
    BusError; a group that expired, or whose topic was dropped, is made again once.
    """

    def __init__(self, feed: GroupFeed) -> None:
        self._feed = feed
        self._fetching = ThreadPoolExecutor(4, thread_name_prefix="numaflow")
        self._acking = ThreadPoolExecutor(2, thread_name_prefix="numaflow-ack")
        self._waiting = ThreadPoolExecutor(1, thread_name_prefix="numaflow-wait")
        self._news: asyncio.Future[None] | None = None
        #: Why the last call failed; empty if it succeeded.
        self.problem = ""

    async def open(self) -> None:
        await self._run(self._fetching, self._feed.open)

    async def fetch(self, fetch: Fetch) -> Fetched:
        return await self._run(self._fetching, self._feed.fetch, fetch)

    async def acknowledge(self, records: Sequence[RecordId]) -> int:
        return await self._run(self._acking, self._feed.acknowledge, records)

    async def refuse(self, deliveries: Mapping[RecordId, int], delay_seconds: float) -> None:
        await self._run(self._acking, self._feed.refuse, deliveries, delay_seconds)

    async def backlog(self) -> int:
        return await self._run(self._fetching, self._feed.backlog)

    async def is_ready(self) -> bool:
        return await self._run(self._fetching, self._feed.is_ready)

    def news(self) -> "asyncio.Future[None]":
        """Done when there may be a new record, and from time to time; shared by all waiters."""
        if self._news is None or self._news.done():
            self._news = awaited_task(self._run(self._waiting, self._feed.wait, _WAIT_SECONDS))
            self._news.add_done_callback(looked_at)
        return self._news

    async def leave(self) -> None:
        with contextlib.suppress(BusError, TimeoutError):
            leaving = asyncio.get_running_loop().run_in_executor(self._acking, self._feed.leave)
            await asyncio.wait_for(leaving, _LEAVE_SECONDS)

    def close(self) -> None:
        for pool in (self._fetching, self._acking, self._waiting):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _run(self, pool: ThreadPoolExecutor, call: Callable[..., Result], *arguments: Any) -> Result:
        loop = asyncio.get_running_loop()
        try:
            try:
                result = await loop.run_in_executor(pool, call, *arguments)
            except BusUnavailable:
                raise
            except BusError as error:
                metrics.GROUPS_MADE_ANEW.inc()
                log.warning("group_recreated", error=str(error))
                await loop.run_in_executor(pool, self._feed.open)
                result = await loop.run_in_executor(pool, call, *arguments)
        except BusError as error:
            self.problem = str(error)
            raise
        self.problem = ""
        return result


def looked_at(future: "asyncio.Future[Any]") -> None:
    """Discard a failure that nothing awaits any more: the next bus call fails too, and reports it."""
    if not future.cancelled():
        future.exception()
