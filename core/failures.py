"""How an ingestor reports to the broker why a job failed: `CODE: text` in WorkComplete.error_message.

Any other text (from a foreign ingestor) counts as UNKNOWN, which is retried like an outage.
"""

from dataclasses import dataclass
from enum import StrEnum


class FailureCode(StrEnum):
    UNKNOWN = "UNKNOWN"
    UNAVAILABLE = "UNAVAILABLE"
    BAD_REPLY = "BAD_REPLY"
    RATE_LIMITED = "RATE_LIMITED"
    BUS = "BUS"
    SHUTDOWN = "SHUTDOWN"
    UNKNOWN_TICKER = "UNKNOWN_TICKER"
    NOT_OFFERED = "NOT_OFFERED"
    DEPTH = "DEPTH"
    REFUSED = "REFUSED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """True if another ingestor would get the same answer."""
        return self in _FINAL

    @property
    def counts_as_attempt(self) -> bool:
        """False if the job itself is not at fault: an orderly shutdown, or an exchange's limit."""
        return self not in (FailureCode.SHUTDOWN, FailureCode.RATE_LIMITED)


_FINAL = frozenset({FailureCode.UNKNOWN_TICKER, FailureCode.NOT_OFFERED, FailureCode.DEPTH, FailureCode.REFUSED})


@dataclass(frozen=True, slots=True)
class Failure:
    code: FailureCode
    text: str

    def __str__(self) -> str:
        return f"{self.code}: {self.text}"

    @classmethod
    def parse(cls, error_message: str) -> "Failure":
        code, separator, text = error_message.partition(": ")
        if separator and code in FailureCode.__members__:
            return cls(FailureCode(code), text)
        return cls(FailureCode.UNKNOWN, error_message)
