"""Whether new rows can change anything for patterns that differ in numbers alone, from the minimum and maximum of few
values.

Most alerts wait: no new row can begin their pattern, or none can complete it. The values that the conditions read
(`price`, `PREV(price)`) are computed once for all of them; each pattern is then decided by comparing its numbers with
the minimum and maximum of these values. The ratio or difference of two values gives narrower bounds than the two alone:
`price < PREV(price) * 0.99` compares 0.99 with the minimum of `price / PREV(price)`.

A row that can change something is never missed; a row that cannot may count as one that can.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

import numpy as np

from candlewright_cep.binding.evaluation import RowValues
from candlewright_cep.binding.expressions import (
    FIRST_SLOT,
    Apply,
    Column,
    Constant,
    Expression,
    Label,
    Shift,
    conjunction,
    conjuncts,
    is_slot,
    rewrite,
    walk,
)
from candlewright_cep.matching.automaton import ACCEPT, AWAIT_END
from candlewright_cep.matching.intervals import Span, Truth, is_measured, span_of, truth, widened
from candlewright_cep.matching.program import longest_match
from candlewright_cep.matching.recognize import RecognizePlan
from candlewright_cep.types import Kind, SqlType
from candlewright_cep.vector import Array, Bools, Index

#: Rows that a pattern may reach back, for rows to be kept for those that wait.
_MOST_REACH = 32
#: The symbol of each comparison once its sides are exchanged.
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
#: Upper bounds of the relative rounding error of a ratio or a difference, and of the absolute error where one
#: underflows.
_ROUNDING, _TINY = 1e-12, 1e-150
#: Numbers between which ratios are trusted.
_SMALL, _LARGE = 1e-100, 1e100


@dataclass(frozen=True, slots=True)
class _Value:
    """A value of a row: `one`, or the ratio or difference of `one` and `other`."""

    one: Expression
    other: Expression | None = None
    is_ratio: bool = False

    def span(self, values: RowValues) -> Span:
        one = span_of(values.value(self.one))
        if self.other is None:
            return one
        other = span_of(values.value(self.other))
        missing = one.gaps | other.gaps
        with np.errstate(all="ignore"):
            found = one.low / other.low if self.is_ratio else one.low - other.low
            if self.is_ratio:
                lost = (other.low < _SMALL) | (other.low > _LARGE) | (np.abs(one.low) > _LARGE)
                margin = _ROUNDING * np.abs(found) + _TINY
            else:
                margin = _ROUNDING * (np.abs(one.low) + np.abs(other.low))
                lost = ~np.isfinite(margin)
            low, high = np.where(lost, -np.inf, found - margin), np.where(lost, np.inf, found + margin)
        return Span(np.where(missing, np.inf, low), np.where(missing, -np.inf, high), missing)


@dataclass(frozen=True, slots=True)
class _Condition:
    """The condition of a variable. `common` is the part without slots; in `own`, column i is `values[i]` of a row that
    meets `common`."""

    common: Expression | None
    own: Expression | None
    values: tuple[_Value, ...]

    @staticmethod
    def of(node: Expression) -> "_Condition":
        parts = conjuncts(node)
        common = [part for part in parts if not _has_slot(part)]
        values: dict[_Value, int] = {}

        def change(part: Expression) -> Expression | None:
            if isinstance(part, Constant) or is_slot(part):
                return part
            if _has_slot(part):
                return None if isinstance(part, Apply) else Label()
            return _put(_Value(part), part.type, values) if is_measured(part.type) else Label()

        own = [part for part in parts if _has_slot(part)]
        narrower = [found for part in own for found in _narrower(part, values)]
        judged = [rewrite(part, change) for part in own] + narrower
        return _Condition(conjunction(common), conjunction(judged), tuple(values))


def _has_slot(node: Expression) -> bool:
    return any(is_slot(part) for part in walk(node))


def _put(value: _Value, kind: SqlType, values: dict[_Value, int]) -> Column:
    return Column(values.setdefault(value, len(values)), kind)


def _narrower(node: Expression, values: dict[_Value, int]) -> Iterator[Expression]:
    """`x < y * number` as a comparison of the number with x / y, and `x < y + number` as one with x - y."""
    if not isinstance(node, Apply) or node.function not in _TURNED:
        return
    left, right = node.arguments
    for x, symbol, other in ((left, node.function, right), (right, _TURNED[node.function], left)):
        if not isinstance(other, Apply) or len(other.arguments) != 2 or _has_slot(x):
            continue
        first, second = other.arguments
        if not all(part.type.kind is Kind.DOUBLE for part in (x, first, second)):
            continue
        sides = [(first, second), (second, first)] if other.function in ("+", "*") else [(first, second)]
        for y, number in sides:
            if _has_slot(y) or not _is_number(number):
                continue
            if other.function in ("*", "+"):
                value = _Value(x, y, is_ratio=other.function == "*")
                yield Apply(symbol, (_put(value, x.type, values), number), node.type)
            elif other.function == "-":
                value = _Value(y, x)
                yield Apply(_TURNED[symbol], (_put(value, x.type, values), number), node.type)


def _is_number(node: Expression) -> bool:
    return all(isinstance(part, Apply | Constant) or is_slot(part) for part in walk(node)) and _has_slot(node)


class Resting(NamedTuple):
    """What a pattern waits for. `is_idle`: no attempt is open; `is_clean`: no match can end with a row so far;
    `place`: where in the pattern an open attempt is (-1 for none), which needs `rows` rows.
    """

    is_idle: bool
    is_clean: bool
    place: int = -1
    rows: int = 0


@dataclass(kw_only=True, frozen=True, slots=True)
class Rest:
    """`Resting` of many patterns."""

    is_idle: Bools
    is_clean: Bools
    places: Index


@dataclass(frozen=True, slots=True)
class _Hold:
    """A loop in which an attempt stays as long as every row meets `condition` (None: any row does) and none of
    `others`, those of the variables that are preferred to it.
    """

    condition: _Condition | None
    others: tuple[_Condition, ...]

    def must(self, look: "Look", wanted: Bools, *, tickers: Index, numbers: Sequence[Span]) -> Bools:
        """Whether each pattern stays in the loop over the wanted rows."""
        found = np.ones(len(tickers), np.bool_)
        if self.condition is not None:
            found = _must(self.condition, look, wanted, tickers=tickers, numbers=numbers)
        for other in self.others:
            found &= ~_may(other, look, wanted, tickers=tickers, numbers=numbers)
        return found


@dataclass(kw_only=True, frozen=True, slots=True)
class Look:
    """Rows by ticker. Those of ticker `i` begin at `starts[i]`, its new ones at `news[i]`."""

    values: RowValues
    length: int
    starts: Index
    news: Index


@dataclass(kw_only=True, frozen=True, slots=True)
class Glance:
    """What can be decided of a pattern with slots. `lookback`: the number of rows before a row that its conditions and
    measures read; `reach`: the most rows before its last one at which a match may begin; 0 if unbounded; `kept`: how
    many rows before new ones are needed to decide. `starts` and `ends`: the conditions of the variables that a match
    can begin and end with; None if one of them has none, and for `ends` of a pattern without bound. `holds`: the loops,
    by their place in the pattern, in which an attempt can stay for `most_rows` rows before old attempts are given up.
    `has_deadline`: time alone may complete a match. `filters`: only rows that meet all of them count, in this order."""

    lookback: int
    reach: int
    kept: int
    starts: tuple[_Condition, ...] | None
    ends: tuple[_Condition, ...] | None
    holds: Mapping[int, _Hold] = field(default_factory=dict)
    most_rows: int = 0
    has_deadline: bool = False
    filters: tuple[Expression, ...] = ()
    slot_types: tuple[SqlType, ...] = field(repr=False)

    @staticmethod
    def of(
        plan: RecognizePlan,
        slot_types: Sequence[SqlType],
        *,
        seen: Callable[[Expression], Expression] | None = None,
        filters: Sequence[Expression] = (),
    ) -> "Glance | None":
        """None if every row may begin and complete a match, or if more than rows can cause a result.

        `seen`: expressions of the pattern over the columns of the input, which it does not read itself; `filters`: what
        a row must meet to reach it. Only the rows that do are counted if the pattern looks at rows before; otherwise
        every row is, and which row precedes another is not known.
        """
        search, conditions = plan.search, plan.conditions
        automaton = search.automaton
        looks_ahead = conditions.lookahead or plan.measures_lookahead
        reports_more = search.timeouts or search.want_unmatched or not plan.is_never_empty
        if looks_ahead or reports_more or automaton.has_start_anchor or plan.has_end_anchor:
            return None
        begin = automaton.layout(0, start=False, end=False)
        places = [automaton.layout(place, start=False, end=False) for place in range(automaton.places)]
        if ACCEPT in begin or any(AWAIT_END in layout for layout in places):
            return None

        lookback = max(conditions.lookback, plan.measures_lookback)
        before = max(conditions.before_match, plan.measures_lookback)
        is_exact = seen is None or before > 0

        def told(variables: frozenset[int]) -> tuple[_Condition, ...] | None:
            local = [conditions.local[variable] for variable in sorted(variables)]
            known = [read(node) for node in local if node is not None]
            return tuple(map(_Condition.of, known)) if len(known) == len(local) else None

        def read(node: Expression) -> Expression:
            own = node if seen is None else seen(node)
            found = own if is_exact else conjunction([*filters, own])
            assert found is not None
            return found

        longest = longest_match(automaton.program) if is_exact else None
        reach = 0 if longest is None else longest - 1
        found = Glance(
            lookback=lookback,
            reach=reach,
            kept=max(before + reach, lookback),
            starts=told(frozenset(candidate.variable for candidate in begin)),
            ends=None if longest is None else told(automaton.last_variables()),
            holds={} if search.has_deadline else dict(_holds(plan, seen, is_exact=is_exact)),
            most_rows=search.limits.retained_rows,
            has_deadline=search.has_deadline,
            filters=tuple(filters) if is_exact else (),
            slot_types=tuple(slot_types),
        )
        decides = found.starts is not None or found.ends is not None or found.holds
        return found if decides and found.kept <= _MOST_REACH else None

    @staticmethod
    def of_rows(condition: Expression, lookback: int, slot_types: Sequence[SqlType]) -> "Glance | None":
        """For rows that a condition selects individually; it looks back at this many rows with `Shift`. None if it
        looks back at more rows than are kept.
        """
        if lookback > _MOST_REACH:
            return None
        return Glance(
            lookback=lookback,
            reach=0,
            kept=lookback,
            starts=(_Condition.of(condition),),
            ends=None,
            slot_types=tuple(slot_types),
        )

    def filters_of(self, numbers: Sequence[float | int | Decimal]) -> tuple[Expression, ...]:
        """The filters with these numbers in the slots."""

        def change(part: Expression) -> Expression | None:
            if not (isinstance(part, Column) and is_slot(part)):
                return None
            return Constant(numbers[part.index - FIRST_SLOT], part.type)

        return tuple(rewrite(condition, change) for condition in self.filters)

    @property
    def columns(self) -> frozenset[int]:
        """Those of the input that are read."""
        held = [
            condition
            for hold in self.holds.values()
            for condition in (hold.condition, *hold.others)
            if condition is not None
        ]
        nodes = [
            node
            for condition in (*(self.starts or ()), *(self.ends or ()), *held)
            for node in (condition.common, *(part for value in condition.values for part in (value.one, value.other)))
            if node is not None
        ]
        return frozenset(part.index for node in nodes for part in walk(node) if isinstance(part, Column))

    def numbers(self, values: Sequence[Sequence[float | int | Decimal]]) -> list[Span]:
        """The slots of many patterns as spans, one list of values each."""
        columns = np.array(values, np.float64).reshape(len(values), len(self.slot_types)).T
        return [
            widened(column, is_exact=kind.kind is Kind.DOUBLE)
            for column, kind in zip(columns, self.slot_types, strict=True)
        ]

    def stirs(self, look: Look, tickers: Index, numbers: Sequence[Span], *, rest: Rest) -> Bools:
        """For which patterns new rows can matter. `tickers`: the place in `look` of each pattern's ticker."""
        found = np.ones(len(tickers), np.bool_)
        for conditions, before, rests in ((self.starts, self.reach, rest.is_idle), (self.ends, 0, rest.is_clean)):
            if conditions is not None and bool(rests.any()):
                wanted = _since(look, before)
                met = [_may(condition, look, wanted, tickers=tickers, numbers=numbers) for condition in conditions]
                found &= ~rests | np.logical_or.reduce(met)
        for place in np.unique(rest.places[rest.places >= 0]).tolist():
            stays = self.holds[place].must(look, _since(look, 0), tickers=tickers, numbers=numbers)
            found &= ~((rest.places == place) & stays)
        return found


