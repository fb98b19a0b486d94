"""Finds rows that a search need not try one by one.

Two questions are answered for many rows at once, from the minimum and maximum of blocks of rows:

- Inside a loop that changes nothing any condition reads (`B*` in `A B*? C`): at which row can anything other than
  another iteration happen next? The search jumps there. If matches overlap, this is found for many starts together.
- Which starts can never match, because no row within reach meets a condition that every match requires? They are
  skipped.

Only work that would have failed is skipped, so results do not change.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from candlewright_cep.binding.expressions import Expression
from candlewright_cep.matching import blocks
from candlewright_cep.matching.automaton import ACCEPT, Automaton, Candidate
from candlewright_cep.matching.blocks import Blocks, Spans, Tail
from candlewright_cep.matching.conditions import Conditions, Known, Registers
from candlewright_cep.matching.intervals import UNKNOWN, Read, Span, of_value, span_of, truth
from candlewright_cep.matching.outlooks import AMONG, Among, Outlook, at_start
from candlewright_cep.vector import Array, Bools, Index, Vector

#: More blocks than this are scanned one level higher.
_MOST_BLOCKS = 512
#: At most this many variables are judged at a start.
_MOST_JUDGED = 8
#: The first rows of starts are found only if these reach at most this many times as many rows as there are starts.
_DENSE = 8
_NO: Bools = np.zeros(1, np.bool_)
_YES: Bools = np.ones(1, np.bool_)
#: An upper bound of the relative rounding error of sums and means of any number of rows.
_ROUNDING = 1e-8
#: Sums past this may overflow a double.
_HUGE = 1e300


@dataclass(frozen=True, slots=True)
class Loop:
    """A place from which `candidate` leads back to itself. It is the only continuation until a row that the loop's
    variable may refuse, or that one of the variables `exits` may take. `is_free`: the loop's variable refuses no row.
    """

    candidate: Candidate
    exits: tuple[int, ...]
    is_free: bool


@dataclass(frozen=True)
class Foresight:
    """What can be foreseen for one pattern.

    `starts`: the variables that can be judged from the first row of a match, with the outlook of their path conditions
    there; `outlooks`: those of all variables inside a loop; `has_condition[v]`: whether variable v has a local
    condition; `columns`: the row expressions that are needed.
    """

    loops: dict[int, Loop]
    starts: dict[int, Outlook | None]
    outlooks: tuple[Outlook | None, ...]
    has_condition: tuple[bool, ...]
    columns: tuple[Expression, ...]
    automaton: Automaton

    @staticmethod
    def of(conditions: Conditions, variables: Sequence[str], automaton: Automaton) -> "Foresight | None":
        """None if nothing can be foreseen."""
        path = conditions.path
        outlooks = (None,) * len(variables) if path is None else path.outlooks
        loops = _loops(conditions, outlooks, automaton)
        starts = _starts(conditions, variables, automaton)
        if not loops and not starts:
            return None
        used = {variable for loop in loops.values() for variable in (loop.candidate.variable, *loop.exits)}
        needed = [outlook.rows for number in sorted(used) if (outlook := outlooks[number]) is not None]
        needed += [
            part for outlook in starts.values() if outlook is not None for part in (outlook.columns, outlook.points)
        ]
        columns = dict.fromkeys(node for part in needed for node in part)
        has_condition = tuple(node is not None for node in conditions.local)
        return Foresight(loops, starts, outlooks, has_condition, tuple(columns), automaton)

    @cached_property
    def exits(self) -> frozenset[int]:
        """The variables that can end a loop whose variable refuses no row."""
        return frozenset(exit for loop in self.loops.values() if loop.is_free for exit in loop.exits)

    def can_match_without(self, missing: frozenset[int]) -> bool:
        """Whether the pattern can be completed without these variables."""
        return _reaches_end(self.automaton, missing)


def _loops(conditions: Conditions, outlooks: Sequence[Outlook | None], automaton: Automaton) -> dict[int, Loop]:
    path = conditions.path
    tested = [path is not None and path.conditions[number] is not None for number in range(len(outlooks))]

    def is_selective(number: int) -> bool:
        return outlooks[number] is not None or conditions.local[number] is not None

    found: dict[int, Loop] = {}
    for place in range(automaton.places):
        candidates = automaton.layout(place, start=False, end=False)
        rounds = [candidate for candidate in candidates if candidate.then == place and candidate.variable >= 0]
        exits = {c.variable for c in candidates if c.then != place and c.variable >= 0}
        if len(rounds) != 1 or candidates[0] is ACCEPT or not all(is_selective(number) for number in exits):
            continue
        variable = rounds[0].variable
        is_steady = path is None or variable in path.steady
        if is_steady and (outlooks[variable] is not None or not tested[variable]):
            is_free = not tested[variable] and conditions.local[variable] is None
            found[place] = Loop(rounds[0], tuple(sorted(exits)), is_free)
    return found


def _starts(conditions: Conditions, variables: Sequence[str], automaton: Automaton) -> dict[int, Outlook | None]:
    begin = {*automaton.layout(0, start=False, end=False), *automaton.layout(0, start=True, end=False)}
    firsts = {candidate.variable for candidate in begin}
    if len(firsts) != 1 or min(firsts) < 0:
        return {}
    first = firsts.pop()
    later = _reached(automaton, [candidate.then for candidate in begin], frozenset())
    is_once = not any(c.variable == first for place in later for c in automaton.layout(place, start=False, end=False))
    found: dict[int, Outlook | None] = {}
    for number, local in enumerate(conditions.local):
        condition = None if conditions.path is None else conditions.path.conditions[number]
        outlook = None if condition is None else at_start(condition, variables[first], is_once=is_once)
        if number != first and (outlook is not None or local is not None) and len(found) < _MOST_JUDGED:
            found[number] = outlook
    return {} if _reaches_end(automaton, frozenset(found)) else found


def _reached(automaton: Automaton, places: list[int], missing: frozenset[int]) -> set[int]:
    """The places reachable from `places` without the `missing` variables."""
    found = set(places)
    pending = list(found)
    while pending:
        for candidate in automaton.layout(pending.pop(), start=True, end=True):
            if candidate.variable >= 0 and candidate.variable not in missing and candidate.then not in found:
                found.add(candidate.then)
                pending.append(candidate.then)
    return found


def _reaches_end(automaton: Automaton, missing: frozenset[int]) -> bool:
    return any(ACCEPT in automaton.layout(place, start=True, end=True) for place in _reached(automaton, [0], missing))


# -- the rows ---------------------------------------------------------------------------------------------------------


class ForeseenRows(Protocol):
    """The rows from `first` to `end`. `vector`: the values of a row expression; `masks`: see `automaton`; `times`:
    ascending, or None if WITHIN cannot use them.
    """

    @property
    def first(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def masks(self) -> Array: ...
    @property
    def times(self) -> Index | None: ...
    def vector(self, node: Expression) -> Vector: ...


@dataclass(frozen=True, slots=True)
class WholeRows:
    """All rows of a finished input."""

    vector: Callable[[Expression], Vector]
    masks: Array
    times: Index | None
    first: int = 0

    @property
    def end(self) -> int:
        return len(self.masks)


class _Variable:
    """The rows as one variable sees them: the spans of those that meet its local condition."""

    def __init__(self, outlook: Outlook | None, number: int | None, first: int) -> None:
        """`number`: of the variable; None without a local condition."""
        self.spans: list[Spans] = []
        self.end = first
        self._outlook = outlook
        self._number = number
        self._some, self._every = Blocks(np.logical_or, first), Blocks(np.logical_and, first)
        self._counts = Tail(np.zeros(1, np.int64))

    def follow(self, rows: ForeseenRows, columns: list[Spans]) -> None:
        """Take the rows that have been added. `columns`: the spans of all rows."""
        begin, self.end = self.end, rows.end
        if self._number is None:
            self.spans = columns
            return
        masks = rows.masks[begin - rows.first :]
        wanted = (masks >> masks.dtype.type(self._number) & masks.dtype.type(1)).astype(np.bool_)
        self._some.add(wanted)
        self._every.add(wanted)
        self._counts.add(self._counts.values[-1] + np.cumsum(wanted))
        self.spans = self.spans or [Spans(begin) for _ in columns]
        for own, column in zip(self.spans, columns, strict=True):
            low, high, gaps = column.of(0, begin, rows.end)
            own.add(Span(np.where(wanted, low, np.inf), np.where(wanted, high, -np.inf), gaps & wanted))

    def forget(self, row: int) -> None:
        if self._number is None:
            return
        self._counts.forget(row - self._some.first)
        self._some.forget(row)
        self._every.forget(row)
        for spans in self.spans:
            spans.forget(row)

    def count(self, rows: Index) -> Index:
        """For each of these rows, how many preceding ones meet the variable's local condition."""
        return rows if self._number is None else self._counts.values[rows - self._some.first]

    def first(self, low: int, high: int, points: Sequence[Span], *, takes: bool) -> int:
        """The first row from `low` to `high` that the variable may take (if `takes`, otherwise may refuse); `high` if
        there is none.
        """
        level = 0
        while (high - low) >> blocks.FAN_BITS * level > _MOST_BLOCKS:
            level += 1
        return self._search(level, low, high, points, takes=takes)

    def _search(self, level: int, low: int, high: int, points: Sequence[Span], *, takes: bool) -> int:
        shift = blocks.FAN_BITS * level
        begin, end = low >> shift, ((high - 1) >> shift) + 1
        for block in self._hits(level, begin, end, points, takes=takes).tolist():
            row: int = begin + block
            if level:
                most = min(high, (row + 1) << shift)
                row = self._search(level - 1, max(low, row << shift), most, points, takes=takes)
                if row == most:
                    continue
            return row
        return high

    def _hits(self, level: int, begin: int, end: int, points: Sequence[Span], *, takes: bool) -> Index:
        own: Bools = np.ones(end - begin, np.bool_)
        if self._number is not None:
            own = (self._some if takes else self._every).of(level, begin, end)
        if self._outlook is not None:
            spans = [span.of(level, begin, end) for span in self.spans]
            found = truth(self._outlook.condition, lambda index: spans[index] if index >= 0 else points[-1 - index])
            own = own & (found.may if takes else found.must)
        return np.flatnonzero(own if takes else ~own)


