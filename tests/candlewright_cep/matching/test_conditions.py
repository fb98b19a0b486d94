"""Conditions tested row by row in the search give the same result as for whole columns, including NULLs."""

from itertools import product

import pyarrow as pa
import pytest

from candlewright_cep import evaluate

# Every combination of three values; each fills two rows of its own partition.
VALUES = list(product([None, 1, 2], repeat=3))
TABLE = pa.table(
    {
        "id": pa.array([number for number in range(len(VALUES)) for _ in range(2)], pa.int64()),
        "turn": pa.array([turn for _ in VALUES for turn in range(2)], pa.int64()),
        **{
            name: pa.array([values[index] for values in VALUES for _ in range(2)], pa.int64())
            for index, name in enumerate("xyz")
        },
    }
)


@pytest.mark.parametrize(
    "condition",
    [
        "{x} BETWEEN {y} AND {z}",
        "{x} NOT BETWEEN {y} AND {z}",
        "{x} IN ({y}, {z})",
        "{x} NOT IN ({y}, {z})",
        "{x} = {y} AND {y} < {z}",
        "NOT ({x} = {y} AND {y} < {z})",
        "{x} = {y} OR {y} < {z}",
        "NOT ({x} = {y} OR {y} < {z})",
        "{x} IS DISTINCT FROM {y}",
        "({x} < {y}) IS NULL",
        "({x} < {y}) IS DISTINCT FROM ({y} < {z})",
        "COALESCE({x}, {y}) < {z}",
        "NULLIF({x}, {y}) IS NULL",
        "CASE WHEN {x} < {y} THEN {z} ELSE {y} END = {z}",
        "CASE {x} WHEN {y} THEN TRUE WHEN {z} THEN FALSE END",
        "IF({x} < {y}, {z}, {x}) = 2",
        "GREATEST({x}, {y}) > {z}",
        "{x} + {y} > {z}",
        "{x} / ({y} - 1) > 0",
        "{x} % {y} = {z} - 1",
        "ABS({x} - {y}) = {z}",
    ],
)
def test_a_condition_on_the_mapping_is_that_of_columns(condition: str) -> None:
    plain = condition.format(x="x", y="y", z="z")
    mapped = condition.format(x="A.x", y="LAST(y)", z="FIRST(A.z)")
    # With X, it is not known how far a row of A is behind one of B.
    sql = f"PARTITION BY id ORDER BY turn PATTERN (A X? B) DEFINE B AS {mapped}"
    found = evaluate(f"SELECT id FROM ticks MATCH_RECOGNIZE ({sql}) AS m ORDER BY id", TABLE)
    wanted = evaluate(f"SELECT id FROM ticks WHERE turn = 0 AND ({plain}) ORDER BY id", TABLE)
    assert found.column("id").to_pylist() == wanted.column("id").to_pylist()
    assert wanted.num_rows > 0


NAN = float("nan")
PRICES = pa.table({"turn": pa.array(range(4), pa.int64()), "x": pa.array([NAN, 3.0, NAN, 5.0], pa.float64())})


@pytest.mark.parametrize(
    ("measure", "wanted"),
    [
        ("MIN(x)", 3.0),
        ("MAX(x)", 5.0),
        ("GREATEST(FIRST(x), LAST(x))", 5.0),
        ("LEAST(LAST(x), FIRST(x))", 5.0),
        ("IF(FIRST(x) IS DISTINCT FROM LAST(x, 1), 1, 0)", 0),
        ("IF(FIRST(x) = LAST(x, 1), 1, 0)", 0),
    ],
)
def test_extremes_ignore_nan(measure: str, wanted: float) -> None:
    sql = (
        "SELECT m FROM ticks MATCH_RECOGNIZE (ORDER BY turn MEASURES {measure} AS m PATTERN (A* B) "
        "DEFINE B AS {measure} = {wanted} AND COUNT(*) = 4) AS t"
    )
    found = evaluate(sql.format(measure=measure, wanted=wanted), PRICES)
    assert found.column("m").to_pylist() == [wanted]


def test_extremes_of_nan_alone_are_nan() -> None:
    sql = "SELECT m FROM ticks MATCH_RECOGNIZE (ORDER BY turn MEASURES MAX(x) AS m PATTERN (A B?) DEFINE B AS FALSE)"
    found = evaluate(sql, PRICES).column("m").to_pylist()
    assert [value == value for value in found] == [False, True, False, True]
