"""What to do about requests: the commands of `relay.state`."""

from dataclasses import dataclass

from google.protobuf.message import Message

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay.asked import Peer, Purpose, Submission


@dataclass(frozen=True, slots=True)
class Reply:
    peer: Peer
    message: Message


@dataclass(frozen=True, slots=True)
class Enqueue:
    """Put `record` on the bus once for this request id; `Enqueued` reports the previous entry."""

    submission: Submission
    record: rec.Request


@dataclass(frozen=True, slots=True)
class LookUp:
    purpose: Purpose
    request_id: str


@dataclass(frozen=True, slots=True)
class PublishControl:
    peer: Peer
    control: ing.IngestorControl
    record: rec.Request


@dataclass(frozen=True, slots=True)
class Announce:
    """Publish a final, possibly again, on these topics."""

    topics: tuple[str, ...]
    final: ing.HistoryReadyNotification


@dataclass(frozen=True, slots=True)
class ListVenues:
    peer: Peer
    query: cw.VenueQuery


@dataclass(frozen=True, slots=True)
class ReplayTopic:
    peer: Peer
    query: cw.TopicReplay


@dataclass(frozen=True, slots=True)
class ReadRows:
    """Answer a finished legacy request from the table."""

    peer: Peer
    request: ing.SubmitHistoricalRequest


@dataclass(frozen=True, slots=True)
class ReadStored:
    peer: Peer
    query: cw.StoredQuery


@dataclass(frozen=True, slots=True)
class AskTriggers:
    """Hand a valid message about triggers or views to the triggers desk, which answers it."""

    peer: Peer
    message: ing.CEPTriggerRequest | cw.TriggerRemove | cw.TriggerQuery | cw.ViewRequest | cw.ViewRemove | cw.ViewQuery
    at_ns: int


Command = (
    Reply
    | Enqueue
    | LookUp
    | PublishControl
    | Announce
    | ListVenues
    | ReplayTopic
    | ReadRows
    | ReadStored
    | AskTriggers
)
