"""Aggregates over frames equal those of each frame alone; sums of doubles are exact, whatever surrounds a frame."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright_cep.functions.aggregates import frames
from candlewright_cep.functions.aggregates.aggregates import AGGREGATES, reduced
from candlewright_cep.types import BIGINT, BOOLEAN, DOUBLE, STRING, SqlType
from candlewright_cep.vector import Index, from_list, ranges
from tests.rounds import rounds

_PRICES = st.integers(1, 10**8).map(lambda cents: cents / 100)
_ANY = st.floats(min_value=-1e300, max_value=1e300) | st.sampled_from(
    [0.0, -0.0, 1e300, -1e300, 5e-324, 1.0, 2.0**-60, 1 + 2.0**-52, math.inf, -math.inf, math.nan]
)
_DOUBLES = st.one_of(
    st.lists(st.none() | _PRICES, min_size=1, max_size=60),
    st.lists(st.none() | _ANY, min_size=1, max_size=60),
    st.lists(st.sampled_from([65000.17, 65000.18, 0.1]), min_size=1, max_size=60),
)


@st.composite
def _frames(draw: st.DrawFn, length: int) -> tuple[Index, Index]:
    """Frames of this many rows before and after each row, or arbitrary ones."""
    if draw(st.booleans()):
        before, behind = draw(st.integers(-3, 40)), draw(st.integers(-3, 10))
        rows = np.arange(length)
        low, high = np.clip(rows - before, 0, length), np.clip(rows + behind + 1, 0, length)
    else:
        low = np.array(draw(st.lists(st.integers(0, length), min_size=length, max_size=length)), np.int64)
        high = np.array(draw(st.lists(st.integers(0, length), min_size=length, max_size=length)), np.int64)
    return low, np.maximum(low, high)


def _same(one: object, other: object) -> bool:
    return one == other or (isinstance(one, float) and isinstance(other, float) and one != one and other != other)


def _found(name: str, columns: list[list[object]], kinds: list[SqlType], low: Index, high: Index) -> list[object]:
    result = AGGREGATES[name].signature(kinds)[1]
    vectors = [from_list(kind, column) for kind, column in zip(kinds, columns, strict=True)]
    moved = frames.framed(name, vectors, low, high=high, kind=result)
    assert moved is not None
    return moved.to_list()


def _one_by_one(name: str, columns: list[list[object]], kinds: list[SqlType], low: Index, high: Index) -> list[object]:
    """Each frame as a separate segment."""
    sizes = high - low
    vectors = [from_list(kind, column).take(ranges(low, sizes)) for kind, column in zip(kinds, columns, strict=True)]
    firsts, total = np.cumsum(sizes) - sizes, int(sizes.sum())
    return reduced(
        name, vectors, firsts, sizes=sizes, length=total, kind=AGGREGATES[name].signature(kinds)[1]
    ).to_list()


def _exact_sum(values: list[float]) -> float:
    try:
        return math.fsum(values)
    except ValueError:  # infinities of both signs
        return math.nan


@pytest.fixture(params=[1 << 16, 7], ids=["one stretch", "many stretches"])
def stretch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "_STRETCH", request.param)


@pytest.mark.usefixtures("stretch")
class TestFrames:
    @pytest.mark.parametrize("name", ["MIN", "MAX", "COUNT", "ANY_VALUE", "GEOMETRIC_MEAN"])
    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_doubles(self, name: str, data: st.DataObject) -> None:
        values = data.draw(_DOUBLES)
        low, high = data.draw(_frames(len(values)))
        found = _found(name, [values], [DOUBLE], low, high)
        expected = _one_by_one(name, [values], [DOUBLE], low, high)
        if name == "GEOMETRIC_MEAN":
            found, expected = ([None if v is None else float(f"{v:.10g}") for v in side] for side in (found, expected))
        assert all(map(_same, found, expected)), (found, expected)

    @pytest.mark.parametrize("name", ["MIN", "MAX", "COUNT", "ANY_VALUE", "SUM"])
    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_whole_numbers(self, name: str, data: st.DataObject) -> None:
        numbers = st.none() | st.integers(-5, 5) | st.integers(-(2**63), 2**63 - 1)
        values = data.draw(st.lists(numbers, min_size=1, max_size=60))
        low, high = data.draw(_frames(len(values)))
        assert _found(name, [values], [BIGINT], low, high) == _one_by_one(name, [values], [BIGINT], low, high)

    @settings(max_examples=rounds(60))
    @given(data=st.data())
    def test_different_values_in_frames_that_move_on(self, data: st.DataObject) -> None:
        values = data.draw(st.lists(st.none() | st.integers(0, 4), min_size=1, max_size=60))
        ends = st.lists(st.integers(0, len(values)), min_size=len(values), max_size=len(values)).map(sorted)
        low, high = (np.array(data.draw(ends), np.int64) for _ in range(2))
        high = np.maximum(low, high)
        found = _found("COUNT_DISTINCT", [values], [BIGINT], low, high)
        assert found == _one_by_one("COUNT_DISTINCT", [values], [BIGINT], low, high)

    @pytest.mark.parametrize("name", ["BOOL_AND", "BOOL_OR", "COUNT_IF"])
    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_truth(self, name: str, data: st.DataObject) -> None:
        values = data.draw(st.lists(st.none() | st.booleans(), min_size=1, max_size=60))
        low, high = data.draw(_frames(len(values)))
        assert _found(name, [values], [BOOLEAN], low, high) == _one_by_one(name, [values], [BOOLEAN], low, high)

    @pytest.mark.parametrize("name", ["MIN", "MAX", "MIN_BY", "MAX_BY"])
    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_texts_and_values_by_a_key(self, name: str, data: st.DataObject) -> None:
        values = data.draw(st.lists(st.none() | st.sampled_from(["a", "b", "", "ab"]), min_size=1, max_size=60))
        low, high = data.draw(_frames(len(values)))
        columns: list[list[object]] = [values]
        kinds = [STRING]
        if name.endswith("BY"):
            columns.append([data.draw(st.none() | st.integers(0, 3)) for _ in values])
            kinds.append(BIGINT)
        assert _found(name, columns, kinds, low, high) == _one_by_one(name, columns, kinds, low, high)

    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_sums_of_doubles_are_rounded_once(self, data: st.DataObject) -> None:
        values = data.draw(_DOUBLES)
        low, high = data.draw(_frames(len(values)))
        parts = [[v for v in values[a:b] if v is not None] for a, b in zip(low.tolist(), high.tolist(), strict=True)]
        expected = [_exact_sum(part) if part else None for part in parts]
        assert all(map(_same, _found("SUM", [values], [DOUBLE], low, high), expected))
        means = [None if v is None else v / len(part) for v, part in zip(expected, parts, strict=True)]
        assert all(map(_same, _found("AVG", [values], [DOUBLE], low, high), means))

    @pytest.mark.parametrize("name", ["VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP"])
    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_deviations_do_not_cancel(self, name: str, data: st.DataObject) -> None:
        values = data.draw(st.one_of(st.lists(st.none() | _PRICES, min_size=1, max_size=60), _SPREAD))
        low, high = data.draw(_frames(len(values)))
        for found, a, b in zip(_found(name, [values], [DOUBLE], low, high), low.tolist(), high.tolist(), strict=True):
            part = [Fraction(v) for v in values[a:b] if v is not None]
            size = len(part) - name.endswith("SAMP")
            if size <= 0:
                assert found is None
                continue
            mean = sum(part) / len(part)
            exact = float(sum((v - mean) ** 2 for v in part) / size)
            expected = math.sqrt(exact) if name.startswith("STDDEV") else exact
            assert isinstance(found, float)
            assert math.isclose(found, expected, rel_tol=1e-15, abs_tol=1e-300), (found, expected)

    @pytest.mark.parametrize("name", ["COVAR_POP", "COVAR_SAMP", "CORR", "REGR_SLOPE", "REGR_INTERCEPT"])
    @settings(max_examples=rounds(30))
    @given(data=st.data())
    def test_pairs(self, name: str, data: st.DataObject) -> None:
        whole = st.none() | st.integers(0, 9).map(float)
        columns = [data.draw(st.lists(whole, min_size=20, max_size=20)) for _ in range(2)]
        low, high = data.draw(_frames(20))
        found = _found(name, columns, [DOUBLE, DOUBLE], low, high)
        expected = _one_by_one(name, columns, [DOUBLE, DOUBLE], low, high)
        for one, other in zip(found, expected, strict=True):
            if other is None or one is None:
                # A value that is exactly zero need not be zero by the recurrence.
                assert one is other or (one is None and name in ("CORR", "REGR_SLOPE", "REGR_INTERCEPT"))
            else:
                assert math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9)


_SPREAD = st.lists(st.none() | st.sampled_from([1e9 + 0.1, 1e9 + 0.2, 1e-9, 1e9]), min_size=1, max_size=60)


def test_a_constant_price_has_no_deviation() -> None:
    values: list[object] = [0.1] * 10 + [1e15 + 0.3] * 10
    rows = np.arange(20)
    found = _found("STDDEV_SAMP", [values], [DOUBLE], np.maximum(rows - 4, rows // 10 * 10), rows + 1)
    assert found == [None, *[0.0] * 9] * 2


def test_values_that_are_not_numbers_leave_other_frames_alone() -> None:
    values: list[object] = [1.0, math.nan, 2.0, 3.0, math.inf, 4.0, 6.0]
    rows = np.arange(7)
    found = _found("STDDEV_POP", [values], [DOUBLE], np.maximum(rows - 1, 0), rows + 1)
    assert [v if v == v else None for v in found if isinstance(v, float)] == [0.0, None, None, 0.5, None, None, 1.0]
