"""Exact sums of doubles over many ranges of rows at once.

A double is a whole number of units, and whole numbers add without rounding: the sum of a range is the difference of two
running sums, whatever precedes the range. Numbers are stored as digits of `bits` bits, lowest first, in int64 arrays.
Running sums may wrap around, since their differences are right if the digits of one range's sum fit. Only the result is
rounded, once, so it depends only on the values of its range, not on their order or on the batching.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep.vector import Array, Bools, Index

Digits = list[Index]
#: Bits per digit of a plain sum, and of one that is multiplied.
_SUM_BITS, _PRODUCT_BITS = 32, 20
#: The bits of whole numbers that doubles hold exactly.
_EXACT_BITS = 52
#: Up to this exponent, scaling by a power of two is a single multiplication.
_PLAIN_EXPONENT = 1000


def _scaled(values: Array, exponent: int) -> Array:
    if abs(exponent) <= _PLAIN_EXPONENT:
        return values * 2.0**exponent
    found: Array = np.ldexp(values, exponent)
    return found


@dataclass(frozen=True, slots=True)
class Wide:
    """One whole number per row: the sum of `digits[k]` * 2 ** (`bits` * k), in units of 2 ** `exponent`."""

    digits: Digits
    bits: int
    exponent: int

    @staticmethod
    def of(values: Array, bits: int) -> "Wide":
        """From finite doubles, without rounding."""
        most = float(np.abs(values).max(initial=0.0))
        exponent = int(np.frexp(most)[1])
        digits: Digits = []
        rest = values
        while True:
            exponent -= bits
            digit = np.rint(_scaled(rest, -exponent))
            digits.append(digit.astype(np.int64))
            rest = rest - _scaled(digit, exponent)
            if not rest.any():
                return Wide(digits[::-1], bits, exponent)

    def balanced(self) -> "Wide":
        """The same numbers with digits of at most half the base, so that each digit outweighs all lower ones."""
        half, digits = 1 << (self.bits - 1), []
        carry: Index = np.zeros(1, np.int64)
        for digit in self.digits:
            whole = digit + carry
            carry = whole + half
            carry >>= self.bits
            whole -= carry << self.bits
            digits.append(whole)
        while carry.any():
            further = (carry + half) >> self.bits
            digits.append(carry - (further << self.bits))
            carry = further
        return Wide(digits, self.bits, self.exponent)

    def times(self, factor: Index) -> "Wide":
        return Wide([digit * factor for digit in self.digits], self.bits, self.exponent)

    def __mul__(self, other: "Wide") -> "Wide":
        products: Digits = [
            np.zeros(len(self.digits[0]), np.int64) for _ in range(len(self.digits) + len(other.digits) - 1)
        ]
        is_square = other is self
        for low, one in enumerate(self.digits):
            for high, two in enumerate(other.digits[low:] if is_square else other.digits, low if is_square else 0):
                product = one * two
                if is_square and high > low:
                    product <<= 1
                products[low + high] += product
        return Wide(products, self.bits, self.exponent + other.exponent)

    def __sub__(self, other: "Wide") -> "Wide":
        """Both numbers must have the same units."""
        length = max(len(self.digits), len(other.digits))
        none = [np.zeros(1, np.int64)]
        mine, its = (part + none * (length - len(part)) for part in (self.digits, other.digits))
        return Wide([one - two for one, two in zip(mine, its, strict=True)], self.bits, self.exponent)

    def rounded(self) -> Array:
        """The nearest double, ties to even."""
        whole = self.balanced()
        bits, digits = whole.bits, whole.digits
        while 2 * bits <= _EXACT_BITS and len(digits) > 1:
            # Fewer digits, of which each still outweighs all lower ones.
            higher = [*digits[1::2], np.zeros(1, np.int64)]
            digits = [low + (high << bits) for low, high in zip(digits[::2], higher, strict=False)]
            bits *= 2
        scaled = [
            _scaled(digit.astype(np.float64), whole.exponent + bits * place) for place, digit in enumerate(digits)
        ]
        found = scaled.pop()
        while scaled:
            total = found + scaled[-1]
            if not np.array_equal(total - found, scaled[-1]):
                break
            found = total
            scaled.pop()
        if not scaled:
            return found
        # The rounding error, and the lower digits, of which only the sign can matter.
        lost, below = np.zeros(len(found)), np.zeros(len(found))
        for digit in scaled[::-1]:
            is_exact = lost == 0
            total = found + digit
            below = np.where(is_exact | (below != 0), below, digit)
            lost = np.where(is_exact, digit - (total - found), lost)
            found = np.where(is_exact, total, found)
        # The lower digits break the tie the other way.
        other = found + 2 * lost
        is_tie = ((below > 0) & (lost > 0)) | ((below < 0) & (lost < 0))
        return np.where(is_tie & (other - found == 2 * lost), other, found)


class RangeSums:
    """Sums over the ranges of rows `low` to `high` (exclusive)."""

    def __init__(self, low: Index, high: Index) -> None:
        self._low, self._high = low, high

    def of(self, values: Array) -> Index:
        """Sums of whole numbers, modulo 2 ** 64."""
        totals = np.zeros(len(values) + 1, np.int64)
        np.cumsum(values, out=totals[1:])
        found: Index = totals.take(self._high) - totals.take(self._low)
        return found

    def wide(self, numbers: Wide) -> Wide:
        return Wide([self.of(digit) for digit in numbers.digits], numbers.bits, numbers.exponent)

    def rounded(self, values: Array) -> Array:
        """Sums of doubles, correctly rounded. NaN and infinities propagate as in any other sum."""
        finite = np.isfinite(values)
        if finite.all():
            return self.wide(Wide.of(values, _SUM_BITS)).rounded()
        found = self.wide(Wide.of(np.where(finite, values, 0.0), _SUM_BITS)).rounded()
        rises, falls = self.of(values == np.inf) > 0, self.of(values == -np.inf) > 0
        found = np.where(rises, np.inf, np.where(falls, -np.inf, found))
        return np.where((self.of(np.isnan(values)) > 0) | (rises & falls), np.nan, found)


class Moments:
    """Moments of the `present` rows of ranges, computed on request. Results are NaN if a value is not finite.

    `count`: the present rows of each range.
    """

    def __init__(self, sums: RangeSums, arguments: Sequence[Array], present: Bools) -> None:
        finite = present & np.logical_and.reduce([np.isfinite(values) for values in arguments])
        self.count = sums.of(present)
        self._is_odd = self.count != sums.of(finite)
        self._sums = sums
        whole = finite.all()
        self._numbers = [Wide.of(v if whole else np.where(finite, v, 0.0), _PRODUCT_BITS) for v in arguments]
        self._totals = [sums.wide(number).balanced() for number in self._numbers]

    def product(self, one: int, two: int) -> Array:
        """`count` * SUM(a * b) - SUM(a) * SUM(b) for two of the arguments."""
        mixed = self._sums.wide(self._numbers[one] * self._numbers[two]).balanced().times(self.count)
        return self._known((mixed - self._totals[one] * self._totals[two]).rounded())

    def mean(self, one: int) -> Array:
        """The mean of an argument."""
        return self._known(self._totals[one].rounded() / np.maximum(self.count, 1))

    def _known(self, values: Array) -> Array:
        return np.where(self._is_odd, np.nan, values) if self._is_odd.any() else values
