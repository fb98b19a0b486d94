"""Times as users write them and as JSON has them; inside they are nanoseconds since the epoch (UTC)."""

import re
from datetime import UTC, date, datetime

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.grid import other_unit

#: What a call accepts as a time: ISO 8601 text, a datetime, a date, or nanoseconds since the epoch.
Time = str | datetime | date | int

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FRACTION = re.compile(r"(?<=\d)[.,](\d+)")


def to_nanoseconds(time: Time) -> int:
    """Exact to the nanosecond; a time without a zone is UTC. Raises InvalidRequest."""
    if isinstance(time, bool):
        raise InvalidRequest(f"{time!r} is not a time")
    if isinstance(time, int):
        return _counted(time)
    if isinstance(time, str):
        return _checked(_parse(time), time)
    if isinstance(time, datetime):
        # pandas.Timestamp is a datetime with additional nanoseconds.
        return _checked(_of(time) + int(getattr(time, "nanosecond", 0)), str(time))
    return _checked(_of(datetime(time.year, time.month, time.day)), str(time))


def format_nanoseconds(time: int) -> str:
    """ISO 8601 in UTC with as many digits of the second as needed."""
    seconds, fraction = divmod(time, 1_000_000_000)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return text + (f".{fraction:09d}".rstrip("0") if fraction else "") + "Z"


def _of(moment: datetime) -> int:
    delta = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000


def _parse(text: str) -> int:
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit() and len(stripped) > 8:
        return _counted(int(stripped))
    fraction = _FRACTION.search(stripped)
    digits = fraction[1] if fraction else ""
    if len(digits) > 9:
        raise InvalidRequest(f"{text!r} has more than nine digits of a second")
    try:
        moment = datetime.fromisoformat(_FRACTION.sub("", stripped, count=1))
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} is not a time: write ISO 8601, such as 2024-01-01 or 2024-01-01T12:30:00Z"
        ) from error
    return _of(moment) + int(digits.ljust(9, "0") or 0)


def _counted(nanoseconds: int) -> int:
    if (unit := other_unit(nanoseconds)) is not None:
        raise InvalidRequest(f"{nanoseconds} looks like {unit}; a time in digits is nanoseconds since 1970, UTC")
    return _checked(nanoseconds, str(nanoseconds))


def _checked(nanoseconds: int, text: str) -> int:
    if not 0 <= nanoseconds < 1 << 63:
        raise InvalidRequest(f"{text!r} is outside the years 1970 to 2262")
    return nanoseconds


def iso_nanoseconds(time_ns: int) -> str:
    """ISO 8601 in UTC with nanoseconds and `Z`."""
    seconds, fraction = divmod(time_ns, 1_000_000_000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{fraction:09d}Z"


def iso_seconds(time: float) -> str:
    """Seconds since the epoch as ISO 8601 in UTC, without a fraction."""
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%dT%H:%M:%SZ}"
