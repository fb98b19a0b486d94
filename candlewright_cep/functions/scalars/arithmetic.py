"""Numbers: arithmetic, also of times and intervals; rounding; logarithms and angles."""

from collections.abc import Callable, Sequence

import numpy as np

from candlewright_cep.functions import decimals
from candlewright_cep.functions.scalars import time as functions_time
from candlewright_cep.functions.scalars.kernels import Implementation, exact, finish, same, strict, valid_of
from candlewright_cep.functions.signatures import Mismatch, Signature, fixed, number_like, numeric
from candlewright_cep.functions.usage import NOT_NEGATIVE, Declared, Extent, Usage
from candlewright_cep.types import BIGINT, BOOLEAN, DOUBLE, INTERVAL, Kind, SqlType
from candlewright_cep.vector import Array, Bools, Vector

_SAFE = 2**62
_LEAST = np.iinfo(np.int64).min
#: All doubles from here on are integers.
_WHOLE = 2.0**52


def _may_overflow(left: Array, right: Array) -> bool:
    return any(len(side) and (int(side.max()) >= _SAFE or int(side.min()) <= -_SAFE) for side in (left, right))


def _sum(sign: int) -> Implementation:
    @np.errstate(all="ignore")
    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        left, right = arguments[0].values, arguments[1].values
        valid = valid_of(arguments)
        values = left + right if sign > 0 else left - right
        if kind.kind is not Kind.DOUBLE and _may_overflow(left, right):
            other = right if sign > 0 else ~right
            wrapped = ((left ^ values) & (other ^ values)) < 0
            valid = ~wrapped if valid is None else valid & ~wrapped
        return finish(arguments, kind, values, valid=valid)

    return run


