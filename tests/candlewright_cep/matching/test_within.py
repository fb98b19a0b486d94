"""WITHIN at its edges. Random cases are in `test_against_reference` and `test_stream_against_batch`."""

from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import evaluate, explain
from tests.candlewright_cep.matching.test_foresight import eager


def table(*milliseconds: int | None) -> pa.Table:
    return pa.table({"ts": pa.array(milliseconds, pa.timestamp("ms")), "v": range(1, len(milliseconds) + 1)})


def spans(pattern: str, rows: pa.Table, *, order: str = "ts", define: str = "") -> list[tuple[Any, ...]]:
    """For each match, `v` of its first and last row."""
    sql = (
        f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY {order} MEASURES FIRST(v) AS a, LAST(v) AS z "
        f"PATTERN {pattern} {define}) AS m"
    )
    return [tuple(row.values()) for row in evaluate(sql, rows).to_pylist()]


@pytest.mark.parametrize("bound", ["INTERVAL '2' SECOND", "INTERVAL '90000' DAY"])
@pytest.mark.parametrize(
    ("order", "wanted"),
    [("ts", [(1, 3)]), ("ts NULLS FIRST", [(1, 3)])],
)
def test_a_row_without_a_time_is_within_no_interval_of_another(
    bound: str, order: str, wanted: list[tuple[int, int]]
) -> None:
    rows = table(0, None, 1_000, None)
    assert spans(f"(A B+) WITHIN {bound}", rows, order=order) == wanted
    assert len(spans(f"(A B*) WITHIN {bound}", rows, order=order)) == 3


def test_an_interval_longer_than_any_time_can_be_bounds_nothing() -> None:
    rows = table(*range(1_700_000_000_000, 1_700_000_040_000, 1_000))
    with eager():
        found = spans("(A B*? C) WITHIN INTERVAL '100000' DAY", rows, define="DEFINE C AS A.v > 8 AND C.v = A.v + 9")
    assert found == [(9, 18), (19, 28), (29, 38)]


def test_an_attempt_at_rows_without_a_time_is_explained() -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(v) AS a PATTERN (A B) "
        "WITHIN INTERVAL '2' SECOND DEFINE B AS v > 0) AS m"
    )
    (stage,) = explain(sql, table(0, None, None)).stages
    assert stage.passed == 0
    assert {each.outcome for each in stage.attempts if each.start is not None} == {"expired"}
