"""WITHIN at its edges. Random cases are in `test_against_reference` and `test_stream_against_batch`."""

import random
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate, explain
from tests.candlewright_cep.matching.test_foresight import eager
from tests.rounds import seeds


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


PREVIOUS = "WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW"


def test_rows_of_one_time_and_an_interval_less_one_are_close_enough() -> None:
    rows = table(0, 0, 1_999, 1_999, 3_999, 4_000)
    assert spans(f"(A+) {PREVIOUS}", rows) == [(1, 4), (5, 6)]
    assert spans(f"(A) {PREVIOUS}", rows) == [(row, row) for row in range(1, 7)]
    assert spans("(A+) WITHIN INTERVAL '0.000000001' SECOND FROM PREVIOUS ROW", rows) == [
        (1, 2),
        (3, 4),
        (5, 5),
        (6, 6),
    ]


def test_a_pause_is_one_between_rows_next_to_each_other() -> None:
    rows = table(0, 1_000, 2_000, 5_000)
    # Rows that {- -} hides count, and so do those that PREV reads across the pause.
    assert spans(f"(A {{- B -}} A) {PREVIOUS}", rows) == [(1, 3)]
    assert spans(f"(A) {PREVIOUS}", rows, define="DEFINE A AS v > PREV(v) + 0 AND PREV(v) = 3") == [(4, 4)]
    assert spans(f"(A B | C) {PREVIOUS}", rows, define="DEFINE A AS v = 3") == [(1, 1), (2, 2), (3, 3), (4, 4)]


def test_the_interval_may_be_a_parameter() -> None:
    sql = (
        "SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A+) "
        "WITHIN INTERVAL :pause SECOND FROM PREVIOUS ROW) AS m"
    )
    found = [evaluate(sql, table(0, 1_000, 3_000), {"pause": pause}).column("n").to_pylist() for pause in ("2", "2.5")]
    assert found == [[2, 1], [3]]
    with pytest.raises(TriggerRejected, match="longer than zero"):
        evaluate(sql, table(0), {"pause": "-1"})


def test_a_row_without_a_time_is_a_pause() -> None:
    rows = table(0, 1_000, None, None)
    assert spans(f"(A+) {PREVIOUS}", rows) == [(1, 2), (3, 3), (4, 4)]
    assert spans(f"(A+) {PREVIOUS}", rows, order="ts NULLS FIRST") == [(3, 3), (4, 4), (1, 2)]


@pytest.mark.parametrize("within", ["INTERVAL '3' SECOND", "INTERVAL '2' SECOND FROM PREVIOUS ROW"])
def test_a_pattern_in_a_window_is_bounded_like_another(within: str) -> None:
    """The match that begins at each row is the one of MATCH_RECOGNIZE over the rows of its frame."""
    chance = random.Random(within)
    for _ in seeds(60):
        times = sorted(chance.choices(range(12), k=8))
        rows = table(*(time * 500 for time in times))
        clauses = f"PATTERN (A B*? C?) WITHIN {within} DEFINE A AS v > 1, C AS v % 2 = 0"
        sql = (
            "SELECT v, n OVER w AS n FROM t WINDOW w AS (ORDER BY ts MEASURES COUNT(*) AS n ROWS BETWEEN CURRENT ROW "
            f"AND 5 FOLLOWING AFTER MATCH SKIP TO NEXT ROW {clauses})"
        )
        for row in evaluate(sql, rows).to_pylist():
            frame = rows.slice(row["v"] - 1, 6)
            own = f"SELECT * FROM t MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(v) AS v, COUNT(*) AS n {clauses}) AS m"
            alone = {match["v"]: match["n"] for match in evaluate(own, frame).to_pylist()}
            assert row["n"] == alone.get(row["v"]), (times, row)
