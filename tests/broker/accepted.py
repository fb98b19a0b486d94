"""A request for minute candles, as the state of the broker gets it."""

from typing import Any

from broker.events import HistoricalAccepted

SECOND = 1_000_000_000
MINUTE = 60 * SECOND
START = 1_704_067_200 * SECOND


def accepted(request_id: str = "r", *, minutes: float = 5, start: int = START, **changes: Any) -> HistoricalAccepted:
    """One without a limit or a deadline, unless `changes` name them."""
    fields = {
        "ticker": "A/B.TEST",
        "venue": "TEST",
        "period_seconds": 60,
        "limit": None,
        "client_id": "",
        "deadline_ns": 2**63,
        "offset": 0,
        **changes,
    }
    return HistoricalAccepted(request_id=request_id, start=start, end=start + int(minutes * MINUTE), **fields)
