"""Aggregate functions: signatures, and values over segments of rows.

A segment is a run of consecutive positions. `reduced` gives one value per segment, `running` one per position (over the
segment up to it). Sums of doubles are added one after another in row order, so that running and final results, and
results of different batchings, are bit-equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep import work
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions import decimals
from candlewright_cep.functions.aggregates import moments, quantiles
from candlewright_cep.functions.signatures import Mismatch, Signature, fits, fixed
from candlewright_cep.functions.usage import NOT_NEGATIVE, SKIPPED, Usage
from candlewright_cep.limits import MADE_TEXT, MADE_TEXTS, check_made
from candlewright_cep.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    STRING,
    Kind,
    SqlType,
    from_arrow,
    is_array,
    is_struct,
    to_arrow,
)
from candlewright_cep.vector import Array, Bools, Index, Vector, codes, constant, from_list, ranges

CONTINUOUS, DISCRETE = quantiles.Quantile(is_continuous=True), quantiles.Quantile(is_continuous=False)
_SHORT = 48
#: Ends the name of a list's form with ORDER BY, into which the parser turns it.
ORDERED = " ORDERED"
#: In place of a direction of such a list: the key is a condition, and only rows for which it is true are in the list.
KEPT_IF = 4
_MAX_ARRAY_ITEMS = 20_000_000


@dataclass(kw_only=True, frozen=True, slots=True)
class AggregateFunction:
    """One aggregate. `running(arguments, firsts)`: see `running`. `reduced(arguments, firsts, sizes)`: one value per
    segment, if there is a faster way to compute it. `grows`: its state keeps every value. `takes_part`: its last
    argument is a constant from 0 to 1.
    """

    name: str
    signature: Signature
    running: Callable[[Sequence[Vector], Index, SqlType], Vector]
    reduced: Callable[[Sequence[Vector], Index, Index, SqlType], Vector] | None = None
    grows: bool = False
    takes_part: bool = False
    #: None for forms into which the parser turns other names.
    usage: Usage | None = None


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


def _count(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    return Vector(kind, _counted(arguments[0], firsts), None)


def _filled(argument: Vector, neutral: float | int) -> Array:
    whole = argument.expand()
    values: Array = whole.values
    return values if whole.valid is None else np.where(whole.valid, values, neutral)


def _sum(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
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


def _avg(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    count = _counted(arguments[0], firsts)
    if kind.kind is Kind.DECIMAL:
        argument = arguments[0].expand()
        total = accumulate(np.add, decimals.totals(argument), firsts)
        return decimals.means(kind, argument.type, total, count=count)
    total = accumulate(np.add, _filled(arguments[0], 0).astype(np.float64), firsts)
    with np.errstate(all="ignore"):
        return Vector(kind, total / np.maximum(count, 1), count > 0)


def _extreme(*, largest: bool) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
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


def _extreme_by(*, largest: bool) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    return lambda arguments, firsts, kind: arguments[0].take(_best(arguments[1], firsts, largest=largest))


def _first_value(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    present = np.broadcast_to(arguments[0].mask, (arguments[0].length,))
    length = len(present)
    key = np.where(present, length - np.arange(length, dtype=np.int64), -1)
    found = accumulate(np.maximum, key, firsts)
    return arguments[0].take(np.where(found < 0, -1, length - found))


def _last_value(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    present = np.broadcast_to(arguments[0].mask, (arguments[0].length,))
    found = accumulate(np.maximum, np.where(present, np.arange(len(present), dtype=np.int64), -1), firsts)
    return arguments[0].take(found)


def _moments(*, sample: bool, root: bool) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
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


def _of_pairs(result: Callable[[moments.State], float | None]) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        found: list[float | None] = []
        begins = set(firsts.tolist())
        state = moments.EMPTY
        for position, (y, x) in enumerate(zip(*(part.to_list() for part in arguments), strict=True)):
            state = moments.step(moments.EMPTY if position in begins else state, y, x)
            found.append(result(state))
        return from_list(kind, found)

    return run


def _vwap(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    price, size = (argument.expand() for argument in arguments)
    known = price.mask & size.mask
    with np.errstate(all="ignore"):
        value = accumulate(np.add, np.where(known, price.values * size.values, 0.0), firsts)
        total = accumulate(np.add, np.where(known, size.values, 0.0), firsts)
        return Vector(kind, value / np.where(total == 0, 1.0, total), total != 0)


def _geometric(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    with np.errstate(all="ignore"):
        logs = np.log(arguments[0].expand().values)
        mean = _avg([Vector(DOUBLE, logs, arguments[0].expand().valid)], firsts, DOUBLE)
        return Vector(kind, np.exp(mean.values), mean.valid)


def _count_if(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    return Vector(kind, accumulate(np.add, arguments[0].true().astype(np.int64), firsts), None)


def _joined(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    found: list[str | None] = []
    begins = set(firsts.tolist())
    text: str | None = None
    size = 0
    for position, (value, separator) in enumerate(zip(*(part.to_list() for part in arguments), strict=True)):
        if position in begins:
            text = None
        if value is not None:
            text = value if text is None else text + (separator or "") + value
        if text is not None and len(text) > MADE_TEXT:
            text = text[:MADE_TEXT]
        found.append(text)
        size += len(text or "")
        if size > MADE_TEXTS:
            check_made(size)
    return from_list(kind, found)


def _joined_whole(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
    """Only each segment's final text: all its intermediate texts would take quadratic memory."""
    values, separators = (part.to_list() for part in arguments)
    found: list[str | None] = []
    for first, size in zip(firsts.tolist(), sizes.tolist(), strict=True):
        text: str | None = None
        for value, separator in zip(values[first : first + size], separators[first : first + size], strict=True):
            if value is not None:
                text = value if text is None else text + (separator or "") + value
                if len(text) > MADE_TEXT:
                    text = text[:MADE_TEXT]
                    break
        found.append(text)
    check_made(sum(len(text or "") for text in found))
    return from_list(kind, found)


