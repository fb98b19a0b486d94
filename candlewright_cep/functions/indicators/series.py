"""Values that depend on all rows of a partition so far, computed with a state of fixed size for each partition.

A `Walk` goes through one batch of rows, partition after partition, from the state that earlier batches left. Its
operations are the building blocks of indicators: values some rows back, windows of the last n rows, and recurrences. A
value is computed by the same steps in the same order whatever the batching, so results are bit-equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np

from candlewright_cep import work
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.vector import Array, Bools, Index

#: The cost of a step of all partitions together, and of switching to one partition alone, in multiples of a row taken
#: alone.
_STEP, _ALONE = 128, 24
#: From more partitions with one row each on, all take it in step.
_FEW = 8
#: The most numbers of state that one indicator may keep over all partitions.
MOST_STATE = 1 << 24

Step = Callable[..., Array]
Parts = tuple[Array, ...]
#: Merges the results of two adjacent runs of values; the runs' lengths are the last arguments.
Merge = Callable[[Parts, Parts, int, int], Parts]


@dataclass(frozen=True, slots=True)
class Series:
    """One value per row; those of a partition's first `start` rows are meaningless."""

    values: Array
    start: int = 0

    def __add__(self, other: "Series") -> "Series":
        return Series(self.values + other.values, max(self.start, other.start))

    def __sub__(self, other: "Series") -> "Series":
        return Series(self.values - other.values, max(self.start, other.start))

    def scaled(self, factor: float) -> "Series":
        return Series(self.values * factor, self.start)

    def after(self, start: int) -> "Series":
        """The same values, starting at row `start` or later."""
        return Series(self.values, max(self.start, start))


@dataclass(slots=True)
class Memory:
    """The state of one indicator: how many rows of each partition it has taken, and a table for each operation."""

    rows: Index = field(default_factory=lambda: np.zeros(0, np.int64))
    tables: list[Array] = field(default_factory=list)

    @property
    def size(self) -> int:
        return sum(table.size for table in self.tables)

    def grow(self, partitions: int) -> None:
        """Make room for this many partitions."""
        if len(self.rows) < partitions:
            wanted = max(partitions, 2 * len(self.rows))
            _check(sum(table.shape[1] for table in self.tables) * wanted)
            self.rows = _longer(self.rows, wanted)
            self.tables = [_longer(table, wanted) for table in self.tables]

    def keep(self, partitions: Index) -> None:
        """Keep only these partitions, renumbered in this order."""
        self.rows = self.rows[partitions]
        self.tables = [table[partitions] for table in self.tables]


def _check(size: int) -> None:
    if size > MOST_STATE:
        raise TriggerRejected(
            f"an indicator keeps more than {MOST_STATE} numbers for its partitions", hint="use a shorter period"
        )


def _longer(table: Array, length: int) -> Array:
    longer = np.zeros((length, *table.shape[1:]), table.dtype)
    longer[: len(table)] = table
    return longer


@dataclass(frozen=True, slots=True)
class _Plan:
    """How a recurrence goes through partitions: `order`, those with the most rows first, with their first rows and
    sizes. All take their first `abreast` rows in step, and then each its other rows alone.
    """

    order: Index
    firsts: Index
    sizes: Index
    abreast: int

    @staticmethod
    def of(sizes: Index, firsts: Index) -> "_Plan":
        """The cheapest plan."""
        order: Index = np.argsort(-sizes, kind="stable")[: np.count_nonzero(sizes)]
        rising = sizes[order][::-1]
        steps = np.unique(np.append(0, rising))
        passed = np.searchsorted(rising, steps, side="right")
        left, rows = len(rising) - passed, np.append(0, np.cumsum(rising))
        cost = steps * _STEP + left * _ALONE + (rows[-1] - rows[passed] - steps * left)
        return _Plan(order, firsts[order], sizes[order], int(steps[np.argmin(cost)]))


