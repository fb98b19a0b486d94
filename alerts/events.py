"""The events of the alerts' state. `at` is in seconds since the epoch."""

from collections.abc import Sequence
from dataclasses import dataclass

from alerts.alert import Alert, Delivery, Opened, Silence


@dataclass(frozen=True, slots=True)
class Restored:
    """Deliveries that an earlier process took and did not finish, and the alerts that may still be resolved."""

    deliveries: Sequence[Delivery]
    at: float
    opened: Sequence[Opened] = ()


@dataclass(frozen=True, slots=True)
class AlertsRead:
    alerts: Sequence[Alert]
    at: float


@dataclass(frozen=True, slots=True)
class Saved:
    """The data of a `Save` is durable."""

    deliveries: Sequence[Delivery]
    at: float


@dataclass(frozen=True, slots=True)
class Sent:
    """The destination has accepted the deliveries of one `Send`."""

    destination: str
    deliveries: Sequence[Delivery]
    at: float


@dataclass(frozen=True, slots=True)
class SendFailed:
    """`failure`: its kind, as it is counted; `retry_after`: seconds for which the destination asked for a pause."""

    destination: str
    deliveries: Sequence[Delivery]
    error: str
    at: float
    failure: str
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The data of a `Finish` is durable; `destinations` has one entry for each message that it ended."""

    destinations: Sequence[str]
    at: float


@dataclass(frozen=True, slots=True)
class SilencesFound:
    silences: Sequence[Silence]


@dataclass(frozen=True, slots=True)
class TimePassed:
    at: float


Event = Restored | AlertsRead | Saved | Sent | SendFailed | Finished | SilencesFound | TimePassed
