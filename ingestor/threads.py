"""Runs the synchronous calls of the bus in a few threads, off the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from ingestor.progress import Progress

Result = TypeVar("Result")

#: Longer (s) than the bus waits for its store before it gives up.
BUS_SECONDS = 30.0


class BusThreads:
    """At most `threads` bus calls run at a time; others wait."""

    def __init__(self, threads: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="bus")

    async def run(self, call: Callable[[], Result], progress: Progress | None = None) -> Result:
        """`call()` in a thread. A cancelled caller does not stop the call, which ends by itself."""
        if progress is not None:
            progress.expect(BUS_SECONDS)
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
