"""What a call of the client can raise.

CandlewrightError
├── InvalidRequest           (core) the platform answered INVALID: change the request
├── PlatformUnreachable      (retryable) nobody answered in time
├── PlatformRefused          the platform answered ERROR, or with an Error message
├── GapError                 a live stream goes on after numbers that the platform no longer keeps
├── RowsUnavailable          the final arrived, the rows could not be read from here
└── RequestFailed            a request ended without rows; carries the notification
    ├── RequestNotFound      NOT_FOUND: the venue has nothing there
    └── RequestTimedOut      TIMEOUT: the platform gave up, or the caller's own timeout passed (notification None)
"""

from typing import ClassVar

from candlewright.client.records import Notification
from core.errors import CandlewrightError, InvalidRequest

__all__ = [
    "GapError",
    "InvalidRequest",
    "PlatformRefused",
    "PlatformUnreachable",
    "RequestFailed",
    "RequestNotFound",
    "RequestTimedOut",
    "RowsUnavailable",
]


class PlatformUnreachable(CandlewrightError):
    retryable: ClassVar[bool] = True

    def __init__(self, address: str, seconds: float) -> None:
        super().__init__(
            f"no answer from the platform at {address} within {seconds:g} s; is `candlewright up` running there?"
        )
        self.address = address
        self.seconds = seconds


class PlatformRefused(CandlewrightError):
    def __init__(self, code: str, text: str, request_id: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code
        self.text = text
        self.request_id = request_id


class GapError(CandlewrightError):
    """Numbers `first` to `last` of `topic`, both included, were missed and cannot be had any more.

    The stream that raised it goes on behind them with its next item.
    """

    def __init__(self, topic: str, first: int, last: int) -> None:
        super().__init__(f"{topic}: numbers {first} to {last} were missed, and the platform no longer keeps them")
        self.topic = topic
        self.first = first
        self.last = last


class RowsUnavailable(CandlewrightError):
    pass


class RequestFailed(CandlewrightError):
    """`notification` is the request's final one; None where the caller's timeout came first."""

    def __init__(self, request_id: str, text: str, notification: Notification | None = None) -> None:
        super().__init__(text)
        self.request_id = request_id
        self.notification = notification


class RequestNotFound(RequestFailed):
    pass


class RequestTimedOut(RequestFailed):
    pass
