"""What happens at the requests socket: the events of `relay.state`.

An event that carries the time has it in nanoseconds of the wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BUS_AWAY
from protobuf import records_pb2 as rec
from relay.asked import Peer, Purpose, Submission
from relay.commands import Command


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

    command: Command
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
