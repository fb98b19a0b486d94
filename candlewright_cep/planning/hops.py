"""GROUP BY over HOP: each window is a range of its key's rows in time order, so no row is copied."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.expressions import Aggregation, Column, Expression, walk
from candlewright_cep.functions.aggregates.frames import framed, has_frames, reduced_over
from candlewright_cep.planning.plans import Filter, Group, Inputs, Plan
from candlewright_cep.planning.relation import Relation, Source, partition_codes
from candlewright_cep.planning.windows import MILLISECOND, WindowTable
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.vector import Index, Vector, is_every, ranges


@dataclass(frozen=True, slots=True)
class Hops:
    """The windows of all keys. `order`: the rows by key and time; a window has the rows from `low` to `high`
    (exclusive) in this order, and begins at `start`.
    """

    order: Index
    low: Index
    high: Index
    start: Index

    def take(self, windows: Index) -> "Hops":
        return Hops(self.order, self.low[windows], self.high[windows], self.start[windows])


@dataclass(frozen=True, slots=True)
class HopGroup(Group):
    """A Group over HOP, possibly with filters between them that look at single rows."""

    @property
    def window(self) -> WindowTable:
        found = _unfiltered(self.inner)[0]
        assert isinstance(found, WindowTable)
        return found

    def run(self, inputs: Inputs) -> Relation:
        window, conditions = _unfiltered(self.inner)
        assert isinstance(window, WindowTable)
        rows = window.inner.run(inputs)
        for condition in conditions:
            rows = rows.take(np.flatnonzero(rows.values().value(condition).true()))
        return self.over_hops(rows, self.hops(rows))[0]

    @property
    def _intervals(self) -> tuple[int, int, int]:
        step, size, *offset = self.window.intervals
        return step, size, sum(offset)

    def _row_keys(self, width: int) -> list[Expression]:
        return [key for key in self.keys if not (isinstance(key, Column) and key.index >= width)]

    def hops(self, rows: Relation) -> Hops:
        """The windows that contain any of the rows."""
        times = rows.column(self.window.time_column).expand()
        step, size, offset = self._intervals
        values = rows.values()
        keys = partition_codes([values.value(key) for key in self._row_keys(rows.width)], rows.length)
        order = np.lexsort((times.values, keys))
        if times.valid is not None:
            order = order[times.valid[order]]
        keys, since = keys[order], times.values[order] - offset
        # Windows are numbered by their start; a row is in those from `earliest` to `latest`.
        latest, earliest = since // step, (since - size) // step + 1
        is_new = np.ones(len(order), np.bool_)
        is_new[1:] = keys[1:] != keys[:-1]
        before = np.where(is_new, earliest - 1, np.roll(latest, 1))
        firsts = np.maximum(earliest, before + 1)
        counts = np.maximum(latest - firsts + 1, 0)
        self.window.check(int(counts.sum()))
        work.spend(len(order) + int(counts.sum()), work.FOLDED_A_STEP)
        numbers, low = ranges(firsts, counts), np.repeat(np.arange(len(order)), counts)
        return Hops(order, low, _ends(np.cumsum(is_new), earliest, low, numbers), numbers * step + offset)

    def over_hops(self, rows: Relation, hops: Hops) -> tuple[Relation, Index, Index]:
        """The groups of these windows, the number of the last row of each, and each window's end."""
        values = rows.values()
        in_order = is_every(hops.order, rows.length)
        ordered = values if in_order else rows.take(hops.order).values()
        began = reduced_over(np.minimum, hops.order, hops.low, high=hops.high)
        appearance = np.lexsort((hops.start, began))
        chosen = hops.take(appearance)
        end = chosen.start + self.window.intervals[1]
        bounds = (chosen.start, end, end - MILLISECOND)
        found: list[Source] = []
        for key in self.keys:
            if isinstance(key, Column) and key.index >= rows.width:
                found.append(Vector(key.type, bounds[key.index - rows.width], None))
            else:
                found.append(values.value(key).take(hops.order[chosen.low]))
        for node in self.aggregates:
            arguments = [ordered.value(argument) for argument in node.arguments]
            made = framed(node.function, arguments, chosen.low, high=chosen.high, kind=node.type)
            assert made is not None
            found.append(made)
        return Relation(found, len(end)), reduced_over(np.maximum, hops.order, chosen.low, high=chosen.high), end


def _ends(keys: Index, earliest: Index, low: Index, numbers: Index) -> Index:
    """For each window, the key's first row after it, searched from the window's first row on."""
    if not len(numbers):
        return low
    least = int(earliest.min())
    # A row between two windows is in neither: its `earliest` may be after all of them.
    width = max(int(numbers.max()), int(earliest.max())) - least + 2
    found: Index = np.searchsorted(keys * width + (earliest - least), keys[low] * width + (numbers - least), "right")
    return found


def _unfiltered(plan: Plan) -> tuple[Plan, list[Expression]]:
    """The node below filters, and the filters' conditions, innermost first."""
    conditions: list[Expression] = []
    while isinstance(plan, Filter):
        conditions.insert(0, plan.condition)
        plan = plan.inner
    return plan, conditions


def grouped(
    source: Plan,
    keys: Sequence[Expression],
    aggregates: Sequence[Aggregation],
    *,
    fields: tuple[Field, ...],
    at: Position,
    sets: tuple[frozenset[int], ...] = (),
) -> Group:
    """The Group, computed by ranges of rows if `source` is HOP and all aggregates can be computed over ranges."""
    below, conditions = _unfiltered(source)
    if isinstance(below, WindowTable) and below.function == "HOP" and not sets:
        width = len(below.inner.fields)
        of_rows = [*conditions, *(node for part in aggregates for node in part.arguments)]
        of_rows += [key for key in keys if not isinstance(key, Column)]
        are_rows = all(part.index < width for node in of_rows for part in walk(node) if isinstance(part, Column))
        windows = {key.index - width for key in keys if isinstance(key, Column)}
        if are_rows and windows & {0, 1} and all(has_frames(part.function) for part in aggregates):
            return HopGroup(source, tuple(keys), tuple(aggregates), fields, at)
    return Group(source, tuple(keys), tuple(aggregates), fields, at, sets)