def _holds(
    plan: RecognizePlan, seen: Callable[[Expression], Expression] | None, *, is_exact: bool
) -> Iterator[tuple[int, _Hold]]:
    automaton, conditions = plan.search.automaton, plan.conditions

    def read(node: Expression) -> Expression:
        return node if seen is None else seen(node)

    for place in range(1, automaton.places):
        preferred: list[Expression] = []
        for candidate in automaton.layout(place, start=False, end=False):
            local = None if candidate.variable < 0 else conditions.local[candidate.variable]
            if not is_exact and local is not None and any(isinstance(part, Shift) for part in walk(local)):
                break
            if candidate.variable >= 0 and candidate.then == place:
                if conditions.path is None or conditions.path.conditions[candidate.variable] is None:
                    others = tuple(_Condition.of(read(each)) for each in preferred)
                    yield place, _Hold(None if local is None else _Condition.of(read(local)), others)
                break
            if local is None:
                break
            preferred.append(local)


def _since(look: Look, before: int) -> Bools:
    """The new rows, and `before` rows before them."""
    sizes = np.diff(np.append(look.starts, look.length))
    return np.arange(look.length) >= np.repeat(look.news - before, sizes)


def _may(condition: _Condition, look: Look, wanted: Bools, *, tickers: Index, numbers: Sequence[Span]) -> Bools:
    if condition.common is not None:
        wanted = wanted & look.values.value(condition.common).true()
    some: Bools = np.logical_or.reduceat(wanted, look.starts)[tickers]
    if condition.own is None or not some.any():
        return some
    return some & _own(condition, condition.own, look, wanted, tickers=tickers, numbers=numbers).may


