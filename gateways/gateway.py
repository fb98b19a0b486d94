"""The interface of a gateway to the process that serves it."""

from collections.abc import Mapping
from typing import Any, Protocol


class Gateway(Protocol):
    """A server of one protocol. All methods run on the event loop; calls to the bus belong on other threads."""

    @property
    def name(self) -> str: ...

    async def start(self) -> None:
        """Bind and serve. Raises OSError if the address is not available, ConfigurationError for unusable settings."""
        ...

    async def stop(self) -> None:
        """Finish the calls under way within the gateway's grace time, and release the address."""
        ...

    def problems(self) -> tuple[str, ...]:
        """One sentence per problem; empty when healthy."""
        ...

    def details(self) -> Mapping[str, Any]:
        """For the status page: the address and other facts worth showing."""
        ...
