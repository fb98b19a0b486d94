"""What happens to triggers: the events of `relay.triggers.state`.

`at` is monotonic seconds, `at_ns` nanoseconds of the wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.asked import Peer
from relay.triggers.asked import Ack, RegisterAsked, ViewAsked
from relay.triggers.commands import Change, CheckView
from triggers.texts.views import CheckedView


@dataclass(frozen=True, slots=True)
class RemoveAsked:
    peer: Peer
    trigger_id: str


@dataclass(frozen=True, slots=True)
class ListAsked:
    peer: Peer
    query: cw.TriggerQuery


@dataclass(frozen=True, slots=True)
class ViewRemoveAsked:
    peer: Peer
    request: cw.ViewRemove


@dataclass(frozen=True, slots=True)
class ViewsAsked:
    peer: Peer
    query: cw.ViewQuery


@dataclass(frozen=True, slots=True)
class Sound:
    """The text may run. `bar_seconds`: the period of the bars that it reads, 0 = ticks; `joined_seconds`: the same of
    further inputs of a text that joins. `views`: texts of the views that it reads, by name. `sources`: the triggers
    whose events it reads.
    """

    warnings: tuple[str, ...]
    is_joint: bool
    bar_seconds: int
    joined_seconds: tuple[int, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SoundView:
    """The view may be registered. `views`: the new entries of it and of the views that read it; `triggers`: the
    triggers that read it, by id.
    """

    warnings: tuple[str, ...]
    views: Mapping[str, CheckedView]
    triggers: Mapping[str, Sound]


@dataclass(frozen=True, slots=True)
class RefusedView:
    status: "cw.ViewAck.ViewStatus"
    text: str


@dataclass(frozen=True, slots=True)
class Refused:
    status: "Ack.TriggerStatus"
    text: str


@dataclass(frozen=True, slots=True)
class Checked:
    asked: RegisterAsked
    outcome: Sound | Refused


@dataclass(frozen=True, slots=True)
class ViewChecked:
    check: CheckView
    outcome: SoundView | RefusedView


@dataclass(frozen=True, slots=True)
class Written:
    """Changes are in the table and on the bus, with the offset of the control of each."""

    offsets: Mapping[int, int]
    at: float


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """It is unknown how far these changes came, so `Loaded` must follow."""

    changes: tuple[Change, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The content of the bus, at the start and after an outage: the tables, the progress and number of the pipeline's
    partitions, and the end of the controls.
    """

    entries: Mapping[str, rec.TriggerEntry]
    joint_ids: frozenset[str]
    progress: Mapping[int, int]
    partitions: int
    controls_end: int
    views: Mapping[str, rec.ViewEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProgressMade:
    progress: rec.TriggerProgress


@dataclass(frozen=True, slots=True)
class EventsDelivered:
    """All events from before these removals took effect have been published."""

    changes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A client subscribed to a topic or prefix, and may have missed earlier messages there."""

    topic: bytes


@dataclass(frozen=True, slots=True)
class TimePassed:
    at: float


Event = (
    RegisterAsked
    | RemoveAsked
    | ListAsked
    | ViewAsked
    | ViewRemoveAsked
    | ViewsAsked
    | Checked
    | ViewChecked
    | Written
    | WriteFailed
    | Loaded
    | ProgressMade
    | EventsDelivered
    | Subscribed
    | TimePassed
)
