from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bars import exact

_ANY = st.floats(0, 1e18, allow_nan=False)
_MONEY = st.decimals(0, 10**7, places=8).map(float)


def _fractions(numbers: exact.Scaled) -> list[Fraction]:
    return [Fraction(int(n), 10**numbers.scale) for n in numbers.integers]


@given(st.lists(st.one_of(_ANY, _MONEY), max_size=40))
def test_a_double_is_read_as_its_shortest_text(values: list[float]) -> None:
    numbers = exact.from_doubles(np.array(values, dtype=np.float64))
    assert _fractions(numbers) == [Fraction(Decimal(repr(v))) for v in values]
    assert exact.to_doubles(numbers).tolist() == values


@given(st.lists(st.one_of(_ANY, _MONEY), min_size=1, max_size=40), st.data())
def test_segment_sums_are_those_of_the_texts_rounded_once(values: list[float], data: st.DataObject) -> None:
    cuts = data.draw(st.sets(st.integers(1, len(values)), max_size=5))
    starts = [0, *sorted(cut for cut in cuts if cut < len(values))]
    sums = exact.segment_sums(exact.from_doubles(np.array(values)), np.array(starts))
    expected = [
        sum(Fraction(Decimal(repr(v))) for v in values[a:b])
        for a, b in zip(starts, [*starts[1:], len(values)], strict=True)
    ]
    assert _fractions(sums) == expected
    assert exact.to_doubles(sums).tolist() == [float(total) for total in expected]


@given(st.lists(st.tuples(st.one_of(_ANY, _MONEY), st.one_of(_ANY, _MONEY)), min_size=1, max_size=40))
def test_sums_of_products_are_exact_however_large(pairs: list[tuple[float, float]]) -> None:
    left, right = (exact.from_doubles(np.array(column, dtype=np.float64)) for column in zip(*pairs, strict=True))
    sums = exact.segment_product_sums(left, right, np.array([0]))
    assert _fractions(sums) == [sum(Fraction(Decimal(repr(a))) * Fraction(Decimal(repr(b))) for a, b in pairs)]


@pytest.mark.parametrize("value", [0.1, 70_123.45, 1e-10, 9_007_199_254_740_993.0, 5e-324, 1.7e308])
def test_single_values_survive(value: float) -> None:
    assert exact.to_doubles(exact.from_doubles(np.array([value]))).tolist() == [value]


def test_sums_past_the_largest_double_are_infinite() -> None:
    # A client may publish a trade of any finite price and size, which must not stop the bars of other tickers.
    huge = exact.from_doubles(np.array([1e200, -1e200, 1.0]))
    products = exact.segment_product_sums(huge, exact.from_doubles(np.array([1e200, 1e200, 2.0])), np.arange(3))
    assert exact.to_doubles(products).tolist() == [np.inf, -np.inf, 2.0]


@pytest.mark.parametrize("last", [0.25, 1e-9, 1 / 3])
def test_a_value_after_many_whole_ones_is_read_as_its_text(last: float) -> None:
    values = [float(number) for number in range(1_000)] + [last]
    assert _fractions(exact.from_doubles(np.array(values))) == [Fraction(Decimal(repr(value))) for value in values]


def test_ten_tenths_are_one() -> None:
    tenths = exact.from_doubles(np.full(10, 0.1))
    assert exact.to_doubles(exact.segment_sums(tenths, np.array([0]))).tolist() == [1.0]


def test_zeros_and_empty_arrays_fit_any_scale() -> None:
    for integers in (np.zeros(2, np.int64), np.empty(0, np.int64)):
        assert exact.Scaled(integers, 0).at_scale(40).tolist() == integers.tolist()