def _ordered_signature(own: Signature, count: int) -> Signature:
    """`own` for the first `count` arguments, then pairs of a key and its direction (see the parser, and KEPT_IF)."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if any(key.kind is Kind.OPAQUE for key in types[count::2]):
            raise Mismatch
        wanted, kind = own(types[:count])
        return [*wanted, *types[count:]], kind

    return resolve


def _ordered_whole(count: int, join: Callable[..., Vector]) -> Callable[..., Vector]:
    """`join` over each segment in the order of its keys; ties keep their order."""

    def run(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
        segments = np.repeat(np.arange(len(sizes)), sizes)
        columns, kept = [segments], np.ones(len(segments), np.bool_)
        for key, direction in zip(arguments[count::2], arguments[count + 1 :: 2], strict=True):
            how = direction.expand().values
            if len(how) and how[0] == KEPT_IF:
                kept &= key.true()
                continue
            ranks = codes(key)
            turned = np.where(how & 1, -ranks, ranks)
            columns.append(np.where(ranks >= 0, turned, np.where(how & 2, -len(ranks), len(ranks))))
        order = np.lexsort(columns[::-1])
        if not kept.all():
            order, sizes = order[kept[order]], np.bincount(segments[kept], minlength=len(sizes))
            firsts = np.cumsum(sizes) - sizes
        return join([argument.take(order) for argument in arguments[:count]], firsts, sizes, kind)

    return run


def _ordered_running(function: str) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        length = arguments[0].length
        begins = np.zeros(length, np.int64)
        begins[firsts] = firsts
        ends = np.arange(1, length + 1, dtype=np.int64)
        return of_ranges(function, arguments, np.maximum.accumulate(begins), ends=ends, kind=kind)

    return run


def of_ranges(function: str, arguments: Sequence[Vector], begins: Index, *, ends: Index, kind: SqlType) -> Vector:
    """An ordered list over the rows `begins[i]` to `ends[i]` for each i."""
    sizes = np.maximum(ends - begins, 0)
    length = int(sizes.sum())
    if length > _MAX_ARRAY_ITEMS:
        raise TriggerRejected(f"ordered lists hold more than {_MAX_ARRAY_ITEMS} values in all")
    expanded = [argument.take(ranges(begins, sizes)) for argument in arguments]
    return reduced(function, expanded, np.cumsum(sizes) - sizes, sizes=sizes, length=length, kind=kind)


def _number(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or not (types[0].is_numeric or types[0].kind in (Kind.INTERVAL, Kind.NULL)):
        raise Mismatch
    kind = types[0]
    if kind.kind is Kind.DECIMAL:
        return [kind], decimals.sum_type(kind)
    wide = BIGINT if kind.is_integer else DOUBLE if kind.kind is Kind.NULL else kind
    return [wide], wide


def _average(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or not fits(types[0], DOUBLE):
        raise Mismatch
    if types[0].kind is Kind.DECIMAL:
        return [types[0]], decimals.mean_type(types[0])
    return [types[0] if types[0].is_numeric else DOUBLE], DOUBLE


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


def _count_distinct(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    return Vector(kind, accumulate(np.add, _first_seen(arguments[0], firsts).astype(np.int64), firsts), None)


def _of_distinct(
    compute: Callable[[Sequence[Vector], Index, SqlType], Vector],
) -> Callable[[Sequence[Vector], Index, SqlType], Vector]:
    """The DISTINCT form of an aggregate: each value counts where it first occurs."""

    def run(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
        argument = arguments[0].expand()
        return compute([argument.with_nulls(~_first_seen(argument, firsts))], firsts, kind)

    return run


def _no_running_array(arguments: Sequence[Vector], firsts: Index, kind: SqlType) -> Vector:
    """Arrays are made only for the rows that show them, see `arrays`."""
    length = arguments[0].length
    starts = np.zeros(length, dtype=np.int64)
    starts[firsts] = firsts
    return arrays(arguments[0], np.maximum.accumulate(starts), np.arange(1, length + 1, dtype=np.int64), kind=kind)


def arrays(values: Vector, begins: Index, ends: Index, *, kind: SqlType) -> Vector:
    """One array per row: the values from `begins[i]` to `ends[i]`, NULL if there are none."""
    sizes = np.maximum(ends - begins, 0)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    if int(offsets[-1]) > _MAX_ARRAY_ITEMS:
        raise TriggerRejected(f"the arrays of ARRAY_AGG hold more than {_MAX_ARRAY_ITEMS} values in all")
    for text in _texts(values) if values.length else ():
        lengths = pc.fill_null(pc.binary_length(text), 0).to_numpy(zero_copy_only=False)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        check_made(int((before[np.maximum(ends, begins)] - before[begins]).sum()))
    places = np.arange(int(offsets[-1]), dtype=np.int64) - np.repeat(offsets[:-1], sizes) + np.repeat(begins, sizes)
    items = values.take(places).to_arrow()
    made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
    return Vector(kind, made.cast(kind.arrow), sizes > 0)


def _texts(values: Vector) -> list[pa.Array]:
    """The arrays of texts in a column: itself, or fields of its STRUCTs."""
    if not values.type.is_text or values.type.kind is Kind.DECIMAL:
        return []
    pending, found = [values.expand().text()], []
    while pending:
        array = pending.pop()
        if pa.types.is_struct(array.type):
            pending += array.flatten()
        elif pa.types.is_string(array.type) or pa.types.is_binary(array.type):
            found.append(array)
    return found


def _whole_arrays(arguments: Sequence[Vector], firsts: Index, sizes: Index, kind: SqlType) -> Vector:
    return arrays(arguments[0], firsts, firsts + sizes, kind=kind)


def _array_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or not _is_plain(to_arrow(types[0])):
        raise Mismatch
    return list(types), SqlType(Kind.OPAQUE, arrow=pa.list_(to_arrow(types[0])))


def _is_plain(kind: pa.DataType) -> bool:
    """Whether it is a single value, or a STRUCT of such."""
    if pa.types.is_struct(kind):
        return all(_is_plain(part.type) for part in kind)
    return from_arrow(kind).kind not in (Kind.OPAQUE, Kind.NULL)


def _whole(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or (types[0].kind is Kind.OPAQUE and not (is_struct(types[0]) or is_array(types[0]))):
        raise Mismatch
    return list(types), types[0]


def _any(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1 or types[0].kind is Kind.OPAQUE:
        raise Mismatch
    return list(types), types[0]


def _whole_by(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2:
        raise Mismatch
    return [*_whole(types[:1])[0], *_any(types[1:])[0]], types[0]


def _any_and_part(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2 or types[0].kind is Kind.OPAQUE or not fits(types[1], DOUBLE):
        raise Mismatch
    return [types[0], DOUBLE], types[0]


def _count_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 1:
        raise Mismatch
    return list(types), BIGINT


def _of_two(name: str, text: str) -> Usage:
    return Usage(f"{name}(y, x)", text, f"{name}(price, size)", "rows in which a value is NULL are left out")


def _table() -> dict[str, AggregateFunction]:
    number = fixed(DOUBLE, DOUBLE)
    truth = fixed(BOOLEAN, BOOLEAN)
    entries = [
        AggregateFunction(
            name="COUNT",
            signature=_count_signature,
            running=_count,
            usage=Usage(
                "COUNT(x)",
                "how many values are not NULL; COUNT(*) counts rows",
                "COUNT(*)",
                "NULLs are left out; 0 if nothing else is there",
                NOT_NEGATIVE,
            ),
        ),
        AggregateFunction(
            name="SUM",
            signature=_number,
            running=_sum,
            usage=Usage("SUM(x)", "sum of numbers or intervals", "SUM(size)", SKIPPED),
        ),
        AggregateFunction(
            name="AVG", signature=_average, running=_avg, usage=Usage("AVG(x)", "mean", "AVG(price)", SKIPPED)
        ),
        AggregateFunction(
            name="MIN",
            signature=_any,
            running=_extreme(largest=False),
            usage=Usage("MIN(x)", "least value", "MIN(price)", SKIPPED),
        ),
        AggregateFunction(
            name="MAX",
            signature=_any,
            running=_extreme(largest=True),
            usage=Usage("MAX(x)", "greatest value", "MAX(price)", SKIPPED),
        ),
        AggregateFunction(
            name="COUNT_IF",
            signature=fixed(BIGINT, BOOLEAN),
            running=_count_if,
            usage=Usage(
                "COUNT_IF(condition)",
                "how many rows satisfy the condition",
                "COUNT_IF(side = 'buy')",
                "NULL counts as not met; 0 without rows",
            ),
        ),
        AggregateFunction(
            name="BOOL_AND",
            signature=truth,
            running=_extreme(largest=False),
            usage=Usage(
                "BOOL_AND(condition)", "whether all rows satisfy the condition", "BOOL_AND(price > 0)", SKIPPED
            ),
        ),
        AggregateFunction(
            name="BOOL_OR",
            signature=truth,
            running=_extreme(largest=True),
            usage=Usage("BOOL_OR(condition)", "whether any row satisfies the condition", "BOOL_OR(size > 10)", SKIPPED),
        ),
        AggregateFunction(
            name="ANY_VALUE",
            signature=_whole,
            running=_first_value,
            usage=Usage("ANY_VALUE(x)", "any value: the first one", "ANY_VALUE(side)", SKIPPED),
        ),
        AggregateFunction(
            name="MAX_BY",
            signature=_whole_by,
            running=_extreme_by(largest=True),
            usage=Usage(
                "MAX_BY(x, y)",
                "x of the row with the greatest y",
                "MAX_BY(ts, price)",
                "rows whose y is NULL are left out",
            ),
        ),
        AggregateFunction(
            name="MIN_BY",
            signature=_whole_by,
            running=_extreme_by(largest=False),
            usage=Usage(
                "MIN_BY(x, y)",
                "x of the row with the least y",
                "MIN_BY(ts, price)",
                "rows whose y is NULL are left out",
            ),
        ),
        AggregateFunction(
            name="VWAP",
            signature=fixed(DOUBLE, DOUBLE, DOUBLE),
            running=_vwap,
            usage=Usage("VWAP(price, size)", "mean price by volume", "VWAP(price, size)", SKIPPED),
        ),
        AggregateFunction(
            name="GEOMETRIC_MEAN",
            signature=number,
            running=_geometric,
            usage=Usage("GEOMETRIC_MEAN(x)", "geometric mean", "GEOMETRIC_MEAN(price)", SKIPPED),
        ),
        AggregateFunction(
            name="VAR_POP",
            signature=number,
            running=_moments(sample=False, root=False),
            usage=Usage("VAR_POP(x)", "population variance", "VAR_POP(price)", SKIPPED, NOT_NEGATIVE),
        ),
        AggregateFunction(
            name="VAR_SAMP",
            signature=number,
            running=_moments(sample=True, root=False),
            usage=Usage(
                "VAR_SAMP(x)",
                "sample variance",
                "VAR_SAMP(price)",
                "NULLs are left out; NULL for fewer than two values",
                NOT_NEGATIVE,
            ),
        ),
        AggregateFunction(
            name="STDDEV_POP",
            signature=number,
            running=_moments(sample=False, root=True),
            usage=Usage("STDDEV_POP(x)", "population standard deviation", "STDDEV_POP(price)", SKIPPED, NOT_NEGATIVE),
        ),
        AggregateFunction(
            name="STDDEV_SAMP",
            signature=number,
            running=_moments(sample=True, root=True),
            usage=Usage(
                "STDDEV_SAMP(x)",
                "sample standard deviation",
                "STDDEV_SAMP(price)",
                "NULLs are left out; NULL for fewer than two values",
                NOT_NEGATIVE,
            ),
        ),
        AggregateFunction(
            name="FIRST_VALUE",
            signature=_whole,
            running=_first_value,
            usage=Usage("FIRST_VALUE(x)", "the first value", "FIRST_VALUE(price)", SKIPPED),
        ),
        AggregateFunction(
            name="LAST_VALUE",
            signature=_whole,
            running=_last_value,
            usage=Usage("LAST_VALUE(x)", "the last value", "LAST_VALUE(price)", SKIPPED),
        ),
        AggregateFunction(name="COUNT_DISTINCT", signature=_count_signature, running=_count_distinct, grows=True),
        AggregateFunction(name="SUM_DISTINCT", signature=_number, running=_of_distinct(_sum), grows=True),
        AggregateFunction(name="AVG_DISTINCT", signature=_average, running=_of_distinct(_avg), grows=True),
        AggregateFunction(
            name="MEDIAN",
            signature=number,
            running=CONTINUOUS.running,
            reduced=CONTINUOUS.reduced,
            grows=True,
            usage=Usage(
                "MEDIAN(x)", "the middle value, or the mean of the two in the middle", "MEDIAN(price)", SKIPPED
            ),
        ),
        AggregateFunction(
            name="PERCENTILE_CONT",
            signature=fixed(DOUBLE, DOUBLE, DOUBLE),
            running=CONTINUOUS.running,
            reduced=CONTINUOUS.reduced,
            grows=True,
            takes_part=True,
            usage=Usage(
                "PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY x)",
                "the value at a part p of the ordered values, interpolated",
                "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY size)",
                SKIPPED,
            ),
        ),
        AggregateFunction(
            name="PERCENTILE_DISC",
            signature=_any_and_part,
            running=DISCRETE.running,
            reduced=DISCRETE.reduced,
            grows=True,
            takes_part=True,
            usage=Usage(
                "PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY x)",
                "the first value at or past a part p of the ordered values",
                "PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY size)",
                SKIPPED,
            ),
        ),
        AggregateFunction(
            name="MODE",
            signature=_any,
            running=quantiles.running_mode,
            reduced=quantiles.most_frequent,
            grows=True,
            usage=Usage(
                "MODE(x)", "the most frequent value, the first of equally frequent ones", "MODE(side)", SKIPPED
            ),
        ),
        *(
            AggregateFunction(
                name=name, signature=fixed(DOUBLE, DOUBLE, DOUBLE), running=_of_pairs(result), usage=_of_two(name, text)
            )
            for name, (result, text) in moments.RESULTS.items()
        ),
        AggregateFunction(
            name="ARRAY_AGG",
            signature=_array_signature,
            running=_no_running_array,
            reduced=_whole_arrays,
            grows=True,
            usage=Usage(
                "ARRAY_AGG(x ORDER BY y)",
                "all values as an array; without ORDER BY in the order of the rows",
                "ARRAY_AGG(price ORDER BY price DESC)",
                "NULLs are values of the array; NULL without rows",
            ),
        ),
        AggregateFunction(
            name="STRING_AGG",
            signature=fixed(STRING, STRING, STRING),
            running=_joined,
            reduced=_joined_whole,
            grows=True,
            usage=Usage(
                "STRING_AGG(text, separator ORDER BY y)",
                "the texts with a separator between them; without ORDER BY in the order of the rows",
                "STRING_AGG(side, ',' ORDER BY side)",
                SKIPPED,
            ),
        ),
        *(
            AggregateFunction(
                name=name,
                signature=_ordered_signature(own, count),
                running=_ordered_running(name),
                reduced=_ordered_whole(count, join),
                grows=True,
            )
            for name, own, count, join in (
                (f"ARRAY_AGG{ORDERED}", _array_signature, 1, _whole_arrays),
                (f"STRING_AGG{ORDERED}", fixed(STRING, STRING, STRING), 2, _joined_whole),
            )
        ),
    ]
    return {entry.name: entry for entry in entries}


AGGREGATES = _table()
#: Aggregates that are computed value by value, or by sorting all values.
_FOLDED = frozenset(
    [
        *("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP", *moments.RESULTS),
        *(name for name, aggregate in AGGREGATES.items() if aggregate.grows and name != "ARRAY_AGG"),
    ]
)
COUNTS = ("COUNT", "COUNT_IF", "COUNT_DISTINCT")
AGGREGATE_ALIASES = {
    "STDDEV": "STDDEV_SAMP",
    "VARIANCE": "VAR_SAMP",
    "EVERY": "BOOL_AND",
    "SOME": "BOOL_OR",
    "ARBITRARY": "ANY_VALUE",
    "MEAN": "AVG",
    "LISTAGG": "STRING_AGG",
    "APPROX_PERCENTILE": "PERCENTILE_DISC",
    "APPROX_DISTINCT": "COUNT_DISTINCT",
    "APPROX_COUNT_DISTINCT": "COUNT_DISTINCT",
}


def aggregate_name(name: str) -> str | None:
    """The table's name for an aggregate, or None if `name` is not an aggregate."""
    found = AGGREGATE_ALIASES.get(name, name)
    return found if found in AGGREGATES else None


