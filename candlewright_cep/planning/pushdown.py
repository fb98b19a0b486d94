"""Finds conditions on the inputs of a plan without which a row changes no result, so that other rows need not be read.

The plan still checks every condition, so a reader may leave out less than it could.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression, conjuncts, rewrite, walk
from candlewright_cep.planning.bars import Bars
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.partitions import key_of
from candlewright_cep.planning.plans import (
    AsofJoin,
    Distinct,
    Filter,
    Group,
    Join,
    Match,
    Narrowed,
    Plan,
    Project,
    Renamed,
    Scan,
    Sort,
    Union,
)
from candlewright_cep.planning.unnest import Unnest
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.types import Kind

__all__ = ["Bound", "bounds_on_inputs"]

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
_COMPARISONS = (*_MIRRORED, "IN", "BETWEEN")
_KINDS = (Kind.STRING, Kind.INT, Kind.BIGINT, Kind.TIMESTAMP)
_Conditions = list[Expression]


@dataclass(frozen=True, slots=True)
class Bound:
    """That a column (text, whole number or time in ns) has one of the values `among`, or is from `least` to `most`
    (None: no bound).
    """

    column: int
    among: tuple[Any, ...] = ()
    least: int | None = None
    most: int | None = None


def bounds_on_inputs(plan: Plan) -> dict[str, list[list[Bound]]]:
    """For each input: a row is needed only if it meets all bounds of one of the lists."""
    found: dict[str, list[list[Bound]]] = {}
    pending: list[tuple[Any, _Conditions]] = [(plan, [])]
    while pending:
        node, conditions = pending.pop()
        if isinstance(node, Scan):
            found.setdefault(node.name, []).append(list(dict.fromkeys(map(_bound, conditions))))
        else:
            pending += _below(node, conditions)
    return found


def _bound(condition: Expression) -> Bound:
    """Of a condition that is simple; the values at the ends are always included."""
    assert isinstance(condition, Apply)
    function, (first, *rest) = condition.function, condition.arguments
    if isinstance(first, Constant):
        function, first, rest = _MIRRORED[function], rest[0], [first]
    assert isinstance(first, Column)
    values = tuple(side.value for side in rest if isinstance(side, Constant))
    if function in ("=", "IN"):
        return Bound(first.index, values)
    least = values[0] if function in ("BETWEEN", ">", ">=") else None
    most = values[-1] if function in ("BETWEEN", "<", "<=") else None
    return Bound(first.index, (), least, most)


def _below(node: Any, conditions: _Conditions) -> Iterator[tuple[Any, _Conditions]]:
    """The nodes that this one reads, with conditions that their rows must meet; `conditions` are those on its own."""
    match node:
        case Filter():
            yield node.inner, conditions + [part for part in conjuncts(node.condition) if _is_simple(part)]
        case Renamed() | Narrowed() | Sort() | Distinct():
            yield node.inner, conditions
        case Project():
            kept = {place: part.index for place, part in enumerate(node.expressions) if isinstance(part, Column)}
            yield node.inner, _moved(conditions, kept)
        case Unnest():
            yield node.inner, _within(conditions, range(len(node.inner.fields)))
        case WindowTable():
            width = len(node.inner.fields)
            yield node.inner, _within(conditions, node.partition if node.function == "SESSION" else range(width))
        case Over():
            yield node.inner, _within(conditions, node.window.partition)
        case Match():
            plan = node.recognize
            places = [*range(plan.measures_at), *range(plan.measures_at + len(plan.measures), len(plan.fields))]
            kept = {place: index for place, index in zip(places, plan.columns, strict=True) if index in plan.partition}
            yield node.inner, _moved(conditions, kept)
        case Bars():
            yield node.inner, _moved(conditions, dict(enumerate(node.partition)))
        case Group():
            keys = ((place, key_of(node, place)) for place in range(len(node.keys)))
            yield node.inner, _moved(conditions, {place: key for place, key in keys if key is not None})
        case Union():
            yield from ((branch, conditions) for branch in node.branches)
        case Join() | AsofJoin():
            yield from _below_join(node, conditions)
        case _:
            for part in ("inner", "left", "right"):
                if hasattr(node, part):
                    yield getattr(node, part), []


def _below_join(node: Join | AsofJoin, conditions: _Conditions) -> Iterator[tuple[Any, _Conditions]]:
    """A condition on a key holds for both sides, because rows with other keys meet nothing."""
    width = len(node.left.fields)
    of_left = {index: index for index in range(width)} if node.kind not in ("RIGHT", "FULL") else {}
    of_right: dict[int, int] = {}
    # The right row of an ASOF JOIN is chosen before a condition on it is checked.
    if isinstance(node, Join) and node.kind not in ("LEFT", "FULL"):
        of_right = {width + index: index for index in range(len(node.right.fields))}
    left, right = _moved(conditions, of_left), _moved(conditions, of_right)
    pairs = [
        (one.index, other.index)
        for one, other in node.keys
        if isinstance(one, Column) and isinstance(other, Column) and one.type == other.type
    ]
    yield node.left, left + _moved(right, {other: one for one, other in pairs})
    yield node.right, right + _moved(left, dict(pairs))


def _is_simple(part: Expression) -> bool:
    if not isinstance(part, Apply) or part.function not in _COMPARISONS:
        return False
    columns = [side for side in part.arguments if isinstance(side, Column)]
    constants = [side for side in part.arguments if isinstance(side, Constant) and side.value is not None]
    if len(columns) != 1 or len(columns) + len(constants) != len(part.arguments):
        return False
    # BETWEEN and IN are about their first argument.
    is_first = part.arguments[0] is columns[0]
    kind = columns[0].type.kind
    return (
        kind in _KINDS
        and (kind is not Kind.STRING or part.function in ("=", "IN"))
        and (is_first or part.function not in ("IN", "BETWEEN"))
        and all(_is_comparable(side, kind) for side in constants)
    )


def _is_comparable(constant: Constant, kind: Kind) -> bool:
    whole = (Kind.INT, Kind.BIGINT)
    return constant.type.kind is kind or (constant.type.kind in whole and kind in whole)


def _within(conditions: _Conditions, columns: Iterable[int]) -> _Conditions:
    """Those that read only these columns, which have the same places below."""
    return _moved(conditions, {index: index for index in columns})


def _moved(conditions: _Conditions, columns: Mapping[int, int]) -> _Conditions:
    """Those that read only columns that are given a place below, with these places."""

    def moved(part: Expression) -> Expression | None:
        return Column(columns[part.index], part.type) if isinstance(part, Column) else None

    return [
        rewrite(condition, moved)
        for condition in conditions
        if all(part.index in columns for part in walk(condition) if isinstance(part, Column))
    ]
