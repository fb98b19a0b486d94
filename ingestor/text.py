"""Times as readable text."""

from datetime import UTC, datetime


def utc(time_ns: int) -> str:
    """Nanoseconds since the epoch as ISO text, to the second."""
    return datetime.fromtimestamp(time_ns // 1_000_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
