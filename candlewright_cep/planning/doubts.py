"""Warnings about conditions that are valid but probably not intended: never true, always true, compared with NULL, or
integer division.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from decimal import Decimal
from typing import Any

from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Column,
    Constant,
    Expression,
    Navigation,
    Shift,
    conjuncts,
    walk,
)
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.matching.recognize import SortKey
from candlewright_cep.planning.over import Bound, Over, takes_frame
from candlewright_cep.planning.plans import (
    AsofJoin,
    Filter,
    Group,
    Join,
    Match,
    Narrowed,
    Plan,
    Project,
    Renamed,
    Scan,
)
from candlewright_cep.planning.reach import Known, Reach, verdict
from candlewright_cep.types import BIGINT, Kind

__all__ = ["OfTickers", "doubts"]

_SHIFTS = ("LAG", "LEAD")
_PRICES = ("price", "open", "high", "low", "close")
#: Columns of inputs whose values never repeat.
_IDS = ("trade_id", "event_id")
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_OF_SAME = {"=": True, "<=": True, ">=": True, "<>": False, "<": False, ">": False}


#: An unescaped wildcard in the expression of a LIKE.
_ANY = re.compile(r"(?<!\\)\.")


class OfTickers(str):
    """A warning that does not apply if all tickers are markets of the same two assets."""

    __slots__ = ()

    def applies_to(self, tickers: Sequence[str]) -> bool:
        return not tickers or len({_assets(ticker) for ticker in tickers}) > 1


def doubts(plan: Plan) -> Iterator[str]:
    """Warnings for the author of the text."""
    reach = Reach()
    columns_of = reach.columns_of
    for node in _nodes(plan):
        if isinstance(node, Filter) and node.is_written:
            columns = columns_of(node.inner)
            yield from _of_condition(node.condition, columns, "the condition")
            yield from _of_first_rows(node.condition, columns, _shifted(node.inner))
        elif isinstance(node, Match):
            columns = reach.seen(node)
            yield from _of_partitions(node.recognize.partition, node.recognize.order, columns)
            yield from _of_ids(node.recognize.partition, node.inner)
            yield from _of_joint_rows(node)
            for name, condition in node.recognize.definitions:
                yield from _of_condition(condition, columns, f"DEFINE {name}", node.recognize.variables)
                yield from _of_first_rows(condition, columns, {})
            for measure in node.recognize.measures:
                yield from _of_values(measure.expression, columns)
        elif isinstance(node, Join) and node.rest is not None:
            yield from _of_condition(node.rest, columns_of(node), "ON")
        elif isinstance(node, Project):
            columns = columns_of(node.inner)
            for part in node.expressions:
                yield from _of_values(part, columns)
        elif isinstance(node, Over):
            yield from _of_partitions(node.window.partition, node.window.order, columns_of(node.inner))
            yield from _of_ids(node.window.partition, node.inner)
            yield from _of_series(node)
            yield from _of_frame(node)
        elif isinstance(node, Group):
            columns = columns_of(node.inner)
            for aggregate in node.aggregates:
                yield from _of_values(aggregate, columns)


def _of_partitions(partition: Sequence[int], order: Sequence[SortKey], columns: Sequence[Known]) -> Iterator[str]:
    for key in order:
        if isinstance(key.expression, Column) and key.expression.index in partition:
            name = columns[key.expression.index].name
            # The engine itself orders windows by their times and makes columns without a name.
            if name and not name.startswith("window_"):
                yield f"PARTITION BY has {name}, which ORDER BY has as well: rows of different {name} never meet"


def _of_ids(partition: Sequence[int], inner: Plan) -> Iterator[str]:
    """Warns about a partition of each row, unless it ends with a time window."""
    if any(inner.fields[index].name.startswith("window_") for index in partition):
        return
    for index in partition:
        if name := _id_of(index, inner):
            yield (
                f"{name} differs in every row, so each row is a group of its own, whose state a stream keeps: "
                "use columns whose values repeat"
            )


def _id_of(index: int, plan: Any) -> str:
    """The name of the column of ids that the column passes on, or nothing."""
    if isinstance(plan, Scan):
        name: str = plan.fields[index].name
        return name if name in _IDS else ""
    if isinstance(plan, Project):
        part = plan.expressions[index]
        return _id_of(part.index, plan.inner) if isinstance(part, Column) else ""
    is_passed = isinstance(plan, Filter | Renamed | Over | Narrowed) and index < len(plan.inner.fields)
    return _id_of(index, plan.inner) if is_passed else ""


def _of_series(node: Over) -> Iterator[str]:
    """Warns about an indicator, or a window function of a price, over the rows of several tickers."""
    names = [field.name for field in node.inner.fields]
    found = (
        each.name
        for each in node.functions
        if each.name in INDICATORS or _compares_prices(each.name, each.arguments, names)
    )
    name = next(found, None)
    if name is not None and not node.window.partition and _is_of_tickers(node.inner):
        place = f"line {node.at.line}, column {node.at.column}"
        yield OfTickers(f"{name} takes the rows of all tickers as one series ({place}): write PARTITION BY ticker")


def _of_joint_rows(node: Match) -> Iterator[str]:
    """Warns about a pattern that compares values of several tickers' rows, unless it looks at the tickers."""
    plan, inner = node.recognize, node.inner
    names = [field.name for field in inner.fields]
    read = [part for _, condition in plan.definitions for part in walk(condition)]
    measured = [measure.expression for measure in plan.measures if _reads_ticker(measure.expression, inner)]
    # Without PARTITION BY, `_of_series` warns about the indicators.
    has_indicators = bool(plan.computed and plan.partition)
    compares = has_indicators or any(_compares_rows(condition, name, names) for name, condition in plan.definitions)
    if (
        not compares
        or len(measured) > 1
        or any(_reads_ticker(part, inner) for part in (*read, *(Column(place, BIGINT) for place in plan.partition)))
        or not _is_of_tickers(inner)
    ):
        return
    by = ", ".join(["ticker", *(names[place] for place in plan.partition)])
    place = f"line {plan.at.line}, column {plan.at.column}"
    yield OfTickers(f"the pattern takes the rows of all tickers as one series ({place}): write PARTITION BY {by}")


