"""The bus blocks; the event loop must not: calls go to a few threads."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bus.api import Bus
from gateways import records

Result = TypeVar("Result")

_THREADS = 16


class BusCalls:
    """Calls beyond the number of threads wait for one; each caller bounds how many of its own are under way."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafka-pixy-bus")

    async def run(self, call: Callable[[], Result]) -> Result:
        """Raises what the call raises. One that was begun runs to its end, even when the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Wait for the calls under way, and begin no other."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def make_topic(bus: Bus, topic: str, partitions: int) -> int:
    """On a thread: the number of partitions of `topic`, which exists then; `partitions`: of one that only clients know,
    0 as the bus does.
    """
    wanted = None if records.is_platform(topic) else partitions or None
    return bus.partitions(topic) or bus.create_topic(topic, wanted)
