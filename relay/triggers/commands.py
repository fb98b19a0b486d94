"""What to do about triggers: the commands of `relay.triggers.state`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.events import Peer
from relay.triggers.events import Ack, RegisterAsked, ViewAsked
from relay.triggers.suspensions import Notice


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
