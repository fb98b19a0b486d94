"""Live streams as users get them: one class for each client, around the same feed.

A stream is subscribed from the call that made it until `close()`, or until nothing refers to it any more.
A `GapError` is raised once, in its place, and so is a `TriggerSuspended`; asking for the next item continues after it.
Only the reader ends a stream: it waits through restarts of the platform.
"""

import asyncio
import math
import time
import weakref
from collections.abc import Callable
from typing import Any, Generic, Protocol, Self, TypeVar

from candlewright.client.errors import Interruption
from candlewright.client.live.feed import Feed
from candlewright.client.session.closing import AsyncClosing, Closing
from candlewright.client.session.session import Ticket

T = TypeVar("T")


class Host(Protocol):
    """What a stream needs from the client that made it."""

    @property
    def is_closed(self) -> bool: ...

    def begin_stream(self, feed: Feed[Any], when_done: Callable[[], None] | None) -> Ticket[None]: ...

    def end_stream(self, ticket: Ticket[None]) -> None: ...

    def forget_stream(self, ticket: Ticket[None]) -> None:
        """End it with the next turn; may be called at any moment, as by the garbage collector."""
        ...

    def take(self, feed: Feed[T], ticket: Ticket[None]) -> T | Interruption | None: ...


class SyncHost(Host, Protocol):
    def pump_until(self, until: float) -> None: ...


class _Stream(Generic[T]):
    """`timeout`: silent seconds after which a `for` ends; None = never. May be changed between two steps."""

    def __init__(self, host: Host, feed: Feed[T], timeout: float | None) -> None:
        self.timeout = timeout
        self._feed = feed
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.topic}{' closed' if self._is_closed else ''}>"

    def _tie(self, host: Host, ticket: Ticket[None]) -> None:
        weakref.finalize(self, host.forget_stream, ticket).atexit = False

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def registered(self, *, is_new: bool) -> None:
        """The trigger of these events was registered; the next step requests messages missed meanwhile."""
        self._feed.registered(is_new=is_new)

    @property
    def topic(self) -> str:
        return self._feed.topic

    @property
    def next_sequence(self) -> int | None:
        """The number to continue from (`from_sequence`) in another client; None before the first message. Messages that
        have arrived but were not read yet come before it.
        """
        return self._feed.next_sequence

    @property
    def duplicates(self) -> int:
        """Messages that came again and were dropped."""
        return self._feed.duplicates

    @property
    def replayed(self) -> int:
        """How many numbers were missed at first and then replayed."""
        return self._feed.replayed


class Stream(_Stream[T], Closing):
    """An endless iterator. With a `timeout`, it ends after that many seconds without an item; another `for`
    continues."""

    def __init__(self, host: SyncHost, feed: Feed[T], timeout: float | None) -> None:
        super().__init__(host, feed, timeout)
        self._host = host
        self._ticket = host.begin_stream(feed, None)
        self._tie(host, self._ticket)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        """Raises GapError in place of lost items, and TriggerSuspended after a trigger's last event."""
        try:
            item = self._next(self.timeout)
        except TimeoutError:
            raise StopIteration from None
        if item is None:
            raise StopIteration
        return item

    def next(self, timeout: float | None = None) -> T:
        """The next item; also raises TimeoutError after `timeout` seconds, and ValueError on a closed stream."""
        item = self._next(timeout)
        if item is None:
            raise ValueError(f"the stream {self.topic} is closed")
        return item

    def close(self) -> None:
        """Unsubscribe. May be called from another thread; a thread that waits for an item then gets the end."""
        if not self._is_closed:
            self._is_closed = True
            self._host.end_stream(self._ticket)

    def _next(self, timeout: float | None) -> T | None:
        until = time.monotonic() + timeout if timeout is not None else math.inf
        while not self._is_closed and not self._host.is_closed:
            item = self._host.take(self._feed, self._ticket)
            if isinstance(item, Interruption):
                raise item
            if item is not None:
                return item
            if time.monotonic() >= until:
                raise TimeoutError(f"nothing on {self.topic} within {timeout:g} s")
            self._host.pump_until(until)
        return None


class AsyncStream(_Stream[T], AsyncClosing):
    """The asyncio twin of `Stream`: `async for`, `await stream.next()`, `await stream.close()`."""

    def __init__(self, host: Host, feed: Feed[T], timeout: float | None, *, opening: Callable[[], Any]) -> None:
        super().__init__(host, feed, timeout)
        self._host = host
        self._opening = opening
        self._changed = asyncio.Event()
        self._ticket: Ticket[None] | None = None
        feed.on_ready = self._changed.set

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        """Raises GapError in place of lost items, and TriggerSuspended after a trigger's last event."""
        try:
            item = await self._next(self.timeout)
        except TimeoutError:
            raise StopAsyncIteration from None
        if item is None:
            raise StopAsyncIteration
        return item

    async def next(self, timeout: float | None = None) -> T:
        """The next item; also raises TimeoutError after `timeout` seconds, and ValueError on a closed stream."""
        item = await self._next(timeout)
        if item is None:
            raise ValueError(f"the stream {self.topic} is closed")
        return item

    async def close(self) -> None:
        """Unsubscribe; a coroutine that waits for an item gets the end."""
        if not self._is_closed:
            self._is_closed = True
            if self._ticket is not None:
                self._host.end_stream(self._ticket)
            self._changed.set()

    async def begin(self) -> None:
        """Subscribe now, before the first step."""
        await self._begin()

    async def _begin(self) -> Ticket[None]:
        if self._ticket is None:
            await self._opening()
        if self._ticket is None:
            self._ticket = self._host.begin_stream(self._feed, self._changed.set)
            self._tie(self._host, self._ticket)
        return self._ticket

    async def _next(self, timeout: float | None) -> T | None:
        ticket = await self._begin()
        async with asyncio.timeout(timeout):
            while not self._is_closed and not self._host.is_closed:
                self._changed.clear()
                item = self._host.take(self._feed, ticket)
                if isinstance(item, Interruption):
                    raise item
                if item is not None:
                    return item
                await self._changed.wait()
        return None
