"""Joins half-open ranges of time, and describes them as text."""

from collections.abc import Iterable
from datetime import UTC, datetime

from broker.events import Range
from candlewright.wire import grid


def merge(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """The ranges sorted, with touching and overlapping ones joined."""
    ranges = tuple(ranges)
    if len(ranges) < 2:
        return ranges
    merged: list[Range] = []
    for start, end in sorted(ranges):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return tuple(merged)


def describe_ranges(ranges: Iterable[Range], most: int = 5) -> str:
    """`[2024-01-01T00:00:00Z, 2024-01-02T00:00:00Z)` and the like, for an error message."""
    merged = merge(ranges)
    shown = ", ".join(f"[{_iso(start)}, {_iso(end)})" for start, end in merged[:most])
    return shown + (f" and {len(merged) - most} more ranges" if len(merged) > most else "")


def _iso(time_ns: int) -> str:
    seconds, rest = divmod(time_ns, grid.SECOND)
    try:
        moment = datetime.fromtimestamp(seconds, tz=UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time_ns} ns"
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return moment.strftime("%Y-%m-%dT%H:%M:%S") + fraction + "Z"
