"""One condition over one row: the values of both sides, which parts were true, and how far it was from being true."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep.binding.evaluation import Values
from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Constant,
    Expression,
    Label,
    Navigation,
    rewrite,
    walk,
)
from candlewright_cep.tracing.values import Value, plain
from candlewright_cep.tracing.wording import text_of
from candlewright_cep.vector import Array

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_CONNECTIVES = ("AND", "OR", "NOT")


@dataclass(frozen=True, slots=True)
class Operand:
    """`is_known` is False if the value depends on a row that has not arrived."""

    text: str
    value: Value
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition with its result. `holds` None: unknown because of a NULL or a row that has not arrived. `parts`:
    those of the `connective` AND, OR or NOT; for any other condition `operands`: both sides, and the values from
    which they were computed.
    """

    text: str
    holds: bool | None
    operands: tuple[Operand, ...] = ()
    connective: str = ""
    parts: tuple["Condition", ...] = ()


def distances(node: Expression, values: Values, length: int) -> Array:
    """For each row, how far the condition is from being true: 0 if it is true, plus up to 1 for each failed comparison,
    relative to its greater side.
    """
    found = values.value(node).expand().true()
    far = np.where(found, 0.0, 1.0)
    if not isinstance(node, Apply) or found.all():
        return far
    if node.function in ("AND", "OR"):
        parts = [distances(each, values, length) for each in node.arguments]
        joined = np.sum(parts, axis=0) if node.function == "AND" else np.min(parts, axis=0)
        return np.where(found, 0.0, joined)
    if node.function in _COMPARISONS and all(each.type.is_measured for each in node.arguments):
        left, right = (values.value(each).expand() for each in node.arguments)
        one, other = left.values.astype(np.float64), right.values.astype(np.float64)
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            gap = np.abs(one - other) / np.maximum(np.abs(one), np.abs(other))
        # Equal sides that must differ are as near as possible, but not 0.
        gap = np.clip(np.nan_to_num(gap, nan=0.0, posinf=1.0), 1e-12, 1.0)
        return np.where(found, 0.0, np.where(left.mask & right.mask, gap, 1.0))
    return far


def described(
    node: Expression, values: Values, row: int, *, names: Sequence[str], variable: str = "", pending: str | None = None
) -> Condition:
    """The condition at one of the rows of `values`. `pending`: the variable that a future row is tested as."""

    def value(part: Expression) -> tuple[Value, bool]:
        if pending is not None:
            part = before_next(part, pending)
            if reads_next(part, pending):
                return None, False
        found = values.value(part).expand().take(np.array([row], dtype=np.int64))
        return plain(found.to_list()[0], part.type), True

    def operand(part: Expression) -> Operand:
        found, is_known = value(part)
        return Operand(text_of(part, names, variable), found, is_known)

    def condition(part: Expression) -> Condition:
        text = text_of(part, names, variable)
        found, _ = value(part)
        holds = found if isinstance(found, bool) else None
        if isinstance(part, Apply) and part.function in _CONNECTIVES:
            return Condition(text, holds, (), part.function, tuple(condition(each) for each in flat(part)))
        sides = part.arguments if isinstance(part, Apply) else (part,)
        below = [leaf for side in sides for leaf in leaves(side)]
        shown = dict.fromkeys(each for each in (*sides, *below) if not isinstance(each, Constant))
        return Condition(text, holds, tuple(operand(each) for each in shown))

    return condition(node)


def flat(node: Apply) -> list[Expression]:
    """The arguments of a chain of the same connective."""
    return [
        inner
        for each in node.arguments
        for inner in (flat(each) if isinstance(each, Apply) and each.function == node.function != "NOT" else [each])
    ]


def leaves(node: Expression) -> list[Expression]:
    """The nodes from which an expression is computed: columns, rows of the pattern, aggregates."""
    if isinstance(node, Constant):
        return []
    if isinstance(node, Apply):
        return [leaf for each in node.arguments for leaf in leaves(each)]
    return [node]


def before_next(node: Expression, variable: str) -> Expression:
    """PREV of the next row, which will be tested as `variable`, in terms of the last row that has arrived."""

    def change(part: Expression) -> Expression | None:
        if not isinstance(part, Navigation) or not part.last or part.offset or part.delta >= 0:
            return None
        if part.labels is not None and variable not in part.labels:
            return None
        if any(isinstance(inner, Label) for inner in walk(part.argument)):
            return None
        return _Known(None, True, 0, part.delta + 1, part.running, part.argument)

    return rewrite(node, change)


def reads_next(node: Expression, variable: str) -> bool:
    """Whether the value depends on the row that is tested as `variable`."""
    return any(
        isinstance(part, Navigation | Aggregation)
        and not isinstance(part, _Known)
        and (part.labels is None or variable in part.labels)
        for part in walk(node)
    )


class _Known(Navigation):
    """A node that refers to a row that has arrived."""

    __slots__ = ()
