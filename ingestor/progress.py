"""How a job's own task tells that it lives: it says how long it may be silent, and a stuck one runs out of that."""

import asyncio
import time
from collections.abc import Callable


class Progress:
    """`expect` is called before every wait; heartbeats stop when the wait takes longer than was said."""

    def __init__(self, on_expect: Callable[[float], None] | None = None) -> None:
        self._on_expect = on_expect

    def expect(self, seconds: float) -> None:
        """The next sign of life comes within `seconds`."""
        if self._on_expect is not None:
            self._on_expect(time.monotonic() + seconds)

    async def sleep(self, seconds: float) -> None:
        self.expect(seconds + SLACK_SECONDS)
        await asyncio.sleep(seconds)


#: What a busy event loop may add to any wait.
SLACK_SECONDS = 3.0
