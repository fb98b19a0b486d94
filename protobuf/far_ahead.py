"""Decides which trades and marks have a time too far ahead of the exchange's clock.

A single such record would end every earlier bar and make all valid trades up to its time late. Both the entry points of
the bus and every reader of it apply this module, so such a record has no effect, whichever process wrote it.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from candlewright.wire import tick_columns
from candlewright.wire.errors import BadFrame
from protobuf import records_pb2 as records

__all__ = ["checked_mark", "checked_ticks", "newest_allowed", "reason_of"]

_SECOND = 1_000_000_000


def newest_allowed(published_ns: int, received_ns: int, exchange_ahead: int | None, *, max_ahead_ns: int) -> int:
    """The newest time (ns) that a record may have: by the exchange's clock if it was measured, else by the bus's.

    `received_ns`: when an ingestor received it, by the clock against which `exchange_ahead` was measured.
    """
    if exchange_ahead is None:
        return published_ns + max_ahead_ns
    return max(published_ns, received_ns) + exchange_ahead + max_ahead_ns


def reason_of(ticker: str, time_ns: int, allowed_ns: int, *, max_ahead_ns: int) -> str:
    """Why a time after `newest_allowed` is refused."""
    ahead = (time_ns - allowed_ns + max_ahead_ns) / _SECOND
    return (
        f"{ticker}: the time {time_ns} is {ahead:.1f} s ahead of the exchange's clock, more than "
        f"ticks.max_ahead_seconds = {max_ahead_ns / _SECOND:g}"
    )


def checked_ticks(value: bytes, published_ns: int, max_ahead_ns: int) -> tuple[bytes, str]:
    """A record of the topic ticks with the times of trades too far ahead removed, and the reason; else unchanged, "".

    Such a trade stays in its record with time 0, so that the others keep their numbers; readers skip it.
    """
    times = tick_columns.time_range(value)
    if times is not None:
        _, newest, exchange_ahead = times
        if newest <= published_ns + (exchange_ahead or 0) + max_ahead_ns:
            return value, ""
    try:
        columns = tick_columns.decode(value)
    except BadFrame:
        # A record that cannot be decoded is left to the reader, which refuses it.
        return value, ""
    received_ns = int(columns.received_at.max(initial=0))
    allowed = newest_allowed(published_ns, received_ns, columns.exchange_ahead, max_ahead_ns=max_ahead_ns)
    is_far = columns.timestamp > allowed
    if not is_far.any():
        return value, ""
    sound = replace(columns, timestamp=np.where(is_far, 0, columns.timestamp))
    return tick_columns.encode(sound), reason_of(
        columns.ticker, int(columns.timestamp.max()), allowed, max_ahead_ns=max_ahead_ns
    )


def checked_mark(mark: records.TickMark, published_ns: int, max_ahead_ns: int) -> str:
    """Why a mark must be ignored, because its time is too far ahead; "" if it is valid."""
    ahead = mark.exchange_ahead if mark.HasField("exchange_ahead") else None
    allowed = newest_allowed(published_ns, 0, ahead, max_ahead_ns=max_ahead_ns)
    newest = max(_times_of(mark), default=0)
    return reason_of(mark.ticker, newest, allowed, max_ahead_ns=max_ahead_ns) if newest > allowed else ""


def _times_of(mark: records.TickMark) -> Sequence[int]:
    match mark.WhichOneof("body"):
        case "clock":
            return (mark.clock.exchange_time,)
        case "covered":
            return (mark.covered.from_time,)
        case "gap":
            return (mark.gap.from_time, mark.gap.to_time)
        case "seed":
            return mark.seed.open_time
    return ()
