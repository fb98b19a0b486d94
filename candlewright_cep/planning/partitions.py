"""Finds the columns by which the inputs of a plan can be divided: the results over the parts, together, are the results
over all rows. So each task of a cluster needs only the rows of its keys.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from candlewright_cep.binding.expressions import Column, Expression
from candlewright_cep.planning.bars import Bars
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.periods import is_written
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
    Union,
)
from candlewright_cep.planning.unnest import Unnest
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.types import Kind

__all__ = ["Division", "divided", "is_row_by_row", "key_of", "with_input"]

#: Aggregates whose result depends on the order of rows, which is lost when results of several parts come together.
_IN_ORDER = frozenset({"FIRST_VALUE", "LAST_VALUE", "ARRAY_AGG", "STRING_AGG", "MODE"})
#: Types whose values are equal in Spark if and only if they are equal here.
_KEYS = (Kind.STRING, Kind.INT, Kind.BIGINT, Kind.BOOLEAN, Kind.DATE)


@dataclass(frozen=True, slots=True)
class Division:
    """`inputs`: for each input the column whose values divide its rows; `columns`: the columns of the result that hold
    this value in every row.
    """

    inputs: Mapping[str, int]
    columns: frozenset[int]


def divided(plan: Plan) -> tuple[Plan, list[Division]]:
    """The largest lower part of a plan that can be divided by keys, and how; the whole plan and nothing if there is no
    such part that does more than look at single rows, or if the order of its results matters above it.
    """
    node: Any = plan
    while not is_row_by_row(node):
        found = _divisions(node)
        if found:
            return node, found
        if not hasattr(node, "inner") or _depends_on_order(node):
            break
        node = node.inner
    return plan, []


def _depends_on_order(node: Any) -> bool:
    if isinstance(node, Group):
        return any(aggregate.function in _IN_ORDER for aggregate in node.aggregates)
    return isinstance(node, Filter) and node.is_of_changes


def is_row_by_row(plan: Any) -> bool:
    """Whether each row of an input has its results, whatever the other rows are."""
    match plan:
        case Scan():
            return True
        case WindowTable():
            return plan.function != "SESSION" and is_row_by_row(plan.inner)
        case Union():
            return all(map(is_row_by_row, plan.branches))
        case Join() | AsofJoin():
            return plan.kind in ("INNER", "LEFT", "CROSS") and is_written(plan.right) and is_row_by_row(plan.left)
        case Filter() | Project() | Renamed() | Narrowed() | Unnest():
            return is_row_by_row(plan.inner)
        case _:
            return False


def with_input(plan: Any, below: Plan, name: str) -> Plan:
    """The plan over the rows of `below`, one of its nodes, as the input `name`."""
    if plan is below:
        return Scan(name, below.fields)
    found: Plan = replace(plan, inner=with_input(plan.inner, below, name))
    return found


def key_of(plan: Group, place: int) -> int | None:
    """The column of its input that is the key at this place of the result, in every grouping set."""
    if place >= len(plan.keys):
        return None
    key = plan.common_keys[place]
    return key.index if isinstance(key, Column) else None


def _divisions(plan: Any) -> list[Division]:
    match plan:
        case Scan():
            fields = enumerate(plan.fields)
            return [Division({plan.name: i}, frozenset([i])) for i, field in fields if field.type.kind in _KEYS]
        case Filter() | Renamed() | Unnest():
            return _divisions(plan.inner)
        case WindowTable() if plan.function != "SESSION":
            return _divisions(plan.inner)
        case WindowTable():
            return _holding(_divisions(plan.inner), plan.partition)
        case Over():
            return _holding(_divisions(plan.inner), plan.window.partition)
        case Narrowed():
            return _moved(_divisions(plan.inner), [[place] for place in range(plan.width)])
        case Project():
            return _moved(_divisions(plan.inner), [_columns([part]) for part in plan.expressions])
        case Match():
            columns = list(plan.recognize.columns)
            columns[plan.recognize.measures_at : plan.recognize.measures_at] = [-1] * len(plan.recognize.measures)
            held = _holding(_divisions(plan.inner), plan.recognize.partition)
            return _moved(held, [[column] for column in columns])
        case Bars():
            held = _holding(_divisions(plan.inner), plan.partition)
            return _moved(held, [[column] for column in plan.partition])
        case Group():
            keys = [key_of(plan, place) for place in range(len(plan.fields))]
            found = _moved(_divisions(plan.inner), [[] if key is None else [key] for key in keys])
            return [division for division in found if division.columns]
        case Distinct():
            return [division for division in _divisions(plan.inner) if division.columns]
        case Union():
            return _united([_divisions(branch) for branch in plan.branches])
        case Join() | AsofJoin():
            return _joined(plan)
        case _:
            return []


def _holding(found: list[Division], partition: Iterable[int]) -> list[Division]:
    """Those whose value is one of the columns of a partition."""
    return [division for division in found if division.columns & {*partition}]


def _moved(found: list[Division], columns: Sequence[Sequence[int]]) -> list[Division]:
    """The divisions of a node above, for each of whose columns the column that it repeats is given, if there is one."""
    return [
        Division(
            division.inputs,
            frozenset(place for place, below in enumerate(columns) if division.columns.intersection(below)),
        )
        for division in found
    ]


def _columns(parts: Iterable[Expression]) -> list[int]:
    return [part.index for part in parts if isinstance(part, Column)]


def _united(branches: Sequence[list[Division]]) -> list[Division]:
    found = branches[0]
    for branch in branches[1:]:
        found = [
            Division({**one.inputs, **other.inputs}, one.columns & other.columns)
            for one in found
            for other in branch
            if _agree(one, other)
        ]
    return found


def _joined(plan: Join | AsofJoin) -> list[Division]:
    width = len(plan.left.fields)
    # A table of constants is the same in every part.
    if is_written(plan.right):
        return _divisions(plan.left) if plan.kind in ("INNER", "LEFT", "CROSS") else []
    lefts, rights = _divisions(plan.left), [_shifted(division, width) for division in _divisions(plan.right)]
    if is_written(plan.left):
        return rights if isinstance(plan, Join) and plan.kind in ("INNER", "RIGHT", "CROSS") else []
    keys = [
        (one.index, other.index + width)
        for one, other in plan.keys
        if isinstance(one, Column) and isinstance(other, Column) and one.type.kind is other.type.kind
    ]
    return [
        Division({**left.inputs, **right.inputs}, _kept(plan.kind, left, right))
        for left in lefts
        for right in rights
        if _agree(left, right) and any(one in left.columns and other in right.columns for one, other in keys)
    ]


def _kept(kind: str, left: Division, right: Division) -> frozenset[int]:
    """The columns with the value in every row; those of a side that may be missing are NULL there."""
    of_left = left.columns if kind in ("INNER", "LEFT") else frozenset()
    return of_left | (right.columns if kind in ("INNER", "RIGHT") else frozenset())


def _shifted(division: Division, width: int) -> Division:
    return Division(division.inputs, frozenset(index + width for index in division.columns))


def _agree(one: Division, other: Division) -> bool:
    """Whether an input that both sides read is divided by the same column."""
    return all(other.inputs.get(name, column) == column for name, column in one.inputs.items())
