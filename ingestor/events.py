"""What the ingestor's state machine receives.

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
        """The kind of slot that the broker takes for such a job; another view of it would lose slots, one a job."""
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
        """The client's own id: that of a piece is followed by `#` and the piece's number."""
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
    """The exchange is not to be asked before `until`."""

    venue: str
    until: float
    at: float


@dataclass(frozen=True, slots=True)
class Heard:
    connection: int
    at: float


@dataclass(frozen=True, slots=True)
class HeartbeatCame:
    """The broker's: it wants to hear of the jobs of this connection by now."""

    connection: int
    at: float


@dataclass(frozen=True, slots=True)
class Dispatched:
    connection: int
    job: Job
    at: float


@dataclass(frozen=True, slots=True)
class DispatchRefused:
    """A dispatch that cannot be taken as it is."""

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
    """The job's task says that it gives its next sign of life before `until`."""

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
    """The bus refused the job's writes: its work is another's now."""

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
