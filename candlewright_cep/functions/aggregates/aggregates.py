"""Aggregate functions: signatures, and values over segments of rows.

A segment is a run of consecutive positions. `reduced` gives one value per segment, `running` one per position (over the
segment up to it). Sums of doubles are added one after another in row order, so that running and final results, and
results of different batchings, are bit-equal.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep import work
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.functions import decimals
from candlewright_cep.functions.aggregates import kernels, lists, moments, quantiles
from candlewright_cep.functions.signatures import Mismatch, Signature, fits, fixed
from candlewright_cep.functions.usage import NOT_NEGATIVE, SKIPPED, Usage
from candlewright_cep.types import BIGINT, BOOLEAN, DOUBLE, STRING, Kind, SqlType, is_array, is_struct
from candlewright_cep.vector import Index, Vector, constant, ranges

CONTINUOUS, DISCRETE = quantiles.Quantile(is_continuous=True), quantiles.Quantile(is_continuous=False)
#: Ends the name of a list's form with ORDER BY, into which the parser turns it.
ORDERED = " ORDERED"


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
    if length > lists.MAX_ARRAY_ITEMS:
        raise TriggerRejected(f"ordered lists hold more than {lists.MAX_ARRAY_ITEMS} values in all")
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


def _discrete(name: str, form: str, text: str, *, example: str) -> AggregateFunction:
    """A percentile that is one of the values."""
    return AggregateFunction(
        name=name,
        signature=_any_and_part,
        running=DISCRETE.running,
        reduced=DISCRETE.reduced,
        grows=True,
        takes_part=True,
        usage=Usage(form, text, example, SKIPPED),
    )


def _table() -> dict[str, AggregateFunction]:
    number = fixed(DOUBLE, DOUBLE)
    truth = fixed(BOOLEAN, BOOLEAN)
    entries = [
        AggregateFunction(
            name="COUNT",
            signature=_count_signature,
            running=kernels.count,
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
            running=kernels.sums,
            usage=Usage("SUM(x)", "sum of numbers or intervals", "SUM(size)", SKIPPED),
        ),
        AggregateFunction(
            name="AVG",
            signature=_average,
            running=kernels.average,
            usage=Usage("AVG(x)", "mean", "AVG(price)", SKIPPED),
        ),
        AggregateFunction(
            name="MIN",
            signature=_any,
            running=kernels.extreme(largest=False),
            usage=Usage("MIN(x)", "least value", "MIN(price)", SKIPPED),
        ),
        AggregateFunction(
            name="MAX",
            signature=_any,
            running=kernels.extreme(largest=True),
            usage=Usage("MAX(x)", "greatest value", "MAX(price)", SKIPPED),
        ),
        AggregateFunction(
            name="COUNT_IF",
            signature=fixed(BIGINT, BOOLEAN),
            running=kernels.count_if,
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
            running=kernels.extreme(largest=False),
            usage=Usage(
                "BOOL_AND(condition)", "whether all rows satisfy the condition", "BOOL_AND(price > 0)", SKIPPED
            ),
        ),
        AggregateFunction(
            name="BOOL_OR",
            signature=truth,
            running=kernels.extreme(largest=True),
            usage=Usage("BOOL_OR(condition)", "whether any row satisfies the condition", "BOOL_OR(size > 10)", SKIPPED),
        ),
        AggregateFunction(
            name="ANY_VALUE",
            signature=_whole,
            running=kernels.first_value,
            usage=Usage("ANY_VALUE(x)", "any value: the first one", "ANY_VALUE(side)", SKIPPED),
        ),
        AggregateFunction(
            name="MAX_BY",
            signature=_whole_by,
            running=kernels.extreme_by(largest=True),
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
            running=kernels.extreme_by(largest=False),
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
            running=kernels.vwap,
            usage=Usage("VWAP(price, size)", "mean price weighted by volume", "VWAP(price, size)", SKIPPED),
        ),
        AggregateFunction(
            name="GEOMETRIC_MEAN",
            signature=number,
            running=kernels.geometric,
            usage=Usage("GEOMETRIC_MEAN(x)", "geometric mean", "GEOMETRIC_MEAN(price)", SKIPPED),
        ),
        AggregateFunction(
            name="VAR_POP",
            signature=number,
            running=kernels.of_moments(sample=False, root=False),
            usage=Usage("VAR_POP(x)", "population variance", "VAR_POP(price)", SKIPPED, NOT_NEGATIVE),
        ),
        AggregateFunction(
            name="VAR_SAMP",
            signature=number,
            running=kernels.of_moments(sample=True, root=False),
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
            running=kernels.of_moments(sample=False, root=True),
            usage=Usage("STDDEV_POP(x)", "population standard deviation", "STDDEV_POP(price)", SKIPPED, NOT_NEGATIVE),
        ),
        AggregateFunction(
            name="STDDEV_SAMP",
            signature=number,
            running=kernels.of_moments(sample=True, root=True),
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
            running=kernels.first_value,
            usage=Usage("FIRST_VALUE(x)", "the first value", "FIRST_VALUE(price)", SKIPPED),
        ),
        AggregateFunction(
            name="LAST_VALUE",
            signature=_whole,
            running=kernels.last_value,
            usage=Usage("LAST_VALUE(x)", "the last value", "LAST_VALUE(price)", SKIPPED),
        ),
        AggregateFunction(
            name="COUNT_DISTINCT", signature=_count_signature, running=kernels.count_distinct, grows=True
        ),
        AggregateFunction(
            name="SUM_DISTINCT", signature=_number, running=kernels.of_distinct(kernels.sums), grows=True
        ),
        AggregateFunction(
            name="AVG_DISTINCT", signature=_average, running=kernels.of_distinct(kernels.average), grows=True
        ),
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
                "the value at the fraction p of the ordered values, interpolated",
                "PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY size)",
                SKIPPED,
            ),
        ),
        _discrete(
            "PERCENTILE_DISC",
            "PERCENTILE_DISC(p) WITHIN GROUP (ORDER BY x)",
            "the first value at or past the fraction p of the ordered values",
            example="PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY size)",
        ),
        _discrete(
            "APPROX_PERCENTILE",
            "APPROX_PERCENTILE(x, p)",
            "the first value at or past the fraction p; approximate over the whole past of a stream",
            example="APPROX_PERCENTILE(price, 0.9)",
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
                name=name,
                signature=fixed(DOUBLE, DOUBLE, DOUBLE),
                running=kernels.of_pairs(result),
                usage=_of_two(name, text),
            )
            for name, (result, text) in moments.RESULTS.items()
        ),
        AggregateFunction(
            name="ARRAY_AGG",
            signature=lists.array_signature,
            running=lists.no_running_array,
            reduced=lists.whole_arrays,
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
            running=lists.joined,
            reduced=lists.joined_whole,
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
                signature=lists.ordered_signature(own, count),
                running=_ordered_running(name),
                reduced=lists.ordered_whole(count, join),
                grows=True,
            )
            for name, own, count, join in (
                (f"ARRAY_AGG{ORDERED}", lists.array_signature, 1, lists.whole_arrays),
                (f"STRING_AGG{ORDERED}", fixed(STRING, STRING, STRING), 2, lists.joined_whole),
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
        return Vector(kind, kernels.accumulate(np.add, np.ones(length, dtype=np.int64), firsts), None)
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