class Prospects:
    """A foresight over rows. What has been computed of them is kept while rows are added and forgotten; the owner of
    the rows calls `forget`.
    """

    def __init__(self, foresight: Foresight, rows: ForeseenRows) -> None:
        self.foresight = foresight
        self.rows = rows
        self.known: Sequence[Known | None] = ()
        self._spans: dict[Expression, Spans] = {}
        self._variables: dict[tuple[int, bool], _Variable] = {}
        self._hopeless: dict[int, bool] = {}

    def forget(self, row: int) -> None:
        """The rows before this one are gone."""
        self._spans = {node: spans for node, spans in self._spans.items() if spans.end > row}
        self._variables = {key: variable for key, variable in self._variables.items() if variable.end > row}
        kept: list[Spans | _Variable] = [*self._spans.values(), *self._variables.values()]
        for part in kept:
            part.forget(row)

    def _column(self, node: Expression) -> Spans:
        found, rows = self._spans.get(node), self.rows
        if found is None:
            found = self._spans[node] = Spans(rows.first, span_of(rows.vector(node)))
        elif found.end < rows.end:
            begin = found.end
            found.add(span_of(rows.vector(node).slice(begin - rows.first, rows.end - begin)))
        return found

    def _variable(self, number: int, *, is_start: bool = False) -> _Variable:
        outlook = self.foresight.starts[number] if is_start else self.foresight.outlooks[number]
        found = self._variables.get((number, is_start))
        if found is None:
            has_condition = self.foresight.has_condition[number]
            found = _Variable(outlook, number if has_condition else None, self.rows.first)
            self._variables[number, is_start] = found
        if found.end < self.rows.end:
            found.follow(self.rows, [] if outlook is None else [self._column(node) for node in outlook.rows])
        return found

    def skip(self, place: int, row: int, stop: int, *, registers: Registers, start: int, number: int) -> int:
        """The first row from `row` on at which something other than another iteration of the loop at `place` can
        happen; at most `stop`.
        """
        loop = self.foresight.loops[place]
        for variable in (loop.candidate.variable, *loop.exits):
            if stop <= row:
                break
            known = self.known[variable] if self.known else None
            points = [] if known is None else [of_value(value) for value in known(registers, start, number)]
            stop = self._variable(variable).first(row, stop, points, takes=variable != loop.candidate.variable)
        return stop

    def hopeful(self, first: int, ends: Index, *, overlap: bool) -> tuple[list[int], dict[int, list[int]]]:
        """The starts from `first` on that may match, given for each the row before which a match must end; and for some
        variables, the first row that the variable may take in a match from each of these starts. `overlap`: a match may
        start within another one.
        """
        high = first + len(ends)
        firsts = np.arange(first, high)
        missing = np.zeros(len(ends), np.int64)
        reach = int((ends - firsts).max())
        is_dense = overlap and int(ends[-1]) - first < _DENSE * len(ends)
        taken: dict[int, Index] = {}
        for bit, (number, outlook) in enumerate(self.foresight.starts.items()):
            variable = self._variable(number, is_start=True)
            may: Bools = variable.count(ends) > variable.count(firsts + 1)
            if outlook is not None and may.any():
                points = [self._column(node).of(0, first, high) for node in outlook.points]
                among = [self._among(part, firsts, ends) for part in outlook.among]
                if is_dense and outlook.picked is None and number in self.foresight.exits:
                    last = int(ends[-1])
                    taken[number] = _first_rows(outlook, variable, firsts + 1, last, reach, points=points, among=among)
                else:
                    rows = [_over_windows(spans, firsts + 1, ends) for spans in variable.spans]
                    may = may & truth(outlook.condition, _reader(rows, points, among)).may
                    if outlook.picked is not None and may.any():
                        taken[number] = self._first_picks(outlook, variable, first, int(ends[-1]))[: len(ends)]
                if number in taken:
                    may = may & (taken[number] < ends)
            missing |= (~may).astype(np.int64) << bit
        hopeless = np.array([self._is_hopeless(bits) for bits in range(1 << len(self.foresight.starts))])
        found = np.flatnonzero(~hopeless[missing])
        return (found + first).tolist(), {number: rows[found].tolist() for number, rows in taken.items()}

    def _first_picks(self, outlook: Outlook, variable: _Variable, low: int, last: int) -> Index:
        """For each row from `low` to `last`: the first row, from it on, that the variable may take given any value read
        between the two. No match that starts there can take an earlier row.
        """
        assert outlook.picked is not None
        values = self._column(outlook.picked).of(0, low, last)
        found = _first_rows(outlook, variable, np.arange(low, last), last, last - low, points=[], among=[values])
        firsts: Index = np.minimum.accumulate(found[::-1])[::-1]
        return firsts

    def _among(self, part: Among, firsts: Index, ends: Index) -> Span:
        """The span of what `part` may be over the rows from `firsts[i]` to `ends[i]`."""
        if part.argument is None:
            return Span(np.zeros(len(firsts)), (ends - firsts).astype(np.float64), _NO)
        spans = self._column(part.argument)
        if part.kind == "SUM":
            return _sums(spans.of(0, int(firsts[0]), int(ends[-1])), firsts - firsts[0], ends - firsts[0])
        low, high, _ = _over_windows(spans, firsts, ends)
        if part.kind == "AVG":
            known = low <= high
            if not (np.maximum(np.abs(low), np.abs(high))[known] < _HUGE).all():
                return UNKNOWN
            with np.errstate(invalid="ignore"):  # Windows without a value give NaN.
                low, high = low - _ROUNDING * np.abs(low), high + _ROUNDING * np.abs(high)
        return Span(low, high, _YES)

    def _is_hopeless(self, bits: int) -> bool:
        found = self._hopeless.get(bits)
        if found is None:
            missing = [number for bit, number in enumerate(self.foresight.starts) if bits >> bit & 1]
            found = self._hopeless[bits] = not self.foresight.can_match_without(frozenset(missing))
        return found


