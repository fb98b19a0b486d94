"""The tree that the parser makes: what was written and where. Nothing is resolved yet."""

from dataclasses import dataclass, field
from typing import Any

from candlewright_cep.syntax.tokens import Position
from candlewright_cep.types import SqlType

# -- expressions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Identifier:
    """One name; unquoted names are compared without regard to case."""

    text: str
    quoted: bool
    at: Position

    @property
    def folded(self) -> str:
        """The name of a pattern variable: upper case unless quoted."""
        return self.text if self.quoted else self.text.upper()


@dataclass(frozen=True, slots=True)
class LiteralNode:
    """A constant. `digits`: a number with a decimal point as it was written."""

    value: Any
    type: SqlType
    at: Position
    digits: str = ""


@dataclass(frozen=True, slots=True)
class ParameterNode:
    name: str
    at: Position


@dataclass(frozen=True, slots=True)
class NameNode:
    """`column` or `qualifier.column`."""

    parts: tuple[Identifier, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class StarNode:
    """`*` or `qualifier.*`, in a select list or as the argument of COUNT."""

    qualifier: Identifier | None
    at: Position


@dataclass(kw_only=True, frozen=True, slots=True)
class CallNode:
    """An operator or a function: an operator's name is its symbol, a function's name is in upper case."""

    name: str
    arguments: tuple["Node", ...]
    at: Position
    type: SqlType | None = None
    mode: str = ""
    is_operator: bool = False
    # The condition of FILTER (WHERE ...) after an aggregate.
    filter: "Node | None" = None


@dataclass(frozen=True, slots=True)
class ModeNode:
    """RUNNING or FINAL before something other than a function call."""

    mode: str
    inner: "Node"
    at: Position


@dataclass(frozen=True, slots=True)
class FrameBound:
    """`kind` is UNBOUNDED PRECEDING, PRECEDING, CURRENT ROW, FOLLOWING or UNBOUNDED FOLLOWING."""

    kind: str
    amount: "Node | None"
    at: Position


@dataclass(kw_only=True, frozen=True, slots=True)
class WindowNode:
    """The contents of OVER ( ... ) or WINDOW w AS. `exclude`: CURRENT ROW, GROUP or TIES."""

    base: Identifier | None
    partition_by: tuple["Node", ...]
    order_by: tuple["SortItem", ...]
    unit: str
    lower: FrameBound | None
    upper: FrameBound | None
    recognize: "RecognizeNode | None"
    at: Position
    exclude: str = ""


@dataclass(frozen=True, slots=True)
class OverNode:
    """A function over a window, or a measure of a row pattern in a window."""

    function: CallNode | NameNode
    window: WindowNode | Identifier
    at: Position


Node = LiteralNode | ParameterNode | NameNode | StarNode | CallNode | ModeNode | OverNode


@dataclass(frozen=True, slots=True)
class SortItem:
    expression: Node
    descending: bool
    nulls_first: bool
    at: Position


# -- row patterns ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    at: Position


@dataclass(frozen=True, slots=True)
class Empty:
    pass


@dataclass(frozen=True, slots=True)
class Anchor:
    """`^` (start) or `$` (end)."""

    start: bool
    at: Position


@dataclass(frozen=True, slots=True)
class Concatenation:
    parts: tuple["Pattern", ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    branches: tuple["Pattern", ...]


@dataclass(frozen=True, slots=True)
class Permutation:
    parts: tuple["Pattern", ...]
    at: Position


@dataclass(frozen=True, slots=True)
class Exclusion:
    inner: "Pattern"
    at: Position


@dataclass(frozen=True, slots=True)
class Quantified:
    """`upper` is None without an upper bound."""

    inner: "Pattern"
    lower: int
    upper: int | None
    greedy: bool
    at: Position


Pattern = Variable | Empty | Anchor | Concatenation | Alternation | Permutation | Exclusion | Quantified


@dataclass(frozen=True, slots=True)
class Measure:
    name: Identifier
    expression: Node


@dataclass(frozen=True, slots=True)
class Subset:
    name: Identifier
    members: tuple[Identifier, ...]


@dataclass(frozen=True, slots=True)
class Definition:
    variable: Identifier
    condition: Node


@dataclass(frozen=True, slots=True)
class Within:
    """One bound of WITHIN: the time since the first row of the match, or since the previous row."""

    interval: Node
    from_previous: bool
    at: Position


@dataclass(kw_only=True, frozen=True, slots=True)
class RecognizeNode:
    """The body of MATCH_RECOGNIZE. `rows` is ONE, ALL SHOW, ALL OMIT, ALL UNMATCHED or ONE TIMEOUT;
    `skip` is PAST LAST, NEXT, FIRST or LAST (the last two with `skip_to`)."""

    partition_by: tuple[Node, ...]
    order_by: tuple[SortItem, ...]
    measures: tuple[Measure, ...]
    rows: str
    skip: str
    skip_to: Identifier | None
    pattern: Pattern
    within: tuple[Within, ...]
    subsets: tuple[Subset, ...]
    definitions: tuple[Definition, ...]
    at: Position
    seek: bool = False


# -- queries --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableNode:
    name: Identifier
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class SubqueryNode:
    query: "QueryNode"
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class MatchNode:
    source: "SourceNode"
    body: RecognizeNode
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position


@dataclass(kw_only=True, frozen=True, slots=True)
class WindowTableNode:
    """TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL ...)) and its relatives."""

    function: str
    source: "SourceNode"
    time: Identifier
    partition: tuple[Identifier, ...]
    intervals: tuple[Node, ...]
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position
    zone: Node | None = None


@dataclass(frozen=True, slots=True)
class BarsNode:
    """trades BARS BY VOLUME 100; `measure` is VOLUME, TRADES or VALUE."""

    source: "SourceNode"
    measure: str
    size: Node
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position


@dataclass(kw_only=True, frozen=True, slots=True)
class UnnestNode:
    """source CROSS JOIN UNNEST(array) WITH ORDINALITY AS u(x, n); `is_outer`: LEFT JOIN."""

    source: "SourceNode"
    array: Node
    is_outer: bool
    is_numbered: bool
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position


@dataclass(frozen=True, slots=True)
class ValuesNode:
    """(VALUES (...), (...)): a table of constants."""

    rows: tuple[tuple[Node, ...], ...]
    alias: Identifier | None
    columns: tuple[Identifier, ...]
    at: Position


@dataclass(kw_only=True, frozen=True, slots=True)
class JoinNode:
    """`is_asof`: each left row is joined only with the nearest right row."""

    kind: str
    left: "SourceNode"
    right: "SourceNode"
    condition: Node | None
    using: tuple[Identifier, ...]
    at: Position
    is_asof: bool = False


SourceNode = TableNode | SubqueryNode | MatchNode | WindowTableNode | BarsNode | UnnestNode | ValuesNode | JoinNode


@dataclass(frozen=True, slots=True)
class SelectItem:
    """`has_as`: AS is written before the alias."""

    expression: Node
    alias: Identifier | None
    has_as: bool = False


@dataclass(kw_only=True, frozen=True, slots=True)
class SelectNode:
    items: tuple[SelectItem, ...]
    source: SourceNode
    where: Node | None
    group_by: tuple[Node, ...]
    having: Node | None
    windows: tuple[tuple[Identifier, WindowNode], ...]
    distinct: bool
    at: Position
    qualify: Node | None = None
    # For ROLLUP, CUBE and GROUPING SETS: the indexes in `group_by` of each set's keys.
    sets: tuple[tuple[int, ...], ...] = ()
    emits_changes: bool = False


@dataclass(frozen=True, slots=True)
class UnionNode:
    branches: tuple["QueryNode", ...]
    distinct: bool
    at: Position


@dataclass(frozen=True, slots=True)
class QueryNode:
    """A SELECT or UNION with its WITH list, ORDER BY and LIMIT."""

    body: "SelectNode | UnionNode | QueryNode"
    tables: tuple[tuple[Identifier, tuple[Identifier, ...], "QueryNode"], ...] = ()
    order_by: tuple[SortItem, ...] = ()
    limit: Node | None = None
    offset: Node | None = None
    at: Position = field(default=Position(1, 1))


@dataclass(frozen=True, slots=True)
class ViewNode:
    """A query under a name for other texts; `name` is None if the text is only the query."""

    name: Identifier | None
    columns: tuple[Identifier, ...]
    query: QueryNode
    at: Position


_WITH_SOURCES = (QueryNode, UnionNode, SelectNode, SubqueryNode, MatchNode, WindowTableNode, BarsNode, UnnestNode)


def has_join(node: QueryNode) -> bool:
    """Whether there is a join anywhere in the query."""
    pending: list[Any] = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, JoinNode):
            return True
        if isinstance(current, tuple):
            pending += current
        elif isinstance(current, _WITH_SOURCES):
            pending += (getattr(current, name) for name in current.__slots__)
    return False