class Layout:
    """Where the rows of a batch are: `sizes[i]` of the partition with the number `partitions[i]`, one partition after
    another. Walks over the same rows share it.
    """

    def __init__(self, partitions: Index, sizes: Index) -> None:
        self.partitions = partitions
        self.sizes = sizes
        self.firsts: Index = np.cumsum(sizes) - sizes
        self.length = int(sizes.sum())
        self.is_one_each = bool((sizes == 1).all())
        self._with_history: dict[int, tuple[Index, Index]] = {}

    @cached_property
    def places(self) -> Index | slice:
        """The partitions as an index of tables."""
        numbers, count = self.partitions, len(self.partitions)
        if count and numbers[-1] - numbers[0] == count - 1 and bool((np.diff(numbers) == 1).all()):
            return slice(int(numbers[0]), int(numbers[0]) + count)
        return numbers

    @cached_property
    def plan(self) -> _Plan:
        return _Plan.of(self.sizes, self.firsts)

    @cached_property
    def offsets(self) -> Index:
        """The index of each row among those of its partition in this batch."""
        found: Index = np.arange(self.length) - np.repeat(self.firsts, self.sizes)
        return found

    def with_history(self, count: int) -> tuple[Index, Index]:
        """The positions of the rows if `count` others precede each partition's, and the positions of these."""
        if count not in self._with_history:
            segments = np.arange(1, len(self.sizes) + 1, dtype=np.int64)
            places = np.arange(self.length) + np.repeat(segments * count, self.sizes)
            history = (self.firsts + (segments - 1) * count)[:, None] + np.arange(count)
            self._with_history[count] = places, history
        return self._with_history[count]


