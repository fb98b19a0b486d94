"""Time zones: the wall-clock time of a place at an instant, and the instant of a wall-clock time.

An instant is a time with the zone UTC, a wall-clock time is one without a zone. The rules are those of the tz database;
the offset is looked up once per day, and to the second on a day when it changes.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

import numpy as np

from candlewright_cep.functions.signatures import Mismatch
from candlewright_cep.functions.usage import Declared
from candlewright_cep.times import UNITS
from candlewright_cep.types import Kind, SqlType, timestamp
from candlewright_cep.vector import Array, Index, Vector

NAME = "AT TIME ZONE"
_DAY, _SECOND = UNITS["DAY"], UNITS["SECOND"]
_DAY_SECONDS = _DAY // _SECOND
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def zone_names() -> frozenset[str]:
    return _names()


def is_zone_name(text: str) -> bool:
    return text.lower() in _folded()


@lru_cache(maxsize=1)
def _folded() -> frozenset[str]:
    return frozenset(name.lower() for name in _names())


@lru_cache(maxsize=1)
def _names() -> frozenset[str]:
    return frozenset(available_timezones())


@lru_cache(maxsize=50_000)
def _offset(name: str, second: int) -> int:
    """Seconds by which the zone is ahead of UTC at a second since 1970."""
    ahead = (_EPOCH + timedelta(seconds=second)).astimezone(ZoneInfo(name)).utcoffset()
    assert ahead is not None
    return int(ahead.total_seconds())


@lru_cache(maxsize=50_000)
def _change(name: str, day: int) -> tuple[int, int, int]:
    """For a day: the offset at its start, the first second with another offset, and that offset."""
    low, high = day * _DAY_SECONDS, (day + 1) * _DAY_SECONDS
    before, after = _offset(name, low), _offset(name, high)
    if before == after:
        return before, high, after
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(name, middle) == before else (low, middle)
    return before, high, after


def offsets(values: Array, name: str) -> Index:
    """Nanoseconds by which the zone is ahead of UTC at each instant."""
    seconds = np.floor_divide(values, _SECOND)
    days = np.floor_divide(seconds, _DAY_SECONDS)
    known, place = np.unique(days, return_inverse=True)
    rules = np.array([_change(name, day) for day in known.tolist()], np.int64).reshape(-1, 3)[place]
    return np.where(seconds < rules[:, 1], rules[:, 0], rules[:, 2]) * _SECOND


def wall_clock(values: Array, name: str) -> Array:
    found: Array = values + offsets(values, name)
    return found


def instants(clock: Array, name: str) -> Array:
    """Instants of wall-clock times. An ambiguous time is the later instant; a skipped time uses the offset from before
    the change.
    """
    earlier, later = clock - offsets(clock - _DAY, name), clock - offsets(clock + _DAY, name)
    is_later = wall_clock(later, name) == clock
    found: Array = np.where(is_later, later, earlier)
    return found


def first_instants(clock: Array, name: str) -> Array:
    """Instants of wall-clock times. An ambiguous time is the earlier instant; a skipped time is the instant of the
    change.
    """
    earlier, later = clock - offsets(clock - _DAY, name), clock - offsets(clock + _DAY, name)
    is_only_later = (wall_clock(earlier, name) != clock) & (wall_clock(later, name) == clock)
    found: Array = np.where(is_only_later, later, earlier)
    return found


def _signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or not types[0].is_time:
        raise Mismatch
    kind = timestamp("ms") if types[0].kind is Kind.DATE else types[0]
    return [kind], timestamp(kind.unit, None if kind.zone else "UTC")


def _at_time_zone(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    source = arguments[0]
    move = instants if kind.zone else wall_clock
    return Vector(kind, move(source.values, extra), source.valid, length=source.length, constant=source.constant)


ENTRIES: list[Declared] = [(NAME, _signature, _at_time_zone, None)]
