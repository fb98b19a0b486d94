"""The events of the broker's state machine.

`at` is monotonic seconds; names ending in `_ns`, and the bounds of ranges, are wall-clock nanoseconds since the epoch.
A connection is the ROUTER's identity of a peer, which the state only compares. Events are never changed, but those
created for every job are not frozen, because creating a frozen one takes four times as long.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from core.failures import Failure

Connection = bytes
Range = tuple[int, int]
#: The length of the job ids that the broker assigns, in ASCII letters and digits.
JOB_ID_LENGTH = 32


class Kind(StrEnum):
    HISTORICAL = "historical"
    REALTIME = "realtime"

    # Kinds are part of every queue's key, and Enum's own hash is a slower Python function.
    __hash__ = str.__hash__


class Final(StrEnum):
    OK = "OK"
    NOT_FOUND = "NOT_FOUND"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"

    __hash__ = str.__hash__


class Candle(NamedTuple):
    """`is_complete`: whether its sender marks it as closed; one that marks none leaves the field out."""

    open_time: int
    open: float
    high: float
    low: float
    close: float
    volume: float
    quote_volume: float | None
    trade_count: int | None
    is_complete: bool = True


class Demand(NamedTuple):
    """The combined needs of all requests for a ticker: whether its ticks are stored, and the periods of its bars."""

    ticks: bool = False
    period_seconds: tuple[int, ...] = ()


@dataclass(kw_only=True, slots=True)
class PieceResult:
    """The totals of an accepted piece; `spans` are the offsets of its pages, both ends included.

    `closed_until`: the open time of the first candle that was not proven closed when it was requested; 0 = all were.
    """

    partition: int
    spans: tuple[tuple[int, int], ...]
    rows: int
    expected: int
    holes: tuple[Range, ...]
    exchange_time: int = 0
    reason: str = ""
    closed_until: int = 0


EMPTY_RESULT = PieceResult(partition=0, spans=(), rows=0, expected=0, holes=())


class AcceptedPiece(NamedTuple):
    """A piece that an earlier run of the broker accepted, according to its journal."""

    number: int
    start: int
    end: int
    rows: int
    expected: int
    holes: tuple[Range, ...]


class ProvenRange(NamedTuple):
    """The table has every candle of this range that the venue has: `rows` of the `expected` ones; the others are
    holes.
    """

    start: int
    end: int
    rows: int
    expected: int
    holes: tuple[Range, ...]


@dataclass(slots=True)
class LeaseNote:
    """The note stored with a lease on the bus, from which a restarted broker takes the job over. `part`: the range of
    the piece `number`.
    """

    request_id: str
    attempts: int
    dispatched_id: str
    number: int = 0
    part: Range = (0, 0)
    realtime_ticker: str = ""


# ---- events: from the bus


@dataclass(kw_only=True, frozen=True, slots=True)
class HistoricalAccepted:
    request_id: str
    ticker: str
    venue: str
    period_seconds: int
    start: int
    end: int
    limit: int | None
    client_id: str
    deadline_ns: int
    offset: int
    accepted: tuple[AcceptedPiece, ...] = ()
    is_decided: bool = False
    refresh: bool = False
    sender: str = ""
    connection: str = ""


@dataclass(kw_only=True, frozen=True, slots=True)
class SnapshotAccepted:
    request_id: str
    ticker: str
    venue: str
    client_id: str
    deadline_ns: int
    offset: int
    sender: str = ""
    connection: str = ""


@dataclass(kw_only=True, frozen=True, slots=True)
class RealtimeAccepted:
    request_id: str
    ticker: str
    venue: str
    client_id: str
    include_ohlc: bool
    ohlc_period_seconds: tuple[int, ...]
    stores_ticks: bool = False


@dataclass(frozen=True, slots=True)
class WantedFound:
    """An earlier run had published needs for this ticker."""

    ticker: str


@dataclass(frozen=True, slots=True)
class CancelAsked:
    request_id: str


@dataclass(frozen=True, slots=True)
class ControlAsked:
    """A SHUTDOWN or CONFIG_UPDATE arrived, which goes to every ingestor."""

    control: ing.IngestorControl


@dataclass(frozen=True, slots=True)
class FinalSeen:
    request_id: str


@dataclass(frozen=True, slots=True)
class ProofFound:
    """The driver answered which parts of a request need not be fetched."""

    request_id: str
    ranges: tuple[ProvenRange, ...]


@dataclass(frozen=True, slots=True)
class VenueLearned:
    """`depth_candles` > 0: the venue keeps only this many of its newest candles, and ranges are not cut.

    `is_bare`: no ingestor has described the venue on the bus.
    """

    venue: str
    candles_per_page: int
    depth_candles: int
    is_bare: bool = False


@dataclass(frozen=True, slots=True)
class LeaseFound:
    job_id: str
    note: LeaseNote | None
    at: float


# ---- events: from ingestors


@dataclass(slots=True)
class SlotOffered:
    connection: Connection
    venues: tuple[str, ...]
    kinds: tuple[Kind, ...]
    at: float


class HeartbeatHeard(NamedTuple):
    connection: Connection
    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class JobProgressed:
    connection: Connection
    job_id: str
    done_candles: int
    at: float


class HistoryEnded(NamedTuple):
    connection: Connection
    job_id: str
    result: PieceResult
    at: float


@dataclass(kw_only=True, frozen=True, slots=True)
class CandlesReceived:
    """One DataResponse of a foreign ingestor; `problem` is set if it cannot be used.

    `period_seconds` and `tickers` are those named in its candles, where they are optional.
    """

    connection: Connection
    dispatched_id: str
    candles: tuple[Candle, ...]
    period_seconds: frozenset[int]
    tickers: frozenset[str]
    total_records: int
    problem: str
    at: float


@dataclass(frozen=True, slots=True)
class SnapshotReceived:
    connection: Connection
    snapshot: cw.Snapshot
    at: float


class TicksReceived(NamedTuple):
    """`far`: the ticks that are too far ahead of our clock, with the reason; they are not in `batch`."""

    connection: Connection
    batch: cw.TickBatch
    at: float
    far: cw.TickBatch | None = None
    reason: str = ""


@dataclass(slots=True)
class JobCompleted:
    connection: Connection
    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class JobFailed:
    connection: Connection
    job_id: str
    failure: Failure
    at: float


@dataclass(frozen=True, slots=True)
class JobRejected:
    connection: Connection
    job_id: str
    failure: Failure
    at: float


@dataclass(frozen=True, slots=True)
class HolderAsked:
    """A frame was sent to the holder of a job that `connection` also named."""

    connection: Connection
    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """A frame could not be delivered; if it was a dispatch, `job_id` names its job."""

    connection: Connection
    job_id: str = ""


# ---- events: from the broker's own writes and clock


@dataclass(frozen=True, slots=True)
class PagesPublished:
    job_id: str
    partition: int
    spans: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SnapshotPublished:
    job_id: str


@dataclass(frozen=True, slots=True)
class PublishRefused:
    """The bus refused what a job delivered, because it is full or the job has no lease there."""

    job_id: str
    text: str


@dataclass(frozen=True, slots=True)
class MarksRefused:
    """The topic of marks is full, because the pipeline has not read it for too long."""

    tickers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ClockTicked:
    """`leases_wait`: the bus has not answered about leases since the previous tick, and dispatches wait for it."""

    at: float
    wall_ns: int
    leases_wait: bool = False


@dataclass(frozen=True, slots=True)
class HistoryMeasured:
    """The bytes and ends of the topic `history` at `at` (monotonic), and its writer's positions in `history_outcomes`.

    `has_prover`: a driver answers questions about what the table proves.
    """

    size: int
    ends: Mapping[int, int]
    written: Mapping[int, int]
    at: float
    has_prover: bool = False


@dataclass(frozen=True, slots=True)
class OutcomesWritten:
    """The outcomes of `pieces` further pieces are on the bus. `ends`: the ends of `history_outcomes`, by partition."""

    pieces: int
    ends: Mapping[int, int]


Event = (
    HistoricalAccepted
    | SnapshotAccepted
    | RealtimeAccepted
    | WantedFound
    | CancelAsked
    | ControlAsked
    | FinalSeen
    | ProofFound
    | VenueLearned
    | LeaseFound
    | SlotOffered
    | HeartbeatHeard
    | JobProgressed
    | HistoryEnded
    | CandlesReceived
    | SnapshotReceived
    | TicksReceived
    | JobCompleted
    | JobFailed
    | JobRejected
    | HolderAsked
    | ConnectionLost
    | PagesPublished
    | SnapshotPublished
    | PublishRefused
    | MarksRefused
    | HistoryMeasured
    | OutcomesWritten
    | ClockTicked
)