def _first_rows(
    outlook: Outlook,
    variable: _Variable,
    begin: Index,
    last: int,
    reach: int,
    *,
    points: Sequence[Span],
    among: Sequence[Span],
) -> Index:
    """For each entry: the first row from `begin` on that the variable may take, given this entry of `points` and
    `among`. Without such a row before `last` and within `reach`, a row that is not. `begin` ascends.

    Doubled steps, from the longest to the shortest, over the spans of as many rows (binary lifting).
    """
    low = int(begin[0])
    levels = [[spans.of(0, low, last) for spans in variable.spans]]
    while 1 << len(levels) <= min(reach, last - low):
        half = 1 << (len(levels) - 1)
        levels.append([_paired(span, half) for span in levels[-1]])
    found = begin - low
    for level in range(len(levels) - 1, -1, -1):
        inside = np.flatnonzero(found <= last - low - (1 << level))
        places = found[inside]
        rows = [_taken(span, places) for span in levels[level]]
        fixed = [[_taken(span, inside) for span in spans] for spans in (points, among)]
        may = truth(outlook.condition, _reader(rows, fixed[0], fixed[1])).may
        found[inside] += np.where(may, 0, 1 << level)
    return found + low


def _reader(rows: Sequence[Span], points: Sequence[Span], among: Sequence[Span]) -> Read:
    def read(index: int) -> Span:
        if index >= AMONG:
            return among[index - AMONG]
        return rows[index] if index >= 0 else points[-1 - index]

    return read


