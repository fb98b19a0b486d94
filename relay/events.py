"""What happens at the requests socket: the events of `relay.state`.

An event that carries the time has it in nanoseconds of the wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BUS_AWAY
from protobuf import records_pb2 as rec
from relay import topics

if TYPE_CHECKING:
    from relay.commands import Command


@dataclass(frozen=True, slots=True)
class Peer:
    """One client connection. `is_req`: its frames begin with an empty delimiter, and so do the answers.

    `name`: of its key; empty with keys off. `address`: where it connects from.
    """

    identity: bytes
    is_req: bool
    name: str = ""
    address: str = field(default="", compare=False)


class Kind(Enum):
    HISTORICAL = auto()
    DATA = auto()
    LEGACY = auto()


@dataclass(frozen=True, slots=True)
class Submission:
    """A valid request on its way to the bus. `request` has a body but no times; duplicates are compared in this
    form.
    """

    peer: Peer
    kind: Kind
    request: rec.Request
    at_ns: int

    @property
    def body(self) -> ing.SubmitHistoricalRequest | ing.DataRequest:
        return self.request.data if self.kind is Kind.DATA else self.request.historical

    @property
    def topic(self) -> str:
        return topics.request_topic(self.body.request_id, self.body.client_id)


@dataclass(frozen=True, slots=True)
class StateAsked:
    peer: Peer


@dataclass(frozen=True, slots=True)
class CancelAsked:
    peer: Peer
    control: ing.IngestorControl
    at_ns: int


@dataclass(frozen=True, slots=True)
class Repeated:
    submission: Submission


#: The reason for looking up a request.
Purpose = StateAsked | CancelAsked | Repeated


@dataclass(frozen=True, slots=True)
class MessageReceived:
    peer: Peer
    message: Message
    at_ns: int


@dataclass(frozen=True, slots=True)
class FrameRefused:
    peer: Peer
    code: str
    text: str
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """`known` is the registry's previous entry; it has no meaning if `is_first`."""

    submission: Submission
    is_first: bool
    known: rec.Request


@dataclass(frozen=True, slots=True)
class LookedUp:
    purpose: Purpose
    request_id: str
    request: rec.Request | None
    progress: cw.RequestState | None
    final: ing.HistoryReadyNotification | None
    #: None until a broker publishes it.
    served: rec.ServedVenues | None = None


@dataclass(frozen=True, slots=True)
class ControlPublished:
    peer: Peer
    control: ing.IngestorControl


@dataclass(frozen=True, slots=True)
class VenuesListed:
    peer: Peer
    query: cw.VenueQuery
    records: Mapping[str, cw.Venue]


@dataclass(frozen=True, slots=True)
class FinalArrived:
    final: ing.HistoryReadyNotification


#: The `text` of a failure caused by the bus.
UNAVAILABLE = BUS_AWAY


@dataclass(frozen=True, slots=True)
class CommandFailed:
    """A command failed because of the bus, the table or a full queue; `text` is a sentence for the client.

    `newest_sequence`: if a replay began beyond the topic's newest number, that number at `at_ns`.
    """

    command: "Command"
    code: str
    text: str
    newest_sequence: int | None = None
    at_ns: int = 0


@dataclass(frozen=True, slots=True)
class TimePassed:
    at_ns: int


Event = (
    MessageReceived
    | FrameRefused
    | Enqueued
    | LookedUp
    | ControlPublished
    | VenuesListed
    | FinalArrived
    | CommandFailed
    | TimePassed
)
