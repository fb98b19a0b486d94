"""The interface of a way to deliver alerts."""

from collections.abc import Sequence
from typing import Protocol

from alerts.alert import Delivery

__all__ = ["DeliveryFailed", "Sender"]


class DeliveryFailed(Exception):
    """The destination has not accepted the message. The text contains no part of the address; `retry_after` is in
    seconds.
    """

    def __init__(self, text: str, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.retry_after = retry_after


class Sender(Protocol):
    async def send(self, deliveries: Sequence[Delivery]) -> None:
        """Send one message, a digest if it stands for several alerts. Raises DeliveryFailed."""
        ...

    async def close(self) -> None: ...
