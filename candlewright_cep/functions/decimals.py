"""DECIMAL: exact numbers of up to 38 digits.

Values are stored as an Arrow array. Computations use whole numbers in units of the type's last digit: int64 where
operands and result are certain to fit, otherwise Python integers. A result with more digits than its type is NULL, as
is an integer past 64 bits.
"""

import decimal
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep import work
from candlewright_cep.functions.signatures import Mismatch
from candlewright_cep.types import MOST_DIGITS, STRING, Kind, SqlType, as_decimal
from candlewright_cep.types import decimal as decimal_type
from candlewright_cep.vector import Array, Bools, Vector, from_list

#: The context that adds, rounds and compares numbers of any two DECIMAL types exactly.
EXACT = decimal.Context(prec=100, rounding=decimal.ROUND_HALF_UP)
_INT64 = 2**63
#: The least number of digits after the point of a quotient.
_LEAST_SCALE = 6
#: A mean has this many more digits than its values.
_OF_MEAN = 4
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
#: Doubles up to here, and powers of ten up to 10 ** 22, are exact; every number of up to 15 digits has its own double.
_EXACT_DOUBLE, _EXACT_POWER, _SHORT_DOUBLE = 2**53, 22, 1e15


# -- whole numbers ----------------------------------------------------------------------------------------------------


def units(vector: Vector) -> Array:
    """Each value as a whole number of its type's last digit, 0 for NULL: int64, or Python integers if that is too
    small.
    """
    array = vector.values
    count = len(array)
    if not count:
        return np.zeros(0, np.int64)
    pairs = np.frombuffer(array.buffers()[1], np.int64, 2 * count, 16 * array.offset).reshape(-1, 2)
    low, high = pairs[:, 0], pairs[:, 1]
    if vector.valid is not None:
        low, high = np.where(vector.valid, low, 0), np.where(vector.valid, high, 0)
    if bool((high == low >> 63).all()):
        return np.ascontiguousarray(low)
    work.spend(count, work.FOLDED_A_STEP)
    found: Array = (high.astype(object) << 64) + np.ascontiguousarray(low).view(np.uint64).astype(object)
    return found


def vector_of(kind: SqlType, numbers: Array, valid: Bools | None) -> Vector:
    """A vector of type `kind` from whole numbers of its units; NULL for those with too many digits."""
    most: int = 10**kind.precision
    if _greatest(numbers) >= most:
        fits = (np.abs(numbers) < most).astype(np.bool_)
        valid = fits if valid is None else valid & fits
        numbers = np.where(fits, numbers, 0)
    pairs = np.empty((len(numbers), 2), np.int64)
    if numbers.dtype == object:
        pairs[:, 0] = (numbers & (2**64 - 1)).astype(np.uint64).view(np.int64)
        pairs[:, 1] = (numbers >> 64).astype(np.int64)
    else:
        pairs[:, 0], pairs[:, 1] = numbers, numbers >> 63
    return Vector(kind, pa.Array.from_buffers(kind.arrow, len(numbers), [None, pa.py_buffer(pairs)]), valid)


def _greatest(numbers: Array) -> int:
    """The greatest absolute value."""
    return max(int(numbers.max()), -int(numbers.min())) if len(numbers) else 0


def _fitting(bound: int, *numbers: Array) -> list[Array]:
    """The numbers as int64 if results up to `bound` fit in it, otherwise as Python integers."""
    if bound < _INT64 and all(each.dtype != object for each in numbers):
        return list(numbers)
    work.spend(max(len(each) for each in numbers), work.FOLDED_A_STEP)
    return [each.astype(object) for each in numbers]


def _finer(numbers: Array, digits: int) -> Array:
    """The numbers in units that are 10 ** `digits` times smaller."""
    if not digits:
        return numbers
    found: Array = _fitting(max(_greatest(numbers), 1) * 10**digits, numbers)[0] * 10**digits
    return found


def _quotients(numbers: Array, divisors: Array) -> Array:
    """Quotients rounded to whole numbers, halves away from zero. Divisors must not be 0."""
    numbers, divisors = _fitting(2 * _greatest(numbers) + _greatest(divisors), numbers, divisors)
    size, of = np.abs(numbers), np.abs(divisors)
    found: Array = (2 * size + of) // (2 * of)
    return np.where(np.not_equal(numbers < 0, divisors < 0), -found, found)


def _at_scale(numbers: Array, scale: int, wanted: int) -> Array:
    """Units of a type with `scale` digits after the point, converted to `wanted` digits and rounded."""
    if wanted >= scale:
        return _finer(numbers, wanted - scale)
    return _quotients(numbers, _power(scale - wanted))


