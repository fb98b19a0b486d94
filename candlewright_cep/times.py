"""Units of time, and times and intervals written as text."""

import re
from datetime import UTC, date, datetime

UNITS: dict[str, int] = {
    "NANOSECOND": 1,
    "MICROSECOND": 1_000,
    "MILLISECOND": 1_000_000,
    "SECOND": 1_000_000_000,
    "MINUTE": 60_000_000_000,
    "HOUR": 3_600_000_000_000,
    "DAY": 86_400_000_000_000,
    "WEEK": 604_800_000_000_000,
}
CALENDAR_UNITS = ("MONTH", "QUARTER", "YEAR")
_SHORT = {
    "MS": "MILLISECOND",
    "US": "MICROSECOND",
    "NS": "NANOSECOND",
    "S": "SECOND",
    "SEC": "SECOND",
    "MIN": "MINUTE",
    "M": "MINUTE",
    "H": "HOUR",
    "D": "DAY",
    "W": "WEEK",
}
_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})(?:[ T](\d{2}):(\d{2})(?::(\d{2})(?:\.(\d{1,9}))?)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?",
    re.ASCII,
)
_INT64 = 2**63


def unit_name(word: str) -> str | None:
    """The unit that a word denotes ('seconds' -> 'SECOND', also MONTH, QUARTER and YEAR); None if it is unknown."""
    upper = word.upper()
    for candidate in (upper, upper.removesuffix("S"), _SHORT.get(upper, "")):
        if candidate in UNITS or candidate in CALENDAR_UNITS:
            return candidate
    return None


def literal_time(text: str, kind: str = "TIMESTAMP") -> tuple[int, str] | None:
    """(nanoseconds since the epoch, unit of the written precision) of ISO text in UTC; None if it is not a time."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    if kind == "DATE" and hour is not None:
        return None
    try:
        days = date(int(year), int(month), int(day)).toordinal() - date(1970, 1, 1).toordinal()
        clock = datetime(2000, 1, 1, int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
    except ValueError:
        return None
    seconds = days * 86_400 + clock.hour * 3600 + clock.minute * 60 + clock.second
    if zone and zone not in ("Z", "UTC"):
        sign = -1 if zone[0] == "-" else 1
        seconds -= sign * (int(zone[1:3]) * 3600 + int(zone[-2:]) * 60)
    digits = len(fraction or "")
    value = seconds * UNITS["SECOND"] + int((fraction or "").ljust(9, "0"))
    unit = "s" if digits == 0 else "ms" if digits <= 3 else "us" if digits <= 6 else "ns"
    return (value, unit) if -_INT64 <= value < _INT64 else None


def literal_interval(text: str, unit: str) -> int | None:
    """Nanoseconds of an amount written as text ('5', '1.5', '1:30' with MINUTE TO SECOND); None if it is not an
    amount.
    """
    first, _, last = unit.partition(" TO ")
    if first not in UNITS:
        return None
    stripped = text.strip()
    if not last:
        found = re.fullmatch(r"(-?)([0-9]{1,18})(?:\.([0-9]{1,9}))?", stripped)
        if found is None:
            return None
        sign, whole, fraction = found.groups()
        value = int(whole) * UNITS[first]
        if fraction:
            value += int(fraction) * UNITS[first] // 10 ** len(fraction)
        value = -value if sign else value
        return value if abs(value) < _INT64 else None
    chain = ["DAY", "HOUR", "MINUTE", "SECOND"]
    if first not in chain or last not in chain or chain.index(first) >= chain.index(last):
        return None
    names = chain[chain.index(first) : chain.index(last) + 1]
    negative = stripped.startswith("-")
    pieces = re.split(r"[ :]", stripped.removeprefix("-"))
    if len(pieces) != len(names):
        return None
    total = 0
    for piece, name in zip(pieces, names, strict=True):
        part = literal_interval(piece, name)
        if part is None or part < 0:
            return None
        total += part
    if total >= _INT64:
        return None
    return -total if negative else total
