"""Values of aggregates over segments of rows, one per row: counts, sums, extremes, moments."""

from collections.abc import Callable, Sequence

import numpy as np

from candlewright_cep.functions import decimals
from candlewright_cep.functions.aggregates import moments
from candlewright_cep.types import DOUBLE, Kind, SqlType
from candlewright_cep.vector import Array, Bools, Index, Vector, codes, from_list

_SHORT = 48


def accumulate(step: np.ufunc, values: Array, firsts: Index) -> Array:
    """Running `step` inside each segment; `firsts` are the first positions of the segments, ascending."""
    found = values.copy()
    if len(values) == 0:
        return found
    ends = np.append(firsts[1:], len(values))
    sizes = ends - firsts
    with np.errstate(all="ignore"):
        for segment in np.flatnonzero(sizes > _SHORT).tolist():
            found[firsts[segment] : ends[segment]] = step.accumulate(values[firsts[segment] : ends[segment]])
        short = sizes <= _SHORT
        starts, lengths = firsts[short], sizes[short]
        for offset in range(1, int(lengths.max(initial=0))):
            live = lengths > offset
            starts, lengths = starts[live], lengths[live]
            at = starts + offset
            found[at] = step(found[at - 1], values[at])
    return found


def _counted(argument: Vector, firsts: Index) -> Index:
    """The number of non-NULL values up to each position."""
    present = np.broadcast_to(argument.mask, (argument.length,)).astype(np.int64)
    return accumulate(np.add, present, firsts)