@np.errstate(all="ignore")
def _multiply(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments[0].values, arguments[1].values
    valid = valid_of(arguments)
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
        return strict(np.divide)(arguments, kind, "")
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
    valid = valid_of(arguments)
    if bad.any():
        valid = ~bad if valid is None else valid & ~bad
    return finish(arguments, kind, values, valid=valid)


def _modulo(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments[0].values, arguments[1].values
    if kind.kind is Kind.DOUBLE:
        return strict(np.fmod)(arguments, kind, "")
    zero = right == 0
    values = np.fmod(left, np.where(zero, 1, right))
    valid = valid_of(arguments)
    if zero.any():
        valid = ~zero if valid is None else valid & ~zero
    return finish(arguments, kind, values, valid=valid)


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
    valid = valid_of(arguments)
    if not fits.all():
        valid = fits if valid is None else valid & fits
    return finish(arguments, kind, values, valid=valid)


def _sign_changed(compute: Callable[..., Array]) -> Implementation:
    """ABS and negation: the least integer has no negation."""

    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        if kind.kind is Kind.DOUBLE:
            return strict(compute)(arguments, kind, extra)
        number = arguments[0].values
        return _whole(arguments, kind, compute(number), number != _LEAST)

    return run


def nearest(number: Array) -> Array:
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
        values = _at_digits(number, digits, nearest)
    return finish(arguments, kind, values, valid=valid_of(arguments))


def _truncate(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    if len(arguments) == 1:
        return same(arguments, kind, extra) if kind.is_integer else strict(np.trunc)(arguments, kind, extra)
    number, digits = arguments[0].values, arguments[1].values
    with np.errstate(all="ignore"):
        if kind.is_integer:
            return _whole(arguments, kind, *_coarse(number, digits, is_rounded=False))
        values = _at_digits(number, digits, np.trunc)
    return finish(arguments, kind, values, valid=valid_of(arguments))


def _logarithm(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    if len(arguments) == 1:
        return strict(np.log)(arguments, kind, "")
    return strict(lambda base, number: np.log(number) / np.log(base))(arguments, kind, "")


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
    valid = valid_of(arguments)
    return finish(arguments, kind, np.where(known, values, 0), valid=known if valid is None else valid & known)


def _float(name: str, compute: Callable[..., Array], count: int = 1, *, usage: Usage) -> Declared:
    return (name, fixed(DOUBLE, *([DOUBLE] * count)), strict(compute), usage)


def _rounding(name: str, compute: Callable[..., Array], usage: Usage) -> Declared:
    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        return same(arguments, kind, extra) if kind.is_integer else strict(compute)(arguments, kind, extra)

    return (name, _with_carry(numeric(1)), exact(name, run), usage)


def _with_carry(signature: Signature) -> Signature:
    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        wanted, kind = signature(types)
        return wanted, decimals.rounded_type(kind)

    return resolve


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


OPERATORS: list[Declared] = [
    ("+", _arithmetic_signature("+"), exact("+", _sum(1)), None),
    ("-", _arithmetic_signature("-"), exact("-", _sum(-1)), None),
    ("*", _arithmetic_signature("*"), exact("*", _multiply), None),
    ("/", _arithmetic_signature("/"), exact("/", _divide), None),
    ("%", _arithmetic_signature("%"), exact("%", _modulo), None),
    (
        "MOD",
        _arithmetic_signature("%"),
        exact("%", _modulo),
        Usage("MOD(a, b)", "remainder of a / b with the sign of a; NULL if b is the integer 0", "MOD(-7, 3) = -1"),
    ),
    ("NEGATE", _negation, exact("NEGATE", _sign_changed(np.negative)), None),
    (
        "ABS",
        _negation,
        exact("ABS", _sign_changed(np.abs)),
        Usage("ABS(x)", "absolute value of x", "ABS(-2.5) = 2.5", values=NOT_NEGATIVE),
    ),
]
ENTRIES: list[Declared] = [
    (
        "ROUND",
        _with_carry(number_like(1, 2)),
        exact("ROUND", _round),
        Usage(
            "ROUND(x, digits)",
            "x rounded to this many digits (default 0), halves away from zero",
            "ROUND(2.345, 1) = 2.3",
        ),
    ),
    (
        "SIGN",
        _sign_signature,
        strict(np.sign),
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
        usage=Usage("CEIL(x)", "the least whole number from x on; CEIL(time TO unit) is DATE_CEIL", "CEIL(1.2) = 2"),
    ),
    _rounding("CEILING", np.ceil, usage=Usage("CEILING(x)", "the same as CEIL", "CEILING(1.2) = 2")),
    (
        "TRUNCATE",
        number_like(1, 2),
        exact("TRUNCATE", _truncate),
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
    (
        "LOG",
        lambda types: ([DOUBLE] * len(types), DOUBLE),
        _logarithm,
        Usage("LOG(base, x)", "logarithm to a base; LOG(x) is LN(x)", "LOG(2, 8) = 3"),
    ),
    _float("POWER", np.power, 2, usage=Usage("POWER(x, y)", "x to the power of y", "POWER(2, 10) = 1024")),
    _float("POW", np.power, 2, usage=Usage("POW(x, y)", "the same as POWER", "POW(2, 10) = 1024")),
    _float("SIN", np.sin, usage=Usage("SIN(x)", "sine of an angle in radians", "SIN(0) = 0", values=Extent(-1, 1))),
    _float("COS", np.cos, usage=Usage("COS(x)", "cosine of an angle in radians", "COS(0) = 1", values=Extent(-1, 1))),
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
    (
        "IS_NAN",
        fixed(BOOLEAN, DOUBLE),
        strict(np.isnan),
        Usage("IS_NAN(x)", "whether x is not a number", "IS_NAN(SQRT(-1))"),
    ),
    (
        "IS_FINITE",
        fixed(BOOLEAN, DOUBLE),
        strict(np.isfinite),
        Usage("IS_FINITE(x)", "whether x is neither infinite nor NaN", "IS_FINITE(1.5)"),
    ),
    (
        "IS_INFINITE",
        fixed(BOOLEAN, DOUBLE),
        strict(np.isinf),
        Usage("IS_INFINITE(x)", "whether x is infinite", "IS_INFINITE(1.0 / 0)"),
    ),
    (
        "WIDTH_BUCKET",
        fixed(BIGINT, DOUBLE, DOUBLE, DOUBLE, BIGINT),
        _width_bucket,
        Usage(
            "WIDTH_BUCKET(x, low, high, count)",
            "number of x's bucket among count equal ones, 0 below them, count + 1 above",
            "WIDTH_BUCKET(35, 0, 100, 10) = 4",
        ),
    ),
]
