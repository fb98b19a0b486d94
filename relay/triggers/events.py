"""What happens to triggers: the events of `relay.triggers.state`.

`at` is monotonic seconds, `at_ns` nanoseconds of the wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay.events import Peer
from triggers.views import CheckedView

if TYPE_CHECKING:
    from relay.triggers.commands import Change, CheckView

Ack = ing.CEPTriggerAck


@dataclass(frozen=True, slots=True)
class RegisterAsked:
    """`request` is what `relay.triggers.requests.clean` returned."""

    peer: Peer
    request: ing.CEPTriggerRequest
    at_ns: int

    @property
    def trigger_id(self) -> str:
        return self.request.trigger_id


@dataclass(frozen=True, slots=True)
class RemoveAsked:
    peer: Peer
    trigger_id: str


@dataclass(frozen=True, slots=True)
class ListAsked:
    peer: Peer
    query: cw.TriggerQuery


@dataclass(frozen=True, slots=True)
class ViewAsked:
    """`request` is what `relay.triggers.requests.clean_view` let through."""

    peer: Peer
    request: cw.ViewRequest
    at_ns: int


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
    """The text may run. `bar_seconds`: period of the bars that it reads, 0 = it reads ticks. `joined_seconds`: of the
    further inputs of a text that joins. `views`: texts of the views that it reads, by name. `sources`: triggers that it
    names, whose events it reads."""

    warnings: tuple[str, ...]
    is_joint: bool
    bar_seconds: int
    joined_seconds: tuple[int, ...] = ()
    views: Mapping[str, str] = field(default_factory=dict)
    sources: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SoundView:
    """The view may be registered. `views`: it and those that read it, as they are then; `triggers`: those that read it,
    by id."""

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
    check: "CheckView"
    outcome: SoundView | RefusedView


@dataclass(frozen=True, slots=True)
class Written:
    """Changes are in the table and on the bus, with the offset of the control of each."""

    offsets: Mapping[int, int]
    at: float


@dataclass(frozen=True, slots=True)
class WriteFailed:
    """It is not known how far these changes came: `Loaded` has to follow."""

    changes: tuple["Change", ...]
    text: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the bus holds, at the start and after an outage: the tables, how far each partition of the pipeline has
    come, of how many ordinary partitions it has, and where the controls end.
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
    """All events that there were when these removals became effective have been published."""

    changes: frozenset[int]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """To a topic or prefix, by a client that may have missed what was sent there."""

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