def count(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    return Vector(kind, _counted(arguments[0], firsts), None)


def _filled(argument: Vector, neutral: float | int) -> Array:
    whole = argument.expand()
    values: Array = whole.values
    return values if whole.valid is None else np.where(whole.valid, values, neutral)


def sums(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    if kind.kind is Kind.DECIMAL:
        total = accumulate(np.add, decimals.totals(arguments[0].expand()), firsts)
        return decimals.vector_of(kind, total, _counted(arguments[0], firsts) > 0)
    values = _filled(arguments[0], 0)
    total = accumulate(np.add, values, firsts)
    valid = _counted(arguments[0], firsts) > 0
    # Check every sum only if one could have overflowed 64 bits.
    if total.dtype.kind == "i" and float(np.abs(values.astype(np.float64)).sum()) >= 2.0**62:
        # Added in two halves, neither of which can overflow.
        upper = accumulate(np.add, values >> 32, firsts) + (accumulate(np.add, values & 0xFFFF_FFFF, firsts) >> 32)
        valid &= (upper >= -(2**31)) & (upper < 2**31)
    return Vector(kind, total, valid)


def average(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    count = _counted(arguments[0], firsts)
    if kind.kind is Kind.DECIMAL:
        argument = arguments[0].expand()
        total = accumulate(np.add, decimals.totals(argument), firsts)
        return decimals.means(kind, argument.type, total, count=count)
    total = accumulate(np.add, _filled(arguments[0], 0).astype(np.float64), firsts)
    with np.errstate(all="ignore"):
        return Vector(kind, total / np.maximum(count, 1), count > 0)


def extreme(*, largest: bool) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        argument = arguments[0].expand()
        if argument.type.is_text:
            return argument.take(_best(argument, firsts, largest=largest))
        values = argument.values
        neutral: float | int | bool
        step: np.ufunc = np.maximum if largest else np.minimum
        if values.dtype.kind == "f":
            # These ignore NaN unless every value is NaN.
            neutral, step = np.nan, np.fmax if largest else np.fmin
        elif values.dtype.kind == "b":
            neutral = not largest
        else:
            neutral = np.iinfo(np.int64).min if largest else np.iinfo(np.int64).max
        found = accumulate(step, _filled(argument, neutral), firsts)
        return Vector(kind, found, _counted(argument, firsts) > 0)

    return run


def _best(argument: Vector, firsts: Index, *, largest: bool) -> Index:
    """The position of the first extreme value up to each position, -1 if there is none."""
    ranks = codes(argument)
    length = len(ranks)
    positions = np.arange(length, dtype=np.int64)
    # One number that orders by rank, then by earlier position.
    size = length + 1
    span = int(ranks.max(initial=0)) + 1
    key = np.where(ranks < 0, -1, (ranks if largest else span - ranks) * size + (length - positions))
    found = accumulate(np.maximum, key, firsts)
    return np.where(found < 0, -1, length - found % size)


def extreme_by(*, largest: bool) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    return lambda arguments, firsts, kind: arguments[0].take(_best(arguments[1], firsts, largest=largest))


def first_value(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    present = np.broadcast_to(arguments[0].mask, (arguments[0].length,))
    length = len(present)
    key = np.where(present, length - np.arange(length, dtype=np.int64), -1)
    found = accumulate(np.maximum, key, firsts)
    return arguments[0].take(np.where(found < 0, -1, length - found))


def last_value(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    present = np.broadcast_to(arguments[0].mask, (arguments[0].length,))
    found = accumulate(np.maximum, np.where(present, np.arange(len(present), dtype=np.int64), -1), firsts)
    return arguments[0].take(found)


def of_moments(*, sample: bool, root: bool) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    """Variance at each position by a numerically stable recurrence (Welford's)."""

    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        found: list[float | None] = []
        begins = set(firsts.tolist())
        count, mean, spread = 0, 0.0, 0.0
        for position, value in enumerate(arguments[0].to_list()):
            if position in begins:
                count, mean, spread = 0, 0.0, 0.0
            if value is not None:
                count += 1
                apart = value - mean
                mean += apart / count
                spread += apart * (value - mean)
            size = count - 1 if sample else count
            variance = spread / size if size > 0 else None
            found.append(variance if variance is None or not root else max(variance, 0.0) ** 0.5)
        return from_list(kind, found)

    return run


def of_pairs(result: Callable[[moments.State], float | None]) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        found: list[float | None] = []
        begins = set(firsts.tolist())
        state = moments.EMPTY
        for position, (y, x) in enumerate(zip(*(part.to_list() for part in arguments), strict=True)):
            state = moments.step(moments.EMPTY if position in begins else state, y, x)
            found.append(result(state))
        return from_list(kind, found)

    return run


def vwap(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    price, size = (argument.expand() for argument in arguments)
    known = price.mask & size.mask
    with np.errstate(all="ignore"):
        value = accumulate(np.add, np.where(known, price.values * size.values, 0.0), firsts)
        total = accumulate(np.add, np.where(known, size.values, 0.0), firsts)
        return Vector(kind, value / np.where(total == 0, 1.0, total), total != 0)


def geometric(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    with np.errstate(all="ignore"):
        logs = np.log(arguments[0].expand().values)
        mean = average([Vector(DOUBLE, logs, arguments[0].expand().valid)], firsts, DOUBLE)
        return Vector(kind, np.exp(mean.values), mean.valid)


def count_if(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    return Vector(kind, accumulate(np.add, arguments[0].true().astype(np.int64), firsts), None)


def _first_seen(argument: Vector, firsts: Index) -> Bools:
    """Whether each value is the first occurrence in its segment."""
    numbers = codes(argument)
    segment = np.zeros(len(numbers), dtype=np.int64)
    segment[firsts] = 1
    order = np.lexsort((np.arange(len(numbers)), numbers, np.cumsum(segment)))
    ranked, groups = numbers[order], np.cumsum(segment)[order]
    new = np.ones(len(numbers), dtype=np.bool_)
    new[1:] = (ranked[1:] != ranked[:-1]) | (groups[1:] != groups[:-1])
    found = np.zeros(len(numbers), dtype=np.bool_)
    found[order[new & (ranked >= 0)]] = True
    return found


def count_distinct(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    return Vector(kind, accumulate(np.add, _first_seen(arguments[0], firsts).astype(np.int64), firsts), None)


def of_distinct(
    compute: Callable[[Sequence[Vector], Index, SqlType], Vector],
) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    """The DISTINCT form of an aggregate: each value counts where it first occurs."""

    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        argument = arguments[0].expand()
        return compute([argument.with_nulls(~_first_seen(argument, firsts))], firsts, kind)

    return run
