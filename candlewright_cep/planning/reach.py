"""The possible values of a plan's columns, from the declarations of the functions that compute them, and what follows
for a condition.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Column,
    Constant,
    Expression,
    Label,
    MatchNumber,
    Navigation,
    Shift,
    WindowFunction,
    rewrite,
)
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars.scalar import FUNCTIONS
from candlewright_cep.functions.scalars.time import FIELD_EXTENTS
from candlewright_cep.functions.usage import Extent, Usage
from candlewright_cep.matching.intervals import UNKNOWN, Span, truth
from candlewright_cep.planning.over import USAGES, Over
from candlewright_cep.planning.plans import (
    AsofJoin,
    Distinct,
    Filter,
    Group,
    Join,
    Limited,
    Match,
    Narrowed,
    Project,
    Renamed,
    Sort,
)
from candlewright_cep.types import BOOLEAN

__all__ = ["Known", "Reach", "Verdict", "measured", "verdict"]

_OF_WINDOWS: dict[str, Usage] = {usage.signature.partition("(")[0]: usage for usage in USAGES}
#: Their results are values of their argument, or between them.
_KEEPING = ("MIN", "MAX", "AVG", "MEDIAN", "ANY_VALUE", "FIRST_VALUE", "LAST_VALUE", "LAG", "LEAD", "NTH_VALUE")
_BETWEEN = ("AVG", "MEDIAN")
_MOST_COMBINATIONS = 4096
_FROM_1 = Extent(1)


@dataclass(frozen=True, slots=True)
class Known:
    """A value as a warning names it, with what it can be: numbers (`extent`) or `texts`."""

    name: str
    extent: Extent | None = None
    texts: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.texts:
            return f"{self.name} is {self.extent}"
        *others, last = (f"'{text}'" for text in self.texts)
        return f"{self.name} is {', '.join(others)} or {last}" if others else f"{self.name} is {last}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a condition holds for `every` value that is not NULL, or for none; `because`: what decides it."""

    every: bool
    because: tuple[Known, ...]

    def __str__(self) -> str:
        return " and ".join(dict.fromkeys(map(str, self.because)))


class Reach:
    """What is known about the columns of a plan's nodes. Each node is examined once, because a plan may be hundreds of
    nodes deep.
    """

    def __init__(self) -> None:
        # The plan is kept with its columns: another one must not get its id.
        self._found: dict[int, tuple[Any, tuple[Known, ...]]] = {}

    def columns_of(self, plan: Any) -> tuple[Known, ...]:
        """What is known about each column."""
        if id(plan) not in self._found:
            self._found[id(plan)] = plan, self._named(plan)
        return self._found[id(plan)][1]

    def seen(self, plan: Match) -> tuple[Known, ...]:
        """The columns that the conditions of a pattern can read: those of its input, then its indicators."""
        inner = self.columns_of(plan.inner)
        return (*inner, *(measured(each, inner) for each in plan.recognize.computed))

    def _named(self, plan: Any) -> tuple[Known, ...]:
        match plan:
            case Filter() | Narrowed() | Sort() | Limited() | Distinct() | Renamed():
                found = self.columns_of(plan.inner)
            case Project():
                inner = self.columns_of(plan.inner)
                found = tuple(_known("", part, inner) for part in plan.expressions)
            case Over():
                inner = self.columns_of(plan.inner)
                found = (*inner, *(measured(each, inner) for each in plan.functions))
            case Group():
                inner = self.columns_of(plan.inner)
                found = tuple(_known("", part, inner) for part in (*plan.keys, *plan.aggregates))
            case Match():
                inner = self.seen(plan)
                shown = [inner[index] for index in plan.recognize.columns]
                at = plan.recognize.measures_at
                variables = plan.recognize.variables
                shown[at:at] = [_known("", each.expression, inner, variables) for each in plan.recognize.measures]
                found = tuple(shown)
            case Join() | AsofJoin():
                found = (*self.columns_of(plan.left), *self.columns_of(plan.right))
            case _:
                return tuple(Known(field.name, None, field.values) for field in plan.fields)
        padded = (*found, *[Known("")] * (len(plan.fields) - len(found)))
        return tuple(
            known if field.name in ("", known.name) else replace(known, name=field.name)
            for known, field in zip(padded, plan.fields, strict=False)
        )


