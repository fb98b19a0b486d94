"""Columns of values, and the numbers that represent them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright_cep.planning.relation import partition_codes
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Index, Vector, codes, distinct, from_column, ranks_of

pytestmark = pytest.mark.timeout(60)


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 12)), max_size=12), st.booleans())
def test_ranks_are_those_of_sorted_values_also_in_runs_of_equal_ones(
    runs: list[tuple[int, int]], is_float: bool
) -> None:
    values = np.repeat([value for value, _ in runs], [count for _, count in runs]).astype(float if is_float else int)
    assert ranks_of(values).tolist() == np.unique(values, return_inverse=True)[1].tolist()


@given(st.integers(0, 3_000), st.integers(1, 4_000), st.sampled_from([1, 7, 60_000_000_000]), st.integers(0, 2**32))
def test_ranks_of_many_values_are_those_of_sorted_ones(length: int, kinds: int, step: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(-kinds, kinds, length) * step
    assert ranks_of(values).tolist() == np.unique(values, return_inverse=True)[1].tolist()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(0, 2)), max_size=40), st.booleans())
def test_rows_have_one_number_where_all_columns_are_equal(rows: list[tuple[int, int, int]], follows: bool) -> None:
    columns = [[row[0] for row in rows], [row[1] for row in rows], [row[0 if follows else 2] + 9 for row in rows]]
    numbers = partition_codes([Vector(BIGINT, np.array(column, np.int64), None) for column in columns], len(rows))
    own = dict(zip(zip(*columns, strict=True), numbers.tolist(), strict=True))
    assert [own[row] for row in zip(*columns, strict=True)] == numbers.tolist()
    ordered = [number for _, number in sorted(own.items())]
    assert ordered == list(range(len(ordered)))


def test_a_column_that_follows_from_the_others_is_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(5)
    start = random.permutation(2_000) * 60_000_000_000
    columns = [random.integers(0, 5, 2_000), start, start + 60_000_000_000]
    sorted_rows: list[int] = []

    def counted(values: Index) -> Index:
        sorted_rows.append(len(values))
        return ranks_of(values)

    monkeypatch.setattr("candlewright_cep.planning.relation.ranks_of", counted)
    partition_codes([Vector(BIGINT, column, None) for column in columns], 2_000)
    assert sorted_rows == [2_000]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("times", [[-7, 0, 1_704_067_200], [None, 5], [None, None], []])
def test_times_are_read_in_nanoseconds(unit: str, times: list[int | None]) -> None:
    column = pa.array(times, pa.timestamp(unit, "UTC"))
    assert from_column(column).to_list() == column.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("time", [2**54, -(2**54)])
def test_a_time_that_does_not_fit_in_64_bits_of_nanoseconds_is_refused(time: int) -> None:
    with pytest.raises(pa.ArrowInvalid, match="64-bit nanoseconds"):
        from_column(pa.array([0, time, None], pa.timestamp("us", "UTC")))


def test_a_few_rows_do_not_keep_the_table_they_came_from_in_memory() -> None:
    values = np.arange(1_000)
    found = from_column(pa.chunked_array([pa.array(values)]).slice(5, 2)).values
    assert found.tolist() == [5, 6]
    assert not np.shares_memory(found, values)


@pytest.mark.parametrize(
    "texts",
    [["aa"] * 40, [""] * 40, ["aa", "a", "aaa"] * 9, ["aa"] * 39 + ["ab"], ["aa", "ab", "aa"] * 9, ["", "a"] * 9],
)
@pytest.mark.parametrize("is_cut", [False, True])
def test_texts_that_are_all_equal_have_one_number(texts: list[str], is_cut: bool) -> None:
    array = pa.array(["zz", *texts, "zz"])[1:-1] if is_cut else pa.array(texts)
    names, numbers = distinct(array)
    assert [names[number] for number in numbers.tolist()] == texts
    assert len(names) == len(set(texts))
    assert codes(from_column(array)).tolist() == np.unique(texts, return_inverse=True)[1].tolist()


@pytest.mark.parametrize("length", [3, 30])
def test_a_missing_text_counts_as_an_empty_one(length: int) -> None:
    names, numbers = distinct(pa.array([None, *["a"] * length]))
    assert [names[number] for number in numbers.tolist()] == ["", *["a"] * length]
