"""What to do about triggers: the commands of `relay.triggers.state`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.asked import Peer
from relay.triggers.asked import Ack, RegisterAsked, ViewAsked
from relay.triggers.suspensions import Notice


@dataclass(frozen=True, slots=True)
class Answer:
    peer: Peer
    ack: Ack


@dataclass(frozen=True, slots=True)
class AnswerList:
    """Fill in the number of each trigger's events, and send the list."""

    peer: Peer
    found: cw.TriggerList


@dataclass(frozen=True, slots=True)
class Check:
    """Check a trigger's text. `views`: texts that it may read, by name."""

    asked: RegisterAsked
    views: Mapping[str, str] = field(default_factory=dict)

    @property
    def peer(self) -> Peer:
        return self.asked.peer


@dataclass(frozen=True, slots=True)
class CheckView:
    """Check a view. `views`: texts by name, including the new one. `readers`: the names of the views that read it;
    `triggers`: the triggers that do.
    """

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
    """Remove the entry from its table, then answer."""

    name: str
    answer: AnswerView


@dataclass(frozen=True, slots=True)
class Change:
    """Put the entry into the table (and the id among the joint ones), then publish the control; in the order of the
    numbers. May be repeated.
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
    """Put the current entry into the table."""

    entry: rec.TriggerEntry


@dataclass(frozen=True, slots=True)
class LeaveJoint:
    """Note that the joint partition no longer runs this trigger."""

    trigger_id: str


@dataclass(frozen=True, slots=True)
class AwaitEvents:
    """Wait for the last events of a trigger that no partition runs any more."""

    change: int


@dataclass(frozen=True, slots=True)
class Delete:
    trigger_id: str


@dataclass(frozen=True, slots=True)
class Follow:
    """Start or stop following a live topic for registered triggers."""

    topic: str
    is_wanted: bool


@dataclass(frozen=True, slots=True)
class Tell:
    """Publish suspensions that are already stored."""

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
