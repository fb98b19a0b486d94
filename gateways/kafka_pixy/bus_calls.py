"""Runs the bus's blocking calls on a few threads, so that the event loop never blocks."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from bus.api import Log
from gateways import records

Result = TypeVar("Result")

_THREADS = 16


class BusCalls:
    """Calls beyond the number of threads queue; each caller bounds the number of its own calls."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="kafka-pixy-bus")

    async def run(self, call: Callable[[], Result]) -> Result:
        """Raises what the call raises. A call that has started runs to its end, even if the caller is cancelled."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, call)

    def close(self) -> None:
        """Wait for the calls under way, and start no more."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def make_topic(bus: Log, topic: str, partitions: int) -> int:
    """On a thread: make `topic` if needed, and return its number of partitions. `partitions`: for a new topic of
    clients; 0 is the bus's default.
    """
    wanted = None if records.is_platform(topic) else partitions or None
    return bus.partitions(topic) or bus.create_topic(topic, wanted)
