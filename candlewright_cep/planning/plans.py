"""Query plans: checked, typed, independent of data. `run` computes a plan over named inputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.expressions import Aggregation, Constant, Expression
from candlewright_cep.functions.aggregates.aggregates import empty_value, reduced, spend
from candlewright_cep.limits import Limits
from candlewright_cep.matching.matching import evaluate_matches, find
from candlewright_cep.matching.recognize import RecognizePlan, SortKey
from candlewright_cep.planning.bands import Band, BandSearch, key_codes
from candlewright_cep.planning.relation import Relation, Source, arranged, concatenated, partition_codes, sorted_order
from candlewright_cep.syntax.tokens import BEGIN, Position
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Index, Vector, constant, counted, nulls

Inputs = Mapping[str, Relation]


class SharedInputs(dict[str, Relation]):
    """Inputs by name for one run, and the rows of views computed so far, by the identity of their plan."""

    def __init__(self, inputs: Inputs) -> None:
        super().__init__(inputs)
        self.views: dict[int, Relation] = {}


class Plan(Protocol):
    @property
    def fields(self) -> tuple[Field, ...]: ...

    def run(self, inputs: Inputs) -> Relation: ...


@dataclass(frozen=True, slots=True)
class Scan:
    """An input by its name."""

    name: str
    fields: tuple[Field, ...]

    def run(self, inputs: Inputs) -> Relation:
        return inputs[self.name]


@dataclass(frozen=True, slots=True)
class Renamed:
    """The same rows under other names. `is_view`: several nodes may read them, so that one run computes them only
    once. `registered`: the name of a registered view, which other texts may read too.
    """

    inner: Plan
    fields: tuple[Field, ...]
    is_view: bool = field(default=False, compare=False)
    registered: str = field(default="", compare=False)

    def run(self, inputs: Inputs) -> Relation:
        if not (self.is_view and isinstance(inputs, SharedInputs)):
            return self.inner.run(inputs)
        found = inputs.views.get(id(self.inner))
        if found is None:
            found = inputs.views[id(self.inner)] = self.inner.run(inputs)
        return found


@dataclass(frozen=True, slots=True)
class Filter:
    """Rows for which the condition is true.

    Two kinds are not part of the text. `is_of_changes`: the filter by which EMIT CHANGES leaves out rows that change
    nothing. `is_of_period`: selects the bars of the parameter `period_seconds`.
    """

    inner: Plan
    condition: Expression
    is_of_changes: bool = field(default=False, compare=False)
    is_of_period: bool = field(default=False, compare=False)

    @property
    def is_written(self) -> bool:
        return not (self.is_of_changes or self.is_of_period)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.inner.fields

    def run(self, inputs: Inputs) -> Relation:
        rows = self.inner.run(inputs)
        kept = np.flatnonzero(rows.values().value(self.condition).true())
        return rows if len(kept) == rows.length else rows.take(kept)


@dataclass(frozen=True, slots=True)
class Project:
    inner: Plan
    expressions: tuple[Expression, ...]
    fields: tuple[Field, ...]

    def run(self, inputs: Inputs) -> Relation:
        rows = self.inner.run(inputs)
        values = rows.values()

        def reader(node: Expression) -> Callable[[], Vector]:
            return lambda: values.value(node)

        return Relation([reader(node) for node in self.expressions], rows.length)


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Only the first columns."""

    inner: Plan
    width: int

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.inner.fields[: self.width]

    def run(self, inputs: Inputs) -> Relation:
        return self.inner.run(inputs).select(range(self.width))


