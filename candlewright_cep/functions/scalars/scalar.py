"""Scalar functions and operators: names, signatures and vectorised kernels. This table is the allow-list.

All follow SQL's NULL rules. A result that its type cannot represent (an integer divided by zero, an integer past 64
bits, text that is not a number) is NULL: data must never stop a trigger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.functions import decimals
from candlewright_cep.functions.scalars import arrays as functions_arrays
from candlewright_cep.functions.scalars import calendars, fields, zones
from candlewright_cep.functions.scalars import text as functions_text
from candlewright_cep.functions.scalars import time as functions_time
from candlewright_cep.functions.signatures import (
    Mismatch,
    Signature,
    fixed,
    number_like,
    numeric,
    one_type,
    result_of,
    whole_result_of,
)
from candlewright_cep.functions.usage import NOT_NEGATIVE, Extent, Usage
from candlewright_cep.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INTERVAL,
    NULL,
    Kind,
    SqlType,
    from_arrow,
    is_array,
    is_struct,
)
from candlewright_cep.vector import Array, Bools, Vector, choose, constant, from_column

Implementation = Callable[[Sequence[Vector], SqlType, str], Vector]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    name: str
    signature: Signature
    vector: Implementation
    #: None for operators.
    usage: Usage | None = None


def _valid(arguments: Sequence[Vector]) -> Bools | None:
    valid: Bools | None = None
    for argument in arguments:
        if argument.valid is not None:
            valid = argument.valid if valid is None else valid & argument.valid
    return valid


def finish(arguments: Sequence[Vector], kind: SqlType, values: Array, *, valid: Bools | None) -> Vector:
    """A vector of the arguments' common length; it stays constant if all of them are."""
    length = arguments[0].length
    if all(argument.constant for argument in arguments):
        return Vector(kind, values, valid, length=length, constant=True)
    if len(values) != length:
        values = np.repeat(values, length)
    if valid is not None and len(valid) != length:
        valid = np.repeat(valid, length)
    return Vector(kind, values, valid, length=length)


def _strict(compute: Callable[..., Array]) -> Implementation:
    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        with np.errstate(all="ignore"):
            values = compute(*(argument.values for argument in arguments))
        return finish(arguments, kind, values, valid=_valid(arguments))

    return run


_SAFE = 2**62
_LEAST = np.iinfo(np.int64).min
#: All doubles from here on are integers.
_WHOLE = 2.0**52


def _may_overflow(left: Array, right: Array) -> bool:
    return any(len(side) and (int(side.max()) >= _SAFE or int(side.min()) <= -_SAFE) for side in (left, right))


def _sum(sign: int) -> Implementation:
    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        left, right = arguments[0].values, arguments[1].values
        valid = _valid(arguments)
        with np.errstate(all="ignore"):
            values = left + right if sign > 0 else left - right
            if kind.kind is not Kind.DOUBLE and _may_overflow(left, right):
                other = right if sign > 0 else ~right
                wrapped = ((left ^ values) & (other ^ values)) < 0
                valid = ~wrapped if valid is None else valid & ~wrapped
        return finish(arguments, kind, values, valid=valid)

    return run


