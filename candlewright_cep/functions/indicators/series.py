"""Values that depend on all rows of a partition so far, computed with a state of fixed size for each partition.

A `Walk` goes through one batch of rows, partition after partition, from the state that earlier batches left. Its
operations are the building blocks of indicators: values some rows back, windows of the last n rows, and recurrences. A
value is computed by the same steps in the same order whatever the batching, so results are bit-equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from candlewright_cep import work
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.vector import Array, Bools, Index

#: From this many rows of one partition on, a recurrence runs through them alone, not in step with the other partitions.
_LONG = 48
#: The most numbers of state that one indicator may keep over all partitions.
MOST_STATE = 1 << 24

Step = Callable[..., Array]
Parts = tuple[Array, ...]
#: Merges what is known of two adjacent runs of values; the runs' lengths are the last arguments.
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


class Walk:
    """A walk over one batch: `sizes[i]` rows of the partition with the number `partitions[i]` in `memory`, one
    partition after another.
    """

    def __init__(self, memory: Memory, partitions: Index, sizes: Index) -> None:
        self._memory = memory
        self._partitions = partitions
        self._sizes = sizes
        self._firsts = np.cumsum(sizes) - sizes
        self._length = int(sizes.sum())
        self._is_one_each = bool((sizes == 1).all())
        self._next = 0
        self._layouts: dict[int, tuple[Index, Index]] = {}
        before = memory.rows[partitions]
        #: The index of each row in its partition, from 0.
        self.numbers: Index = np.arange(self._length) + np.repeat(before - self._firsts, sizes)
        memory.rows[partitions] = before + sizes

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
        work.spend(self._length + count * len(self._partitions))
        if self._is_one_each:
            # Usual when a minute closes: whole blocks are copied.
            block = np.empty((len(values), count + 1))
            block[:, :count], block[:, count] = table[self._partitions], values
            table[self._partitions] = block[:, 1:]
            return block.reshape(-1), np.arange(count, block.size, count + 1)
        if count not in self._layouts:
            segments = np.arange(1, len(self._sizes) + 1, dtype=np.int64)
            places = np.arange(self._length) + np.repeat(segments * count, self._sizes)
            history = (self._firsts + (segments - 1) * count)[:, None] + np.arange(count)
            self._layouts[count] = places, history
        places, history = self._layouts[count]
        extended = np.empty(self._length + count * len(self._sizes))
        extended[places] = values
        extended[history] = table[self._partitions]
        table[self._partitions] = extended[history + self._sizes[:, None]]
        return extended, places

    def back(self, series: Series, count: int) -> Series:
        """The value `count` rows earlier."""
        extended, places = self._with_history(series.values, count)
        return Series(extended[places - count], series.start + count)

    def folded(self, series: Sequence[Series], n: int, first: Callable[[Parts], Parts], *, merge: Merge) -> Parts:
        """For each row, merge what `first` returns for each of the last `n` values, always in the same order."""
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

        mean, squares = self.folded([series], n, lambda parts: (parts[0], np.zeros(len(parts[0]))), merge=merge)
        return Series(mean, series.start + n - 1), Series(squares, series.start + n - 1)

    def distances(self, series: Series, n: int, centre: Series) -> Series:
        """The sum of the absolute deviations of the last n values from the row's own `centre`."""
        extended, places = self._with_history(series.values, n - 1)
        work.spend(self._length * n)
        found = np.zeros(self._length)
        for back in range(n - 1, -1, -1):
            found += np.abs(extended[places - back] - centre.values)
        return Series(found, series.start + n - 1)

    def ago(self, series: Series, n: int, *, largest: bool) -> Series:
        """How many rows ago the extreme of the last n values was; among equal ones the latest counts."""

        def merge(one: Parts, other: Parts, _older: int, newer: int) -> Parts:
            is_later = other[0] >= one[0] if largest else other[0] <= one[0]
            return np.where(is_later, other[0], one[0]), np.where(is_later, other[1], one[1] + newer)

        _, found = self.folded([series], n, lambda parts: (parts[0], np.zeros(len(parts[0]))), merge=merge)
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
        found = np.zeros(self._length)
        state = table[self._partitions, 0]
        with np.errstate(all="ignore"):
            for segment in np.flatnonzero(self._sizes > _LONG).tolist():
                first = int(self._firsts[segment])
                rows = slice(first, first + int(self._sizes[segment]))
                known = float(state[segment])
                number = int(self.numbers[first]) - series.start
                more = None if further is None else further[rows]
                state[segment] = _through(
                    series.values[rows], found[rows], known, number, seed, finish, step, holds=holds, further=more
                )
            short = np.flatnonzero(self._sizes <= _LONG)
            firsts, sizes = self._firsts[short], self._sizes[short]
            for offset in range(int(sizes.max(initial=0))):
                live = sizes > offset
                if not live.all():
                    short, firsts, sizes = short[live], firsts[live], sizes[live]
                at = firsts + offset
                numbers = self.numbers[at] - series.start
                more = None if further is None else further[at]
                state[short] = _stepped(
                    state[short], series.values[at], numbers, seed, finish, step, holds=holds, further=more
                )
                found[at] = state[short]
        table[self._partitions, 0] = state
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
    number: Index,
    seed: int,
    finish: Callable[[Array], Array],
    step: Step,
    *,
    holds: bool,
    further: Array | None,
) -> Array:
    """One row of each of many partitions."""
    stepped = step(y, x) if further is None else step(y, x, further)
    if holds:
        is_held: Bools = np.isnan(x)
        stepped = np.where(is_held, y, stepped)
        x = np.where(is_held, 0.0, x)
    if number.min() >= seed:
        return stepped
    seeding = np.where(number == 0, x, y + x)
    seeding = np.where(number == seed - 1, finish(seeding), seeding)
    return np.where(number < 0, 0.0, np.where(number < seed, seeding, stepped))