def _compares_rows(condition: Expression, variable: str, names: Sequence[str]) -> bool:
    """Whether a condition reads a number of another row, or combines prices of several rows."""
    for part in walk(condition):
        if isinstance(part, Shift | Navigation) and any(each.type.kind is Kind.DOUBLE for each in walk(part)):
            is_own = isinstance(part, Navigation) and part.last and not (part.offset or part.delta)
            if not is_own or (isinstance(part, Navigation) and part.labels not in (None, frozenset([variable]))):
                return True
        if isinstance(part, Aggregation) and _compares_prices(part.function, part.arguments, names):
            return True
    return False


def _compares_prices(function: str, arguments: Sequence[Expression], names: Sequence[str]) -> bool:
    """Whether the result of a function over several rows depends on how their prices compare."""
    columns = [part.index for part in arguments if isinstance(part, Column) and part.index < len(names)]
    return function not in ("SUM", "COUNT") and any(names[index] in _PRICES for index in columns)


def _is_of_tickers(plan: Any) -> bool:
    """Whether its rows may be of several tickers, with prices that do not belong together."""
    place = next((place for place, field in enumerate(plan.fields) if field.name == "ticker"), None)
    return place is not None and not _is_fixed(plan, place)


def _reads_ticker(node: Expression, plan: Any) -> bool:
    """Whether the value is computed from a ticker."""
    return any(_is_ticker(part.index, plan) for part in walk(node) if isinstance(part, Column))


