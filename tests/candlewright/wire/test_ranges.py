"""Ranges behave as the sets of integers that they represent."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.ranges import common, joined, without

ranges = st.lists(
    st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda each: (each[0], each[0] + each[1])), max_size=5
)


def numbers(found: list[tuple[int, int]]) -> set[int]:
    return {number for start, end in found for number in range(start, end)}


@given(ranges, ranges)
def test_ranges_are_sets_of_integers(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    assert numbers(joined(left)) == numbers(left)
    assert numbers(common(left, right)) == numbers(left) & numbers(right)
    assert numbers(without(left, right)) == numbers(left) - numbers(right)


@given(ranges)
def test_joined_ranges_neither_overlap_nor_touch(found: list[tuple[int, int]]) -> None:
    in_order = joined(found)
    assert all(end < start for (_, end), (start, _) in itertools.pairwise(in_order))
