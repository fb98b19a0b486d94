"""A ticker that is fetched until it is cancelled."""

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Self

from candlewright.client.records import RequestState


class Realtime:
    """A running realtime request; a `with` statement cancels it at its end. Without that it outlives the client."""

    def __init__(self, request_id: str, ticker: str, cancel: Callable[[], RequestState]) -> None:
        self.request_id = request_id
        self.ticker = ticker
        self._cancel = cancel

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Other requests for the same ticker continue."""
        self._cancel()


class AsyncRealtime:
    """The asyncio twin of `Realtime`: `async with`, `await request.cancel()`."""

    def __init__(self, request_id: str, ticker: str, cancel: Callable[[], Awaitable[RequestState]]) -> None:
        self.request_id = request_id
        self.ticker = ticker
        self._cancel = cancel

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.cancel()

    async def cancel(self) -> None:
        """Other requests for the same ticker continue."""
        await self._cancel()
