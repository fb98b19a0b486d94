"""Market data with exact candles: `import candlewright as cw`, then `cw.connect()` or `cw.aconnect()`.

The names are loaded when they are first used, so that the command line answers at once.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from candlewright.client import (
        AsyncClient,
        AsyncRealtime,
        AsyncStream,
        AsyncTrigger,
        Bar,
        Candles,
        Client,
        Events,
        GapError,
        Histories,
        History,
        InvalidRequest,
        InvalidTrigger,
        Market,
        Notification,
        Outcome,
        PlatformRefused,
        PlatformUnreachable,
        ProgressBar,
        Realtime,
        RegisteredView,
        RequestFailed,
        RequestNotFound,
        RequestState,
        RequestTimedOut,
        RowsUnavailable,
        Snapshot,
        Stream,
        Submission,
        Tick,
        TickerNotFound,
        TickersFailed,
        Trigger,
        TriggerEvent,
        TriggerInfo,
        TriggerNotFound,
        TriggerSuspended,
        Venue,
        ViewInfo,
        ViewNotFound,
        aconnect,
        connect,
    )

__all__ = [
    "AsyncClient",
    "AsyncRealtime",
    "AsyncStream",
    "AsyncTrigger",
    "Bar",
    "Candles",
    "Client",
    "Events",
    "GapError",
    "Histories",
    "History",
    "InvalidRequest",
    "InvalidTrigger",
    "Market",
    "Notification",
    "Outcome",
    "PlatformRefused",
    "PlatformUnreachable",
    "ProgressBar",
    "Realtime",
    "RegisteredView",
    "RequestFailed",
    "RequestNotFound",
    "RequestState",
    "RequestTimedOut",
    "RowsUnavailable",
    "Snapshot",
    "Stream",
    "Submission",
    "Tick",
    "TickerNotFound",
    "TickersFailed",
    "Trigger",
    "TriggerEvent",
    "TriggerInfo",
    "TriggerNotFound",
    "TriggerSuspended",
    "Venue",
    "ViewInfo",
    "ViewNotFound",
    "aconnect",
    "connect",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'candlewright' has no attribute {name!r}")
    from candlewright import client

    return getattr(client, name)
