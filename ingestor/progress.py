"""How a job's task proves that it is alive: it announces how long it may be silent, and a stuck task exceeds that."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from core.background import awaited_task


class Progress:
    """`expect` is called before every wait; heartbeats stop when the wait takes longer than announced.

    `is_background`: the job is the platform's own, and uses only its share of the exchange's rate.
    """

    def __init__(self, on_expect: Callable[[float], None] | None = None, *, is_background: bool = False) -> None:
        self._on_expect = on_expect
        self.is_background = is_background

    def expect(self, seconds: float) -> None:
        """Announce that the next sign of life follows within `seconds`."""
        if self._on_expect is not None:
            self._on_expect(time.monotonic() + seconds)

    async def sleep(self, seconds: float) -> None:
        self.expect(seconds + SLACK_SECONDS)
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def turn(self, gate: asyncio.Lock | asyncio.Semaphore) -> AsyncIterator[None]:
        """Hold `gate`, however long the wait, since waiting in line counts as a sign of life."""
        waiter = awaited_task(gate.acquire())
        try:
            while not waiter.done():
                self.expect(TURN_SECONDS + SLACK_SECONDS)
                await asyncio.wait([waiter], timeout=TURN_SECONDS)
        except asyncio.CancelledError:
            # The end of the process cancels the waiter as well.
            if not waiter.cancel() and not waiter.cancelled():
                gate.release()
            raise
        try:
            yield
        finally:
            gate.release()


#: How often (s) a job that waits for its turn reports that it is alive.
TURN_SECONDS = 1.0
#: Time (s) that a busy event loop may add to any wait.
SLACK_SECONDS = 3.0