class Walk:
    """A walk over the rows of `layout`, whose partitions have their state in `memory`."""

    def __init__(self, memory: Memory, layout: Layout) -> None:
        self._memory = memory
        self._layout = layout
        self._partitions = layout.places
        self._sizes = layout.sizes
        self._length = layout.length
        self._next = 0
        before = memory.rows[self._partitions].copy()
        #: The index of each row in its partition, from 0.
        self.numbers: Index = layout.offsets + (before if layout.is_one_each else np.repeat(before, self._sizes))
        memory.rows[self._partitions] = before + self._sizes

    def _table(self, width: int) -> Array:
        """The state table of the next operation: operations must come in the same order in every batch."""
        tables = self._memory.tables
        if self._next == len(tables):
            rows = len(self._memory.rows)
            _check((sum(table.shape[1] for table in tables) + width) * rows)
            tables.append(np.zeros((rows, width)))
        self._next += 1
        return tables[self._next - 1]

    # -- looking back ---------------------------------------------------------------------------------------------

    def _with_history(self, values: Array, count: int) -> tuple[Array, Index]:
        """The values, with the `count` preceding ones in front of each partition's; and the new positions of the
        rows.
        """
        table = self._table(count)
        work.spend(self._length + count * len(self._sizes))
        if self._layout.is_one_each:
            block = self._block(table, values)
            return block.reshape(-1), np.arange(count, block.size, count + 1)
        places, history = self._layout.with_history(count)
        extended = np.empty(self._length + count * len(self._sizes))
        extended[places] = values
        extended[history] = table[self._partitions]
        table[self._partitions] = extended[history + self._sizes[:, None]]
        return extended, places

    def _block(self, table: Array, values: Array) -> Array:
        """For each partition, which has one row, the values in its table followed by that of the row. Usual when a
        minute closes: whole blocks are copied.
        """
        count = table.shape[1]
        block = np.empty((len(values), count + 1))
        block[:, :count], block[:, count] = table[self._partitions], values
        table[self._partitions] = block[:, 1:]
        return block

    def back(self, series: Series, count: int) -> Series:
        """The value `count` rows earlier."""
        if self._layout.is_one_each:
            work.spend(self._length * (1 + count))
            return Series(self._block(self._table(count), series.values)[:, 0], series.start + count)
        extended, places = self._with_history(series.values, count)
        return Series(extended[places - count], series.start + count)

    def folded(self, series: Sequence[Series], n: int, first: Callable[[Parts], Parts], *, merge: Merge) -> Parts:
        """For each row, merge what `first` returns for each of the last `n` values, always in the same order."""
        if self._layout.is_one_each and n > 1:
            work.spend(n * self._length * len(series))
            blocks = tuple(self._block(self._table(n - 1), one.values).T for one in series)
            return _window(first(blocks), merge)
        extended: list[Array] = []
        places: Index = np.zeros(0, np.int64)
        for one in series:
            found, places = self._with_history(one.values, n - 1)
            extended.append(found)
        if not self._length:
            return tuple(part[:0] for part in first(tuple(extended)))
        ends = places - (n - 1)
        return tuple(part[ends] for part in _windows(first(tuple(extended)), n, merge))

    def total(self, series: Series, n: int) -> Series:
        """The sum of the last n values."""
        (total,) = self.folded([series], n, lambda parts: parts, merge=lambda one, other, *_: (one[0] + other[0],))
        return Series(total, series.start + n - 1)

    def mean(self, series: Series, n: int) -> Series:
        total = self.total(series, n)
        return Series(total.values / n, total.start)

    def extreme(self, series: Series, n: int, *, largest: bool) -> Series:
        step: np.ufunc = np.maximum if largest else np.minimum
        (found,) = self.folded([series], n, lambda parts: parts, merge=lambda one, other, *_: (step(one[0], other[0]),))
        return Series(found, series.start + n - 1)

    def weighted(self, series: Series, n: int) -> tuple[Series, Series]:
        """The sum of the last n values, and the sum of each times its position among them (1 for the oldest)."""

        def merge(one: Parts, other: Parts, older: int, _newer: int) -> Parts:
            return one[0] + other[0], one[1] + (other[1] + older * other[0])

        total, products = self.folded([series], n, lambda parts: (parts[0], parts[0]), merge=merge)
        return Series(total, series.start + n - 1), Series(products, series.start + n - 1)

    def spread(self, series: Series, n: int) -> tuple[Series, Series]:
        """The mean of the last n values, and the sum of their squared deviations from it."""

        def merge(one: Parts, other: Parts, older: int, newer: int) -> Parts:
            apart = other[0] - one[0]
            mean = one[0] + apart * (newer / (older + newer))
            return mean, one[1] + other[1] + apart * apart * (older * newer / (older + newer))

        mean, squares = self.folded([series], n, lambda parts: (parts[0], np.zeros_like(parts[0])), merge=merge)
        return Series(mean, series.start + n - 1), Series(squares, series.start + n - 1)

    def distances(self, series: Series, n: int, centre: Series) -> Series:
        """The sum of the absolute deviations of the last n values from the row's own `centre`."""
        work.spend(self._length * n)
        found = np.zeros(self._length)
        if self._layout.is_one_each:
            for values in self._block(self._table(n - 1), series.values).T:
                found += np.abs(values - centre.values)
            return Series(found, series.start + n - 1)
        extended, places = self._with_history(series.values, n - 1)
        for back in range(n - 1, -1, -1):
            found += np.abs(extended[places - back] - centre.values)
        return Series(found, series.start + n - 1)

    def ago(self, series: Series, n: int, *, largest: bool) -> Series:
        """How many rows ago the extreme of the last n values was; among equal ones the latest counts."""

        def merge(one: Parts, other: Parts, _older: int, newer: int) -> Parts:
            is_later = other[0] >= one[0] if largest else other[0] <= one[0]
            return np.where(is_later, other[0], one[0]), np.where(is_later, other[1], one[1] + newer)

        _, found = self.folded([series], n, lambda parts: (parts[0], np.zeros_like(parts[0])), merge=merge)
        return Series(found, series.start + n - 1)

    # -- recurrences ----------------------------------------------------------------------------------------------

    def recurrence(
        self,
        series: Series,
        seed: int,
        finish: Callable[[Array], Array],
        *,
        step: Step,
        holds: bool = False,
        further: Array | None = None,
    ) -> Array:
        """For each row y, where y is `finish` of the sum of the first `seed` values, then `step(y, x)` for each further
        x.

        `step` must compute the same for floats and for arrays. `holds`: a NaN counts as 0 in the seed, and leaves y
        unchanged after it. `further`: a second value for each row, passed to `step` with the first.
        """
        table = self._table(1)
        work.spend(self._length, work.FOLDED_A_STEP)
        if self._layout.is_one_each and self._length > _FEW:
            numbers = self.numbers - series.start
            known = None if int(numbers.min()) >= seed else numbers
            y, x = table[self._partitions, 0], series.values
            found = _stepped(y, x, known, seed, finish, step, holds=holds, further=further)
            table[self._partitions, 0] = found
            return found
        found = np.zeros(self._length)
        plan = self._layout.plan
        firsts, sizes, partitions = plan.firsts, plan.sizes, self._layout.partitions[plan.order]
        state = table[partitions, 0]
        numbers = self.numbers[firsts] - series.start
        live, seeded = len(sizes), seed - int(numbers.min(initial=seed))
        for offset in range(plan.abreast):
            while sizes[live - 1] <= offset:
                live -= 1
            at = firsts[:live] + offset
            y, x = state[:live], series.values[at]
            known = None if offset >= seeded else numbers[:live] + offset
            more = None if further is None else further[at]
            state[:live] = found[at] = _stepped(y, x, known, seed, finish, step, holds=holds, further=more)
        for place in np.flatnonzero(sizes > plan.abreast).tolist():
            rows = slice(int(firsts[place]) + plan.abreast, int(firsts[place] + sizes[place]))
            more = None if further is None else further[rows]
            first, number = float(state[place]), int(numbers[place]) + plan.abreast
            state[place] = _through(
                series.values[rows], found[rows], first, number, seed, finish, step, holds=holds, further=more
            )
        table[partitions, 0] = state
        return found

    def smoothed(self, series: Series, n: int, weight: float, *, start: int = 0) -> Series:
        """Exponential smoothing that starts from the mean of the first n values; values before row `start` are
        ignored.
        """
        given = series.after(start)
        found = self.recurrence(given, n, lambda total: total / n, step=lambda y, x: (x - y) * weight + y)
        return Series(found, given.start + n - 1)

    def ema(self, series: Series, n: int, start: int = 0) -> Series:
        return self.smoothed(series, n, 2 / (n + 1), start=start)

    def wilder(self, series: Series, n: int, *, holds: bool = False) -> Series:
        """Wilder's smoothed mean: each new value has the weight 1 / n."""
        found = self.recurrence(
            series, n, lambda total: total / n, step=lambda y, x: (y * (n - 1) + x) / n, holds=holds
        )
        return Series(found, series.start + n - 1)

    def wilder_total(self, series: Series, n: int) -> Series:
        """Wilder's smoothed sum: each new value is added, and 1 / n of the sum is subtracted. It starts with the n-th
        value.
        """
        found = self.recurrence(series, n - 1, lambda total: total, step=lambda y, x: y - y / n + x)
        return Series(found, series.start + n - 1)

    def running_total(self, series: Series) -> Series:
        return Series(self.recurrence(series, 1, lambda y: y, step=lambda y, x: y + x), series.start)


