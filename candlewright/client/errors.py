"""What a call of the client can raise.

CandlewrightError
├── InvalidRequest           (core) the platform answered INVALID: change the request
├── TriggerRejected          (core)
│   └── InvalidTrigger       the platform answered INVALID_SQL: change the trigger's text
├── TriggerNotFound          no such trigger is registered
├── ViewNotFound             no such view is registered
├── PlatformUnreachable      (retryable) no answer in time
├── PlatformRefused          the platform answered ERROR, or with an Error message
├── TickerNotFound           no venue lists the ticker of a live stream; the stream stays, should that change
├── TriggerSuspended         a trigger whose events are read is stopped until it is registered again
├── GapError                 a live stream continues after numbers that the platform no longer keeps
├── TickersFailed            (history) some tickers of a call for several failed; carries the histories of the others
├── RowsUnavailable          the final arrived, the rows could not be read from here
└── RequestFailed            a request ended without rows; carries the notification
    ├── RequestNotFound      NOT_FOUND: the venue has nothing there
    └── RequestTimedOut      TIMEOUT: the platform gave up, or the caller's own timeout passed (notification None)
"""

import re
from typing import ClassVar

from candlewright.client.records import Notification
from candlewright.wire.errors import CandlewrightError, InvalidRequest, TriggerRejected

__all__ = [
    "GapError",
    "InvalidRequest",
    "InvalidTrigger",
    "PlatformRefused",
    "PlatformUnreachable",
    "RequestFailed",
    "RequestNotFound",
    "RequestTimedOut",
    "RowsUnavailable",
    "TickerNotFound",
    "TriggerNotFound",
    "TriggerSuspended",
    "ViewNotFound",
]

_PLACE = re.compile(r"\A(?:INVALID_SQL\s+)?(\d+):(\d+):\s*")
#: Characters of a long line that are shown on each side of a mistake.
_SHOWN = 60


class PlatformUnreachable(CandlewrightError):
    retryable: ClassVar[bool] = True

    """`name`: of the key that was shown, empty without one. A platform does not report why it refuses a connection."""

    def __init__(self, address: str, seconds: float, name: str = "") -> None:
        doubt = (
            f"with keys on, and does it know the key of {name}?"
            if name
            else "and if it has keys on, where is this client's key?"
        )
        silence = f"no answer from the platform at {address} within {seconds:g} s"
        super().__init__(f"{silence}; is `candlewright up` running there, {doubt}")
        self.address = address
        self.seconds = seconds


class PlatformRefused(CandlewrightError):
    def __init__(self, code: str, text: str, request_id: str = "") -> None:
        super().__init__(f"{code}: {text}" if text else code)
        self.code = code
        self.text = text
        self.request_id = request_id


class GapError(CandlewrightError):
    """Numbers `first` to `last` of `topic`, both included, were missed and have expired.

    The stream that raised it continues after them with its next item.
    """

    def __init__(self, topic: str, first: int, last: int) -> None:
        super().__init__(f"{topic}: numbers {first} to {last} were missed, and the platform no longer keeps them")
        self.topic = topic
        self.first = first
        self.last = last


class NumbersLost(GapError):
    """The platform lost numbers `first` to `last` of `topic` after this stream had received them, and assigns them
    again."""

    def __init__(self, topic: str, first: int, last: int) -> None:
        CandlewrightError.__init__(
            self, f"{topic}: the platform lost numbers {first} to {last} after they were sent, and assigns them again"
        )
        self.topic = topic
        self.first = first
        self.last = last


class TriggerSuspended(CandlewrightError):
    """The platform has stopped a trigger, because of `reason`; register it again to run it.

    `registered_at`: time of the registration that ended, in ns since the epoch. The stream that raised it continues.
    """

    def __init__(self, trigger_id: str, reason: str, registered_at: int) -> None:
        super().__init__(f"trigger {trigger_id} is suspended: {reason}")
        self.trigger_id = trigger_id
        self.reason = reason
        self.registered_at = registered_at


class TickerNotFound(CandlewrightError):
    """Nothing will come on `topic`: its venue does not list the ticker, or no such venue exists. The text names similar
    tickers. The stream that raised it stays subscribed, in case the ticker is listed later.
    """

    def __init__(self, topic: str, text: str) -> None:
        super().__init__(text)
        self.topic = topic


#: Errors that a stream raises between items; the next step continues after them.
Interruption = GapError | TriggerSuspended | TickerNotFound | PlatformRefused


class RowsUnavailable(CandlewrightError):
    pass


class RequestFailed(CandlewrightError):
    """`notification` is the request's final one; None if the caller's timeout came first."""

    def __init__(self, request_id: str, text: str, notification: Notification | None = None) -> None:
        super().__init__(text)
        self.request_id = request_id
        self.notification = notification


class RequestNotFound(RequestFailed):
    pass


class RequestTimedOut(RequestFailed):
    pass


class TriggerNotFound(CandlewrightError):
    def __init__(self, trigger_id: str) -> None:
        super().__init__(f"no trigger {trigger_id} is registered")
        self.trigger_id = trigger_id


class ViewNotFound(CandlewrightError):
    def __init__(self, name: str) -> None:
        super().__init__(f"no view {name} is registered")
        self.name = name


class InvalidTrigger(TriggerRejected):
    """`line` and `column` count from 1 in `sql`, the text that was refused; `hint` may be empty.

    `one_line` is the message, `excerpt` the line of the text with a mark below the position; the error's text is both.
    """

    def __init__(self, sql: str, message: str, *, line: int, column: int, hint: str = "") -> None:
        super().__init__(message, line, column, hint=hint)
        self.sql = sql

    @classmethod
    def parse(cls, sql: str, text: str) -> "InvalidTrigger":
        """From an acknowledgement, `line:column: message (hint)`; a text without a position refers to the beginning."""
        text = " ".join(text.split())
        place = _PLACE.match(text)
        line, column = (int(place[1]), int(place[2])) if place else (1, 1)
        message, hint = _without_hint(text[place.end() :] if place else text.removeprefix("INVALID_SQL "))
        return cls(sql, message or "the platform refuses this text", line=line, column=column, hint=hint)

    @property
    def one_line(self) -> str:
        return super().__str__()

    @property
    def excerpt(self) -> str:
        """Empty if the text has no such position."""
        lines = self.sql.splitlines()
        if not 0 < self.line <= len(lines) or not 0 < self.column <= len(lines[self.line - 1]) + 1:
            return ""
        shown = "".join(each if each.isprintable() else " " for each in lines[self.line - 1])
        first = max(0, self.column - 1 - _SHOWN)
        last = self.column - 1 + _SHOWN
        before, after = "…" if first else "", "…" if last < len(shown) else ""
        mark = " " * (len(before) + self.column - 1 - first) + "^"
        return f"{before}{shown[first:last]}{after}\n{mark}"

    def __str__(self) -> str:
        excerpt = "".join(f"\n  {line}" for line in self.excerpt.splitlines())
        return self.one_line + excerpt


def _without_hint(text: str) -> tuple[str, str]:
    """The hint is the last pair of parentheses, at the end of the text."""
    if not text.endswith(")"):
        return text, ""
    depth = 0
    for place in range(len(text) - 1, 0, -1):
        depth += {")": 1, "(": -1}.get(text[place], 0)
        if depth == 0:
            return (text[:place].rstrip(), text[place + 1 : -1]) if text[place - 1] == " " else (text, "")
    return text, ""