def _must(condition: _Condition, look: Look, wanted: Bools, *, tickers: Index, numbers: Sequence[Span]) -> Bools:
    every = np.ones(len(tickers), np.bool_)
    if condition.common is not None:
        met = look.values.value(condition.common).true() | ~wanted
        every = np.logical_and.reduceat(met, look.starts)[tickers]
    if condition.own is None or not every.any():
        return every
    return every & _own(condition, condition.own, look, wanted, tickers=tickers, numbers=numbers).must


def _own(
    condition: _Condition, own: Expression, look: Look, wanted: Bools, *, tickers: Index, numbers: Sequence[Span]
) -> Truth:
    spans = [_ends(value.span(look.values), wanted, look.starts, tickers=tickers) for value in condition.values]
    return truth(own, lambda index: numbers[index - FIRST_SLOT] if index >= FIRST_SLOT else spans[index])


def _ends(span: Span, wanted: Bools, starts: Index, *, tickers: Index) -> Span:
    def of(step: np.ufunc, values: Array) -> Array:
        found: Array = step.reduceat(values, starts)[tickers]
        return found

    low, high = np.where(wanted, span.low, np.inf), np.where(wanted, span.high, -np.inf)
    return Span(of(np.minimum, low), of(np.maximum, high), of(np.logical_or, wanted & span.gaps))