def _windows(parts: Parts, n: int, merge: Merge) -> Parts:
    """For each position, merge the n values from it on (by blocks of 2 ** k values)."""
    length = len(parts[0]) - n + 1
    found: Parts | None = None
    covered, size = 0, 1
    while True:
        if n & size:
            block = tuple(part[covered : covered + length] for part in parts)
            found = block if found is None else merge(found, block, covered, size)
            covered += size
            if covered == n:
                return found
        parts = merge(tuple(part[:-size] for part in parts), tuple(part[size:] for part in parts), size, size)
        size *= 2


def _window(parts: Parts, merge: Merge) -> Parts:
    """`_windows` of as many values as there are: one window. The parts have the values one after another."""
    n = len(parts[0])
    found: Parts | None = None
    covered, size = 0, 1
    while covered < n:
        if n & size:
            block = tuple(part[covered : covered + size] for part in parts)
            width = 1
            while width < size:
                block = merge(tuple(part[::2] for part in block), tuple(part[1::2] for part in block), width, width)
                width *= 2
            found = block if found is None else merge(found, block, covered, size)
            covered += size
        size *= 2
    assert found is not None
    return tuple(part[0] for part in found)


def _through(
    values: Array,
    found: Array,
    y: float,
    number: int,
    seed: int,
    finish: Callable[..., Array],
    step: Step,
    *,
    holds: bool,
    further: Array | None,
) -> float:
    """Many rows of one partition, the first of which is value number `number`; returns the last y."""
    lead = min(max(seed - number, 0), len(values))
    for row, x in enumerate(values[:lead].tolist()):
        place = number + row
        if place >= 0:
            x = 0.0 if holds and x != x else x
            y = x if place == 0 else y + x
            if place == seed - 1:
                y = float(finish(y))
            found[row] = y
    if lead < len(values):

        def held(y: float, x: float) -> float:
            return y if x != x else step(y, x)  # type: ignore[return-value]

        rest: list[Any] = values[lead:].tolist()
        run: Any = held if holds else step
        if further is not None:
            rest = list(zip(rest, further[lead:].tolist(), strict=True))
            run = _of_pair(step)
        ys = accumulate(rest, run, initial=y)
        next(ys)
        found[lead:] = np.fromiter(ys, np.float64, len(rest))
        y = float(found[-1])
    return y


def _of_pair(step: Step) -> Callable[[float, tuple[float, float]], Any]:
    return lambda y, pair: step(y, *pair)


def _stepped(
    y: Array,
    x: Array,
    number: Index | None,
    seed: int,
    finish: Callable[[Array], Array],
    step: Step,
    *,
    holds: bool,
    further: Array | None,
) -> Array:
    """One row of each of many partitions. `number`: of the values in their partitions; None if all come after the
    seed.
    """
    stepped = step(y, x) if further is None else step(y, x, further)
    if holds:
        is_held: Bools = np.isnan(x)
        stepped = np.where(is_held, y, stepped)
        x = np.where(is_held, 0.0, x)
    if number is None:
        return stepped
    seeding = np.where(number == 0, x, y + x)
    seeding = np.where(number == seed - 1, finish(seeding), seeding)
    return np.where(number < 0, 0.0, np.where(number < seed, seeding, stepped))
