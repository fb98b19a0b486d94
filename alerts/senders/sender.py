"""What a way to deliver alerts does."""

from collections.abc import Sequence
from typing import Protocol

from alerts.alert import Delivery

__all__ = ["DeliveryFailed", "Sender"]


class DeliveryFailed(Exception):
    """The destination has not taken it. The text holds no part of the address; `retry_after` is in seconds."""

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Sender(Protocol):
    async def send(self, deliveries: Sequence[Delivery]) -> None:
        """Hand over one message, a digest where it stands for several. Raises DeliveryFailed."""
        ...

    async def close(self) -> None: ...
