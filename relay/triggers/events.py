"""What happens to triggers, and what to do about it: the words of `relay.triggers.state`.

`at` is monotonic seconds, `at_ns` nanoseconds of the wall clock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay.events import Peer
from relay.triggers.suspensions import Notice
from triggers.views import CheckedView

Ack = ing.CEPTriggerAck

# ---- events


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

# ---- commands


@dataclass(frozen=True, slots=True)
class Answer:
    peer: Peer
    ack: Ack


@dataclass(frozen=True, slots=True)
class AnswerList:
    """Fill in how many events each trigger gave, and send it."""

    peer: Peer
    found: cw.TriggerList


@dataclass(frozen=True, slots=True)
class Check:
    """`views`: texts that the trigger may read, by name."""

    asked: RegisterAsked
    views: Mapping[str, str] = field(default_factory=dict)

    @property
    def peer(self) -> Peer:
        return self.asked.peer


@dataclass(frozen=True, slots=True)
class CheckView:
    """`views`: texts by name, the new one among them. `readers`: names of the views that read it, `triggers`: those
    triggers that do."""

    asked: ViewAsked
    views: Mapping[str, str]
    readers: tuple[str, ...]
    triggers: tuple[rec.TriggerRegistration, ...]

    @property
    def peer(self) -> Peer:
        return self.asked.peer


@dataclass(frozen=True, slots=True)
class AnswerView:
    peer: Peer
    message: cw.ViewAck | cw.ViewList


@dataclass(frozen=True, slots=True)
class SaveViews:
    """Put the entries into their table, then answer."""

    entries: tuple[rec.ViewEntry, ...]
    answer: AnswerView


@dataclass(frozen=True, slots=True)
class DropView:
    """Take the entry out of its table, then answer."""

    name: str
    answer: AnswerView


@dataclass(frozen=True, slots=True)
class Change:
    """Put the entry into the table (and the id among the joint ones), then publish the control; in the order of the
    numbers. May be done again.
    """

    number: int
    entry: rec.TriggerEntry
    control: rec.TriggerControl
    joins: bool = False

    @property
    def trigger_id(self) -> str:
        return self.entry.registration.trigger_id


@dataclass(frozen=True, slots=True)
class Save:
    """Put the entry as it is now into the table."""

    entry: rec.TriggerEntry


@dataclass(frozen=True, slots=True)
class LeaveJoint:
    """The joint partition has nothing of this trigger any more."""

    trigger_id: str


@dataclass(frozen=True, slots=True)
class AwaitEvents:
    """The trigger of this change runs nowhere any more; its last events may still be on their way."""

    change: int


@dataclass(frozen=True, slots=True)
class Delete:
    trigger_id: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Registered triggers read this live topic from now on, or no longer do."""

    topic: str
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Publish that triggers are suspended; that is stored by now."""

    notices: Sequence[Notice]


Command = (
    Answer
    | AnswerList
    | AnswerView
    | Check
    | CheckView
    | Change
    | Save
    | SaveViews
    | DropView
    | LeaveJoint
    | AwaitEvents
    | Delete
    | Follow
    | Tell
)
