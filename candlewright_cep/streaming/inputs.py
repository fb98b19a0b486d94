"""The inputs of a stream, and how a text joins them."""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.expressions import Apply, Column, Expression
from candlewright_cep.engine import fields_of
from candlewright_cep.planning.closings import is_end_of
from candlewright_cep.planning.plans import AsofJoin, Join, Plan


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One input of a stream: its schema, the columns that hold the event time (the first is used), and its ticker.

    `period_column`: rows are separated by its values, the seconds from an event time to the end of the interval that it
    begins. `is_in_order`: the rows of a ticker arrive in order of event time; otherwise, none is older than the clock.
    """

    schema: pa.Schema
    time_columns: tuple[str, ...]
    ticker_column: str = "ticker"
    period_column: str = ""
    is_in_order: bool = True
    #: The columns as texts see them, made once for all texts.
    fields: tuple[Field, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", fields_of(self.schema))


@dataclass(slots=True)
class KnownColumns:
    """Which columns of a node hold the event time, the ticker, and the end of the interval that begins at the event
    time. `either_times`, `either_tickers`: pairs of columns whose COALESCE is the event time or the ticker.
    """

    times: set[int]
    tickers: set[int]
    ends: set[int] = field(default_factory=set)
    either_times: set[tuple[int, int]] = field(default_factory=set)
    either_tickers: set[tuple[int, int]] = field(default_factory=set)

    def behind(self, columns: Sequence[Expression]) -> "KnownColumns":
        """The known columns of a node above this one that has `columns`."""
        found = [(place, part.index) for place, part in enumerate(columns) if isinstance(part, Column)]
        made = {place for place, part in enumerate(columns) if any(is_end_of(part, time) for time in self.times)}
        chosen = [(place, pair) for place, part in enumerate(columns) if (pair := _either(part)) is not None]
        return KnownColumns(
            {place for place, index in found if index in self.times}
            | {place for place, pair in chosen if pair in self.either_times},
            {place for place, index in found if index in self.tickers}
            | {place for place, pair in chosen if pair in self.either_tickers},
            {place for place, index in found if index in self.ends} | made,
            _moved(self.either_times, found),
            _moved(self.either_tickers, found),
        )


def _either(part: Expression) -> tuple[int, int] | None:
    """The columns of a COALESCE of two columns."""
    if not isinstance(part, Apply) or part.function != "COALESCE":
        return None
    indexes = [each.index for each in part.arguments if isinstance(each, Column)]
    return (indexes[0], indexes[1]) if len(indexes) == len(part.arguments) == 2 else None


def _moved(pairs: set[tuple[int, int]], found: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    return {(one, other) for one, index in found for other, second in found if (index, second) in pairs}


@dataclass(frozen=True, slots=True)
class Leaf:
    """The rows of an input, of one period if it has periods."""

    name: str
    source: StreamInput
    period: int = 0


@dataclass(frozen=True, slots=True)
class Pair:
    """Two branches that meet: rows whose times (right minus left) differ by at least `lower` and at most `upper`
    nanoseconds (None: no bound). `by_ticker`: rows of different tickers never meet.
    """

    node: Join | AsofJoin
    left: "Branch"
    right: "Branch"
    lower: int | None
    upper: int
    by_ticker: bool


@dataclass(frozen=True, slots=True)
class Branch:
    """The result of a chain of operators (innermost first) over its bottom; `nodes` includes the bottom."""

    bottom: Leaf | Pair
    nodes: tuple[Plan, ...]

    def leaves(self) -> Iterator[Leaf]:
        """From left to right."""
        return (leaf for leaf, _ in self.inputs())

    def inputs(self) -> Iterator[tuple[Leaf, tuple[Plan, ...]]]:
        """The leaves, from left to right, with the chain of operators over each, up to a join."""
        if isinstance(self.bottom, Leaf):
            yield self.bottom, self.nodes
        else:
            yield from self.bottom.left.inputs()
            yield from self.bottom.right.inputs()

    def operators(self) -> Iterator[Plan]:
        """Of this branch and all below it, without the inputs and joins at the bottoms."""
        yield from self.nodes[1:]
        if isinstance(self.bottom, Pair):
            yield from self.bottom.left.operators()
            yield from self.bottom.right.operators()

    def joins(self) -> Iterator[Join | AsofJoin]:
        """Of this branch and all below it."""
        if isinstance(self.bottom, Pair):
            yield self.bottom.node
            yield from self.bottom.left.joins()
            yield from self.bottom.right.joins()

    @property
    def first(self) -> Leaf:
        """The leaf whose rows the results belong to."""
        return next(self.leaves())


def equates(keys: Iterable[tuple[Expression, Expression]], left: Container[int], right: Container[int]) -> bool:
    """Whether the keys of a join equate one of these columns of its left side with one of those of its right side."""
    return any(
        isinstance(one, Column) and isinstance(other, Column) and one.index in left and other.index in right
        for one, other in keys
    )
