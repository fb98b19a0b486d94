"""What each gateway is to the process that serves them."""

from collections.abc import Mapping
from typing import Any, Protocol


class Gateway(Protocol):
    """A server of one protocol. All methods run on the event loop; calls of the bus belong on other threads."""

    @property
    def name(self) -> str: ...

    async def start(self) -> None:
        """Bind and serve. Raises OSError when the address cannot be had, ConfigurationError for settings."""
        ...

    async def stop(self) -> None:
        """Finish what is under way within a grace time of its own, and let go of the address."""
        ...

    def problems(self) -> tuple[str, ...]:
        """Sentences; empty when healthy."""
        ...

    def details(self) -> Mapping[str, Any]:
        """For the status page: the address, and what there is to say."""
        ...
