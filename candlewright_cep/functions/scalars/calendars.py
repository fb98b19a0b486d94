"""Sessions of exchanges: when a market is open, by the calendars of the package exchange-calendars.

The package is an optional extra and is loaded when a text names a calendar. Times outside a calendar's range are in no
session. Days and hours follow the package: upgrading it brings new holidays.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from candlewright_cep.functions.signatures import Mismatch, Signature
from candlewright_cep.functions.usage import Declared, Usage
from candlewright_cep.times import UNITS
from candlewright_cep.types import BIGINT, BOOLEAN, DATE, Kind, SqlType, timestamp
from candlewright_cep.vector import Array, Bools, Index, Vector

_SINCE = "1990-01-01"
#: The calendars that the text has named so far.
_NAMED: ContextVar[set[str] | None] = ContextVar("named", default=None)


class MissingPackage(Exception):
    """exchange-calendars is not installed."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """An exchange's sessions in order, as nanoseconds: the day, the open, and the close (exclusive). A session without
    a break has a break of zero length.
    """

    days: Index
    opens: Index
    closes: Index
    break_starts: Index
    break_ends: Index

    def sessions(self, times: Array) -> Index:
        """The index of the session that each time is in, -1 if the exchange is closed."""
        found = np.searchsorted(self.opens, times, side="right") - 1
        inside = (found >= 0) & (times < self.closes[np.maximum(found, 0)])
        return np.where(inside, found, -1)

    def is_open(self, times: Array) -> Bools:
        session = self.sessions(times)
        at = np.maximum(session, 0)
        found: Bools = (session >= 0) & ~((self.break_starts[at] <= times) & (times < self.break_ends[at]))
        return found


def _package() -> Any:
    try:
        import exchange_calendars
    except ImportError:
        raise MissingPackage from None
    return exchange_calendars


def calendar_names() -> Sequence[str]:
    """The calendars that a text may name; raises MissingPackage."""
    found: list[str] = _package().get_calendar_names()
    return found


@contextmanager
def counting() -> Iterator[None]:
    """Inside, `named` counts the calendars of one text."""
    token = _NAMED.set(set())
    try:
        yield
    finally:
        _NAMED.reset(token)


def named(name: str) -> int:
    """The number of calendars that the text names, with this one."""
    found = _NAMED.get()
    if found is None:
        return 1
    found.add(_package().resolve_alias(name))
    return len(found)


def calendar(name: str) -> Calendar:
    """Load a calendar, which takes from a tenth of a second to four seconds. Raises MissingPackage."""
    return _loaded(_package().resolve_alias(name))


@cache
def _loaded(name: str) -> Calendar:
    package = _package()
    try:
        known = package.get_calendar(name, start=_SINCE)
    except ValueError:
        # Some calendars begin later.
        known = package.get_calendar(name)
    schedule = known.schedule
    sides = [_nanoseconds(schedule[side]) for side in ("open", "close", "break_start", "break_end")]
    opens, closes, starts, ends = sides
    has_break = schedule["break_start"].notna().to_numpy()
    days: Index = schedule.index.values.astype("datetime64[ns]").astype(np.int64)
    return Calendar(days, opens, closes, np.where(has_break, starts, closes), np.where(has_break, ends, closes))


def _nanoseconds(column: Any) -> Index:
    found: Index = column.dt.tz_localize(None).to_numpy().astype("datetime64[ns]").astype(np.int64)
    return found


def _of_time(result: SqlType | None) -> Signature:
    """The signature of functions of a time and a calendar; without `result`, the result has the type of the time."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if len(types) != 1 or types[0].kind is not Kind.TIMESTAMP:
            raise Mismatch
        return list(types), result or timestamp(types[0].unit, types[0].zone)

    return resolve


def _of_session(value: Callable[[Calendar, Index, Array], Array]) -> Callable[[Sequence[Vector], SqlType, str], Vector]:
    """A value of the session that each time is in; NULL if the exchange is closed."""

    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        known, source = calendar(extra), arguments[0]
        session = known.sessions(source.values)
        inside = session >= 0
        valid = inside if source.valid is None else inside & source.valid
        found = value(known, np.maximum(session, 0), source.values)
        return Vector(kind, found, valid, length=source.length, constant=source.constant)

    return run


def _is_open(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    source = arguments[0]
    return Vector(
        kind, calendar(extra).is_open(source.values), source.valid, length=source.length, constant=source.constant
    )


ENTRIES: list[Declared] = [
    (
        "IS_OPEN",
        _of_time(BOOLEAN),
        _is_open,
        Usage(
            "IS_OPEN(time, 'MIC')",
            "whether the exchange trades at that time; not in its breaks",
            "IS_OPEN(TIMESTAMP '2024-01-31 15:00:00', 'XNYS')",
        ),
    ),
    (
        "SESSION_OF",
        _of_time(DATE),
        _of_session(lambda known, session, _times: known.days[session]),
        Usage(
            "SESSION_OF(time, 'MIC')",
            "the day whose session holds the time",
            "SESSION_OF(TIMESTAMP '2024-01-31 15:00:00', 'XNYS') = DATE '2024-01-31'",
            "NULL if an argument is NULL, or the time is outside of sessions",
        ),
    ),
    (
        "SESSION_OPEN",
        _of_time(None),
        _of_session(lambda known, session, _times: known.opens[session]),
        Usage(
            "SESSION_OPEN(time, 'MIC')",
            "when that session opens",
            "SESSION_OPEN(TIMESTAMP '2024-01-31 15:00:00', 'XNYS') = TIMESTAMP '2024-01-31 14:30:00'",
            "NULL if an argument is NULL, or the time is outside of sessions",
        ),
    ),
    (
        "SESSION_CLOSE",
        _of_time(None),
        _of_session(lambda known, session, _times: known.closes[session]),
        Usage(
            "SESSION_CLOSE(time, 'MIC')",
            "when that session closes",
            "SESSION_CLOSE(TIMESTAMP '2024-01-31 15:00:00', 'XNYS') = TIMESTAMP '2024-01-31 21:00:00'",
            "NULL if an argument is NULL, or the time is outside of sessions",
        ),
    ),
    (
        "MINUTE_OF_SESSION",
        _of_time(BIGINT),
        _of_session(lambda known, session, times: (times - known.opens[session]) // UNITS["MINUTE"]),
        Usage(
            "MINUTE_OF_SESSION(time, 'MIC')",
            "whole minutes since that session opened",
            "MINUTE_OF_SESSION(TIMESTAMP '2024-01-31 15:00:00', 'XNYS') = 30",
            "NULL if an argument is NULL, or the time is outside of sessions",
        ),
    ),
]
NAMES = tuple(entry[0] for entry in ENTRIES)
