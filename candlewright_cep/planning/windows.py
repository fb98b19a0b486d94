"""Time windows: TUMBLE, HOP, CUMULATE and SESSION assign rows to intervals of event time."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.binder import Field
from candlewright_cep.functions.scalars.calendars import calendar
from candlewright_cep.functions.scalars.zones import first_instants, wall_clock
from candlewright_cep.planning.plans import Inputs, Plan
from candlewright_cep.planning.relation import Relation, partition_codes
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.times import UNITS
from candlewright_cep.types import SqlType
from candlewright_cep.vector import Index, Vector, is_every

_MAX_WINDOWS_PER_ROW = 10_000
_MAX_ROWS = 50_000_000
MILLISECOND = 1_000_000
#: A time beyond all others, with room for a window after it.
_FAR = 2**62
FUNCTIONS = {"TUMBLE": (1, 2), "HOP": (2, 3), "CUMULATE": (2, 3), "SESSION": (1, 1)}


@dataclass(frozen=True, slots=True)
class Place:
    """What TUMBLE is aligned to, if not UTC: the wall clock of a `zone`, whose days have 23 to 25 hours, or the
    sessions of an exchange, given by its `calendar`; rows outside sessions are in no window.
    """

    zone: str = ""
    calendar: str = ""


NOWHERE = Place()


@dataclass(kw_only=True, frozen=True, slots=True)
class WindowTable:
    """The rows of `inner`, once per window that contains them, with window_start, window_end and window_time.

    `intervals` are in nanoseconds, in the order of the call: TUMBLE(size), HOP(slide, size), CUMULATE(step, size),
    SESSION(gap); an offset may follow. Rows without a time are in no window.
    """

    inner: Plan
    function: str
    time_column: int
    intervals: tuple[int, ...]
    partition: tuple[int, ...]
    fields: tuple[Field, ...]
    at: Position
    place: Place = NOWHERE

    @property
    def longest(self) -> int:
        """The longest duration of a window; for a session, the longest distance between two of its rows."""
        size = self.intervals[1 if self.function in ("HOP", "CUMULATE") else 0]
        return size + UNITS["DAY"] if self.place.zone else size

    def ends(self, rows: Relation, after: Index) -> tuple[Index, Index]:
        """For each row, the end of its last window, and before that of its first one that ends after a time. For a row
        in no window, any times: the first is in its future, the last in its past. Other rows of the session are among
        `rows`.
        """
        times = rows.column(self.time_column).expand()
        if self.function in ("HOP", "CUMULATE"):
            step, size, offset = self.intervals[0], self.intervals[1], sum(self.intervals[2:])
            since = times.values - offset
            if self.function == "HOP":
                shift, last = size + offset, since // step * step
                first = (since - size) // step * step + step
            else:
                shift, last = offset, since // size * size + size
                first = since // step * step + step
            first = np.maximum(first + shift, (np.maximum(after, -_FAR) - shift) // step * step + step + shift)
            last = last + shift
            if times.valid is None:
                return first, last
            return np.where(times.valid, first, _FAR), np.where(times.valid, last, -_FAR)
        known = np.flatnonzero(times.mask) if times.valid is not None else np.arange(rows.length, dtype=np.int64)
        picked, _, ends = self._assign(rows, times.values[known], known)
        first, last = np.full(rows.length, _FAR), np.full(rows.length, -_FAR)
        first[picked] = last[picked] = ends
        return first, last

    def run(self, inputs: Inputs) -> Relation:
        return self.run_numbered(inputs)[1]

    def run_numbered(self, inputs: Inputs) -> tuple[Index, Relation]:
        """The rows in their windows, and the number of each one's input row."""
        rows = self.inner.run(inputs)
        times = rows.column(self.time_column).expand()
        known = np.flatnonzero(times.mask) if times.valid is not None else np.arange(rows.length, dtype=np.int64)
        picked, starts, ends = self._assign(rows, times.values[known], known)
        kind = times.type
        bounds = (starts, ends, ends - MILLISECOND)
        # In most windows no row is shared or left out.
        expanded = rows if is_every(picked, rows.length) else rows.take(picked)
        return picked, expanded.with_columns([Vector(kind, values, None) for values in bounds])

    def _assign(self, rows: Relation, times: Index, known: Index) -> tuple[Index, Index, Index]:
        if self.function == "SESSION":
            return self._sessions(rows, times, known)
        if self.function == "TUMBLE":
            size, offset = self.intervals[0], sum(self.intervals[1:])
            if self.place.calendar:
                return self._in_sessions(times, known)
            if zone := self.place.zone:
                clock = wall_clock(times, zone)
                begins = clock - np.mod(clock - offset, size)
                return known, first_instants(begins, zone), first_instants(begins + size, zone)
            starts = times - np.mod(times - offset, size)
            return known, starts, starts + size
        step, size, offset = self.intervals[0], self.intervals[1], sum(self.intervals[2:])
        count = size // step if self.function == "CUMULATE" else -(-size // step)
        self.check(len(known) * count)
        work.spend(len(known) * count, work.FOLDED_A_STEP)
        picked = np.repeat(known, count)
        again = np.repeat(times, count)
        turn = np.tile(np.arange(count, dtype=np.int64), len(known))
        if self.function == "HOP":
            # In time order, from the earliest window that contains the row.
            starts = again - np.mod(again - offset, step) - (count - 1 - turn) * step
            ends = starts + size
        else:
            starts = again - np.mod(again - offset, size)
            ends = starts + (turn + 1) * step
        inside = (starts <= again) & (again < ends)
        return picked[inside], starts[inside], ends[inside]

    def _in_sessions(self, times: Index, known: Index) -> tuple[Index, Index, Index]:
        exchange = calendar(self.place.calendar)
        session = exchange.sessions(times)
        inside = np.flatnonzero(session >= 0)
        times, session = times[inside], session[inside]
        starts = times - np.mod(times - exchange.opens[session], self.intervals[0])
        return known[inside], starts, np.minimum(starts + self.intervals[0], exchange.closes[session])

    def check(self, rows: int) -> None:
        """Raises TriggerRejected if the windows contain more than `_MAX_ROWS` rows."""
        if rows > _MAX_ROWS:
            raise self.at.reject(f"the windows hold {rows} rows; {_MAX_ROWS} are allowed")

    def _sessions(self, rows: Relation, times: Index, known: Index) -> tuple[Index, Index, Index]:
        gap = self.intervals[0]
        numbers = partition_codes([rows.column(index) for index in self.partition], rows.length)[known]
        order = np.lexsort((times, numbers))
        sorted_times, sorted_numbers = times[order], numbers[order]
        if not len(order):
            return known, times, times
        # Rows exactly one gap apart still belong together, because the sessions of both rows touch.
        new = np.concatenate([[True], (np.diff(sorted_times) > gap) | (sorted_numbers[1:] != sorted_numbers[:-1])])
        session = np.cumsum(new) - 1
        firsts = np.flatnonzero(new)
        lasts = np.append(firsts[1:], len(order)) - 1
        starts = np.empty_like(times)
        ends = np.empty_like(times)
        starts[order] = sorted_times[firsts][session]
        ends[order] = sorted_times[lasts][session] + gap
        return known, starts, ends


