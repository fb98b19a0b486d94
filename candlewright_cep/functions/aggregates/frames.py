"""Aggregates over frames: many overlapping ranges of rows, in a time that does not grow with their length.

Counts and sums are differences of running totals (exact ones for doubles, see `exact`); extremes are combined from
ranges of 2 ** k rows. Frames are computed in chunks, so that memory stays bounded.
"""

from collections.abc import Callable, Sequence

import numpy as np

from candlewright_cep import work
from candlewright_cep.functions import decimals
from candlewright_cep.functions.aggregates.aggregates import CONTINUOUS, DISCRETE, empty_value
from candlewright_cep.functions.aggregates.exact import Moments, RangeSums
from candlewright_cep.types import Kind, SqlType
from candlewright_cep.vector import Array, Bools, Index, Vector, codes, concatenate, is_ascending

#: At least this many frames are computed together, so few that what they read stays in the processor's cache; more if
#: the frames are longer.
_STRETCH = 1 << 13

Kernel = Callable[[Sequence[Vector], Index, Index, SqlType], Vector]


def framed(function: str, arguments: Sequence[Vector], low: Index, *, high: Index, kind: SqlType) -> Vector | None:
    """The aggregate over the rows `low[i]` to `high[i]` (exclusive) for each i; None if this module cannot compute it.
    COUNT without arguments counts rows.
    """
    if function == "COUNT" and not arguments:
        return Vector(kind, high - low, None)
    kernel = _KERNELS.get(function)
    if function in _MOVING and is_ascending(low) and is_ascending(high):
        kernel = _MOVING[function]
    if kernel is None:
        return None
    if not len(low):
        return empty_value(function, kind, 0)
    work.spend(len(low))
    whole = [argument.expand() for argument in arguments]
    step = max(_STRETCH, 2 * int((high - low).max()))
    parts = [
        _stretch(kernel, whole, low[at : at + step], high[at : at + step], kind) for at in range(0, len(low), step)
    ]
    return parts[0] if len(parts) == 1 else concatenate(parts)


def has_frames(function: str) -> bool:
    """Whether `framed` can compute an aggregate, whatever the order of the frames."""
    return function in _KERNELS


