"""Sums of decimal numbers that arrive as doubles, rounded once.

An exchange sends `0.1` as text; the tables hold the nearest double. A bar's sum must be that of the texts, not of the
doubles, whose running sum drifts and depends on the order. So each double is converted back to its shortest decimal
text, held as an integer times a power of ten; the integers are summed, and the sum is rounded once.

At most one decimal of up to 15 significant digits rounds to a given double (IEEE 754, DBL_DIG = 15), so n = rint(v *
10^k) with n / 10^k == v and |n| < 10^15 is that text. Other doubles go through Python's repr.
"""

from dataclasses import dataclass
from decimal import Decimal
from math import inf

import numpy as np
from numpy.typing import NDArray

__all__ = ["Scaled", "from_doubles", "multiply", "segment_product_sums", "segment_sums", "to_doubles"]

Integers = NDArray[np.int64] | NDArray[np.object_]

_UNIQUE = 10**15
_EXACT_DOUBLE = 1 << 53
_LIMIT = 1 << 62
_FEW = 64
_SCALES = (0, 2, 4, 6, 8, 10, 12, 14)


@dataclass(frozen=True, slots=True)
class Scaled:
    """The numbers `integers / 10**scale`; int64 if they fit, else Python integers (dtype object)."""

    integers: Integers
    scale: int

    def take(self, index: NDArray[np.intp]) -> "Scaled":
        return Scaled(self.integers[index], self.scale)

    def with_rows(self, rows: NDArray[np.intp], numbers: "Scaled") -> "Scaled":
        """A copy with these numbers in some rows."""
        scale = max(self.scale, numbers.scale)
        new, integers = numbers.at_scale(scale), self.at_scale(scale)
        integers = integers.astype(object if new.dtype == object else integers.dtype)
        integers[rows] = new
        return Scaled(integers, scale)

    def at_scale(self, scale: int) -> Integers:
        """The integers for a larger `scale`."""
        factor = 10 ** (scale - self.scale)
        bound = _bound(self.integers)
        if factor == 1 or bound == 0:
            # Only zeros, or empty: the factor itself may exceed 64 bits.
            return self.integers
        if self.integers.dtype == object or bound * factor >= _LIMIT:
            widened: Integers = self.integers.astype(object) * factor
            return widened
        return self.integers * np.int64(factor)


def from_doubles(values: NDArray[np.float64]) -> Scaled:
    """Read each finite double as the decimal of its shortest text."""
    largest = float(np.abs(values).max(initial=0.0))
    for scale in _SCALES:
        power = 10.0**scale
        if largest * power >= _UNIQUE:
            break
        # A few values usually show that a scale is too small.
        for some in (values[:_FEW], values) if len(values) > _FEW else (values,):
            scaled = np.rint(some * power)
            if not np.array_equal(scaled / power, some):
                break
        else:
            return Scaled(scaled.astype(np.int64), scale)
    return _from_texts(values)


def _from_texts(values: NDArray[np.float64]) -> Scaled:
    decimals = [Decimal(repr(value)) for value in values.tolist()]
    scale = max((-int(decimal.as_tuple().exponent) for decimal in decimals), default=0)
    scale = max(scale, 0)
    integers = np.array([int(decimal.scaleb(scale)) for decimal in decimals], dtype=object)
    return Scaled(_narrow(integers), scale)


def segment_sums(numbers: Scaled, starts: NDArray[np.intp]) -> Scaled:
    """Sum of each segment; segment i runs from starts[i] to starts[i + 1] (the last one to the end)."""
    integers = numbers.integers
    if len(starts) == 0:
        return Scaled(integers[:0], numbers.scale)
    if integers.dtype != object:
        longest = int(np.diff(starts, append=len(integers)).max())
        if _bound(integers) * longest >= _LIMIT:
            integers = integers.astype(object)
    return Scaled(_narrow(np.add.reduceat(integers, starts)), numbers.scale)


def multiply(left: Scaled, right: Scaled) -> Scaled:
    """The exact product, element by element."""
    a, b = left.integers, right.integers
    if a.dtype == object or b.dtype == object or _bound(a) * _bound(b) >= _LIMIT:
        return Scaled(a.astype(object) * b.astype(object), left.scale + right.scale)
    return Scaled(a * b, left.scale + right.scale)


def segment_product_sums(left: Scaled, right: Scaled, starts: NDArray[np.intp]) -> Scaled:
    """Exact sum of left * right in each segment, without Python integers for each row.

    If products or their sums would overflow, `right` is split into digits in base 2**bits, small enough that each
    digit's sums fit; only the few sums per segment are combined as Python integers.
    """
    a, b = left.integers, right.integers
    scale = left.scale + right.scale
    if len(starts) == 0 or a.dtype == object or b.dtype == object or np.any(b < 0):
        return segment_sums(multiply(left, right), starts)
    longest = int(np.diff(starts, append=len(a)).max())
    bound = _bound(a) * longest
    if bound * _bound(b) < _LIMIT:
        return Scaled(np.add.reduceat(a * b, starts), scale)
    bits = 62 - bound.bit_length()
    if bits < 1:
        return segment_sums(multiply(left, right), starts)
    total = np.zeros(len(starts), dtype=object)
    shift = 0
    while np.any(b):
        digit = b & np.int64((1 << bits) - 1)
        total += np.add.reduceat(a * digit, starts).astype(object) * (1 << shift)
        b = b >> np.int64(bits)
        shift += bits
    return Scaled(_narrow(total), scale)


def to_doubles(numbers: Scaled) -> NDArray[np.float64]:
    """Each number rounded once to the nearest double; infinite beyond the largest double."""
    integers, scale = numbers.integers, numbers.scale
    if integers.dtype != object and scale <= 22 and _bound(integers) < _EXACT_DOUBLE:
        # Both operands are exact doubles, so IEEE 754 rounds the quotient once.
        return integers / 10.0**scale
    power = 10**scale
    return np.array([_quotient(int(integer), power) for integer in integers], dtype=np.float64)


def _quotient(integer: int, power: int) -> float:
    try:
        # Python rounds the quotient of two integers once, whatever their size.
        return integer / power
    except OverflowError:
        return inf if integer > 0 else -inf


def _bound(integers: Integers) -> int:
    if len(integers) == 0:
        return 0
    return max(abs(int(integers.max())), abs(int(integers.min())))


def _narrow(integers: Integers) -> Integers:
    return integers.astype(np.int64) if integers.dtype == object and _bound(integers) < _LIMIT else integers