def _power(digits: int) -> Array:
    return np.array([10**digits], np.int64 if digits <= 18 else object)


# -- types ------------------------------------------------------------------------------------------------------------


def arithmetic(types: Sequence[SqlType], symbol: str) -> tuple[list[SqlType], SqlType]:
    """The types of + - * / % over DECIMALs and integers.

    Sums, differences, products and remainders are exact, so the result keeps all digits after the point; a quotient has
    as many as Spark SQL's. Raises Mismatch for a product that would need more than 38 digits after the point.
    """
    left, right = (as_decimal(kind) for kind in types)
    scale = max(left.scale, right.scale)
    whole, other = left.precision - left.scale, right.precision - right.scale
    if symbol in "+-":
        found = decimal_type(max(whole, other) + scale + 1, scale)
    elif symbol == "*":
        scale = left.scale + right.scale
        if scale > MOST_DIGITS:
            raise Mismatch
        found = decimal_type(left.precision + right.precision, scale)
    elif symbol == "%":
        found = decimal_type(min(whole, other) + scale, scale)
    else:
        scale = max(_LEAST_SCALE, left.scale + right.precision + 1)
        digits = whole + right.scale + scale
        if digits > MOST_DIGITS:
            scale = max(MOST_DIGITS - (digits - scale), min(scale, _LEAST_SCALE))
        found = decimal_type(digits, scale)
    return [left, right], found


def compared(types: Sequence[SqlType]) -> list[SqlType] | None:
    """The types that the arguments of a comparison are converted to if one is a DECIMAL: each keeps its digits. None
    for other types.
    """
    kinds = {kind.kind for kind in types}
    if Kind.DECIMAL not in kinds or not kinds <= {Kind.DECIMAL, Kind.INT, Kind.BIGINT, Kind.NULL}:
        return None
    known = next(kind for kind in types if kind.kind is Kind.DECIMAL)
    return [known if kind.kind is Kind.NULL else as_decimal(kind) for kind in types]


def rounded_type(kind: SqlType) -> SqlType:
    """With room for a carry: 99.9 rounds to 100.0."""
    return decimal_type(kind.precision + 1, kind.scale) if kind.kind is Kind.DECIMAL else kind


def sum_type(kind: SqlType) -> SqlType:
    return decimal_type(MOST_DIGITS, kind.scale)


def mean_type(kind: SqlType) -> SqlType:
    return decimal_type(kind.precision + _OF_MEAN, min(kind.scale + _OF_MEAN, MOST_DIGITS))


# -- functions --------------------------------------------------------------------------------------------------------

Kernel = Callable[[Sequence[Vector], SqlType], tuple[Array, Bools | None]]


def _valid(arguments: Sequence[Vector]) -> Bools | None:
    known = [argument.valid for argument in arguments if argument.valid is not None]
    return np.logical_and.reduce(np.broadcast_arrays(*known)) if known else None


def _sum(sign: int) -> Kernel:
    def run(arguments: Sequence[Vector], kind: SqlType) -> tuple[Array, Bools | None]:
        left, right = (_finer(units(each), kind.scale - each.type.scale) for each in arguments)
        left, right = _fitting(_greatest(left) + _greatest(right), left, right)
        return left + sign * right, None

    return run


def _product(arguments: Sequence[Vector], _kind: SqlType) -> tuple[Array, Bools | None]:
    left, right = (units(each) for each in arguments)
    left, right = _fitting(_greatest(left) * _greatest(right), left, right)
    return left * right, None


def _quotient(arguments: Sequence[Vector], kind: SqlType) -> tuple[Array, Bools | None]:
    left, right = (units(each) for each in arguments)
    is_zero = (right == 0).astype(np.bool_)
    digits = kind.scale - arguments[0].type.scale + arguments[1].type.scale
    divisors = np.where(is_zero, 1, right)
    if digits < 0:
        return _quotients(left, _finer(divisors, -digits)), ~is_zero
    return _quotients(_finer(left, digits), divisors), ~is_zero


def _remainder(arguments: Sequence[Vector], kind: SqlType) -> tuple[Array, Bools | None]:
    left, right = (_finer(units(each), kind.scale - each.type.scale) for each in arguments)
    left, right = _fitting(max(_greatest(left), _greatest(right)), left, right)
    is_zero = (right == 0).astype(np.bool_)
    found = np.abs(left) % np.abs(np.where(is_zero, 1, right))
    return np.where(left < 0, -found, found), ~is_zero


def _negated(arguments: Sequence[Vector], _kind: SqlType) -> tuple[Array, Bools | None]:
    return -_fitting(_greatest(number := units(arguments[0])), number)[0], None


