"""What `explain` reports about conditions, windows and row patterns."""

import json
import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings

from candlewright_cep import TriggerRejected, evaluate, explain
from candlewright_cep.tracing.attempts import Attempt
from candlewright_cep.tracing.conditions import Condition
from tests.candlewright_cep.random_matches import Case, cases
from tests.rounds import rounds

SECOND = 1_000_000_000
DIP = """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(price) AS top
    PATTERN (S D{2,} U) DEFINE D AS price < PREV(price), U AS price > LAST(D.price) * 1.02 AND size > 1)"""


def ticks(*prices: float | None, size: float = 2.0, ticker: str = "A") -> pa.Table:
    count = len(prices)
    return pa.table(
        {
            "ticker": [ticker] * count,
            "ts": pa.array([second * SECOND for second in range(count)], pa.timestamp("ns", "UTC")),
            "price": pa.array(prices, pa.float64()),
            "size": [size] * count,
        }
    )


def outcomes(attempts: tuple[Attempt, ...]) -> list[tuple[str, int]]:
    return [(each.outcome, (each.start or 0) // SECOND) for each in attempts]


def values(condition: Condition) -> dict[str, object]:
    found = {each.text: each.value for each in condition.operands if each.is_known}
    for part in condition.parts:
        found |= values(part)
    return found


def verdicts(condition: Condition) -> list[tuple[str, bool | None]]:
    return [(part.text, part.holds) for part in condition.parts] or [(condition.text, condition.holds)]


def test_a_condition_shows_each_part_and_its_sides() -> None:
    found = explain("price > open_at * :rise AND size > 1", ticks(100, 120).append_column("open_at", [[100.0, 118]]),
                    {"rise": "1.02"})  # fmt: skip
    (stage,) = found.stages
    condition = stage.attempts[0].nearest[0].condition
    assert (stage.kind, stage.rows, stage.passed, found.fired) == ("WHERE", 2, 0, 0)
    assert condition is not None
    assert verdicts(condition) == [("price > open_at * 1.02", False), ("size > 1", True)]
    assert values(condition) == {"price": 120, "open_at * 1.02": pytest.approx(120.36), "open_at": 118, "size": 2}


def test_rows_that_came_closest_are_first_after_the_last_match_and_the_newest() -> None:
    (stage,) = explain("price > 100", ticks(90, 101, 99, 50, 10), attempts=2).stages
    assert outcomes(stage.attempts) == [("matched", 1), ("failed", 4), ("failed", 2), ("failed", 0)]


def test_a_null_condition_ranks_after_all_numbers() -> None:
    (stage,) = explain("price > 100", ticks(None, 1), attempts=2).stages
    assert [each.nearest[0].condition.holds for each in stage.attempts if each.nearest[0].condition] == [False, None]


def test_the_nearer_side_of_an_or_counts() -> None:
    (stage,) = explain("price > 100 OR price < 10", ticks(50, 99, 11), attempts=3).stages
    assert outcomes(stage.attempts) == [("failed", 2), ("failed", 1), ("failed", 0)]


def test_a_pattern_shows_where_and_why_each_attempt_failed() -> None:
    (stage,) = explain(DIP, ticks(100, 99, 98, 99, 97)).stages
    died = stage.attempts[1]
    assert [(row.variable, row.values["price"]) for row in died.rows] == [("S", 100), ("D", 99), ("D", 98)]
    assert (died.outcome, died.taken, died.missing, died.key) == ("failed", 3, 1, {"ticker": "A"})
    of_variable = {test.variable: test.condition for test in died.nearest}
    assert of_variable["U"] is not None and of_variable["D"] is not None
    assert died.nearest[0].row is not None and died.nearest[0].row.time == 3 * SECOND
    assert verdicts(of_variable["U"]) == [("price > D.price * 1.02", False), ("size > 1", True)]
    assert values(of_variable["U"])["D.price * 1.02"] == pytest.approx(99.96)
    assert values(of_variable["D"]) == {"price": 99, "PREV(price)": 98}


def test_an_open_attempt_shows_the_rows_it_waits_for() -> None:
    (stage,) = explain(DIP, ticks(100, 99, 98)).stages
    (waiting,) = (each for each in stage.attempts if each.outcome == "waiting")
    assert [row.variable for row in waiting.rows] == ["S", "D", "D"]
    assert {test.variable: test.row for test in waiting.awaits} == {"D": None, "U": None}
    known = {test.variable: values(test.condition) for test in waiting.awaits if test.condition}
    assert known == {"D": {"PREV(price)": 98}, "U": {"D.price * 1.02": pytest.approx(99.96), "D.price": 98}}
    assert not waiting.can_end


def test_a_match_that_may_grow_can_end() -> None:
    (stage,) = explain(DIP.replace("U)", "U+)"), ticks(100, 99, 98, 101)).stages
    (waiting,) = stage.attempts
    assert (waiting.outcome, waiting.can_end, waiting.missing) == ("waiting", True, 0)


def test_a_match_is_shown_and_later_rows_start_new_attempts() -> None:
    found = explain(DIP, ticks(100, 99, 98, 101, 105))
    assert found.fired == found.stages[0].passed == 1
    matched = found.stages[0].attempts[0]
    assert (matched.outcome, [row.variable for row in matched.rows]) == ("matched", ["S", "D", "D", "U"])


def test_within_passed() -> None:
    text = """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.price AS a PATTERN (A B*? C)
        WITHIN INTERVAL '3' SECOND DEFINE A AS price > 99, C AS C.price > A.price + 10 AND SUM(B.price) > 0)"""
    (stage,) = explain(text, ticks(100, 1, 108, 1, 1, 1)).stages
    (expired,) = (each for each in stage.attempts if each.start == 0)
    assert (expired.outcome, expired.deadline) == ("expired", 3 * SECOND)
    (test,) = expired.nearest
    assert test.row is not None and (test.variable, test.row.time) == ("C", 2 * SECOND)
    assert test.condition is not None
    assert values(test.condition)["A.price + 10"] == 110 and values(test.condition)["SUM(B.price)"] == 1


def test_within_passed_before_a_row_was_tested() -> None:
    text = """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.price AS a PATTERN (A B{3})
        WITHIN INTERVAL '2' SECOND DEFINE A AS price > 99)"""
    (stage,) = explain(text, ticks(100, 1, 1, 1)).stages
    (expired,) = (each for each in stage.attempts if each.start == 0)
    assert (expired.outcome, expired.taken, expired.missing) == ("expired", 2, 2)
    assert [row.variable for row in expired.rows] == ["A", "B"] and expired.nearest == ()


def test_the_next_row_came_too_late() -> None:
    text = """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.price AS a PATTERN (A B* C)
        WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW DEFINE A AS price > 99, C AS price > 500)"""
    rows = ticks(100, 1, 1, 1, 100, 1).filter(pa.array([True, True, True, False, False, True]))
    (stage,) = explain(text, rows).stages
    (expired,) = (each for each in stage.attempts if each.start == 0)
    assert (expired.outcome, expired.taken, expired.deadline) == ("expired", 2, 4 * SECOND)
    (stage,) = explain(text, ticks(1, 100, 1)).stages
    (waiting,) = (each for each in stage.attempts if each.outcome == "waiting")
    assert waiting.deadline == 4 * SECOND


def test_rows_after_the_time_do_not_count() -> None:
    found = explain("price > 100", ticks(90, 95, 120), at=SECOND)
    assert (found.rows, found.last, found.fired) == (2, SECOND, 0)


def test_each_partition_has_separate_attempts() -> None:
    both = pa.concat_tables([ticks(100, 99, 98), ticks(100, 99, 98, ticker="B")])
    (stage,) = explain(DIP, both).stages
    assert sorted(str(each.key["ticker"]) for each in stage.attempts if each.outcome == "waiting") == ["A", "B"]


def test_windows_name_their_functions_and_open_groups_wait() -> None:
    grouped = """SELECT ticker, AVG(price) AS mean FROM ticks
        GROUP BY ticker, TUMBLE(ts, INTERVAL '2' SECOND) HAVING AVG(price) > 100"""
    (stage,) = explain(grouped, ticks(90, 92, 94)).stages
    assert (stage.kind, stage.text) == ("HAVING", "AVG(price) > 100")
    assert [each.outcome for each in stage.attempts] == ["waiting", "failed"]
    moving = "SELECT price FROM ticks QUALIFY price > SMA(price, 2) OVER (PARTITION BY ticker ORDER BY ts) * 1.1"
    (stage,) = explain(moving, ticks(100, 102)).stages
    condition = stage.attempts[0].nearest[0].condition
    assert stage.kind == "QUALIFY" and condition is not None
    assert values(condition)["SMA(price, 2) OVER (…)"] == 101


def test_conditions_before_and_after_a_pattern_are_stages() -> None:
    text = f"SELECT * FROM ({DIP.replace('FROM ticks', 'FROM (SELECT * FROM ticks WHERE price > 0)')}) WHERE top > 1000"
    found = explain(text, ticks(100, 99, 98, 101, 0))
    assert [(each.kind, each.rows, each.passed) for each in found.stages] == [
        ("WHERE", 5, 4),
        ("MATCH_RECOGNIZE", 4, 1),
        ("WHERE", 1, 0),
    ]
    assert found.fired == 0


def test_the_bars_of_the_period_are_not_a_separate_stage() -> None:
    bars = ticks(1, 2, 3, 4).rename_columns(["ticker", "open_time", "price", "size"])
    bars = bars.append_column("period_seconds", pa.array([60, 300, 60, 60]))
    (stage,) = explain("price > 2", {"ohlc": bars}, {"period_seconds": "60"}, table_name="ohlc").stages
    assert (stage.text, stage.rows, stage.passed) == ("price > 2", 3, 2)


def test_conditions_of_a_view_are_a_stage() -> None:
    found = explain(
        "SELECT * FROM dear WHERE size > 3", {"ticks": ticks(1, 5), "dear": "SELECT * FROM ticks WHERE price > 2"}
    )
    assert [(each.text, each.passed) for each in found.stages] == [("price > 2", 1), ("size > 3", 0)]


@pytest.mark.parametrize(
    "text",
    [
        "NOT (price < 3 OR price IS NULL) AND price BETWEEN 1 AND 5",
        "price - (size - 1) > -2 AND (price + 1) * 2 > price / (size * 2)",
        "CASE WHEN price > 2 THEN size ELSE 0 END > 1 OR ticker IN ('A', 'it''s') AND ABS(price) >= 1",
        "ts >= TIMESTAMP '1970-01-01 00:00:01' AND ticker IS DISTINCT FROM 'B'",
    ],
)
def test_the_text_of_a_condition_means_the_same(text: str) -> None:
    rows = ticks(-1, 2, None, 4, 9)
    (stage,) = explain(text, rows).stages
    assert evaluate(stage.text, rows) == evaluate(text, rows)


@pytest.mark.processes
def test_nothing_of_it_is_loaded_without_need() -> None:
    """Runs in a separate process, because other tests here load it."""
    source = "import sys, candlewright_cep; print([name for name in sys.modules if 'candlewright_cep.tracing' in name])"
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_bad_text_is_refused_with_its_place() -> None:
    with pytest.raises(TriggerRejected, match=r"^INVALID_SQL 1:1: .*prise"):
        explain("prise > 1", ticks(1))


def test_no_rows_have_no_attempts() -> None:
    assert explain("price > 1", ticks()).to_dict() == {
        "rows": 0,
        "first": None,
        "last": None,
        "fired": 0,
        "stages": [
            {"kind": "WHERE", "text": "price > 1", "rows": 0, "passed": 0, "failed": 0, "examined": 0, "attempts": []}
        ],
    }


def test_long_loops_take_bounded_work() -> None:
    text = """SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.price AS a PATTERN (A B*? C)
        DEFINE C AS C.price > A.price + SUM(B.price) + 1)"""
    (stage,) = explain(text, ticks(*[100.0] * 5_000)).stages
    assert stage.attempts[0].outcome == "waiting"
    assert len(stage.attempts[0].rows) < 100 < stage.attempts[0].taken


@given(case=cases(within=True))
@settings(max_examples=rounds(30), deadline=None)
def test_conditions_of_attempts_that_ended_were_not_met(case: Case) -> None:
    found = explain(case.sql, case.table, attempts=50)
    json.dumps(found.to_dict())
    for stage in found.stages:
        for attempt in stage.attempts:
            assert attempt.taken >= len(attempt.rows)
            assert all(test.condition is not None and test.condition.holds is not True for test in attempt.nearest)
            assert all(test.row is None for test in attempt.awaits)


def test_groups_have_the_names_of_the_text() -> None:
    times = pa.array([1, 2, 3, 4], pa.timestamp("s"))
    table = pa.table({"ticker": ["a"] * 4, "ts": times, "price": [1.0, 3.0, 2.0, 5.0], "side": ["b", "s", "b", "s"]})
    changing = "SELECT ticker, MAX(price) AS top FROM ticks GROUP BY ticker HAVING MAX(price) > 3 EMIT CHANGES"
    (stage,) = explain(changing, {"ticks": table}).stages
    assert (stage.kind, stage.text, stage.rows, stage.passed) == ("HAVING", "MAX(price) > 3", 3, 1)
    totals = "SELECT side, SUM(price) AS total FROM ticks GROUP BY ROLLUP(ticker, side)"
    (stage,) = explain(f"{totals} HAVING GROUPING(side) = 1 AND GROUPING(ticker, side) < 3", {"ticks": table}).stages
    assert stage.text == "GROUPING(side) = 1 AND GROUPING(ticker) * 2 + GROUPING(side) < 3"
    assert (stage.rows, stage.passed) == (4, 1)