def _is_ticker(index: int, plan: Any) -> bool:
    if index >= len(plan.fields):
        return False
    if plan.fields[index].name == "ticker":
        return True
    if isinstance(plan, Project):
        return _reads_ticker(plan.expressions[index], plan.inner)
    is_passed = isinstance(plan, Filter | Renamed | Over | Narrowed)
    return is_passed and _is_ticker(index, plan.inner)


def _assets(ticker: str) -> str:
    """The part that the tickers of the same market on other venues share."""
    return ticker.rpartition(".")[0] or ticker


def _of_frame(node: Over) -> Iterator[str]:
    """Warns about a frame that has no rows, whatever the row."""
    frame = node.window.frame
    lower, upper = _offset(frame.lower), _offset(frame.upper)
    is_own = lower == upper == 0 and (
        frame.exclude == "GROUP" or (frame.exclude, frame.unit) == ("CURRENT ROW", "ROWS")
    )
    name = next((each.name for each in node.functions if takes_frame(each)), None)
    if name is not None and (is_own or lower > upper):
        why = "its only row is excluded" if is_own else "it starts after its end"
        yield f"the frame of {name} (line {node.at.line}, column {node.at.column}) is always empty: {why}"


def _offset(bound: Bound) -> float:
    """How far after the row a frame starts or ends."""
    if bound.kind == "CURRENT ROW":
        return 0
    sign = -1 if bound.kind.endswith("PRECEDING") else 1
    return sign * (math.inf if bound.kind.startswith("UNBOUNDED") else float(bound.amount))


def _is_fixed(plan: Any, index: int) -> bool:
    """Whether a filter leaves the tickers of one market only."""
    if isinstance(plan, Filter) and any(_fixes(part, index) for part in conjuncts(plan.condition)):
        return True
    if isinstance(plan, Project):
        part = plan.expressions[index]
        return isinstance(part, Constant) or (isinstance(part, Column) and _is_fixed(plan.inner, part.index))
    if isinstance(plan, Join | AsofJoin):
        width = len(plan.left.fields)
        return _is_fixed(plan.left, index) if index < width else _is_fixed(plan.right, index - width)
    return isinstance(plan, Filter | Renamed | Over | Narrowed) and _is_fixed(plan.inner, index)


def _fixes(part: Expression, index: int) -> bool:
    if not isinstance(part, Apply) or part.function not in ("=", "IN"):
        return False
    columns = [each.index for each in part.arguments if isinstance(each, Column)]
    texts = [each.text or "" for each in part.arguments if isinstance(each, Constant)]
    is_alone = columns == [index] and len(texts) == len(part.arguments) - 1
    return is_alone and len({_assets(text) for text in texts}) == 1


def _nodes(plan: Any) -> Iterator[Any]:
    """The plan and everything below it."""
    pending = [plan]
    while pending:
        node = pending.pop()
        yield node
        for name in ("inner", "left", "right"):
            if (below := getattr(node, name, None)) is not None and is_dataclass(below):
                pending.append(below)
        pending += getattr(node, "branches", ())


def _of_condition(
    condition: Expression, columns: Sequence[Known], what: str, variables: Sequence[str] = ()
) -> Iterator[str]:
    if isinstance(condition, Constant):
        # FALSE alone is intended: it is the text of a trigger that only has silences.
        if condition.value is None:
            yield f"{what} is never true: it is NULL"
        return
    yield from _of_values(condition, columns)
    parts = conjuncts(condition)
    for part in parts:
        if isinstance(part, Constant) and part.value is not True:
            yield f"{what} is never true: a part of it is {'NULL' if part.value is None else 'FALSE'}"
        elif (said := _of_itself(part)) is not None:
            yield f"{what} compares {_shown(part, columns)} with itself, which is {'always' if said else 'never'} true"
    yield from _contradictions(parts, columns, what)
    yield from _of_reach(condition, columns, what, variables)
    for part in parts:
        if isinstance(part, Apply) and part.function == "OR":
            yield from _tautologies(part.arguments, columns, what)


