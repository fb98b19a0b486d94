"""Times as JSON has them."""

from datetime import UTC, datetime


def iso_nanoseconds(time_ns: int) -> str:
    """ISO 8601 in UTC with nanoseconds and `Z`."""
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def iso_seconds(time: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, without a fraction."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}"
