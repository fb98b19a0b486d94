"""The commands that the ingestor's state machine returns."""

from dataclasses import dataclass

from google.protobuf.message import Message

from ingestor.events import Job


@dataclass(frozen=True, slots=True)
class Connect:
    """Open the socket with this number; `reason` says why the previous one is abandoned."""

    connection: int
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the socket with this number after its queued messages are sent."""

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
    """Increment a counter; `what` is a key of the server's table of counters."""

    what: str


@dataclass(frozen=True, slots=True)
class Exit:
    pass


Command = Connect | Disconnect | Send | StartJob | StopJob | Count | Exit
