"""Who asks for what: what events and commands of `relay.state` have in common."""

from dataclasses import dataclass, field
from enum import Enum, auto

from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay import topics


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
