# ruff: noqa: E501  (tables of prose)
"""Errors: what Python code catches, what the wire says, why a job failed; and what to do about each."""

import inspect
from types import ModuleType

from candlewright.client import errors as client
from candlewright.wire import errors as wire
from candlewright.wire.errors import CandlewrightError
from core.failures import FailureCode
from documentation.markdown import code, page, table

#: What a caller does about it.
ACTIONS = {
    "CandlewrightError": "The root of the tree: catch it to catch everything below.",
    "BadFrame": "Send a valid message: see [frames](messages.md#frames).",
    "SizeLimitExceeded": "Send less in one message.",
    "InvalidRequest": "Change the request; the text says what is wrong.",
    "TriggerRejected": "Change the text at `line` and `column`.",
    "BusError": "See the classes below it.",
    "BusUnavailable": "Retry. The parts wait for Redis by themselves.",
    "BusRefusing": "See the cause in `candlewright doctor`: memory, disk, or the user of `bus.url`. Parts continue by themselves.",
    "BusFull": "Retry. A reader of the topic is stuck or slow: `candlewright status` names it.",
    "BusLimit": "Use fewer topics, groups or names, or raise the setting (`bus.max_topics`, `bus.max_groups` …).",
    "LeaseLost": "Stop the job; another ingestor has it.",
    "OffsetOutOfRange": "Continue at the oldest record that is kept.",
    "CallsLost": "Nothing: the part restarts and continues from what the store has.",
    "RecordsLost": "Nothing: the reader continues at the first replaced record. Check why Redis lost data.",
    "ExchangeError": "See the classes below it.",
    "RateLimited": "Retry after `retry_at`; ingestors do so by themselves.",
    "Unavailable": "Retry; ingestors do so by themselves.",
    "BadReply": "Retry; ingestors do so by themselves.",
    "UnknownTicker": "Use a ticker that the venue lists: `candlewright markets VENUE`.",
    "NotOffered": "Use a period or feature that the venue has: `candlewright venues`.",
    "DepthExceeded": "Ask for a later start; the venue does not keep older data.",
    "RoleLost": "Nothing: the part stands by for the role again.",
    "CommitConflict": "Compare again, then write again; the writers do so by themselves.",
    "CommitUnknown": "Look whether the commit is in the table before writing again; the writers do so by themselves.",
    "NotAuthorised": "Use a key made with `candlewright keys new`.",
    "DirectoryMoved": "Run `candlewright relocate` once, with the platform stopped.",
    "ConfigurationError": "Correct the setting that the text names.",
    "PlatformUnreachable": "Start the platform, or correct the address or key.",
    "PlatformRefused": "See `code` in [errors on the wire](#errors-on-the-wire).",
    "GapError": "Continue with the next item. The missing numbers are no longer kept; read the table instead.",
    "NumbersLost": "Continue with the next item. The platform gives the lost numbers to new records.",
    "TriggerSuspended": "Fix what `reason` names, then add the trigger again.",
    "TickerNotFound": "Use one of the names in the text, or wait until the ticker is listed.",
    "RowsUnavailable": "Open the client where the tables are readable (`data_dir`), or with `spark=`.",
    "RequestFailed": "Read `notification`: it names the missing range and the reason.",
    "RequestNotFound": "The venue has nothing in this range: check ticker and range.",
    "RequestTimedOut": "Wait again with the same request id, or raise the timeout.",
    "TriggerNotFound": "List the triggers: `candlewright trigger list`.",
    "InvalidTrigger": "Change the text where `excerpt` marks it.",
}
WIRE = {
    "MALFORMED": ("the body is not a valid message of its type", "Send a valid message."),
    "UNKNOWN_VERSION": ("the first frame is not 0x01", "Send the version frame."),
    "UNKNOWN_TYPE": ("no message has this type", "Use a type of the table of frames."),
    "UNEXPECTED_TYPE": ("this type is not accepted on this socket", "Send it where the table of frames says."),
    "TOO_LARGE": ("the message exceeds its limit", "Send less in one message."),
    "INVALID": ("a field has an invalid value; the text names it", "Correct the message."),
    "BAD_RECORD": ("a record of the bus cannot be read", "See `candlewright dead-letters list`."),
    "FAILED": ("an unexpected failure inside the platform", "See the part's log; report it."),
    "USE_DEALER": ("a REQ socket asked for more than one frame", "Use a DEALER socket."),
    "BUSY": ("the part has too much work waiting", "Retry later."),
    "UNAVAILABLE": ("the bus does not answer or takes no writes", "Retry later."),
    "NOT_ALLOWED": ("the id or topic belongs to another client", "Use ids that begin with your key's name."),
    "NOT_FOUND": ("no such trigger or request", "Check the id."),
    "UNKNOWN_REQUEST": ("no such request is known", "Check the id; finished ones are forgotten after some days."),
    "NOT_KEPT": ("the records asked for are trimmed, or not written yet", "Read the table instead."),
    "RECORDS_LOST": ("numbers after `newest_sequence` are given again", "Drop what you hold after that number."),
    "TRIGGER_SUSPENDED": ("the trigger was stopped; the text says why", "Fix the cause, then add it again."),
    "UNKNOWN_TICKER": ("no venue lists the ticker of this topic", "Use one of the names in the text."),
    "UNKNOWN_VENUE": ("no ingestor serves this venue", "Add it to `ingestor.venues`."),
    "TOO_MANY_TOPICS": ("this client's share of live topics is used up", "Unsubscribe from some."),
    "TOO_MANY_VENUES": ("a slot names too many venues", "Name fewer."),
    "TOO_MANY_SLOTS": ("`broker.max_slots` is reached", "Offer fewer slots, or raise the setting."),
    "TOO_MANY_CONNECTIONS": ("`broker.max_connections` is reached", "Close some, or raise the setting."),
}
FAILURES = {
    FailureCode.UNKNOWN: "A text without a code, for example from your own ingestor. Retried.",
    FailureCode.UNAVAILABLE: "The exchange did not answer. Retried.",
    FailureCode.BAD_REPLY: "The exchange's answer made no sense. Retried.",
    FailureCode.RATE_LIMITED: "The exchange limits or bans this address. Retried after the time that it named.",
    FailureCode.BUS: "The ingestor could not write to the bus. Retried.",
    FailureCode.SHUTDOWN: "The ingestor stopped in an orderly way. Another one takes the job.",
    FailureCode.UNKNOWN_TICKER: "The venue does not list the ticker. Final.",
    FailureCode.NOT_OFFERED: "The venue has no such period or feature. Final.",
    FailureCode.DEPTH: "The venue no longer keeps data this old. Final.",
    FailureCode.REFUSED: "The venue refuses the request itself. Final.",
    FailureCode.CANCELLED: "The client cancelled. Final.",
}
INTRODUCTION = """
Every error of the Python packages is a `CandlewrightError`; `retryable` says whether the same call may succeed later without
a change. Every failure that a client can cause comes back on the wire with a code and a sentence.
"""


