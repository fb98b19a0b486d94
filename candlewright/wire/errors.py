"""The one tree of errors.

    CandlewrightError
    ├── BadFrame                 a peer sent bytes that are not a message; it gets an Error
    │   └── SizeLimitExceeded
    ├── InvalidRequest           the client must change the request
    ├── TriggerRejected          the client must change the trigger's SQL
    ├── BusError                 the bus did not carry out a call
    │   ├── BusUnavailable       (retryable)
    │   │   └── BusRefusing      (retryable: the server answers, but accepts no writes, or no calls, for now)
    │   ├── BusFull              (retryable: back-pressure)
    │   │   └── BusLimit         the maximum number of topics, groups or names is reached
    │   ├── LeaseLost            the writer was fenced; another has its work now
    │   ├── RoleLost             another process has taken over the writer's role
    │   ├── OffsetOutOfRange     the records were trimmed or never written
    │   ├── CallsLost            the store lost this writer's last publish
    │   └── RecordsLost          the store lost records that were read, or replaced them by others
    ├── ExchangeError            an exchange did not give a usable answer
    │   ├── RateLimited          (retryable, after `retry_at`)
    │   ├── Unavailable          (retryable)
    │   ├── BadReply             (retryable)
    │   ├── UnknownTicker
    │   ├── NotOffered           period or feature that the venue does not have
    │   └── DepthExceeded        older than the venue keeps
    ├── CommitConflict           (retryable)
    ├── CommitUnknown            look before writing again
    ├── NotAuthorised
    └── ConfigurationError
        └── DirectoryMoved       the tables' files are not where the catalog says

`retryable` says whether the same call may succeed later without a change by the caller.
"""

import copyreg
from shlex import quote
from typing import Any, ClassVar

#: The answer of a relay that cannot reach the bus: a client of several relays asks the next one.
BUS_AWAY = "The platform's message bus cannot be reached. It is unknown whether anything changed: repeat the request."


class CandlewrightError(Exception):
    retryable: ClassVar[bool] = False

    def __reduce__(self) -> tuple[Any, ...]:
        """From what an error holds, as `__init__` takes fields where an exception takes its text."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]


class BadFrame(CandlewrightError):
    """Bytes that are not a valid message. `code` is the wire's Error.code."""

    def __init__(self, code: str, text: str, request_id: str = "") -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text
        self.request_id = request_id


class SizeLimitExceeded(BadFrame):
    def __init__(self, size: int, limit: int) -> None:
        super().__init__("TOO_LARGE", f"{size} bytes; at most {limit} are allowed")
        self.size = size
        self.limit = limit


class InvalidRequest(CandlewrightError):
    """A request that can never be served; the text is a sentence for the client."""


class TriggerRejected(CandlewrightError):
    """A refused trigger text, with the position (1-based) and, if there is one, a hint.

    `details`: more about the text, as JSON data: `errors` (all of them) and `mended`.
    """

    def __init__(self, message: str, line: int = 1, column: int = 1, *, hint: str = "") -> None:
        self.details: dict[str, Any] = {}
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(f"INVALID_SQL {line}:{column}: {message}" + (f" ({hint})" if hint else ""))


class BusError(CandlewrightError):
    pass


class BusUnavailable(BusError):
    retryable = True


class BusRefusing(BusUnavailable):
    """`code`: the server's error code, such as OOM or WRONGPASS. The refused call wrote nothing. `what`: calls, if it
    refuses reads too.
    """

    def __init__(self, code: str, text: str, *, what: str = "writes") -> None:
        super().__init__(f"the bus does not accept {what}: {text} ({code})")
        self.code = code


class BusFull(BusError):
    retryable = True

    def __init__(self, topic: str, size: int, limit: int) -> None:
        super().__init__(f"topic {topic} holds {size} of {limit} bytes that its readers have not read yet")
        self.topic = topic
        self.size = size
        self.limit = limit


class BusLimit(BusFull):
    """`what` has reached its limit, `size`."""

    def __init__(self, what: str, size: int, limit: int) -> None:
        BusError.__init__(self, f"the bus has {size} {what}; the maximum is {limit}")
        self.topic = what
        self.size = size
        self.limit = limit


class LeaseLost(BusError):
    def __init__(self, lease: str) -> None:
        super().__init__(f"job {lease} no longer has a lease")
        self.lease = lease


class RoleLost(BusError):
    """`epoch`: the epoch of the write; `newest`: the one that has begun since, 0 if the store has lost it."""

    def __init__(self, role: str, epoch: int, newest: int) -> None:
        super().__init__(f"another process has taken over the role {role}: epoch {epoch} ended with epoch {newest}")
        self.role = role
        self.epoch = epoch
        self.newest = newest

    @property
    def fields(self) -> dict[str, object]:
        """For a line of the log."""
        return {"role": self.role, "epoch": self.epoch, "newest": self.newest, "error": str(self)}


class OffsetOutOfRange(BusError):
    def __init__(self, topic: str, partition: int, offset: int, *, first: int, end: int) -> None:
        super().__init__(f"{topic}/{partition} holds offsets {first} to {end - 1}, not {offset}")
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.first = first
        self.end = end


class CallsLost(BusError):
    def __init__(self, writer: str, number: int, last: int) -> None:
        super().__init__(
            f"the bus has lost records: the last call of {writer} that it holds is {last}, and this is {number}"
        )
        self.writer = writer
        self.number = number
        self.last = last


class RecordsLost(BusError):
    """`offset`: the position up to which a reader had read; `kept`: up to which the store still holds the records that
    it read."""

    def __init__(self, topic: str, partition: int, offset: int, *, kept: int) -> None:
        super().__init__(
            f"the bus has lost records: {topic}/{partition} was read up to {offset}, but is unchanged only up to {kept}"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.kept = kept


class ExchangeError(CandlewrightError):
    pass


class RateLimited(ExchangeError):
    retryable = True

    def __init__(self, text: str, retry_at: float) -> None:
        """`retry_at`: wall-clock seconds since the epoch when the exchange may be asked again."""
        super().__init__(text)
        self.retry_at = retry_at


class Unavailable(ExchangeError):
    retryable = True


class BadReply(ExchangeError):
    retryable = True


class UnknownTicker(ExchangeError):
    pass


class NotOffered(ExchangeError):
    pass


class DepthExceeded(ExchangeError):
    pass


class CommitConflict(CandlewrightError):
    retryable = True


class CommitUnknown(CandlewrightError):
    pass


class NotAuthorised(CandlewrightError):
    pass


class ConfigurationError(CandlewrightError):
    pass


class DirectoryMoved(ConfigurationError):
    def __init__(self, directory: str, before: str) -> None:
        super().__init__(
            f"{directory} was moved or copied here: its tables still name files in {before}. With the platform stopped,"
            f" run `candlewright relocate --data-dir {quote(directory)}` once"
        )
        self.directory = directory
        self.before = before
