"""Times as people read them."""

from datetime import UTC, datetime


def utc(time_ns: int) -> str:
    """ISO text, to the second, of nanoseconds since the epoch."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