def written(name: str) -> str:
    """The name of an aggregate as texts have it."""
    return name.removesuffix(ORDERED)


def distinct_name(name: str) -> str | None:
    """The name of the aggregate's DISTINCT form; None if it has none."""
    found = {"MIN": "MIN", "MAX": "MAX"}.get(name, f"{name}_DISTINCT")
    return found if found in AGGREGATES else None


def spend(function: str, values: int) -> None:
    """Spend the steps of an aggregate over this many values; raises WorkLimit."""
    work.spend(values, work.FOLDED_A_STEP if function in _FOLDED else work.VALUES_A_STEP)


def running(function: str, arguments: Sequence[Vector], firsts: Index, *, length: int, kind: SqlType) -> Vector:
    """The aggregate of each segment up to each of its positions, `length` values in all. COUNT without arguments counts
    rows.
    """
    if not arguments:
        return Vector(kind, accumulate(np.add, np.ones(length, dtype=np.int64), firsts), None)
    return AGGREGATES[function].running(arguments, firsts, kind)


def reduced(
    function: str, arguments: Sequence[Vector], firsts: Index, *, sizes: Index, length: int, kind: SqlType
) -> Vector:
    """The aggregate of each segment `firsts[i]` to `firsts[i] + sizes[i]`; sizes may be 0.

    The segments are contiguous and cover all `length` positions.
    """
    shorter = AGGREGATES[function].reduced
    if shorter is not None:
        return shorter(arguments, firsts, sizes, kind)
    filled = sizes > 0
    over = running(function, arguments, firsts[filled], length=length, kind=kind)
    last = np.where(filled, firsts + sizes - 1, -1)
    return over.take(last) if function not in COUNTS else _zero_if_empty(over.take(last))


def _zero_if_empty(counts: Vector) -> Vector:
    return Vector(counts.type, np.where(counts.mask, counts.values, 0), None)


def empty_value(function: str, kind: SqlType, length: int) -> Vector:
    """The aggregate over no rows."""
    return constant(kind, 0 if function in COUNTS else None, length)
