"""The commands that the broker's state machine returns.

Names ending in `_ns`, and the bounds of ranges, are wall-clock nanoseconds since the epoch. Commands are never changed,
but those created for every job are not frozen, because creating a frozen one takes four times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.events import Candle, Connection, Demand, Final, LeaseNote, PieceResult, Range, RealtimeAccepted
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing


@dataclass(frozen=True, slots=True)
class DispatchedRequest:
    """The fields that the DataRequests of all pieces share. `period_seconds`: 0 unless the request is historical."""

    type: ing.DataRequest.RequestType
    ticker: str
    client_id: str
    period_seconds: int = 0
    ohlc_period_seconds: tuple[int, ...] = ()


@dataclass(slots=True)
class Dispatch:
    """Grant the lease, then send the job. `limit`: the most candles to fetch."""

    connection: Connection
    job_id: str
    note: LeaseNote
    request: DispatchedRequest
    limit: int | None = None


@dataclass(slots=True)
class Revoke:
    """`is_finished`: the job's result is on the bus, so nothing waits for the revocation."""

    job_id: str
    is_finished: bool = False


@dataclass(frozen=True, slots=True)
class StopWork:
    connection: Connection
    job_id: str


@dataclass(frozen=True, slots=True)
class CancelWork:
    connection: Connection
    dispatched_id: str


@dataclass(frozen=True, slots=True)
class PublishPages:
    job_id: str
    request_id: str
    ticker: str
    period_seconds: int
    candles: tuple[Candle, ...]


@dataclass(kw_only=True, slots=True)
class PublishPieceDone:
    """Once it is published, the job's lease may be revoked."""

    request_id: str
    number: int
    job_id: str
    ticker: str
    period_seconds: int
    start: int
    end: int
    result: PieceResult
    is_proven: bool = False


@dataclass(kw_only=True, slots=True)
class PublishRequestDone:
    request_id: str
    ticker: str
    period_seconds: int
    start: int
    end: int
    status: Final
    error_message: str
    rows: int
    expected: int
    holes: tuple[Range, ...]
    client_id: str
    closed_until: int = 0


@dataclass(frozen=True, slots=True)
class AskProof:
    """Ask the driver which parts of these ranges need not be fetched, and wait for the answer until `deadline` (wall
    clock).
    """

    request_id: str
    ticker: str
    period_seconds: int
    ranges: tuple[Range, ...]
    limit: int | None
    deadline: int


@dataclass(frozen=True, slots=True)
class PublishSnapshot:
    job_id: str
    request_id: str
    snapshot: cw.Snapshot


class PublishTicks(NamedTuple):
    job_id: str
    batch: cw.TickBatch


class PutTicksAside(NamedTuple):
    """Put ticks aside that are too far ahead of our clock."""

    batch: cw.TickBatch
    reason: str


class PublishClock(NamedTuple):
    """All trades of a ticker up to this exchange's time (ns) were sent."""

    ticker: str
    exchange_time: int


class PublishMark(NamedTuple):
    """Publish the combined needs of a ticker, before the next dispatch is sent."""

    ticker: str
    wants: Demand


@dataclass(frozen=True, slots=True)
class SaveRealtime:
    """Store a request that runs until it is cancelled, so that the journal need not be kept for it."""

    request: RealtimeAccepted


@dataclass(frozen=True, slots=True)
class ForgetRealtime:
    request_id: str


@dataclass(kw_only=True, frozen=True, slots=True)
class PutState:
    """`failure` is set for a snapshot that ended without a result, and for a realtime request that waits for its next
    attempt.
    """

    request_id: str
    state: str
    done_candles: int = 0
    expected_candles: int = 0
    ticker: str = ""
    failure: str = ""
    closed_until: int = 0


@dataclass(frozen=True, slots=True)
class DropState:
    request_id: str


@dataclass(frozen=True, slots=True)
class LookUpVenue:
    venue: str


@dataclass(frozen=True, slots=True)
class PutVenue:
    """Publish that a venue known only to foreign ingestors is served."""

    venue: str


@dataclass(frozen=True, slots=True)
class PutServed:
    """Publish the venues for which slots are offered, by kind."""

    historical: tuple[str, ...]
    realtime: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SendControl:
    connection: Connection
    control: ing.IngestorControl


@dataclass(frozen=True, slots=True)
class SendHeartbeats:
    connections: tuple[Connection, ...]


@dataclass(frozen=True, slots=True)
class AskHolder:
    """Send a frame to the holder of a job that `connection` also names; HolderAsked follows, preceded by ConnectionLost
    if the holder is gone.
    """

    holder: Connection
    connection: Connection
    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer a peer with an Error frame."""

    connection: Connection
    code: str
    text: str
    request_id: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Count and log an occurrence; `what` is one of `broker.metrics.NOTES`."""

    what: str
    fields: Mapping[str, object] = field(default_factory=dict)


Command = (
    Dispatch
    | Revoke
    | StopWork
    | CancelWork
    | PublishPages
    | PublishPieceDone
    | PublishRequestDone
    | AskProof
    | PublishSnapshot
    | PublishTicks
    | PutTicksAside
    | PublishClock
    | PublishMark
    | SaveRealtime
    | ForgetRealtime
    | PutState
    | DropState
    | LookUpVenue
    | PutVenue
    | PutServed
    | SendControl
    | SendHeartbeats
    | AskHolder
    | Refuse
    | Note
)
