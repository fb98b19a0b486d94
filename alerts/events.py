"""What happens to alerts. `at` is in seconds since the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

from alerts.alert import Alert, Delivery, Opened, Silence


@dataclass(frozen=True, slots=True)
class Restored:
    """Deliveries that an earlier process had taken and not finished, and the alerts that may still be resolved."""

    deliveries: Sequence[Delivery]
    at: float
    opened: Sequence[Opened] = ()


@dataclass(frozen=True, slots=True)
class AlertsRead:
    alerts: Sequence[Alert]
    at: float


@dataclass(frozen=True, slots=True)
class Saved:
    """What `Save` asked for is durable."""

    deliveries: Sequence[Delivery]
    at: float


@dataclass(frozen=True, slots=True)
class Sent:
    """The destination has taken what one `Send` carried."""

    destination: str
    deliveries: Sequence[Delivery]
    at: float


@dataclass(frozen=True, slots=True)
class SendFailed:
    """`retry_after`: seconds for which the destination asked to be left alone."""

    destination: str
    deliveries: Sequence[Delivery]
    error: str
    at: float
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """What `Finish` asked for is durable; `destinations` has one entry for each message that it ended."""

    destinations: Sequence[str]
    at: float


@dataclass(frozen=True, slots=True)
class SilencesFound:
    silences: Sequence[Silence]


@dataclass(frozen=True, slots=True)
class TimePassed:
    at: float


Event = Restored | AlertsRead | Saved | Sent | SendFailed | Finished | SilencesFound | TimePassed