def _paired(span: Span, half: int) -> Span:
    """The span over twice as many rows from each row on, for rows that have that many after them."""
    gaps = span.gaps if len(span.gaps) == 1 else span.gaps[:-half] | span.gaps[half:]
    return Span(np.minimum(span.low[:-half], span.low[half:]), np.maximum(span.high[:-half], span.high[half:]), gaps)


def _taken(span: Span, places: Index) -> Span:
    return Span(*(part if len(part) == 1 else part[places] for part in span))


def _sums(span: Span, firsts: Index, ends: Index) -> Span:
    """Bounds of the sum of any subset of the rows from `firsts[i]` to `ends[i]` (exclusive), up to rounding."""
    totals = [
        np.concatenate([np.zeros(1), np.cumsum(step(values, 0))])
        for step, values in ((np.minimum, span.low), (np.maximum, span.high))
    ]
    if not (-totals[0][-1] < _HUGE and totals[1][-1] < _HUGE):
        return UNKNOWN
    least, most = (total[ends] - total[firsts] for total in totals)
    # Allow for the rounding error in the difference of two long sums.
    return Span(least + _ROUNDING * totals[0][-1], most + _ROUNDING * totals[1][-1], _YES)


def _over_windows(spans: Spans, firsts: Index, ends: Index) -> Span:
    """The spans of the rows from `firsts[i]` to `ends[i]` (exclusive). Firsts are consecutive, ends ascend."""
    gaps = np.array([firsts[0] < ends[-1] and spans.has_gaps(int(firsts[0]), int(ends[-1]))])
    return Span(_extremes(spans.low, firsts, ends, np.minimum), _extremes(spans.high, firsts, ends, np.maximum), gaps)


def _extremes(values: Blocks, firsts: Index, ends: Index, step: np.ufunc) -> Array:
    """The least or greatest value of each window. Windows that share rows are accumulated from those to both sides."""
    count = len(firsts)
    nothing = -np.inf if step is np.maximum else np.inf
    found = np.full(count, nothing)
    begin, place = int(firsts[0]), 0
    while place < count:
        end = int(ends[place])
        after = min(count, end - begin)
        if after <= place:
            place += 1
            continue
        shared = begin + after - 1
        before = np.append(values.of(0, begin + place, shared), values.folded(shared, end))
        before = step.accumulate(before[::-1])[::-1]
        found[place:after] = before
        further = ends[place:after] - end - 1
        if further[-1] >= 0:
            behind = step.accumulate(values.of(0, end, int(ends[after - 1])))
            longer = np.flatnonzero(further >= 0)
            found[place + longer] = step(before[longer], behind[further[longer]])
        place = after
    return found