def window_fields(fields: tuple[Field, ...], kind: SqlType, qualifier: str, *, hidden: bool) -> tuple[Field, ...]:
    return (*fields, *(Field(name, kind, qualifier, hidden) for name in ("window_start", "window_end", "window_time")))


def check_place(place: Place, function: str, intervals: Sequence[int], *, at: Position) -> None:
    """Raises TriggerRejected for windows that the time zone or calendar does not allow: an hour of a wall clock may
    occur twice.
    """
    if function != "TUMBLE":
        raise at.reject(f"{function} takes no time zone and no calendar", "TUMBLE does")
    if place.zone and intervals[0] % UNITS["DAY"]:
        raise at.reject("windows in a time zone have whole days", "write INTERVAL '1' DAY")
    if place.calendar and len(intervals) > 1:
        raise at.reject("windows of sessions begin with the session", "TUMBLE(..., INTERVAL '30' MINUTE, 'XNYS')")


def check_intervals(function: str, intervals: tuple[int, ...], at: Position) -> None:
    """Raises TriggerRejected for a wrong number of intervals, or invalid sizes."""
    least, most = FUNCTIONS[function]
    if not least <= len(intervals) <= most:
        wanted = {"TUMBLE": "a size", "HOP": "a slide and a size", "CUMULATE": "a step and a size", "SESSION": "a gap"}
        raise at.reject(f"{function} needs {wanted[function]}")
    if any(interval <= 0 for interval in intervals[:least]):
        raise at.reject(f"the intervals of {function} must be longer than zero")
    if function in ("HOP", "CUMULATE"):
        step, size = intervals[0], intervals[1]
        if function == "CUMULATE" and size % step:
            raise at.reject("the size of CUMULATE must be a multiple of its step")
        if step > size and function == "CUMULATE":
            raise at.reject("the step of CUMULATE is longer than its size")
        if size // step > _MAX_WINDOWS_PER_ROW:
            raise at.reject(f"a row would be in more than {_MAX_WINDOWS_PER_ROW} windows")