def _of_reach(condition: Expression, columns: Sequence[Known], what: str, variables: Sequence[str]) -> Iterator[str]:
    """Conditions that the range of a function decides, such as RSI(close, 14) > 100."""
    is_decided = False
    for part in conjuncts(condition):
        if (said := verdict(part, columns, variables)) is not None:
            is_decided = True
            how = "has a part that is always true" if said.every else "is never true"
            yield f"{what} {how}: {said}"
        elif isinstance(part, Apply) and part.function == "OR":
            for each in part.arguments:
                if (said := verdict(each, columns, variables)) is not None:
                    yield f"{what} has a part that is {'always' if said.every else 'never'} true: {said}"
    if not is_decided and (said := verdict(condition, columns, variables)) is not None:
        yield f"{what} is {'always' if said.every else 'never'} true: {said}"


def _of_first_rows(condition: Expression, columns: Sequence[Known], shifted: Mapping[int, str]) -> Iterator[str]:
    """Warns about `<>` with a value of the previous row, which the first row does not have. `shifted`: columns of such
    values.
    """
    for part in conjuncts(condition):
        if not isinstance(part, Apply) or part.function != "<>":
            continue
        for side in part.arguments:
            name = shifted.get(side.index, "") if isinstance(side, Column) else ""
            if isinstance(side, Navigation) and side.delta:
                name = "PREV" if side.delta < 0 else "NEXT"
            if name:
                row = "last" if name in ("NEXT", "LEAD") else "first"
                yield (
                    f"{name} of the {row} row is NULL, for which {_shown(part, columns)} <> is not true: write "
                    "IS DISTINCT FROM to include that row"
                )


def _shifted(plan: Any) -> dict[int, str]:
    """The columns of a plan that LAG and LEAD compute without a default."""
    if isinstance(plan, Over):
        first = len(plan.fields) - len(plan.functions) - len(plan.measures)
        made = {first + place: each for place, each in enumerate(plan.functions)}
        own = {place: each.name for place, each in made.items() if each.name in _SHIFTS and len(each.arguments) == 1}
        return _shifted(plan.inner) | own
    if isinstance(plan, Filter | Renamed):
        return _shifted(plan.inner)
    if isinstance(plan, Project):
        inner = _shifted(plan.inner)
        return {
            place: inner[part.index]
            for place, part in enumerate(plan.expressions)
            if isinstance(part, Column) and part.index in inner
        }
    return {}


def _of_itself(part: Expression) -> bool | None:
    if not isinstance(part, Apply) or part.function not in _OF_SAME or len(part.arguments) != 2:
        return None
    one, other = part.arguments
    return _OF_SAME[part.function] if one == other and not isinstance(one, Constant) else None


def _of_values(node: Expression, columns: Sequence[Known]) -> Iterator[str]:
    for part in walk(node):
        if not isinstance(part, Apply):
            continue
        if part.function == "/" and all(side.type.is_integer for side in part.arguments):
            shown = _shown(part, columns)
            yield f"{shown} divides whole numbers, and the result is cut to one: CAST one side AS DOUBLE, or write 2.0"
        if part.function in ("=", "<>", "<", "<=", ">", ">=") and any(map(_is_null, part.arguments)):
            yield f"a comparison with NULL is never true: write {_shown(part, columns)} IS NULL, or IS NOT NULL"
        if part.function == "LIKE" and "\\*" in part.extra and not _ANY.search(part.extra):
            yield f"LIKE compares {_shown(part, columns)} with a text that has no % or _: write % for any characters"
        if part.function == "IN" and any(map(_is_null, part.arguments[1:])):
            yield f"a list with NULL: {_shown(part, columns)} NOT IN such a list is never true"


def _is_null(node: Expression) -> bool:
    return isinstance(node, Constant) and node.value is None


