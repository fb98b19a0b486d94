"""Batches calls: those that arrive while one batch is under way form the next."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from core.background import start_task
from gateways.rocketmq.door.status import RESOURCE_EXHAUSTED, Refused

_BATCH_ITEMS = 500
_BATCH_BYTES = 4 << 20
#: Calls beyond these are refused.
_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 256 << 20

Item = TypeVar("Item")
Result = TypeVar("Result")


class Room:
    """The limit shared by several lanes."""

    def __init__(self) -> None:
        self.items = 0
        self.bytes = 0

    def check(self, size: int) -> None:
        """Raises Refused if too much is waiting."""
        if self.items >= _MAX_WAITING or self.bytes + size > _MAX_WAITING_BYTES:
            raise Refused(RESOURCE_EXHAUSTED, f"{self.items} calls are already waiting to be written")


class Lane(Generic[Item, Result]):
    """`work` processes a batch and returns one result per item; one batch at a time, in order."""

    def __init__(self, work: Callable[[list[Item]], Awaitable[Sequence[Result]]], room: Room) -> None:
        self._work = work
        self._room = room
        self._waiting: deque[tuple[Item, int, asyncio.Future[Result]]] = deque()
        self._flight: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return self._flight is None

    async def do(self, item: Item, size: int = 0) -> Result:
        """Raises what `work` raises, and Refused if too much is waiting. A call cancelled before its batch starts is
        not processed.
        """
        self._room.check(size)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, size, future))
        if self._flight is None:
            self._flight = start_task(self._fly, "rocketmq lane")
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
                except Exception as error:  # Raised in the calls that wait for it.
                    for future in futures:
                        if not future.done():
                            future.set_exception(error)
                    continue
                for future, result in zip(futures, results, strict=True):
                    if not future.done():
                        future.set_result(result)
        finally:
            # However this ends, no caller is left waiting.
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
