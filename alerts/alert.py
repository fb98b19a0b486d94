"""Alerts, their deliveries and their outcomes: plain values. Times are seconds since the epoch unless the name says
otherwise.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import orjson

__all__ = ["Alert", "Delivery", "Opened", "Outcome", "Silence", "Status"]


@dataclass(kw_only=True, frozen=True, slots=True)
class Alert:
    """Something that happened. `alert_id` is the same each time it is read; for a trigger's event it is the event id.

    `title` is one line, `text` is for people; `row` has the columns of an event as JSON values.
    """

    alert_id: str
    kind: str
    time_ns: int
    title: str
    text: str
    trigger_id: str = ""
    ticker: str = ""
    row: Mapping[str, Any] = field(default_factory=dict)
    #: Destinations that the trigger names itself, instead of the routes.
    to: tuple[str, ...] = ()
    #: Whether the text is the trigger's own.
    is_worded: bool = False
    #: The trigger whose next event for this ticker resolves this alert.
    resolved_by: str = ""
    #: The id of the alert that this one resolves.
    resolves: str = ""


class Status(StrEnum):
    DELIVERED = "delivered"
    #: Given up after a day of attempts, or without a destination.
    ABANDONED = "abandoned"


@dataclass(kw_only=True, frozen=True, slots=True)
class Delivery:
    """One alert on its way to one destination. `order`: the position in which it was taken; deliveries of one trigger
    to one destination go out in this order. `attempts`: finished attempts. `replay`: how often it was sent again by
    hand.
    """

    destination: str
    alert_id: str
    kind: str
    trigger_id: str
    ticker: str
    order: int
    title: str
    text: str
    body: str
    taken_at: float
    attempts: int = 0
    error: str = ""
    replay: int = 0

    @property
    def key(self) -> str:
        return f"{self.destination}:{self.alert_id}"

    @property
    def name(self) -> str:
        """The registry name of its outcome."""
        return f"{self.key}#{self.replay}"

    @property
    def queue(self) -> str:
        """The queue whose order must be kept at its destination."""
        return self.trigger_id or self.kind

    def after_failure(self, error: str) -> "Delivery":
        return replace(self, attempts=self.attempts + 1, error=error)

    def to_bytes(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_bytes(cls, value: bytes) -> "Delivery":
        """Raises ValueError or TypeError."""
        return cls(**orjson.loads(value))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a delivery; `at` in seconds since the epoch."""

    delivery: Delivery
    status: Status
    at: float

    def to_bytes(self) -> bytes:
        """As a record of the topic `deliveries`."""
        return orjson.dumps(
            {
                "event_id": self.delivery.alert_id,
                "destination": self.delivery.destination,
                "attempts": self.delivery.attempts,
                "status": self.status.value,
                "delivered_at": round(self.at * 1e6),
                "error": self.delivery.error,
            }
        )


@dataclass(frozen=True, slots=True)
class Silence:
    """Suppresses alerts of matching triggers and tickers until a time, or until an event of `until_trigger` for such a
    ticker. `*` matches everything.
    """

    silence_id: str
    trigger: str
    ticker: str
    until: float
    until_trigger: str = ""


@dataclass(kw_only=True, frozen=True, slots=True)
class Opened:
    """An alert that reached `destinations`; the next event of `resolved_by` for its ticker resolves it.

    `event_id`: that event. A resolved alert is remembered, so that an event that is read twice resolves the same alert.
    """

    alert_id: str
    trigger_id: str
    ticker: str
    title: str
    resolved_by: str
    destinations: tuple[str, ...]
    event_id: str = ""

    @property
    def key(self) -> str:
        return "\n".join((self.resolved_by, self.ticker, self.trigger_id))

    def to_bytes(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def from_bytes(cls, value: bytes) -> "Opened":
        """Raises ValueError or TypeError."""
        fields = orjson.loads(value)
        return cls(**fields | {"destinations": tuple(fields["destinations"])})
