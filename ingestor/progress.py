"""How a job's own task shows that it is alive: it says how long it may be silent, and a stuck one runs out of that."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from core.background import awaited_task


class Progress:
    """`expect` is called before every wait; heartbeats stop when the wait takes longer than was said.

    `is_background`: the job is the platform's own, and takes only its share of the exchange's rate.
    """

    def __init__(self, on_expect: Callable[[float], None] | None = None, *, is_background: bool = False) -> None:
        self._on_expect = on_expect
        self.is_background = is_background

    def expect(self, seconds: float) -> None:
        """The next sign of life comes within `seconds`."""
        if self._on_expect is not None:
            self._on_expect(time.monotonic() + seconds)

    async def sleep(self, seconds: float) -> None:
        self.expect(seconds + SLACK_SECONDS)
        await asyncio.sleep(seconds)

    @asynccontextmanager
    async def turn(self, gate: asyncio.Lock | asyncio.Semaphore) -> AsyncIterator[None]:
        """Inside `gate`, however long that takes: a queue that moves is a sign of life."""
        waiter = awaited_task(gate.acquire())
        try:
            while not waiter.done():
                self.expect(TURN_SECONDS + SLACK_SECONDS)
                await asyncio.wait([waiter], timeout=TURN_SECONDS)
        except asyncio.CancelledError:
            # The end of a whole process cancels the waiter as well.
            if not waiter.cancel() and not waiter.cancelled():
                gate.release()
            raise
        try:
            yield
        finally:
            gate.release()


#: How often a job that waits for its turn says that it lives.
TURN_SECONDS = 1.0
#: What a busy event loop may add to any wait.
SLACK_SECONDS = 3.0
