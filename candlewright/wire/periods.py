"""Periods in notation (`1m`, `4h`, `1d`, `1w`) and on the wire (seconds)."""

import re

from candlewright.wire.errors import InvalidRequest

_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_PERIOD = re.compile(r"([0-9]{1,6})([smhdw])")


def parse_period(text: str) -> int:
    """Seconds of `1m`, `90s`, `60` and the like; raises InvalidRequest."""
    if text.isascii() and text.isdigit() and 0 < int(text) < 1 << 32:
        return int(text)
    match = _PERIOD.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise InvalidRequest(f"{text!r} is not a valid period (expected a number and s, m, h, d or w, such as 1m)")
    return int(match[1]) * _UNITS[match[2]]


def format_period(period_seconds: int) -> str:
    """The shortest way to write a period: 60 is `1m`, 90 is `90s`."""
    for unit in ("w", "d", "h", "m"):
        if period_seconds % _UNITS[unit] == 0:
            return f"{period_seconds // _UNITS[unit]}{unit}"
    return f"{period_seconds}s"
