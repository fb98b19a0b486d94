"""Percentiles of any number of values in bounded space, compared with the percentiles of all values."""

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import chain

import pyarrow as pa
import pytest

from candlewright_cep import evaluate
from candlewright_cep.functions.aggregates.sketches import EXACT_VALUES, Percentiles, sketch_class
from tests.rounds import seeds

PARTS = (0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0)
SPECIAL = (None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308, 5e-324, 0.1 + 0.2)
#: The documented errors of the rank. Twice the first holds in all but one of a million cases.
OF_THE_SKETCH, OF_ITS_AGE = 0.0028, 0.001
MANY = 40_000


def kept(values: list[float | None], *, cut: int = 0) -> Percentiles:
    """Written and read after every `cut` values."""
    found = Percentiles()
    for number, value in enumerate(values, 1):
        found.add(value)
        if cut and number % cut == 0:
            found = Percentiles(*found.as_bytes())
    return found


def exact(values: list[float | None], part: float) -> float | None:
    table = pa.table({"x": pa.array(values, pa.float64())})
    found: float | None = evaluate(f"SELECT PERCENTILE_DISC({part:.17f}) WITHIN GROUP (ORDER BY x) AS p FROM t", table)[
        "p"
    ][0].as_py()
    return found


@pytest.mark.parametrize("cut", [0, 1, 7, 65, 1_000])
@pytest.mark.parametrize("seed", seeds(6))
def test_few_values_have_the_percentiles_of_percentile_disc(seed: int, cut: int) -> None:
    chance = random.Random(seed)
    size = chance.choice([1, 2, 63, 64, 65, 66, 300, EXACT_VALUES])
    values = [chance.choice([chance.choice(SPECIAL), chance.gauss(), float(chance.randrange(9))]) for _ in range(size)]
    found = kept(values, cut=cut)
    for part in (*PARTS, chance.random()):
        mine, wanted = found.at(part), exact(values, part)
        assert mine == wanted or (mine is not None and wanted is not None and math.isnan(mine) and math.isnan(wanted))


def test_nothing_has_no_percentile() -> None:
    assert kept([]).at(0.5) is None and kept([None] * 3, cut=1).at(0.5) is None


SHAPES: dict[str, Callable[[random.Random], list[float]]] = {
    "random": lambda chance: [chance.gauss() for _ in range(MANY)],
    "rising": lambda _: [float(row) for row in range(MANY)],
    "falling": lambda _: [-float(row) for row in range(MANY)],
    # Each value is between all earlier ones.
    "closing in": lambda _: list(chain(*((-1 / row, 1 / row) for row in range(1, MANY // 2)))),
    # Each is outside of all earlier ones.
    "moving out": lambda _: list(chain(*((-float(row), float(row)) for row in range(MANY // 2)))),
    "steps": lambda chance: [float(int(chance.expovariate(0.5))) for _ in range(MANY)],
    "jump": lambda chance: [chance.random() + 1_000 * (row > MANY // 2) for row in range(MANY)],
    "period of the sketch": lambda _: [float(row % EXACT_VALUES) for row in range(MANY)],
}


def errors(found: Percentiles, values: list[float]) -> list[float]:
    """How far the rank of each percentile is from the wanted one, as a share of all values."""
    ordered, apart = sorted(values), []
    for part in PARTS:
        value = found.at(part)
        assert value is not None
        low, high = bisect_left(ordered, value) / len(ordered), bisect_right(ordered, value) / len(ordered)
        assert high > low, "a percentile is one of the values"
        apart.append(max(low - part, part - high, 0.0))
    return apart


@pytest.mark.parametrize("cut", [0, 50, 7_777])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_rank_of_many_values_is_within_the_documented_error(shape: str, cut: int) -> None:
    values = SHAPES[shape](random.Random(3))
    apart = errors(kept([*values], cut=cut), values)
    assert max(apart) <= 2 * OF_THE_SKETCH
    assert apart[0] == apart[-1] == 0.0


def test_the_documented_error_is_that_of_the_sketch() -> None:
    assert sketch_class()(EXACT_VALUES).normalized_rank_error(False) <= OF_THE_SKETCH


@pytest.mark.parametrize("shape", ["rising", "falling", "random"])
def test_a_percentile_that_is_read_after_each_value_keeps_the_error(shape: str) -> None:
    values = SHAPES[shape](random.Random(4))[: MANY // 2]
    found = Percentiles()
    for number, value in enumerate(values, 1):
        found.add(value)
        last = [found.at(part) for part in PARTS]
        if number % 977 == 0 or number in (EXACT_VALUES, EXACT_VALUES + 1):
            assert last == [found.at(part) for part in PARTS]
            assert max(errors(found, values[:number])) <= 2 * OF_THE_SKETCH + OF_ITS_AGE


@pytest.mark.parametrize("nans", [1, 500])
def test_nan_is_the_greatest_of_many_values(nans: int) -> None:
    found = kept([*(float(row) for row in range(9_500)), *([math.nan] * nans), None], cut=900)
    share = 9_500 / (9_500 + nans)
    greatest, highest, middle = found.at(share + 1e-4), found.at(share - 1e-6), found.at(0.5)
    assert greatest is not None and math.isnan(greatest)
    assert highest == pytest.approx(9_499, abs=60) and middle == pytest.approx((9_500 + nans) / 2, abs=80)


def test_infinities_are_values() -> None:
    found = kept([*([-math.inf] * 3_000), *([1.0] * 3_000), *([math.inf] * 3_000)], cut=700)
    assert [found.at(part) for part in (0, 0.2, 0.5, 0.8, 1)] == [-math.inf, -math.inf, 1.0, math.inf, math.inf]


def test_the_state_stays_small() -> None:
    found = Percentiles()
    sizes = []
    for number in range(300_000):
        found.add(float(number))
        if number % 10_000 == 0:
            sizes.append(sum(map(len, found.as_bytes())))
    assert max(sizes) < 26_000


def test_a_state_without_new_values_is_the_same_object() -> None:
    found = kept([float(row) for row in range(5_000)])
    first, _ = found.as_bytes()
    found.add(1.0)
    second, newest = found.as_bytes()
    assert second is first and len(newest) == 8
    assert Percentiles(second, newest).as_bytes() == (second, newest)


@pytest.mark.parametrize("cut", [0, 5, 9, 40, 5_000])
def test_other_bytes_are_no_state(cut: int) -> None:
    written, newest = kept([float(row) for row in range(5_000)]).as_bytes()
    with pytest.raises(ValueError, match=r"percentile|corruption|size"):
        Percentiles(written[:cut] or b"\x01" * 40, newest)