def _absolute(arguments: Sequence[Vector], _kind: SqlType) -> tuple[Array, Bools | None]:
    return np.abs(_fitting(_greatest(number := units(arguments[0])), number)[0]), None


def _to_digits(cut: Callable[[Array, Array], Array]) -> Kernel:
    """Whole multiples of a power of ten; `cut` finds them from the number and that power in units."""

    def run(arguments: Sequence[Vector], kind: SqlType) -> tuple[Array, Bools | None]:
        number = units(arguments[0])
        asked = arguments[1].values if len(arguments) > 1 else np.zeros(1, np.int64)
        found = number
        for digits in np.unique(np.clip(asked, kind.scale - MOST_DIGITS - 1, kind.scale)).tolist():
            step = _power(kind.scale - digits)
            rounded = cut(number, step)
            rounded = _fitting(_greatest(rounded) * int(step[0]), rounded)[0] * step[0]
            here = np.clip(asked, kind.scale - MOST_DIGITS - 1, kind.scale) == digits
            found = np.where(here, rounded, found)
        return found, None

    return run


def _down(number: Array, step: Array) -> Array:
    number, step = _fitting(_greatest(number), number, step)
    found: Array = number // step
    return found


def _up(number: Array, step: Array) -> Array:
    return -_down(-_fitting(_greatest(number), number)[0], step)


def _cut(number: Array, step: Array) -> Array:
    return np.where(number < 0, _up(number, step), _down(number, step))


_KERNELS: dict[str, Kernel] = {
    "+": _sum(1),
    "-": _sum(-1),
    "*": _product,
    "/": _quotient,
    "%": _remainder,
    "NEGATE": _negated,
    "ABS": _absolute,
    "ROUND": _to_digits(_quotients),
    "TRUNCATE": _to_digits(_cut),
    "FLOOR": _to_digits(_down),
    "CEIL": _to_digits(_up),
    "CEILING": _to_digits(_up),
}


def computed(function: str, arguments: Sequence[Vector], kind: SqlType) -> Vector:
    """The value of a function whose result is a DECIMAL."""
    numbers, known = _KERNELS[function](arguments, kind)
    valid = _valid(arguments)
    if known is not None and not known.all():
        valid = known if valid is None else valid & known
    if valid is not None and len(valid) == 1:
        # A NULL constant next to a column without NULLs.
        valid = np.broadcast_to(valid, numbers.shape)
    return _shaped(vector_of(kind, numbers, valid), arguments)


def _shaped(found: Vector, arguments: Sequence[Vector]) -> Vector:
    """Constant if all arguments are, otherwise of their length."""
    is_constant = all(argument.constant for argument in arguments)
    if is_constant or len(found.values) == arguments[0].length:
        return Vector(found.type, found.values, found.valid, length=arguments[0].length, constant=is_constant)
    return Vector(found.type, found.values, found.valid, length=arguments[0].length, constant=True).expand()


def comparable(left: Vector, right: Vector) -> tuple[Array, Array]:
    """Both sides in the same units."""
    scale = max(left.type.scale, right.type.scale)
    return _finer(units(left), scale - left.type.scale), _finer(units(right), scale - right.type.scale)


# -- conversions ------------------------------------------------------------------------------------------------------


def cast(vector: Vector, target: SqlType) -> Vector:
    """CAST from a DECIMAL, or from a number or BOOLEAN to one. Halves are rounded away from zero."""
    source = vector.type
    if target.kind is Kind.DECIMAL:
        return _shaped(_to_decimal(vector, target), [vector])
    numbers = units(vector)
    if target.kind is Kind.DOUBLE:
        found: Array = _doubles(numbers, source.scale)
        return Vector(target, found, vector.valid, length=vector.length, constant=vector.constant)
    if target.kind is Kind.BOOLEAN:
        is_true = (numbers != 0).astype(np.bool_)
        return Vector(target, is_true, vector.valid, length=vector.length, constant=vector.constant)
    if not target.is_integer:
        raise Mismatch
    whole = _at_scale(numbers, source.scale, 0)
    most = 2**31 if target.kind is Kind.INT else _INT64
    fits = ((whole >= -most) & (whole < most)).astype(np.bool_) if _greatest(whole) >= most else None
    valid = vector.valid if fits is None else fits if vector.valid is None else fits & vector.valid
    values = (whole if fits is None else np.where(fits, whole, 0)).astype(np.int64)
    return Vector(target, values, valid, length=vector.length, constant=vector.constant)


