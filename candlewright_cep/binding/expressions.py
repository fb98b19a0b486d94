"""Checked, typed expressions. They are immutable: equal trees compare equal and are hashable.

Row expressions (`Constant`, `Column`, `Apply`, `Shift`) have one value for each row of an input. The nodes of row
patterns (`Navigation`, `Aggregation`, `MatchNumber`, `Label`) have one for each row of a match.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from candlewright_cep.types import BIGINT, STRING, SqlType


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal or a bound parameter; `text` is the parameter's value as it was written."""

    value: Any
    type: SqlType
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the input, by its index."""

    index: int
    type: SqlType

    def __hash__(self) -> int:
        return self.index


@dataclass(frozen=True, slots=True)
class Apply:
    """A call of the function that `functions.scalars.scalar` has under this name; `extra` carries arguments that are
    not values, such as a unit or a pattern.
    """

    function: str
    arguments: tuple["Expression", ...]
    type: SqlType
    extra: str = ""
    #: Kept, because each evaluation looks its results up by the whole tree.
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.function, self.arguments, self.type, self.extra)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Shift:
    """The value `delta` rows later (negative: earlier) in the same partition; NULL outside it."""

    argument: "Expression"
    delta: int

    @property
    def type(self) -> SqlType:
        return self.argument.type


@dataclass(frozen=True, slots=True)
class Navigation:
    """`argument` at a row of the match, found first by logical navigation (FIRST, LAST), then by physical (PREV, NEXT).

    `labels`: the pattern variables whose rows count, None for every row of the match. `last`: count `offset` back from
    the last row, otherwise forwards from the first. `running`: only rows up to the current one.
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
    """An aggregate over the rows of a match that are mapped to one of `labels`."""

    function: str
    labels: frozenset[str] | None
    running: bool
    arguments: tuple["Expression", ...]
    type: SqlType


@dataclass(frozen=True, slots=True)
class Label:
    """The variable of the row that the enclosing Navigation or Aggregation reads."""

    type: SqlType = STRING


@dataclass(frozen=True, slots=True)
class MatchNumber:
    type: SqlType = BIGINT


Expression = Constant | Column | Apply | Shift | Navigation | Aggregation | Label | MatchNumber


@dataclass(frozen=True, slots=True)
class WindowFunction:
    """A window function: an aggregate over the frame, an indicator with its `numbers`, or a function such as ROW_NUMBER
    or LAG. `offset` belongs to LAG, LEAD and NTH_VALUE.
    """

    name: str
    arguments: tuple[Expression, ...]
    type: SqlType
    offset: int = 1
    numbers: tuple[float, ...] = ()
    ignores_nulls: bool = False


#: Column numbers from here on are slots (see `streaming.slots`), which hold one value for all rows of a partition.
FIRST_SLOT = 1 << 30


def is_slot(node: Expression) -> bool:
    return isinstance(node, Column) and node.index >= FIRST_SLOT


def is_local(node: Expression) -> bool:
    """Whether the value depends only on the row itself and on rows at a fixed distance from it."""
    return not any(isinstance(part, Navigation | Aggregation | MatchNumber | Label) for part in walk(node))


def children(node: Expression) -> tuple[Expression, ...]:
    # Every check of a text walks all its expressions several times, and `isinstance` of a union takes twice as long.
    if type(node) is Apply or type(node) is Aggregation:
        return node.arguments
    if type(node) is Shift or type(node) is Navigation:
        return (node.argument,)
    return ()


def walk(node: Expression) -> Iterator[Expression]:
    """The node and all its descendants."""
    pending = [node]
    while pending:
        current = pending.pop()
        yield current
        pending.extend(children(current))


def rewrite(node: Expression, change: Callable[[Expression], Expression | None]) -> Expression:
    """The tree with every node for which `change` returns a replacement replaced; replaced nodes are not descended
    into.
    """
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
    """The operands of a conjunction, or the node alone."""
    if isinstance(node, Apply) and node.function == "AND":
        return [part for argument in node.arguments for part in conjuncts(argument)]
    return [node]


def conjunction(parts: list[Expression]) -> Expression | None:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else Apply("AND", tuple(parts), parts[0].type)
