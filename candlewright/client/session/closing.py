"""Objects that are closed at the end of their `with` statement."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

#: The error of a call that starts or still waits when its client is closed.
CLOSED = "this client is closed: connect() makes another"


class Closing(ABC):
    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...


class AsyncClosing(ABC):
    """The same for `async with`."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @abstractmethod
    async def close(self) -> None: ...
