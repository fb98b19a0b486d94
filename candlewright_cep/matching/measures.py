"""MEASURES over many matches at once, vectorised over the mapped rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep.binding.evaluation import Bounds, RowValues, apply
from candlewright_cep.binding.expressions import (
    Aggregation,
    Apply,
    Column,
    Constant,
    Expression,
    Label,
    MatchNumber,
    Navigation,
    rewrite,
    walk,
)
from candlewright_cep.functions.aggregates.aggregates import COUNTS, ORDERED, empty_value, of_ranges, running
from candlewright_cep.functions.aggregates.lists import arrays
from candlewright_cep.types import BIGINT, STRING
from candlewright_cep.vector import Index, Vector, constant, counted, from_list

Labels = frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Mapping:
    """All mapped rows of all matches, one after another ("positions").

    `rows` and `labels` (variable numbers) have one entry per position; match i covers `firsts[i]` to `firsts[i] +
    sizes[i]`.
    """

    rows: Index
    labels: Index
    firsts: Index
    sizes: Index
    numbers: Index
    # For each match the rows that PREV and NEXT may reach, if that is not the whole partition.
    reach: tuple[Index, Index] | None = None


@dataclass(frozen=True, slots=True)
class Outputs:
    """One entry per result row: its match, and the position of its current row (-1: the match is empty)."""

    matches: Index
    positions: Index


class MeasureValues:
    """The values of measures at the outputs. Row numbers refer to the columns and `bounds` of the input."""

    def __init__(
        self,
        mapping: Mapping,
        outputs: Outputs,
        variables: Sequence[str],
        *,
        column: Callable[[int], Vector],
        bounds: Bounds,
    ) -> None:
        self._mapping = mapping
        self._outputs = outputs
        self._variables = variables
        self._column = column
        self._bounds = bounds
        self._known: dict[Expression, Vector] = {}
        self._sets: dict[Labels, tuple[Index, Index]] = {}
        self._length = len(outputs.matches)

    def value(self, node: Expression) -> Vector:
        known = self._known.get(node)
        if known is None:
            known = counted(self._compute(node))
            self._known[node] = known
        return known

    def _compute(self, node: Expression) -> Vector:
        if isinstance(node, Constant):
            return constant(node.type, node.value, self._length)
        if isinstance(node, Navigation):
            return self._navigation(node)
        if isinstance(node, Aggregation):
            return self._aggregation(node)
        if isinstance(node, MatchNumber):
            return Vector(BIGINT, self._mapping.numbers[self._outputs.matches], None)
        assert isinstance(node, Apply)
        return apply(node, [self.value(part) for part in node.arguments])

    # -- which rows -----------------------------------------------------------------------------------------------

    def _members(self, labels: Labels) -> tuple[Index, Index]:
        """Positions with one of the labels, and how many of them precede each position (with one extra entry)."""
        found = self._sets.get(labels)
        if found is None:
            count = len(self._mapping.rows)
            if labels is None:
                inside = np.ones(count, dtype=np.bool_)
            else:
                inside = np.array([name in labels for name in self._variables]).take(self._mapping.labels)
            before = np.zeros(count + 1, dtype=np.int64)
            inside.cumsum(out=before[1:])
            found = self._sets[labels] = (inside.nonzero()[0], before)
        return found

    def _range(self, labels: Labels, *, is_running: bool) -> tuple[Index, Index, Index]:
        """(members, first member, end of members) that count for each output."""
        members, before = self._members(labels)
        matches = self._outputs.matches
        first = self._mapping.firsts[matches]
        end = first + self._mapping.sizes[matches]
        if is_running:
            end = np.where(self._outputs.positions < 0, first, self._outputs.positions + 1)
        return members, before[first], before[end]

    def _navigation(self, node: Navigation) -> Vector:
        members, begin, end = self._range(node.labels, is_running=node.running)
        chosen = end - 1 - node.offset if node.last else begin + node.offset
        inside = (chosen >= begin) & (chosen < end)
        if len(members) == 0:
            rows = positions = np.full(self._length, -1, dtype=np.int64)
        elif inside.all():
            positions = members[chosen]
            rows = self._mapping.rows[positions]
        else:
            positions = np.where(inside, members[np.where(inside, chosen, 0)], -1)
            rows = np.where(positions < 0, -1, self._mapping.rows[positions])
        if node.delta:
            rows = self._moved(rows, node.delta)
        labels = None
        if not isinstance(node.argument, Column) and any(isinstance(part, Label) for part in walk(node.argument)):
            labels = self._labels_at(positions, node.delta)
        return self._at_rows(node.argument, rows, labels)

    def _moved(self, rows: Index, delta: int) -> Index:
        """Physical navigation: -1 outside the row's partition."""
        if self._mapping.reach is not None:
            low, high = (side[self._outputs.matches] for side in self._mapping.reach)
            target = rows + delta
            return np.where((rows >= 0) & (target >= low) & (target < high), target, -1)
        partition = np.searchsorted(self._bounds.starts, rows, side="right") - 1
        target = rows + delta
        known = rows >= 0
        safe = np.where(known, partition, 0)
        inside = known & (target >= self._bounds.starts[safe]) & (target < self._bounds.ends[safe])
        return np.where(inside, target, -1)

    def _labels_at(self, positions: Index, delta: int) -> Vector:
        """The variable of the row `delta` away in the same match; NULL outside the match."""
        matches = self._outputs.matches
        target = positions + delta
        first = self._mapping.firsts[matches]
        inside = (positions >= 0) & (target >= first) & (target < first + self._mapping.sizes[matches])
        return self._names(np.where(inside, target, -1))

    def _names(self, positions: Index) -> Vector:
        names = from_list(STRING, list(self._variables))
        if len(self._mapping.labels) == 0:
            return names.take(np.full(len(positions), -1, dtype=np.int64))
        return names.take(np.where(positions < 0, -1, self._mapping.labels[positions]))

    def _at_rows(self, node: Expression, rows: Index, labels: Vector | None) -> Vector:
        """A row expression at arbitrary rows; NULL where the row number is -1."""
        if isinstance(node, Column):
            return self._column(node.index).take(rows)
        if isinstance(node, Label) and labels is not None:
            return labels
        inner: Expression = node
        if labels is not None:
            inner = rewrite(node, lambda part: Column(-1, STRING) if isinstance(part, Label) else None)

        def column(index: int) -> Vector:
            return labels if index == -1 and labels is not None else self._column(index).take(rows)

        numbers = self._mapping.numbers
        matches = self._outputs.matches
        if any(isinstance(part, MatchNumber) for part in walk(inner)):
            inner = rewrite(inner, lambda part: Column(-2, BIGINT) if isinstance(part, MatchNumber) else None)
            plain = column

            def column(index: int) -> Vector:
                return Vector(BIGINT, numbers[matches], None) if index == -2 else plain(index)

        return RowValues(column, len(rows)).value(inner).with_nulls(rows < 0)

    # -- aggregates -----------------------------------------------------------------------------------------------

    def _aggregation(self, node: Aggregation) -> Vector:
        members, begin, end = self._range(node.labels, is_running=node.running)
        if len(members) == 0:
            return empty_value(node.function, node.type, self._length)
        _, before = self._members(node.labels)
        firsts = before[self._mapping.firsts]
        sizes = before[self._mapping.firsts + self._mapping.sizes] - firsts
        arguments = [self._at_members(argument, members) for argument in node.arguments]
        if node.function == "ARRAY_AGG":
            return arrays(arguments[0], begin, end, kind=node.type)
        if node.function.endswith(ORDERED):
            return of_ranges(node.function, arguments, begin, ends=end, kind=node.type)
        over = running(node.function, arguments, firsts[sizes > 0], length=len(members), kind=node.type)
        found = over.take(np.where(end > begin, end - 1, -1))
        if node.function in COUNTS:
            return Vector(node.type, np.where(found.mask, found.values, 0), None)
        return found

    def _at_members(self, node: Expression, members: Index) -> Vector:
        rows = self._mapping.rows[members]
        if isinstance(node, Column):
            return self._column(node.index).take(rows)
        names = self._names(members)
        numbers = np.repeat(self._mapping.numbers, self._mapping.sizes)[members]

        def change(part: Expression) -> Expression | None:
            if isinstance(part, Label):
                return Column(-1, STRING)
            return Column(-2, BIGINT) if isinstance(part, MatchNumber) else None

        def column(index: int) -> Vector:
            if index == -1:
                return names
            return Vector(BIGINT, numbers, None) if index == -2 else self._column(index).take(rows)

        return RowValues(column, len(rows)).value(rewrite(node, change))
