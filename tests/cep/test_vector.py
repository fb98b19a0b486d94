"""Columns of values, and numbers that stand for them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cep.vector import ranks_of

pytestmark = pytest.mark.timeout(60)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 12)), max_size=12), st.booleans())
def test_ranks_are_those_of_sorted_values_also_in_runs_of_equal_ones(
    runs: list[tuple[int, int]], is_float: bool
) -> None:
    values = np.repeat([value for value, _ in runs], [count for _, count in runs]).astype(float if is_float else int)
    assert ranks_of(values).tolist() == np.unique(values, return_inverse=True)[1].tolist()