def _stretch(kernel: Kernel, arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    filled = high > low
    begin = int(low.min(where=filled, initial=arguments[0].length))
    end = max(begin, int(high.max(where=filled, initial=0)))
    if not filled.all():
        # Empty frames may have any position; clip them to the chunk.
        low, high = (np.clip(side, begin, end) for side in (low, high))
    return kernel([argument.slice(begin, end - begin) for argument in arguments], low - begin, high - begin, kind)


# -- counts and sums ------------------------------------------------------------------------------------------------


def _counts(present: Bools | None, low: Index, high: Index) -> Index:
    return high - low if present is None else RangeSums(low, high).of(present)


def _count(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    return Vector(kind, _counts(arguments[0].valid, low, high), None)


def _count_if(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    return Vector(kind, RangeSums(low, high).of(arguments[0].true()), None)


def _count_distinct(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    """For frames whose bounds ascend: each row enters once and leaves once."""
    work.spend(2 * arguments[0].length, work.FOLDED_A_STEP)
    ranks = codes(arguments[0])
    held = [0] * (int(ranks.max(initial=-1)) + 1)
    of_row = ranks.tolist()
    found: list[int] = []
    begin, end, different = 0, 0, 0
    for first, last in zip(low.tolist(), high.tolist(), strict=True):
        for rank in of_row[end:last]:
            if rank >= 0:
                different += not held[rank]
                held[rank] += 1
        for rank in of_row[begin:first]:
            if rank >= 0:
                held[rank] -= 1
                different -= not held[rank]
        begin, end = first, last
        found.append(different)
    return Vector(kind, np.array(found, np.int64), None)


def _filled(argument: Vector) -> Array:
    values: Array = argument.values
    return values if argument.valid is None else np.where(argument.valid, values, 0)


def _sum(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    valid = _counts(arguments[0].valid, low, high) > 0
    if kind.kind is Kind.DECIMAL:
        return decimals.vector_of(kind, _exact_sums(arguments[0], low, high), valid)
    values, sums = _filled(arguments[0]), RangeSums(low, high)
    if values.dtype.kind == "f":
        return Vector(kind, sums.rounded(values), valid)
    # Check every sum only if one could have overflowed 64 bits: in two halves, neither of which can.
    if float(np.abs(values.astype(np.float64)).sum()) >= 2.0**62:
        upper = sums.of(values >> 32) + (sums.of(values & 0xFFFF_FFFF) >> 32)
        valid &= (upper >= -(2**31)) & (upper < 2**31)
    return Vector(kind, sums.of(values), valid)


def _exact_sums(argument: Vector, low: Index, high: Index) -> Array:
    before = decimals.accumulated(decimals.totals(argument))
    found: Array = before[high] - before[low]
    return found


def _avg(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    count = _counts(arguments[0].valid, low, high)
    if kind.kind is Kind.DECIMAL:
        total = _exact_sums(arguments[0], low, high)
        return decimals.means(kind, arguments[0].type, total, count=count)
    total = RangeSums(low, high).rounded(_filled(arguments[0]).astype(np.float64))
    return Vector(kind, total / np.maximum(count, 1), count > 0)


def _vwap(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    price, size = arguments
    known, sums = price.mask & size.mask, RangeSums(low, high)
    with np.errstate(all="ignore"):
        value = sums.rounded(np.where(known, price.values * size.values, 0.0))
        total = sums.rounded(np.where(known, size.values, 0.0))
        return Vector(kind, value / np.where(total == 0, 1.0, total), total != 0)


def _geometric(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
    with np.errstate(all="ignore"):
        logs = Vector(kind, np.log(arguments[0].values), arguments[0].valid)
        mean = _avg([logs], low, high, kind)
        return Vector(kind, np.exp(mean.values), mean.valid)


# -- deviations -----------------------------------------------------------------------------------------------------


def _variance(*, sample: bool, root: bool) -> Kernel:
    def run(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
        found = Moments(RangeSums(low, high), [arguments[0].values], arguments[0].mask)
        size = found.count - 1 if sample else found.count
        with np.errstate(all="ignore"):
            variance = found.product(0, 0) / found.count / np.maximum(size, 1)
            return Vector(kind, np.sqrt(variance) if root else variance, size > 0)

    return run


def _of_pairs(result: Callable[[Moments], tuple[Array, Bools]]) -> Kernel:
    def run(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
        present = arguments[0].mask & arguments[1].mask
        found = Moments(RangeSums(low, high), [argument.values for argument in arguments], present)
        with np.errstate(all="ignore"):
            values, valid = result(found)
        return Vector(kind, values, valid)

    return run


def _covariance(less: int) -> Callable[[Moments], tuple[Array, Bools]]:
    def result(found: Moments) -> tuple[Array, Bools]:
        return found.product(0, 1) / found.count / np.maximum(found.count - less, 1), found.count > less

    return result


def _correlation(found: Moments) -> tuple[Array, Bools]:
    spread = np.sqrt(found.product(0, 0)) * np.sqrt(found.product(1, 1))
    return found.product(0, 1) / spread, spread > 0


def _slope(found: Moments) -> tuple[Array, Bools]:
    spread = found.product(1, 1)
    return found.product(0, 1) / spread, spread > 0


def _intercept(found: Moments) -> tuple[Array, Bools]:
    slope, valid = _slope(found)
    return found.mean(0) - slope * found.mean(1), valid


# -- extremes -------------------------------------------------------------------------------------------------------


def reduced_over(step: np.ufunc, values: Array, low: Index, *, high: Index) -> Array:
    """`step` over each range, for a step that may count a value twice (such as a maximum). Results for empty ranges are
    meaningless.
    """
    sizes = np.maximum(high - low, 1)
    levels = np.frexp(sizes.astype(np.float64))[1] - 1
    found: Array = np.zeros(len(low), values.dtype)
    # For each row, `step` over it and the following rows, 2 ** level in all.
    reach = values
    with np.errstate(all="ignore"):
        for level in range(int(levels.max(initial=0)) + 1):
            if level:
                half = 1 << (level - 1)
                reach = step(reach[:-half], reach[half:])
            if not len(reach):
                break
            here = np.flatnonzero(levels == level)
            if len(here):
                begins = np.minimum(low[here], len(reach) - 1)
                lasts = np.clip(high[here] - (1 << level), 0, len(reach) - 1)
                found[here] = step(reach[begins], reach[lasts])
    return found


def _extreme(*, largest: bool) -> Kernel:
    def run(arguments: Sequence[Vector], low: Index, high: Index, kind: SqlType) -> Vector:
        argument = arguments[0]
        if argument.type.is_text:
            return argument.take(_best(argument, low, high, largest=largest))
        values, valid = argument.values, argument.valid
        step: np.ufunc = np.maximum if largest else np.minimum
        neutral: float | int | bool = not largest
        if values.dtype.kind == "f":
            # These ignore NaN unless every value is NaN.
            neutral, step = np.nan, np.fmax if largest else np.fmin
        elif values.dtype.kind == "i":
            neutral = np.iinfo(np.int64).min if largest else np.iinfo(np.int64).max
        if valid is not None:
            values = np.where(valid, values, neutral)
        return Vector(kind, reduced_over(step, values, low, high=high), _counts(valid, low, high) > 0)

    return run


def _best(argument: Vector, low: Index, high: Index, *, largest: bool) -> Index:
    """The position of the first extreme value of each range, -1 if there is none."""
    ranks = codes(argument)
    length = len(ranks)
    # One number that orders by rank, then by earlier position.
    size, span = length + 1, int(ranks.max(initial=0)) + 1
    key = np.where(ranks < 0, -1, (ranks if largest else span - ranks) * size + length - np.arange(length))
    best = np.where(high > low, reduced_over(np.maximum, key, low, high=high), -1)
    return np.where(best < 0, -1, length - best % size)


def _extreme_by(*, largest: bool) -> Kernel:
    return lambda arguments, low, high, _kind: arguments[0].take(_best(arguments[1], low, high, largest=largest))


def _any_value(arguments: Sequence[Vector], low: Index, high: Index, _kind: SqlType) -> Vector:
    argument = arguments[0]
    rows = np.arange(argument.length + 1)
    if argument.valid is not None:
        rows = np.where(np.append(argument.valid, True), rows, argument.length)
        rows = np.minimum.accumulate(rows[::-1])[::-1]
    first = rows.take(low)
    return argument.take(np.where(first < high, first, -1))


#: For frames whose bounds ascend.
_MOVING: dict[str, Kernel] = {
    "COUNT_DISTINCT": _count_distinct,
    "MEDIAN": CONTINUOUS.framed,
    "PERCENTILE_CONT": CONTINUOUS.framed,
    **dict.fromkeys(["PERCENTILE_DISC", "APPROX_PERCENTILE"], DISCRETE.framed),
}
_KERNELS: dict[str, Kernel] = {
    "COUNT": _count,
    "COUNT_IF": _count_if,
    "SUM": _sum,
    "AVG": _avg,
    "VWAP": _vwap,
    "GEOMETRIC_MEAN": _geometric,
    "MIN": _extreme(largest=False),
    "MAX": _extreme(largest=True),
    "BOOL_AND": _extreme(largest=False),
    "BOOL_OR": _extreme(largest=True),
    "MIN_BY": _extreme_by(largest=False),
    "MAX_BY": _extreme_by(largest=True),
    "ANY_VALUE": _any_value,
    "VAR_POP": _variance(sample=False, root=False),
    "VAR_SAMP": _variance(sample=True, root=False),
    "STDDEV_POP": _variance(sample=False, root=True),
    "STDDEV_SAMP": _variance(sample=True, root=True),
    "COVAR_POP": _of_pairs(_covariance(0)),
    "COVAR_SAMP": _of_pairs(_covariance(1)),
    "CORR": _of_pairs(_correlation),
    "REGR_SLOPE": _of_pairs(_slope),
    "REGR_INTERCEPT": _of_pairs(_intercept),
}