@dataclass(slots=True)
class _Span:
    """The range that comparisons leave for one value."""

    least: float = -math.inf
    most: float = math.inf
    without_least: bool = False
    without_most: bool = False

    def narrow(self, symbol: str, value: float) -> None:
        if symbol in (">", ">=", "=") and (value > self.least or (value == self.least and symbol == ">")):
            self.least, self.without_least = value, symbol == ">"
        if symbol in ("<", "<=", "=") and (value < self.most or (value == self.most and symbol == "<")):
            self.most, self.without_most = value, symbol == "<"

    @property
    def is_empty(self) -> bool:
        return self.least > self.most or (self.least == self.most and (self.without_least or self.without_most))


def _contradictions(parts: Sequence[Expression], columns: Sequence[Known], what: str) -> Iterator[str]:
    spans: dict[Expression, _Span] = {}
    for part in parts:
        for symbol, value, bound in _bounds(part):
            spans.setdefault(value, _Span()).narrow(symbol, bound)
    for value, span in spans.items():
        if span.is_empty:
            yield f"{what} is never true: its bounds on {_shown(value, columns)} exclude each other"
    allowed: dict[Expression, frozenset[Any]] = {}
    for part in parts:
        for value, constants in _choices(part):
            before = allowed.get(value)
            allowed[value] = constants if before is None else before & constants
            if before and not allowed[value]:
                yield f"{what} is never true: {_shown(value, columns)} cannot be all of these values"


def _choices(part: Expression) -> Iterator[tuple[Expression, frozenset[Any]]]:
    """The texts that = and IN allow for a value."""
    if isinstance(part, Apply) and part.function in ("=", "IN"):
        value, *others = part.arguments
        if part.function == "=" and isinstance(value, Constant):
            value, others = others[0], [value]
        texts = [each.text for each in others if isinstance(each, Constant) and each.type.is_text]
        if not isinstance(value, Constant) and value.type.is_text and len(texts) == len(others):
            yield value, frozenset(text for text in texts if text is not None)


def _tautologies(parts: Sequence[Expression], columns: Sequence[Known], what: str) -> Iterator[str]:
    """`x < a OR x > b` where every number satisfies one of the two."""
    below: dict[Expression, tuple[float, bool]] = {}
    above: dict[Expression, tuple[float, bool]] = {}
    for part in parts:
        if isinstance(part, Apply) and part.function in ("<", "<=", ">", ">="):
            for symbol, value, bound in _bounds(part):
                edge = (bound, symbol in ("<=", ">="))
                if symbol in ("<", "<="):
                    below[value] = max(below.get(value, edge), edge)
                else:
                    known = above.get(value, edge)
                    above[value] = min(known, edge, key=lambda each: (each[0], not each[1]))
    for value in below.keys() & above.keys():
        (most, with_most), (least, with_least) = below[value], above[value]
        if least < most or (least == most and (with_most or with_least)):
            yield f"{what} has a part that is always true: every {_shown(value, columns)} that is not NULL meets it"


def _bounds(part: Expression) -> Iterator[tuple[str, Expression, float]]:
    if not isinstance(part, Apply):
        return
    if part.function == "BETWEEN":
        value, low, high = part.arguments
        pairs = [(">=", value, low), ("<=", value, high)]
    elif part.function in _MIRRORED and len(part.arguments) == 2:
        one, other = part.arguments
        pairs = [(part.function, one, other)]
        if isinstance(one, Constant):
            pairs = [(_MIRRORED[part.function], other, one)]
    else:
        return
    for symbol, value, bound in pairs:
        is_number = isinstance(bound, Constant) and isinstance(bound.value, int | float | Decimal)
        if is_number and isinstance(bound, Constant) and not isinstance(value, Constant):
            yield symbol, value, float(bound.value)


def _shown(node: Expression, columns: Sequence[Known]) -> str:
    """The column names in the expression."""
    names = [columns[part.index].name for part in walk(node) if isinstance(part, Column) and part.index < len(columns)]
    return " and ".join(dict.fromkeys(name for name in reversed(names) if name)) or "the value"
