"""What the ingestor's state machine wants done."""

from dataclasses import dataclass

from google.protobuf.message import Message

from ingestor.events import Job


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the socket of this number; `reason` is why the previous one is not used any more."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the socket of this number after what it still has to send."""

    connection: int


@dataclass(frozen=True, slots=True)
class Send:
    connection: int
    message: Message


@dataclass(frozen=True, slots=True)
class StartJob:
    job: Job


@dataclass(frozen=True, slots=True)
class StopJob:
    job_id: str


@dataclass(frozen=True, slots=True)
class Count:
    """Something to count: `what` is a key of the server's table of counters."""

    what: str


@dataclass(frozen=True, slots=True)
class Exit:
    pass


Command = Connect | Disconnect | Send | StartJob | StopJob | Count | Exit
