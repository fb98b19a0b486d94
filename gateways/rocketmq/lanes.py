"""Many calls done together: what waits while one batch is under way is the next one."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from core.errors import CandlewrightError
from gateways.rocketmq.status import RESOURCE_EXHAUSTED, Refused

_BATCH_ITEMS = 500
_BATCH_BYTES = 4 << 20
#: Calls beyond these are refused.
_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 256 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")


class Room:
    """What may wait in several lanes together."""

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0

    def check(self, size: int) -> None:
        """Raises Refused when too much waits."""
        if self.items >= _MAX_WAITING or self.bytes + size > _MAX_WAITING_BYTES:
            raise Refused(RESOURCE_EXHAUSTED, f"{self.items} calls wait to be written already")


class Lane(Generic[Item, Result]):
    """`work`: does a batch, and returns as many results; one batch at a time, in order."""

    def __init__(self, work: Callable[[list[Item]], Awaitable[Sequence[Result]]], room: Room) -> None:
        self._work = work
        self._room = room
        self._waiting: deque[tuple[Item, int, asyncio.Future[Result]]] = deque()
        self._flight: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._flight is None

    async def do(self, item: Item, size: int = 0) -> Result:
        """Raises what `work` raises, and Refused when too much waits. A call that is given up before its batch begins
        is not done.
        """
        self._room.check(size)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, size, future))
        if self._flight is None:
            self._flight = asyncio.create_task(self._fly())
        self._room.items += 1
        self._room.bytes += size
        try:
            return await future
        finally:
            self._room.items -= 1
            self._room.bytes -= size

    async def _fly(self) -> None:
        futures: list[asyncio.Future[Result]] = []
        try:
            while self._waiting:
                items, futures = self._next_batch()
                try:
                    results = await self._work(items) if items else ()
                except CandlewrightError as error:
                    for future in futures:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for future, result in zip(futures, results, strict=True):
                    if not future.done():
                        future.set_result(result)
        finally:
            # Whatever ends this early, nobody is left waiting.
            for future in (*futures, *(future for _, _, future in self._waiting)):
                future.cancel()
            self._waiting.clear()
            self._flight = None

    def _next_batch(self) -> tuple[list[Item], list[asyncio.Future[Result]]]:
        items: list[Item] = []
        futures: list[asyncio.Future[Result]] = []
        total = 0
        while self._waiting and len(items) < _BATCH_ITEMS and total < _BATCH_BYTES:
            item, size, future = self._waiting.popleft()
            if not future.done():
                items.append(item)
                futures.append(future)
                total += size
        return items, futures