def classes(module: ModuleType) -> list[type[CandlewrightError]]:
    found = [value for value in vars(module).values() if inspect.isclass(value)]
    return [value for value in found if issubclass(value, CandlewrightError) and value.__module__ == module.__name__]


def action(error: type[CandlewrightError]) -> str:
    """Of the class, or of the closest class above it that has one."""
    return next(ACTIONS[each.__name__] for each in error.__mro__ if each.__name__ in ACTIONS)


def rows(module: ModuleType) -> list[tuple[str, str, str, str]]:
    return [
        (code(each.__name__), code(each.__base__.__name__), "yes" if each.retryable else "", action(each))
        for each in classes(module)
        if each.__base__ is not None
    ]


def markdown() -> str:
    head = ("class", "is a", "retryable", "what to do")
    return page(
        "Errors",
        INTRODUCTION,
        "## Raised by the client",
        table(head, rows(client)),
        "## Shared by client and platform",
        table(head, rows(wire)),
        "## Errors on the wire",
        "An `Error` (0x40) has `code`, `text` and, where one is known, `request_id`.",
        table(("code", "cause", "what to do"), [(code(name), *texts) for name, texts in WIRE.items()]),
        "## Why a job failed",
        "`HistoryReadyNotification.error_message` of a request that ended as ERROR, and `WorkComplete.error_message` of an"
        " ingestor, begin with one of these codes.",
        table(("code", "meaning"), [(code(name), text) for name, text in FAILURES.items()]),
    )
