"""Aggregates that sort their values: medians, percentiles, and the most frequent value.

They work on ranks: dense integers in the order of the values. The result of a segment is one rank, or a position
between two neighbouring ones.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from candlewright_cep import work
from candlewright_cep.types import SqlType
from candlewright_cep.vector import Array, Index, Vector, codes

#: If a percentile times a count exceeds an integer by less than this, it counts as that integer.
HAIR = 1e-9
State = tuple[Any, ...]


def _places(counts: Array, parts: Array, *, is_continuous: bool) -> tuple[Index, Index, Array]:
    """For sorted values, this many per segment: the two positions around the percentile, and its fraction of the way
    between them.
    """
    if is_continuous:
        place = parts * np.maximum(counts - 1, 0)
        low = np.floor(place)
        return low.astype(np.int64), np.ceil(place).astype(np.int64), place - low
    at = np.maximum(np.ceil(parts * counts - HAIR) - 1, 0).astype(np.int64)
    return at, at, np.zeros(len(at))


def _parts(arguments: Sequence[Vector]) -> Array:
    """The percentile for each row; one half for a median."""
    found: Array = arguments[1].expand().values if len(arguments) > 1 else np.full(arguments[0].length, 0.5)
    return found


def _valued(argument: Vector, ranks: Index, kind: SqlType, low: Index, high: Index, past: Array) -> Vector:
    """The values of the ranks `low` (-1: none), or the fraction `past` of the way from them to the values of `high`."""
    rows = np.full(int(ranks.max(initial=-1)) + 2, -1, np.int64)
    rows[ranks[::-1]] = np.arange(len(ranks))[::-1]
    rows[-1] = -1
    found = argument.take(rows[low])
    if argument.type.is_text or not len(rows) - 1:
        return Vector(kind, found.values, found.valid)
    upper = argument.take(rows[high]).values
    with np.errstate(all="ignore"):
        between = found.values + (upper - found.values) * past
    return Vector(kind, np.where((low == high) | (past == 0), found.values, between), found.valid)


class Quantile:
    """PERCENTILE_CONT (interpolates between two values) or PERCENTILE_DISC (the first value that reaches the
    percentile).
    """

    def __init__(self, *, is_continuous: bool) -> None:
        self._is_continuous = is_continuous

    def reduced(self, arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
        """One value per segment."""
        argument, ranks = arguments[0].expand(), codes(arguments[0])
        segment = np.repeat(np.arange(len(sizes)), sizes)
        present = np.flatnonzero(ranks >= 0)
        ordered = ranks[present[np.lexsort((ranks[present], segment[present]))]]
        counts = np.bincount(segment[present], minlength=len(sizes))
        begins = np.cumsum(counts) - counts
        parts = _parts(arguments)
        own = parts[np.minimum(firsts, len(parts) - 1)] if len(parts) else np.zeros(len(sizes))
        low, high, past = _places(counts, own, is_continuous=self._is_continuous)
        padded = np.append(ordered, -1)
        empty = counts == 0
        first = np.where(empty, -1, padded[np.where(empty, -1, begins + low)])
        second = np.where(empty, -1, padded[np.where(empty, -1, begins + high)])
        return _valued(argument, ranks, kind, first, second, past)

    def running(self, arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        """For each row, over its segment up to that row."""
        length = arguments[0].length
        low = np.zeros(length, np.int64)
        low[firsts] = firsts
        return self.framed(arguments, np.maximum.accumulate(low), np.arange(1, length + 1), kind)

    def framed(self, arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
        """For frames whose bounds ascend: each row enters once and leaves once."""
        argument, ranks = arguments[0].expand(), codes(arguments[0])
        work.spend(4 * len(ranks), work.FOLDED_A_STEP)
        of_row, parts = ranks.tolist(), _parts(arguments)
        held: list[int] = []
        begin = end = 0
        counts = np.zeros(len(low), np.int64)
        lists = np.full((len(low), 2), -1, np.int64)
        own = parts[np.minimum(low, len(parts) - 1)] if len(parts) else np.zeros(len(low))
        for place, (first, last) in enumerate(zip(low.tolist(), high.tolist(), strict=True)):
            if first >= end:
                held, begin, end = [], first, first
            for rank in of_row[end:last]:
                if rank >= 0:
                    insort(held, rank)
            for rank in of_row[begin:first]:
                if rank >= 0:
                    del held[bisect_left(held, rank)]
            begin, end = first, max(end, last)
            if held:
                one, two, _ = self._place(len(held), own[place])
                counts[place], lists[place] = len(held), (held[one], held[two])
        _, _, past = _places(counts, own, is_continuous=self._is_continuous)
        return _valued(argument, ranks, kind, lists[:, 0], lists[:, 1], past)

    def _place(self, count: int, part: float) -> tuple[int, int, float]:
        low, high, past = _places(np.array([count]), np.array([part]), is_continuous=self._is_continuous)
        return int(low[0]), int(high[0]), float(past[0])

    # -- one row at a time, for conditions ------------------------------------------------------------------------

    def step(self, state: State, value: Any, part: float = 0.5) -> State:
        """The state holds the sorted values and the percentile."""
        if value is None:
            return state
        values = state[0]
        work.spend(len(values))
        place = bisect_left(values, _order(value), key=_order)
        return (*values[:place], value, *values[place:]), part

    def result(self, state: State) -> Any:
        values, part = state
        if not values:
            return None
        low, high, past = self._place(len(values), part)
        return values[low] if low == high else values[low] + (values[high] - values[low]) * past


def most_frequent(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
    """Among equally frequent values, the one that occurred first."""
    argument, ranks = arguments[0].expand(), codes(arguments[0])
    segment = np.repeat(np.arange(len(sizes)), sizes)
    present = np.flatnonzero(ranks >= 0)
    order = present[np.lexsort((present, ranks[present], segment[present]))]
    new = np.ones(len(order), np.bool_)
    new[1:] = (ranks[order][1:] != ranks[order][:-1]) | (segment[order][1:] != segment[order][:-1])
    begins = np.flatnonzero(new)
    counts = np.diff(np.append(begins, len(order)))
    rows = order[begins]
    best = np.lexsort((rows, -counts, segment[rows]))
    found = np.full(len(sizes), -1, np.int64)
    found[segment[rows[best]][::-1]] = rows[best][::-1]
    return Vector(kind, argument.take(found).values, argument.take(found).valid)


def running_mode(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    """The most frequent value of each segment up to each row."""
    argument, of_row = arguments[0].expand(), codes(arguments[0]).tolist()
    found = np.full(len(of_row), -1, np.int64)
    for first, end in pairwise([*firsts.tolist(), len(of_row)]):
        counts: dict[int, int] = {}
        came: dict[int, int] = {}
        best = -1
        for row in range(first, end):
            rank = of_row[row]
            if rank >= 0:
                counts[rank] = counts.get(rank, 0) + 1
                came.setdefault(rank, row)
                if best < 0 or (counts[rank], -came[rank]) > (counts[best], -came[best]):
                    best = rank
            found[row] = came.get(best, -1)
    taken = argument.take(found)
    return Vector(kind, taken.values, taken.valid)


def _order(value: Any) -> tuple[bool, Any]:
    """NaN sorts after all other values."""
    return value != value, value


def count_value(state: State, value: Any) -> State:
    """For conditions: the state holds the values in their original order."""
    if value is None:
        return state
    work.spend(len(state[0]))
    return ((*state[0], value),)


def most_counted(state: State) -> Any:
    values = state[0]
    return max(dict.fromkeys(values), key=values.count) if values else None
