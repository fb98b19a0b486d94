"""The commands of the alerts' state."""

from collections.abc import Sequence
from dataclasses import dataclass

from alerts.alert import Delivery, Opened, Outcome, Silence


@dataclass(frozen=True, slots=True)
class Save:
    """Make these durable, then report `Saved`; nothing is sent before that. `over`: silences that have ended."""

    deliveries: Sequence[Delivery]
    opened: Sequence[Opened] = ()
    over: Sequence[Silence] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """One message to the destination: a single delivery, or several as a digest."""

    destination: str
    deliveries: Sequence[Delivery]


@dataclass(frozen=True, slots=True)
class Finish:
    """Publish the outcomes, forget their deliveries, store what a failed attempt has `changed`, then report `Finished`.

    `destination`: where the finished message went; empty for deliveries that end without one.
    """

    outcomes: Sequence[Outcome]
    changed: Sequence[Delivery] = ()
    destination: str = ""


Command = Save | Send | Finish
