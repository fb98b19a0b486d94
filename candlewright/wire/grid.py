"""The grid of candle open times: multiples of the period since the epoch, weeks from Monday 00:00 UTC.

All times are nanoseconds since the epoch, UTC; ranges are half-open.
"""

from collections.abc import Iterator

SECOND = 1_000_000_000
WEEK_SECONDS = 604_800
#: A time outside 1990 to 2199 is taken to be in another unit than nanoseconds.
EARLIEST_NS = 631_152_000 * SECOND
LATEST_NS = 7_258_118_400 * SECOND
_UNITS = (("seconds", SECOND), ("milliseconds", 1_000_000), ("microseconds", 1_000))
#: 1970-01-05 00:00 UTC was the first Monday.
_MONDAY = 4 * 86_400 * SECOND


def other_unit(time: int) -> str | None:
    """The unit in which `time` would be a plausible date, unless that is nanoseconds."""
    if EARLIEST_NS <= time < LATEST_NS:
        return None
    return next((unit for unit, factor in _UNITS if EARLIEST_NS <= time * factor < LATEST_NS), None)


def origin_of(period_seconds: int) -> int:
    """An open time (ns) on the grid of `period_seconds`."""
    return _MONDAY if period_seconds % WEEK_SECONDS == 0 else 0


def first_open_from(start: int, period_seconds: int) -> int:
    """The first open time (ns) at or after `start`."""
    period = period_seconds * SECOND
    return start + (origin_of(period_seconds) - start) % period


def open_containing(time: int, period_seconds: int) -> int:
    """The open time (ns) of the candle that contains `time`."""
    return time - (time - origin_of(period_seconds)) % (period_seconds * SECOND)


def count_opens(start: int, end: int, period_seconds: int) -> int:
    """The number of open times o with start <= o < end."""
    first = first_open_from(start, period_seconds)
    return max(0, -(-(end - first) // (period_seconds * SECOND)))


def closed_end(end: int, period_seconds: int, exchange_time: int) -> int:
    """The end (ns) of the answerable range: candles opening before it were closed at `exchange_time`."""
    first_unclosed = open_containing(exchange_time, period_seconds)
    return min(end, first_unclosed)


def expected_candles(start: int, end: int, period_seconds: int, *, exchange_time: int) -> int:
    """The number of open times o with start <= o < end and o + period <= exchange_time: the size of a full answer."""
    return count_opens(start, closed_end(end, period_seconds, exchange_time), period_seconds)


def split(start: int, end: int, period_seconds: int, *, candles_per_piece: int) -> Iterator[tuple[int, int]]:
    """Cut [start, end) at absolute multiples of `candles_per_piece` periods, so that every run cuts it the same way."""
    span = candles_per_piece * period_seconds * SECOND
    origin = origin_of(period_seconds)
    while start < end:
        cut = min(end, start - (start - origin) % span + span)
        yield start, cut
        start = cut