def _multiply(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments[0].values, arguments[1].values
    valid = _valid(arguments)
    with np.errstate(all="ignore"):
        if kind.kind is Kind.INTERVAL and (left.dtype.kind == "f" or right.dtype.kind == "f"):
            product = np.rint(left * right)
            fits = np.abs(product) < 2.0**63
            values = np.where(fits, product, 0).astype(np.int64)
            valid = fits if valid is None else valid & fits
            return finish(arguments, kind, values, valid=valid)
        values = left * right
        if kind.kind is not Kind.DOUBLE:
            fits = _products_fit(left, right)
            if not fits.all():
                valid = fits if valid is None else valid & fits
    return finish(arguments, kind, values, valid=valid)


def _products_fit(left: Array, right: Array) -> Bools:
    """Where products of integers fit in 64 bits; near the bound, doubles are too coarse to tell."""
    estimate = np.abs(left.astype(np.float64) * right.astype(np.float64))
    fits: Bools = estimate < _SAFE
    near = np.flatnonzero(~fits & (estimate <= 2.0**63))
    if len(near):
        one, other = (np.broadcast_to(side, estimate.shape)[near].tolist() for side in (left, right))
        fits[near] = [-(2**63) <= a * b < 2**63 for a, b in zip(one, other, strict=True)]
    return fits


def _divide(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments[0].values, arguments[1].values
    if kind.kind is Kind.DOUBLE:
        return _strict(np.divide)(arguments, kind, "")
    bad = right == 0
    divisor = np.where(bad, 1, right)
    with np.errstate(all="ignore"):
        if divisor.dtype.kind == "f":
            quotient = np.trunc(left / divisor)
            bad = bad | ~(np.abs(quotient) < 2.0**63)
            values = np.where(bad, 0, quotient).astype(np.int64)
        else:
            # The least integer has no negation.
            bad = bad | ((left == _LEAST) & (right == -1))
            # SQL truncates towards zero; numpy floors.
            values = left // divisor
            values = values + ((left % divisor != 0) & ((left < 0) != (divisor < 0)))
    valid = _valid(arguments)
    if bad.any():
        valid = ~bad if valid is None else valid & ~bad
    return finish(arguments, kind, values, valid=valid)


def _modulo(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments[0].values, arguments[1].values
    if kind.kind is Kind.DOUBLE:
        return _strict(np.fmod)(arguments, kind, "")
    zero = right == 0
    values = np.fmod(left, np.where(zero, 1, right))
    valid = _valid(arguments)
    if zero.any():
        valid = ~zero if valid is None else valid & ~zero
    return finish(arguments, kind, values, valid=valid)


def _exact(function: str, otherwise: Implementation) -> Implementation:
    """The function as `decimals` computes it, if the result is a DECIMAL."""

    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        if kind.kind is Kind.DECIMAL:
            return decimals.computed(function, arguments, kind)
        return otherwise(arguments, kind, extra)

    return run


def _compared(count: int | None, at_least: int = 1) -> Signature:
    """Arguments converted to one type; DECIMALs may keep their own digits."""
    alike = one_type(count, BOOLEAN, at_least)

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        wanted, kind = alike(types)
        return decimals.compared(types) or wanted, kind

    return resolve


def _equality(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    return functions_arrays.both_structs(types) or functions_arrays.both_arrays(types) or _compared(2)(types)


def _order(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    return functions_arrays.both_structs(types) or _compared(2)(types)


def _comparison(numbers: Callable[..., Array], texts: str) -> Implementation:
    kernel = getattr(pc, texts)

    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        left, right = arguments
        if is_struct(left.type):
            found = np.asarray(numbers(*functions_arrays.compared_structs(left, right)), np.bool_)
            return Vector(
                kind, found, np.broadcast_to(left.mask, found.shape) & np.broadcast_to(right.mask, found.shape)
            )
        if left.type.kind is Kind.OPAQUE:
            same = functions_arrays.are_equal(left, right)
            valid = np.broadcast_to(left.mask, same.shape) & np.broadcast_to(right.mask, same.shape)
            return Vector(kind, same if texts == "equal" else ~same, valid)
        if left.type.kind is Kind.DECIMAL:
            found = np.asarray(numbers(*decimals.comparable(left, right)), np.bool_)
            return finish(arguments, kind, found, valid=_valid(arguments))
        if not left.type.is_text:
            return _strict(numbers)(arguments, kind, "")
        return text_result(arguments, kernel(left.text(), right.text()), kind)

    return run


_LESS, _GREATER = _comparison(np.less, "less"), _comparison(np.greater, "greater")


def text_result(arguments: Sequence[Vector], found: pa.Array | pa.Scalar, kind: SqlType) -> Vector:
    """The outcome of an Arrow kernel as a vector of type `kind`."""
    if isinstance(found, pa.Scalar):
        return constant(kind, found.as_py(), arguments[0].length)
    made = from_column(found)
    return Vector(kind, made.values, made.valid)


def _distinct(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments
    if left.type.is_text:
        same = _comparison(np.equal, "equal")(arguments, BOOLEAN, "").expand().true()
    else:
        equal = np.asarray(left.values == right.values)
        if left.values.dtype.kind == "f":
            equal = equal | (np.isnan(left.values) & np.isnan(right.values))
        same = np.broadcast_to(equal, (left.length,))
    one, other = np.broadcast_to(left.mask, (left.length,)), np.broadcast_to(right.mask, (left.length,))
    return Vector(kind, ~((same & one & other) | (~one & ~other)), None)


def _and(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return _logic(arguments, kind, stops_at=False)


def _or(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return _logic(arguments, kind, stops_at=True)


def _logic(arguments: Sequence[Vector], kind: SqlType, *, stops_at: bool) -> Vector:
    join = np.logical_or if stops_at else np.logical_and
    values = arguments[0].values
    for argument in arguments[1:]:
        values = join(values, argument.values)
    if all(argument.valid is None for argument in arguments):
        return finish(arguments, kind, values, valid=None)
    # Known if every part is known, or if one known part decides the result.
    known: Bools = np.ones(1, dtype=np.bool_)
    decided: Bools = np.zeros(1, dtype=np.bool_)
    for argument in arguments:
        known = known & argument.mask
        decided = decided | (argument.mask & (argument.values == stops_at))
    return finish(arguments, kind, np.where(decided, stops_at, not stops_at), valid=known | decided)


def _is_null(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return finish(arguments, kind, ~arguments[0].mask, valid=None)


def _is_true(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return Vector(kind, np.array(arguments[0].true()), None)


def _in(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    equal = _comparison(np.equal, "equal")
    parts = [equal([arguments[0], option], BOOLEAN, extra) for option in arguments[1:]]
    return _logic(parts, kind, stops_at=True)


def _between(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    value, low, high = arguments
    at_least = _comparison(np.greater_equal, "greater_equal")([value, low], BOOLEAN, extra)
    at_most = _comparison(np.less_equal, "less_equal")([value, high], BOOLEAN, extra)
    return _logic([at_least, at_most], kind, stops_at=False)


def _case(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    found = arguments[-1]
    for index in range(len(arguments) - 3, -1, -2):
        found = choose(arguments[index].true(), arguments[index + 1], found)
    return Vector(kind, found.values, found.valid, length=found.length, constant=found.constant)


def _coalesce(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    found = arguments[-1]
    for argument in reversed(arguments[:-1]):
        if argument.valid is None:
            found = argument
        else:
            found = choose(np.broadcast_to(argument.mask, (argument.length,)), argument, found)
    return Vector(kind, found.values, found.valid, length=found.length, constant=found.constant)


def _null_if(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    same = _comparison(np.equal, "equal")(arguments, BOOLEAN, extra).true()
    return arguments[0].with_nulls(same)


def _extreme(numbers: Callable[..., Array], *, least: bool) -> Implementation:
    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        found = arguments[0]
        if not kind.is_text:
            values = found.values
            for argument in arguments[1:]:
                values = numbers(values, argument.values)
            return finish(arguments, kind, values, valid=_valid(arguments))
        for argument in arguments[1:]:
            better = (_LESS if least else _GREATER)([argument, found], BOOLEAN, extra)
            unknown = ~np.broadcast_to(better.mask, (found.length,))
            found = choose(better.true(), argument, found).with_nulls(unknown)
        return found

    return run


def _coarse(number: Array, digits: Array, *, is_rounded: bool) -> tuple[Array, Bools]:
    """Integers rounded with their last -`digits` digits removed; and whether the result fits in 64 bits."""
    step = np.power(np.int64(10), np.clip(-digits, 0, 18))
    rest = np.fmod(number, step)
    kept = number - rest
    up = (np.abs(rest) * 2 >= step) & (step > 1) & is_rounded
    moved = kept + np.where(up, np.sign(number) * step, 0)
    # Half of 10^19 fits in 64 bits, 10^19 does not.
    lost = (digits == -19) & is_rounded & ((number >= 5 * 10**18) | (number <= -5 * 10**18))
    return np.where(digits < -18, 0, moved), ((np.sign(moved) * np.sign(number) >= 0) | (digits < -18)) & ~lost


def _whole(arguments: Sequence[Vector], kind: SqlType, values: Array, fits: Bools) -> Vector:
    """Integers, NULL if they do not fit their type."""
    if kind.kind is Kind.INT:
        fits = fits & (values >= -(2**31)) & (values < 2**31)
    valid = _valid(arguments)
    if not fits.all():
        valid = fits if valid is None else valid & fits
    return finish(arguments, kind, values, valid=valid)


def _sign_changed(compute: Callable[..., Array]) -> Implementation:
    """ABS and negation: the least integer has no negation."""

    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        if kind.kind is Kind.DOUBLE:
            return _strict(compute)(arguments, kind, extra)
        number = arguments[0].values
        return _whole(arguments, kind, compute(number), number != _LEAST)

    return run


def _nearest(number: Array) -> Array:
    """Rounded doubles, halves away from zero. Adding one half first would itself round."""
    whole = np.trunc(number)
    return whole + np.where(np.abs(number - whole) >= 0.5, np.sign(number), 0.0)


def _at_digits(number: Array, digits: Array, cut: Callable[[Array], Array]) -> Array:
    """Apply `cut` (which rounds to integers) at this many digits after the point, or before it if negative."""
    factor = np.power(10.0, np.abs(digits))
    is_after = digits >= 0
    moved = np.where(is_after, number * factor, number / factor)
    found = cut(moved)
    found = np.where(is_after, found / factor, found * factor)
    found = np.where(~is_after & np.isinf(factor), 0.0, found)
    # Infinity, NaN, values without further digits, and values that would round past the largest double are unchanged.
    same = ~np.isfinite(number) | (is_after & ~(np.abs(moved) < _WHOLE)) | ~np.isfinite(found)
    return np.where(same, number, found)


def _round(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    number = arguments[0].values
    digits = arguments[1].values if len(arguments) > 1 else np.zeros(1, dtype=np.int64)
    with np.errstate(all="ignore"):
        if kind.is_integer:
            return _whole(arguments, kind, *_coarse(number, digits, is_rounded=True))
        values = _at_digits(number, digits, _nearest)
    return finish(arguments, kind, values, valid=_valid(arguments))


def _truncate(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    if len(arguments) == 1:
        return _same(arguments, kind, extra) if kind.is_integer else _strict(np.trunc)(arguments, kind, extra)
    number, digits = arguments[0].values, arguments[1].values
    with np.errstate(all="ignore"):
        if kind.is_integer:
            return _whole(arguments, kind, *_coarse(number, digits, is_rounded=False))
        values = _at_digits(number, digits, np.trunc)
    return finish(arguments, kind, values, valid=_valid(arguments))


def _logarithm(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    if len(arguments) == 1:
        return _strict(np.log)(arguments, kind, "")
    return _strict(lambda base, number: np.log(number) / np.log(base))(arguments, kind, "")


def _width_bucket(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    """As in the SQL standard and Spark SQL: between descending bounds, buckets are counted from the greater bound down.
    NULL for a NaN value, for bounds that are equal or not finite, and for fewer than one bucket.
    """
    value, first, last, count = (argument.values for argument in arguments)
    most = np.iinfo(np.int64).max
    with np.errstate(all="ignore"):
        falls = first > last
        apart = np.where(falls, first - value, value - first)
        share = count.astype(np.float64) * apart / np.abs(last - first)
        # Rounding can carry a quotient just below the last bound up to it.
        inside = np.where(share < 2.0**63, share, 0.0).astype(np.int64)
        inside = np.minimum(np.where(share < 2.0**63, inside, most), count - 1) + 1
        is_behind = np.where(falls, value <= last, value >= last)
        values = np.where(apart < 0, 0, np.where(is_behind, count + 1, inside))
        known = ~np.isnan(value) & np.isfinite(first) & np.isfinite(last) & (first != last)
        known = known & (count > 0) & (count < most)
    valid = _valid(arguments)
    return finish(arguments, kind, np.where(known, values, 0), valid=known if valid is None else valid & known)


def _same(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    found = arguments[0]
    return Vector(kind, found.values, found.valid, length=found.length, constant=found.constant)


def _float(name: str, compute: Callable[..., Array], count: int = 1, *, usage: Usage) -> ScalarFunction:
    return ScalarFunction(name, fixed(DOUBLE, *([DOUBLE] * count)), _strict(compute), usage)


def _rounding(name: str, compute: Callable[..., Array], usage: Usage) -> ScalarFunction:
    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        return _same(arguments, kind, extra) if kind.is_integer else _strict(compute)(arguments, kind, extra)

    return ScalarFunction(name, numeric(1), _exact(name, run), usage)


def _arithmetic(types: Sequence[SqlType], symbol: str) -> tuple[list[SqlType], SqlType]:
    """The signature of + - * / % over numbers, times and intervals."""
    if len(types) != 2:
        raise Mismatch
    left, right = types
    if left.kind is Kind.NULL and right.kind is Kind.NULL:
        return [DOUBLE, DOUBLE], DOUBLE
    left, right = (right if left.kind is Kind.NULL else left), (left if right.kind is Kind.NULL else right)
    if left.is_numeric and right.is_numeric:
        if Kind.DECIMAL in (left.kind, right.kind) and DOUBLE not in (left, right):
            return decimals.arithmetic([left, right], symbol)
        wide = DOUBLE if DOUBLE in (left, right) else BIGINT
        return [wide, wide], wide
    kinds = (left.kind, right.kind)
    if symbol in "+-":
        if left.is_time and right.is_time and symbol == "-":
            return [left, right], INTERVAL
        if left.is_time and right.kind is Kind.INTERVAL:
            return [left, right], functions_time.moved(left)
        if right.is_time and left.kind is Kind.INTERVAL and symbol == "+":
            return [left, right], functions_time.moved(right)
        if kinds == (Kind.INTERVAL, Kind.INTERVAL):
            return [INTERVAL, INTERVAL], INTERVAL
    if symbol == "*" and Kind.INTERVAL in kinds and (left.is_numeric or right.is_numeric):
        return [_plain(left), _plain(right)], INTERVAL
    if symbol == "/" and left.kind is Kind.INTERVAL and right.is_numeric:
        return [left, _plain(right)], INTERVAL
    raise Mismatch


def _plain(kind: SqlType) -> SqlType:
    """The type that a number is converted to before an interval is multiplied or divided by it."""
    return DOUBLE if kind.kind is Kind.DECIMAL else kind


def _arithmetic_signature(symbol: str) -> Signature:
    return lambda types: _arithmetic(types, symbol)


def _negation(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    kind = types[0]
    if len(types) != 1:
        raise Mismatch
    if kind.kind is Kind.NULL:
        return [DOUBLE], DOUBLE
    if not kind.is_numeric and kind.kind is not Kind.INTERVAL:
        raise Mismatch
    return [kind], kind


def _sign_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    return numeric(1)([_plain(kind) for kind in types])


def _case_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    results = [*types[1:-1:2], types[-1]]
    _, kind = whole_result_of(results)
    wanted: list[SqlType] = []
    for _pair in range(len(types) // 2):
        wanted += [BOOLEAN, kind]
    return [*wanted, kind], kind


def _null_if_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2:
        raise Mismatch
    wanted, kind = result_of(types)
    return wanted, kind


def _if_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) not in (2, 3):
        raise Mismatch
    wanted, kind = _case_signature(types if len(types) == 3 else [*types, NULL])
    return wanted[: len(types)], kind


def _if(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    missing = constant(kind, None, arguments[0].length)
    return _case(arguments if len(arguments) == 3 else [*arguments, missing], kind, extra)


_LOGIC: Signature = lambda types: ([BOOLEAN] * len(types), BOOLEAN)  # noqa: E731
_ANY: Signature = lambda types: (list(types), BOOLEAN)  # noqa: E731


def _table() -> dict[str, ScalarFunction]:
    entries = [
        ScalarFunction("+", _arithmetic_signature("+"), _exact("+", _sum(1))),
        ScalarFunction("-", _arithmetic_signature("-"), _exact("-", _sum(-1))),
        ScalarFunction("*", _arithmetic_signature("*"), _exact("*", _multiply)),
        ScalarFunction("/", _arithmetic_signature("/"), _exact("/", _divide)),
        ScalarFunction("%", _arithmetic_signature("%"), _exact("%", _modulo)),
        ScalarFunction(
            "MOD",
            _arithmetic_signature("%"),
            _exact("%", _modulo),
            Usage("MOD(a, b)", "remainder of a / b with the sign of a; NULL where b is a whole 0", "MOD(-7, 3) = -1"),
        ),
        ScalarFunction("NEGATE", _negation, _exact("NEGATE", _sign_changed(np.negative))),
        ScalarFunction(
            "ABS",
            _negation,
            _exact("ABS", _sign_changed(np.abs)),
            Usage("ABS(x)", "absolute value of x", "ABS(-2.5) = 2.5", values=NOT_NEGATIVE),
        ),
        ScalarFunction("=", _equality, _comparison(np.equal, "equal")),
        ScalarFunction("<>", _equality, _comparison(np.not_equal, "not_equal")),
        ScalarFunction("<", _order, _comparison(np.less, "less")),
        ScalarFunction("<=", _order, _comparison(np.less_equal, "less_equal")),
        ScalarFunction(">", _order, _comparison(np.greater, "greater")),
        ScalarFunction(">=", _order, _comparison(np.greater_equal, "greater_equal")),
        ScalarFunction("IS DISTINCT", _compared(2), _distinct),
        ScalarFunction("AND", _LOGIC, _and),
        ScalarFunction("OR", _LOGIC, _or),
        ScalarFunction("NOT", fixed(BOOLEAN, BOOLEAN), _strict(np.logical_not)),
        ScalarFunction("IS NULL", _ANY, _is_null),
        ScalarFunction("IS TRUE", fixed(BOOLEAN, BOOLEAN), _is_true),
        ScalarFunction("IN", _compared(None, at_least=2), _in),
        ScalarFunction("BETWEEN", _compared(3), _between),
        ScalarFunction("CASE", _case_signature, _case),
        ScalarFunction(
            "IF",
            _if_signature,
            _if,
            Usage(
                "IF(condition, then, else)",
                "then where the condition is true, otherwise else (NULL without one)",
                "IF(2 > 1, 'up', 'down') = 'up'",
                "a condition that is NULL counts as not met",
            ),
        ),
        ScalarFunction(
            "COALESCE",
            whole_result_of,
            _coalesce,
            Usage(
                "COALESCE(a, b, …)",
                "the first argument that is not NULL",
                "COALESCE(NULL, 3, 4) = 3",
                "NULL if all arguments are NULL",
            ),
        ),
        ScalarFunction(
            "IFNULL",
            one_type(2, None),
            _coalesce,
            Usage("IFNULL(a, b)", "a, or b where a is NULL", "IFNULL(NULL, 3) = 3", "NULL if both arguments are NULL"),
        ),
        ScalarFunction(
            "NULLIF",
            _null_if_signature,
            _null_if,
            Usage("NULLIF(a, b)", "NULL where a = b, otherwise a", "NULLIF(3, 3) IS NULL", "NULL if a is NULL"),
        ),
        ScalarFunction(
            "GREATEST",
            one_type(None, None, at_least=1),
            _extreme(np.fmax, least=False),
            Usage("GREATEST(a, b, …)", "the greatest argument", "GREATEST(1, 3, 2) = 3"),
        ),
        ScalarFunction(
            "LEAST",
            one_type(None, None, at_least=1),
            _extreme(np.fmin, least=True),
            Usage("LEAST(a, b, …)", "the least argument", "LEAST(1, 3, 2) = 1"),
        ),
        ScalarFunction(
            "ROUND",
            number_like(1, 2),
            _exact("ROUND", _round),
            Usage(
                "ROUND(x, digits)",
                "x rounded to this many digits (default 0), halves away from zero",
                "ROUND(2.345, 1) = 2.3",
            ),
        ),
        ScalarFunction(
            "SIGN",
            _sign_signature,
            _strict(np.sign),
            Usage("SIGN(x)", "-1, 0 or 1", "SIGN(-4) = -1", values=Extent(-1, 1)),
        ),
        _rounding(
            "FLOOR",
            np.floor,
            usage=Usage(
                "FLOOR(x)", "the greatest whole number up to x; FLOOR(time TO unit) is DATE_TRUNC", "FLOOR(-1.5) = -2"
            ),
        ),
        _rounding(
            "CEIL",
            np.ceil,
            usage=Usage(
                "CEIL(x)", "the least whole number from x on; CEIL(time TO unit) is DATE_CEIL", "CEIL(1.2) = 2"
            ),
        ),
        _rounding("CEILING", np.ceil, usage=Usage("CEILING(x)", "the same as CEIL", "CEILING(1.2) = 2")),
        ScalarFunction(
            "TRUNCATE",
            number_like(1, 2),
            _exact("TRUNCATE", _truncate),
            Usage("TRUNCATE(x, digits)", "x truncated to this many digits (default 0)", "TRUNCATE(-2.79, 1) = -2.7"),
        ),
        _float(
            "SQRT",
            np.sqrt,
            usage=Usage("SQRT(x)", "square root; NaN of a negative number", "SQRT(9) = 3", values=NOT_NEGATIVE),
        ),
        _float("CBRT", np.cbrt, usage=Usage("CBRT(x)", "cube root", "CBRT(27) = 3")),
        _float("EXP", np.exp, usage=Usage("EXP(x)", "e to the power of x", "EXP(0) = 1", values=NOT_NEGATIVE)),
        _float("LN", np.log, usage=Usage("LN(x)", "natural logarithm", "LN(1) = 0")),
        _float("LOG2", np.log2, usage=Usage("LOG2(x)", "logarithm to base 2", "LOG2(8) = 3")),
        _float("LOG10", np.log10, usage=Usage("LOG10(x)", "logarithm to base 10", "LOG10(1000) = 3")),
        ScalarFunction(
            "LOG",
            lambda types: ([DOUBLE] * len(types), DOUBLE),
            _logarithm,
            Usage("LOG(base, x)", "logarithm to a base; LOG(x) is LN(x)", "LOG(2, 8) = 3"),
        ),
        _float("POWER", np.power, 2, usage=Usage("POWER(x, y)", "x to the power of y", "POWER(2, 10) = 1024")),
        _float("POW", np.power, 2, usage=Usage("POW(x, y)", "the same as POWER", "POW(2, 10) = 1024")),
        _float("SIN", np.sin, usage=Usage("SIN(x)", "sine of an angle in radians", "SIN(0) = 0", values=Extent(-1, 1))),
        _float(
            "COS", np.cos, usage=Usage("COS(x)", "cosine of an angle in radians", "COS(0) = 1", values=Extent(-1, 1))
        ),
        _float("TAN", np.tan, usage=Usage("TAN(x)", "tangent of an angle in radians", "TAN(0) = 0")),
        _float("ATAN", np.arctan, usage=Usage("ATAN(x)", "arc tangent, in radians", "ATAN(0) = 0")),
        _float("TANH", np.tanh, usage=Usage("TANH(x)", "hyperbolic tangent", "TANH(0) = 0")),
        _float("SINH", np.sinh, usage=Usage("SINH(x)", "hyperbolic sine", "SINH(0) = 0")),
        _float("COSH", np.cosh, usage=Usage("COSH(x)", "hyperbolic cosine", "COSH(0) = 1")),
        _float("ASIN", np.arcsin, usage=Usage("ASIN(x)", "arc sine, in radians", "ASIN(0) = 0")),
        _float("ACOS", np.arccos, usage=Usage("ACOS(x)", "arc cosine, in radians", "ACOS(1) = 0")),
        _float(
            "ATAN2",
            np.arctan2,
            2,
            usage=Usage("ATAN2(y, x)", "angle of the point (x, y), in radians", "ATAN2(0, 1) = 0"),
        ),
        _float("DEGREES", np.degrees, usage=Usage("DEGREES(x)", "radians as degrees", "ROUND(DEGREES(ACOS(0))) = 90")),
        _float("RADIANS", np.radians, usage=Usage("RADIANS(x)", "degrees as radians", "RADIANS(0) = 0")),
        ScalarFunction(
            "IS_NAN",
            fixed(BOOLEAN, DOUBLE),
            _strict(np.isnan),
            Usage("IS_NAN(x)", "whether x is not a number", "IS_NAN(SQRT(-1))"),
        ),
        ScalarFunction(
            "IS_FINITE",
            fixed(BOOLEAN, DOUBLE),
            _strict(np.isfinite),
            Usage("IS_FINITE(x)", "whether x is neither infinite nor NaN", "IS_FINITE(1.5)"),
        ),
        ScalarFunction(
            "IS_INFINITE",
            fixed(BOOLEAN, DOUBLE),
            _strict(np.isinf),
            Usage("IS_INFINITE(x)", "whether x is infinite", "IS_INFINITE(1.0 / 0)"),
        ),
        ScalarFunction(
            "WIDTH_BUCKET",
            fixed(BIGINT, DOUBLE, DOUBLE, DOUBLE, BIGINT),
            _width_bucket,
            Usage(
                "WIDTH_BUCKET(x, low, high, count)",
                "number of x's bucket among count equal ones, 0 below them, count + 1 above",
                "WIDTH_BUCKET(35, 0, 100, 10) = 4",
            ),
        ),
        *(ScalarFunction(*entry) for entry in functions_text.ENTRIES),
        *(ScalarFunction(*entry) for entry in functions_time.ENTRIES),
        *(ScalarFunction(*entry) for entry in functions_arrays.ENTRIES),
        *(ScalarFunction(*entry) for entry in zones.ENTRIES),
        *(ScalarFunction(*entry) for entry in calendars.ENTRIES),
        *(ScalarFunction(*entry) for entry in fields.ENTRIES),
    ]
    table = {entry.name: entry for entry in entries}
    if len(table) < len(entries):
        raise AssertionError("two functions have the same name")
    return table


def cast(vector: Vector, target: SqlType) -> Vector:
    """CAST: NULL where the value has no counterpart in `target`. Raises Mismatch for types without conversion."""
    source = vector.type
    if source == target:
        return vector
    if source.kind is Kind.NULL:
        return constant(target, None, vector.length)
    if target.kind is Kind.STRING:
        return functions_text.written(vector)
    if source.kind is Kind.STRING:
        return functions_text.parsed(vector, target)
    if Kind.OPAQUE in (source.kind, target.kind):
        return _cast_parts(vector, target)
    if Kind.DECIMAL in (source.kind, target.kind):
        return decimals.cast(vector, target)
    if source.is_time and target.is_time:
        return functions_time.rescaled(vector, target)
    if target.kind is Kind.DOUBLE and (source.is_numeric or source.kind is Kind.BOOLEAN):
        return Vector(
            target, vector.values.astype(np.float64), vector.valid, length=vector.length, constant=vector.constant
        )
    if target.is_integer and (source.is_numeric or source.kind is Kind.BOOLEAN):
        return _to_integer(vector, target)
    if target.kind is Kind.BOOLEAN and source.is_numeric:
        return Vector(target, vector.values != 0, vector.valid, length=vector.length, constant=vector.constant)
    raise Mismatch


def _cast_parts(vector: Vector, target: SqlType) -> Vector:
    """A STRUCT or an array with its parts converted."""
    whole = vector.expand()
    valid, array = whole.valid, whole.text()
    if is_array(vector.type) and is_array(target):
        items = cast(from_column(array.flatten()), from_arrow(target.arrow.value_type)).to_arrow()
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
        return Vector(target, made.cast(target.arrow), valid)
    if not (is_struct(vector.type) and is_struct(target)) or vector.type.arrow.num_fields != target.arrow.num_fields:
        raise Mismatch
    parts = [
        cast(from_column(array.field(place)), from_arrow(field.type)).to_arrow()
        for place, field in enumerate(target.arrow)
    ]
    return Vector(target, pa.StructArray.from_arrays(parts, fields=list(target.arrow)), valid)


def _to_integer(vector: Vector, target: SqlType) -> Vector:
    values, valid = vector.values, vector.valid
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            rounded = _nearest(values)
            fits = (rounded >= -(2.0**63)) & (rounded < 2.0**63)
            values = np.where(fits, rounded, 0).astype(np.int64)
        valid = valid if fits.all() else (fits if valid is None else valid & fits)
    values = values.astype(np.int64)
    if target.kind is Kind.INT:
        fits = (values >= -(2**31)) & (values < 2**31)
        valid = valid if fits.all() else (fits if valid is None else valid & fits)
    return Vector(target, values, valid, length=vector.length, constant=vector.constant)


FUNCTIONS = _table()
