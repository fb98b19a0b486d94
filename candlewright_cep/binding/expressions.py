"""Checked, typed expressions. They are values: equal trees are equal and hashable.

Row expressions (`Constant`, `Column`, `Apply`, `Shift`) have a value for each row of one input. The nodes of row
patterns (`Navigation`, `Aggregation`, `MatchNumber`, `Label`) have one for each row of a match.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from candlewright_cep.types import BIGINT, STRING, SqlType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal or a bound parameter; `text` is what the parameter's value was written as."""

    value: Any
    type: SqlType
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input by its place."""

    index: int
    type: SqlType


@dataclass(frozen=True, slots=True)
class Apply:
    """A function of `functions.scalar` by name; `extra` carries what is not a value (a unit, a pattern)."""

    function: str
    arguments: tuple["Expression", ...]
    type: SqlType
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Shift:
    """The value `delta` rows later (negative: earlier) in the same partition; NULL outside."""

    argument: "Expression"
    delta: int

    @property
    def type(self) -> SqlType:
        return self.argument.type


@dataclass(frozen=True, slots=True)
class Navigation:
    """`argument` at the row found by logical then physical steps.

    `labels` None means every row of the match. `last`: count `offset` from the last row, else from the first.
    `running`: only rows up to the current one.
    """

    labels: frozenset[str] | None
    last: bool
    offset: int
    delta: int
    running: bool
    argument: "Expression"

    @property
    def type(self) -> SqlType:
        return self.argument.type


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregate over the rows of a match that have one of `labels`."""

    function: str
    labels: frozenset[str] | None
    running: bool
    arguments: tuple["Expression", ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Label:
    """The variable of the row that a Navigation or Aggregation is looking at."""

    type: SqlType = STRING


@dataclass(frozen=True, slots=True)
class MatchNumber:
    type: SqlType = BIGINT


Expression = Constant | Column | Apply | Shift | Navigation | Aggregation | Label | MatchNumber


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """A function of a window: an aggregate over the frame, an indicator with its `numbers`, or one of ROW_NUMBER,
    LAG ... with the `offset` of LAG, LEAD, NTH_VALUE."""

    name: str
    arguments: tuple[Expression, ...]
    type: SqlType
    offset: int = 1
    numbers: tuple[float, ...] = ()
    ignores_nulls: bool = False


#: Columns from this number on are slots (see `streaming.slots`): they hold one value for all rows of a partition.
FIRST_SLOT = 1 << 30


def is_slot(node: Expression) -> bool:
    return isinstance(node, Column) and node.index >= FIRST_SLOT


def is_local(node: Expression) -> bool:
    """Whether the value needs only the row itself, and rows a fixed distance away."""
    return not any(isinstance(part, Navigation | Aggregation | MatchNumber | Label) for part in walk(node))


def children(node: Expression) -> tuple[Expression, ...]:
    if isinstance(node, Apply | Aggregation):
        return node.arguments
    if isinstance(node, Shift | Navigation):
        return (node.argument,)
    return ()


def walk(node: Expression) -> Iterator[Expression]:
    """The node and everything below it."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(children(current))


def rewrite(node: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """The tree with every node that `change` answers for replaced (its inside is not visited)."""
    changed = change(node)
    if changed is not None:
        return changed
    if isinstance(node, Apply):
        return Apply(node.function, tuple(rewrite(part, change) for part in node.arguments), node.type, node.extra)
    if isinstance(node, Aggregation):
        arguments = tuple(rewrite(part, change) for part in node.arguments)
        return Aggregation(node.function, node.labels, node.running, arguments, node.type)
    if isinstance(node, Shift):
        return Shift(rewrite(node.argument, change), node.delta)
    if isinstance(node, Navigation):
        inner = rewrite(node.argument, change)
        return Navigation(node.labels, node.last, node.offset, node.delta, node.running, inner)
    return node


def conjuncts(node: Expression) -> list[Expression]:
    """The parts of a conjunction, or the node alone."""
    if isinstance(node, Apply) and node.function == "AND":
        return [part for argument in node.arguments for part in conjuncts(argument)]
    return [node]


def conjunction(parts: list[Expression]) -> Expression | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Apply("AND", tuple(parts), parts[0].type)
