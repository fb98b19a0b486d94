"""The bus for code on the event loop: its calls block, so they run on a few threads."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from bus.api import Bus, TopicPartition
from bus.messaging import Messaging
from gateways.rocketmq.feed import Feed

_THREADS = 16

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Store:
    """`bus` and `queue` for calls made through `run`, and notification of new records."""

    def __init__(self, bus: Bus, queue: Messaging) -> None:
        self.bus = bus
        self.queue = queue
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="rocketmq")
        self._feed = Feed(bus)

    async def run(
        self, call: Callable[Parameters, Result], *arguments: Parameters.args, **options: Parameters.kwargs
    ) -> Result:
        """`call` on another thread. It runs to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: call(*arguments, **options))

    def start(self) -> None:
        self._feed.start(asyncio.get_running_loop())

    def stop_watching(self) -> None:
        """Stop notifying of new records."""
        self._feed.end()

    async def stop(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._feed.stop)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.queue.close()

    def watch(self, places: Iterable[TopicPartition], event: asyncio.Event) -> None:
        """Clear `event`, and set it once at the next record of any of `places`. Call before looking for records."""
        event.clear()
        self._feed.watch(places, event)

    def unwatch(self, places: Iterable[TopicPartition], event: asyncio.Event) -> None:
        self._feed.unwatch(places, event)

    def nudge(self, places: Iterable[TopicPartition]) -> None:
        """Let waiters of `places` look again."""
        self._feed.nudge(places)

    @property
    def waiting(self) -> int:
        """Number of events waiting for records."""
        return self._feed.waiting

    def nudge_all(self) -> None:
        self._feed.nudge(self._feed.places())


async def set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event`, at most `seconds`; returns whether it was set."""
    try:
        await asyncio.wait_for(event.wait(), max(0.001, seconds))
    except TimeoutError:
        return False
    return True
