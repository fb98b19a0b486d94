"""The interface of a way to deliver alerts."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from alerts.alert import Delivery

__all__ = ["DeliveryFailed", "Failure", "Sender"]


class Failure(StrEnum):
    """The ways in which a destination fails, as they are counted."""

    SLOW = "slow"
    SERVER_ERROR = "server_error"
    RATE_LIMITED = "rate_limited"
    CUT = "cut"
    REDIRECT = "redirect"
    CERTIFICATE = "certificate"
    UNREACHABLE = "unreachable"
    REFUSED = "refused"
    PRIVATE = "private"


class DeliveryFailed(Exception):
    """The destination has not accepted the message. The text contains no part of the address; `retry_after` is in
    seconds.
    """

    def __init__(self, text: str, failure: Failure, retry_after: float | None = None) -> None:
        super().__init__(text)
        self.failure = failure
        self.retry_after = retry_after


class Sender(Protocol):
    async def send(self, deliveries: Sequence[Delivery]) -> None:
        """Send one message, a digest if it stands for several alerts. Raises DeliveryFailed."""
        ...

    async def close(self) -> None: ...
