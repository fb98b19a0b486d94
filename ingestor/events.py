"""The events that the ingestor's state machine receives.

`at` and `until` are monotonic seconds. A connection is the number of a socket to the broker, counted from 1.
"""

from dataclasses import dataclass
from enum import Enum

from google.protobuf.message import Message

from core.failures import Failure


class Kind(Enum):
    HISTORICAL = "historical"
    SNAPSHOT = "snapshot"
    REALTIME = "realtime"

    @property
    def slot(self) -> "Kind":
        """The kind of slot that the broker uses for this job; if the two disagreed, each job would lose a slot."""
        return Kind.REALTIME if self is Kind.REALTIME else Kind.HISTORICAL


@dataclass(kw_only=True, frozen=True, slots=True)
class Job:
    """A dispatch; `period_seconds`, `start`, `end` (ns) and `limit` are those of a historical one."""

    job_id: str
    request_id: str
    ticker: str
    venue: str
    symbol: str
    kind: Kind
    period_seconds: int = 0
    start: int = 0
    end: int = 0
    limit: int | None = None

    @property
    def client_request_id(self) -> str:
        """The client's own id; a piece's id adds `#` and the piece's number."""
        return self.request_id.partition("#")[0]


class StopReason(Enum):
    STOPPED = "stopped by the broker"
    CANCELLED = "cancelled"
    SHUTDOWN = "the ingestor is shutting down"


@dataclass(frozen=True, slots=True)
class Started:
    at: float


@dataclass(frozen=True, slots=True)
class VenueReady:
    venue: str
    at: float


@dataclass(frozen=True, slots=True)
class VenueBlocked:
    """The exchange must not be called before `until`."""

    venue: str
    until: float
    at: float


@dataclass(frozen=True, slots=True)
class Heard:
    connection: int
    at: float


@dataclass(frozen=True, slots=True)
class HeartbeatCame:
    """The broker's heartbeat arrived, which asks for heartbeats of this connection's jobs."""

    connection: int
    at: float


@dataclass(frozen=True, slots=True)
class Dispatched:
    connection: int
    job: Job
    at: float


@dataclass(frozen=True, slots=True)
class DispatchRefused:
    """A dispatch is invalid and cannot become a job."""

    connection: int
    job_id: str
    failure: Failure
    at: float


@dataclass(frozen=True, slots=True)
class StopAsked:
    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class CancelAsked:
    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class ConfigChanged:
    max_concurrent: int
    at: float


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    connection: int
    at: float


@dataclass(frozen=True, slots=True)
class JobExpects:
    """The job's task will report progress again before `until`."""

    job_id: str
    until: float


@dataclass(frozen=True, slots=True)
class JobAdvanced:
    job_id: str
    done_candles: int
    at: float


@dataclass(frozen=True, slots=True)
class JobSucceeded:
    """`results` go to the broker before WorkComplete."""

    job_id: str
    results: tuple[Message, ...]
    at: float


@dataclass(frozen=True, slots=True)
class JobFailed:
    job_id: str
    failure: Failure
    at: float


@dataclass(frozen=True, slots=True)
class JobFenced:
    """The bus refused the job's writes, because another ingestor has its lease."""

    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class JobStopped:
    """The job's task ended because of a StopJob."""

    job_id: str
    at: float


@dataclass(frozen=True, slots=True)
class ShutdownAsked:
    at: float


@dataclass(frozen=True, slots=True)
class Ticked:
    at: float


Event = (
    Started
    | VenueReady
    | VenueBlocked
    | Heard
    | HeartbeatCame
    | Dispatched
    | DispatchRefused
    | StopAsked
    | CancelAsked
    | ConfigChanged
    | ConnectionLost
    | JobExpects
    | JobAdvanced
    | JobSucceeded
    | JobFailed
    | JobFenced
    | JobStopped
    | ShutdownAsked
    | Ticked
)