def _to_decimal(vector: Vector, target: SqlType) -> Vector:
    source = vector.type
    if source.kind is Kind.DECIMAL:
        return vector_of(target, _at_scale(units(vector), source.scale, target.scale), vector.valid)
    if source.kind is Kind.DOUBLE:
        return _of_doubles(vector, target)
    if not source.is_integer and source.kind is not Kind.BOOLEAN:
        raise Mismatch
    return vector_of(target, _finer(vector.values.astype(np.int64), target.scale), vector.valid)


def _doubles(numbers: Array, scale: int) -> Array:
    """The nearest doubles."""
    if scale <= _EXACT_POWER and _greatest(numbers) <= _EXACT_DOUBLE:
        return numbers.astype(np.float64) / 10.0**scale
    # Python rounds the quotient of two integers only once.
    found: Array = (numbers.astype(object) / 10**scale).astype(np.float64)
    return found


def _of_doubles(vector: Vector, target: SqlType) -> Vector:
    """A double counts as the shortest decimal that reads back as the same double: 0.1 is one tenth."""
    values = vector.values
    with np.errstate(all="ignore"):
        scaled = values * 10.0 ** min(target.scale, _EXACT_POWER)
        nearest = np.rint(scaled)
        is_plain = (np.abs(nearest) < _SHORT_DOUBLE) & (nearest / 10.0 ** min(target.scale, _EXACT_POWER) == values)
        is_plain &= target.scale <= _EXACT_POWER
        numbers: Array = np.where(is_plain, nearest, 0.0).astype(np.int64)
    others = np.flatnonzero(~is_plain & np.broadcast_to(vector.mask, values.shape))
    if not len(others):
        return vector_of(target, numbers, vector.valid)
    work.spend(len(others), work.FOLDED_A_STEP)
    numbers, known = numbers.astype(object), np.ones(len(values), np.bool_)
    for row, value in zip(others.tolist(), values[others].tolist(), strict=True):
        found = of_text(repr(value), target)
        known[row] = found is not None
        numbers[row] = 0 if found is None else int(found.scaleb(target.scale, EXACT))
    return vector_of(target, numbers, known if vector.valid is None else known & vector.valid)


def of_text(text: str, kind: SqlType) -> decimal.Decimal | None:
    """The number written in a text, rounded to the digits of `kind`; None if it is not a number or is too large."""
    stripped = text.strip()
    if not _NUMBER.fullmatch(stripped) or len(stripped) > 400:
        return None
    value = EXACT.create_decimal(stripped)
    if value and value.adjusted() > kind.precision - kind.scale:
        return None
    rounded = value.quantize(decimal.Decimal(1).scaleb(-kind.scale), context=EXACT)
    return rounded if len(rounded.as_tuple().digits) <= kind.precision else None


def written_exactly(text: str) -> tuple[decimal.Decimal, SqlType] | None:
    """The number of a literal and the DECIMAL type that has exactly its digits; None if 38 are too few."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    value = EXACT.create_decimal(text.strip())
    _, digits, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    precision = max(len(digits) + max(int(exponent), 0), scale, 1)
    if precision > MOST_DIGITS:
        return None
    kind = decimal_type(precision, scale)
    found = of_text(text, kind)
    return None if found is None else (found, kind)


def written(vector: Vector) -> Vector:
    """As text, with all digits after the point."""
    return from_list(STRING, [None if value is None else f"{value:f}" for value in vector.to_list()])


# -- aggregates -------------------------------------------------------------------------------------------------------


def totals(vector: Vector) -> Array:
    """The units, widened so that no sum of them overflows."""
    numbers = units(vector)
    return _fitting(_greatest(numbers) * max(len(numbers), 1), numbers)[0]


def means(kind: SqlType, source: SqlType, total: Array, *, count: Array) -> Vector:
    """Sums of units of `source` divided by counts, as values of `kind`."""
    return vector_of(kind, _quotients(_finer(total, kind.scale - source.scale), np.maximum(count, 1)), count > 0)


def added(total: Any, value: decimal.Decimal) -> decimal.Decimal:
    """Add one value to a running sum."""
    return EXACT.add(total, value)


def sum_result(total: decimal.Decimal) -> decimal.Decimal | None:
    return total if len(total.as_tuple().digits) <= MOST_DIGITS else None


def mean_result(total: decimal.Decimal, count: int) -> decimal.Decimal | None:
    exponent = int(total.as_tuple().exponent)
    scale = min(_OF_MEAN - exponent, MOST_DIGITS)
    mean = EXACT.divide(total, decimal.Decimal(count))
    return sum_result(mean.quantize(decimal.Decimal(1).scaleb(-scale), context=EXACT))


def accumulated(numbers: Array) -> Array:
    """Running sums, with a leading 0."""
    return np.concatenate([np.zeros(1, numbers.dtype), np.add.accumulate(numbers)])