def measured(function: WindowFunction, columns: Sequence[Known]) -> Known:
    """What is known about a window function's results."""
    if function.name in INDICATORS:
        return Known(function.name, INDICATORS[function.name].values)
    if function.name in _OF_WINDOWS and (values := _OF_WINDOWS[function.name].values) is not None:
        return Known(function.name, values)
    return Known(function.name, _of_aggregate(function.name, function.arguments, columns))


def verdict(condition: Expression, columns: Sequence[Known], variables: Sequence[str] = ()) -> Verdict | None:
    """None for a condition that the known values do not decide."""
    if (said := _of_texts(condition, columns, variables)) is not None:
        return said
    found: dict[Expression, Known] = {}
    first = len(columns)

    def hidden(part: Expression) -> Expression | None:
        if isinstance(part, Apply) and part.function == "IN":
            value, *others = part.arguments
            equal = tuple(Apply("=", (value, other), BOOLEAN) for other in others)
            return rewrite(Apply("OR", equal, BOOLEAN), hidden)
        known = _known("", part, columns)
        if known.extent is None:
            return None
        found.setdefault(part, known)
        return Column(first + list(found).index(part), part.type)

    written = rewrite(condition, hidden)
    if not found:
        return None
    spans = _spans([known.extent for known in found.values() if known.extent is not None])
    result = truth(written, lambda index: spans[index - first] if index >= first else UNKNOWN)
    because = tuple(found.values())
    if not result.may.any():
        return Verdict(False, because)
    return Verdict(True, because) if result.must.all() else None


def _spans(extents: Sequence[Extent]) -> list[Span]:
    """One entry for each combination of the values of those that have few."""
    is_few = math.prod(max(1, len(extent.only)) for extent in extents) <= _MOST_COMBINATIONS
    ends: list[list[tuple[float, float]]] = []
    for extent in extents:
        if extent.only and is_few:
            ends.append([(value, value) for value in extent.only])
        else:
            ends.append([(min(extent.only), max(extent.only)) if extent.only else (extent.least, extent.most)])
    together = np.array(list(product(*ends)), np.float64)
    none = np.zeros(1, np.bool_)
    return [Span(together[:, place, 0], together[:, place, 1], none) for place in range(len(extents))]


def _known(name: str, node: Expression, columns: Sequence[Known], variables: Sequence[str] = ()) -> Known:
    match node:
        case Column():
            return columns[node.index] if node.index < len(columns) else Known(name)
        case Navigation() if isinstance(node.argument, Label):
            return Known("CLASSIFIER", None, tuple(sorted(node.labels or variables)))
        case Navigation() | Shift():
            return _known(name, node.argument, columns)
        case MatchNumber():
            return Known("MATCH_NUMBER", _FROM_1)
        case Aggregation():
            return Known(node.function, _of_aggregate(node.function, node.arguments, columns))
        case Apply(function="EXTRACT"):
            return Known(node.extra, FIELD_EXTENTS.get(node.extra))
        case Apply() if node.function in FUNCTIONS:
            usage = FUNCTIONS[node.function].usage
            return Known(node.function, None if usage is None else usage.values)
    return Known(name)


def _of_aggregate(function: str, arguments: Sequence[Expression], columns: Sequence[Known]) -> Extent | None:
    aggregate = AGGREGATES.get(function)
    if aggregate is not None and aggregate.usage is not None and aggregate.usage.values is not None:
        return aggregate.usage.values
    if function not in _KEEPING or not arguments:
        return None
    extent = _known("", arguments[0], columns).extent
    if extent is not None and extent.only and function in _BETWEEN:
        return Extent(min(extent.only), max(extent.only))
    return extent


def _of_texts(condition: Expression, columns: Sequence[Known], variables: Sequence[str]) -> Verdict | None:
    """A comparison with texts that the value never is."""
    if not isinstance(condition, Apply) or condition.function not in ("=", "<>", "IN"):
        return None
    value, *others = condition.arguments
    if isinstance(value, Constant) and len(others) == 1:
        value, others = others[0], [value]
    written = [each.value for each in others if isinstance(each, Constant) and isinstance(each.value, str)]
    if len(written) != len(others):
        return None
    if isinstance(value, Apply) and value.function in ("UPPER", "LOWER"):
        cased = [text.upper() if value.function == "UPPER" else text.lower() for text in written]
        is_possible = any(one == other for one, other in zip(cased, written, strict=True))
        known = Known(f"the result of {value.function}", None, tuple(dict.fromkeys(cased)))
    else:
        known = _known("", value, columns, variables)
        is_possible = not known.texts or any(text in known.texts for text in written)
    return None if is_possible else Verdict(condition.function == "<>", (known,))