@dataclass(frozen=True, slots=True)
class Sort:
    inner: Plan
    keys: tuple[SortKey, ...]
    at: Position = field(default=BEGIN, compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.inner.fields

    def run(self, inputs: Inputs) -> Relation:
        rows = self.inner.run(inputs)
        return rows.take(sorted_order(self.keys, rows.values(), rows.length))


@dataclass(frozen=True, slots=True)
class Limited:
    inner: Plan
    offset: int
    limit: int | None
    at: Position = field(default=BEGIN, compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.inner.fields

    def run(self, inputs: Inputs) -> Relation:
        rows = self.inner.run(inputs)
        end = rows.length if self.limit is None else min(rows.length, self.offset + self.limit)
        return rows.take(np.arange(min(self.offset, end), end, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all branches, whose columns have equal types."""

    branches: tuple[Plan, ...]
    at: Position = field(default=BEGIN, compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.branches[0].fields

    def run(self, inputs: Inputs) -> Relation:
        found = []
        for branch in self.branches:
            found.append(branch.run(inputs))
            work.spend(found[-1].length * found[-1].width)
        return concatenated(found)


@dataclass(frozen=True, slots=True)
class Distinct:
    inner: Plan
    at: Position = field(default=BEGIN, compare=False)

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.inner.fields

    def run(self, inputs: Inputs) -> Relation:
        rows = self.inner.run(inputs)
        numbers = partition_codes([rows.column(index) for index in range(rows.width)], rows.length)
        _, first = np.unique(numbers, return_index=True)
        return rows.take(np.sort(first).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Group:
    """One row per distinct key: the keys, then the aggregates. Without keys, always exactly one row.

    With `sets`, this holds for the keys of each set; the other keys are NULL, and the last key is a number with one bit
    for each other key, the first key's the lowest, which is 1 if the set lacks that key.
    """

    inner: Plan
    keys: tuple[Expression, ...]
    aggregates: tuple[Aggregation, ...]
    fields: tuple[Field, ...]
    at: Position = field(default=BEGIN, compare=False)
    sets: tuple[frozenset[int], ...] = ()

    @property
    def common_keys(self) -> tuple[Expression, ...]:
        """The keys, with NULL for those that are not in every set."""
        return tuple(
            Constant(None, key.type) if any(place not in chosen for chosen in self.sets) else key
            for place, key in enumerate(self.keys)
        )

    def run(self, inputs: Inputs) -> Relation:
        return self.over(self.inner.run(inputs))[0]

    def over(self, rows: Relation) -> tuple[Relation, Index]:
        """The groups of `rows`, and the number of each group's last row (an empty array if `rows` is empty)."""
        if not self.sets:
            return self._grouped(rows, self.keys)
        parts = [self._of_set(rows, chosen) for chosen in self.sets]
        return concatenated([part for part, _ in parts]), np.concatenate([last for _, last in parts])

    def _of_set(self, rows: Relation, chosen: frozenset[int]) -> tuple[Relation, Index]:
        count = len(self.keys) - 1
        found, last = self._grouped(rows, [self.keys[place] for place in sorted(chosen)])
        placed = dict(zip(sorted(chosen), range(len(chosen)), strict=True))
        missing = sum(1 << place for place in range(count) if place not in chosen)
        columns: list[Source] = [
            found.column(placed[place]) if place in placed else nulls(self.keys[place].type, found.length)
            for place in range(count)
        ]
        columns.append(constant(BIGINT, missing, found.length))
        columns += [found.column(index) for index in range(len(chosen), found.width)]
        return Relation(columns, found.length), last

    def _grouped(self, rows: Relation, by: Sequence[Expression]) -> tuple[Relation, Index]:
        values = rows.values()
        keys = [values.value(key) for key in by]
        if not keys and rows.length == 0:
            alone = [empty_value(node.function, node.type, 1) for node in self.aggregates]
            return Relation(alone, 1), np.zeros(0, np.int64)
        numbers = partition_codes(keys, rows.length)
        order = np.argsort(numbers, kind="stable").astype(np.int64)
        grouped = numbers[order]
        firsts = np.concatenate([np.zeros(1 if rows.length else 0, np.int64), np.flatnonzero(np.diff(grouped)) + 1])
        sizes = np.diff(np.append(firsts, rows.length))
        # In the order of each group's first row, which is what a reader expects.
        appearance = np.argsort(order[firsts], kind="stable") if rows.length else firsts
        found: list[Source] = [key.take(order[firsts][appearance]) for key in keys]
        for node in self.aggregates:
            arguments = [values.value(argument).expand().take(order) for argument in node.arguments]
            spend(node.function, rows.length)
            over = reduced(node.function, arguments, firsts, sizes=sizes, length=rows.length, kind=node.type)
            found.append(counted(over).take(appearance))
        return Relation(found, len(firsts)), order[firsts + sizes - 1][appearance]


@dataclass(kw_only=True, frozen=True, slots=True)
class Join:
    """`kind` INNER, LEFT, RIGHT, FULL or CROSS. Rows match if the key pairs are equal, the time of the right row is in
    the band, and the remaining condition is true.
    """

    kind: str
    left: Plan
    right: Plan
    keys: tuple[tuple[Expression, Expression], ...]
    rest: Expression | None
    limits: Limits
    at: Position
    band: Band | None = None

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.left.fields, *self.right.fields)

    def run(self, inputs: Inputs) -> Relation:
        left, right = self.left.run(inputs), self.right.run(inputs)
        one, other = self.matched(left, right)
        return side_by_side(left.take(one), right.take(other))

    def matched(self, left: Relation, right: Relation) -> tuple[Index, Index]:
        """The row numbers of both sides; -1 for a row without a partner."""
        one, other = self._pairs(left, right)
        if self.rest is not None:
            joined = side_by_side(left.take(one), right.take(other))
            kept = np.flatnonzero(joined.values().value(self.rest).true())
            one, other = one[kept], other[kept]
        if self.kind in ("LEFT", "FULL"):
            alone = np.setdiff1d(np.arange(left.length, dtype=np.int64), one)
            one, other = np.concatenate([one, alone]), np.concatenate([other, np.full(len(alone), -1, np.int64)])
            order = np.argsort(one, kind="stable")
            one, other = one[order], other[order]
        if self.kind in ("RIGHT", "FULL"):
            alone = np.setdiff1d(np.arange(right.length, dtype=np.int64), other)
            one, other = np.concatenate([one, np.full(len(alone), -1, np.int64)]), np.concatenate([other, alone])
        return one, other

    def _pairs(self, left: Relation, right: Relation) -> tuple[Index, Index]:
        if self.band is not None:
            work.spend(left.length + right.length)
            search = BandSearch.of(left, right, self.keys, band=self.band)
            self._check(int(search.counts.sum()))
            return search.pairs()
        if not self.keys:
            self._check(left.length * right.length)
            rows = np.arange(left.length * right.length, dtype=np.int64)
            width = max(1, right.length)
            return rows // width, rows % width
        one, other = key_codes(left, right, self.keys)
        order = np.argsort(other, kind="stable").astype(np.int64)
        ranked = other[order]
        begin = np.searchsorted(ranked, one, side="left")
        end = np.searchsorted(ranked, one, side="right")
        counts = np.where(one < 0, 0, end - begin)
        self._check(int(counts.sum()))
        first = np.repeat(np.arange(left.length, dtype=np.int64), counts)
        offsets = np.arange(len(first), dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        return first, order[np.repeat(begin, counts) + offsets]

    def _check(self, count: int) -> None:
        if count > self.limits.joined_rows:
            raise self.at.reject(f"the join makes {count} rows; {self.limits.joined_rows} are allowed")
        work.spend(count)


@dataclass(kw_only=True, frozen=True, slots=True)
class AsofJoin:
    """Each left row with at most one right row: of those with equal keys in the band the last (`is_backward`) or the
    first. `kind` INNER or LEFT; `when`: a condition on the left row alone. Among right rows of equal time, the one
    that arrived last is used.
    """

    kind: str
    left: Plan
    right: Plan
    keys: tuple[tuple[Expression, Expression], ...]
    band: Band
    is_backward: bool
    when: Expression | None
    at: Position

    @property
    def fields(self) -> tuple[Field, ...]:
        return (*self.left.fields, *self.right.fields)

    def run(self, inputs: Inputs) -> Relation:
        left, right = self.left.run(inputs), self.right.run(inputs)
        one, other = self.matched(left, right)
        return side_by_side(left if len(one) == left.length else left.take(one), right.take(other))

    def matched(self, left: Relation, right: Relation) -> tuple[Index, Index]:
        """See `Join`; left rows keep their order."""
        work.spend(left.length + right.length)
        found = BandSearch.of(left, right, self.keys, band=self.band).nearest(is_last=self.is_backward)
        if self.when is not None:
            found = np.where(left.values().value(self.when).true(), found, -1)
        if self.kind == "LEFT":
            return np.arange(left.length, dtype=np.int64), found
        kept = np.flatnonzero(found >= 0)
        return kept, found[kept]


@dataclass(frozen=True, slots=True)
class Values:
    """A table of constants written in the text."""

    columns: tuple[Vector, ...]
    fields: tuple[Field, ...]

    def run(self, inputs: Inputs) -> Relation:
        return Relation(list(self.columns), len(self.columns[0]))


def side_by_side(left: Relation, right: Relation) -> Relation:
    def reader(side: Relation, index: int) -> Callable[[], Vector]:
        return lambda: side.column(index)

    sources: list[Source] = [reader(left, index) for index in range(left.width)]
    sources += [reader(right, index) for index in range(right.width)]
    return Relation(sources, left.length)


@dataclass(frozen=True, slots=True)
class Match:
    """MATCH_RECOGNIZE over `inner`."""

    inner: Plan
    recognize: RecognizePlan

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.recognize.fields

    def run(self, inputs: Inputs) -> Relation:
        plan = self.recognize
        rows, bounds, _ = arranged(self.inner.run(inputs), plan.partition, plan.order)
        found = find(plan, rows.column, rows.length, bounds=bounds)
        result = evaluate_matches(plan, found, rows.column, bounds=bounds)
        return match_relation(plan, rows.take(result.rows), result.measures)


def match_relation(plan: RecognizePlan, rows: Relation, measures: Sequence[Vector]) -> Relation:
    """The output columns in order, from the plain rows and the measures."""
    sources: list[Source] = [partial(rows.column, index) for index in plan.columns]
    sources[plan.measures_at : plan.measures_at] = list(measures)
    return Relation(sources, rows.length)
