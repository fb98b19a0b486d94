"""Work that must not grow with the square of the rows, and bounds that stop what does."""

import time

import numpy as np
import pyarrow as pa
import pytest

import cep
from cep import Limits, TriggerRejected, evaluate


def rising(count: int, partitions: int = 1) -> pa.Table:
    rows = np.arange(count)
    return pa.table({"k": rows % partitions, "ts": pa.array(rows).cast(pa.timestamp("ms")), "p": rows.astype(float)})


def matching(clauses: str) -> str:
    return f"SELECT COUNT(*) AS n FROM ticks MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts {clauses}) AS m"


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "clauses",
    [
        "PATTERN (A+ B) DEFINE B AS p < 0",
        "PATTERN (S D+ U+) DEFINE D AS p > PREV(p), U AS p < PREV(p)",
        "PATTERN ((A | B)* C) DEFINE A AS p >= 0, B AS p >= 0, C AS p < 0",
        "PATTERN (A+) DEFINE A AS p > 5",
        "MEASURES SUM(p) AS s, MIN(p) AS l ALL ROWS PER MATCH PATTERN (A+)",
        "MEASURES MAX(A.p) AS s PATTERN (A+) DEFINE A AS SUM(A.p) >= 0 AND p >= FIRST(A.p)",
        "PATTERN (A B+ C) WITHIN INTERVAL '0.02' SECOND DEFINE C AS p < 0",
    ],
)
def test_long_runs_take_linear_time(clauses: str) -> None:
    sql = matching(clauses)
    evaluate(sql, rising(1000))

    def cpu_seconds(count: int) -> float:
        begin = time.process_time()
        evaluate(sql, rising(count))
        return time.process_time() - begin

    small, large = cpu_seconds(5_000), cpu_seconds(40_000)
    # Eight times the rows; sixty-four times the work would be quadratic.
    assert large < 24 * small + 0.2


def test_many_small_partitions_are_no_burden() -> None:
    begin = time.process_time()
    found = evaluate(matching("PATTERN (A B) DEFINE B AS p > A.p"), rising(60_000, 20_000))
    assert found.column("n").to_pylist() == [20_000]
    assert time.process_time() - begin < 5


def test_overlapping_matches_stop_at_the_bound_on_mapped_rows() -> None:
    sql = matching("AFTER MATCH SKIP TO NEXT ROW PATTERN (A+)")
    with pytest.raises(TriggerRejected, match="mapped rows"):
        evaluate(sql, rising(2_000), limits=Limits(mapped_rows=100_000))


def test_joins_stop_at_the_bound_on_rows() -> None:
    with pytest.raises(TriggerRejected, match="the join makes"):
        evaluate("SELECT COUNT(*) FROM ticks a, ticks b", rising(2_000), limits=Limits(joined_rows=100_000))


def test_times_past_64_bits_of_nanoseconds_are_an_error_and_not_a_wrong_time() -> None:
    table = pa.table({"ts": pa.array([10**15], pa.int64()).cast(pa.timestamp("ms"))})
    with pytest.raises(TriggerRejected, match="cannot be read"):
        evaluate("ts > TIMESTAMP '2024-01-01 00:00:00'", table)


def test_the_public_names() -> None:
    assert cep.__all__ == sorted(cep.__all__)
    assert all(hasattr(cep, name) for name in cep.__all__)


def nested(expression: str, depth: int) -> str:
    sql = "SELECT side AS x FROM ticks"
    for _ in range(depth):
        sql = f"SELECT {expression} AS x FROM ({sql})"
    return sql


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "expression",
    ["x || x", "CONCAT(x, x)", "CONCAT_WS(x, x, x)", "REPLACE(x, 'b', x)", "REGEXP_REPLACE(x, '.', '$0$0$0')"],
)
def test_texts_that_double_become_null_before_they_take_memory(expression: str) -> None:
    table = pa.table({"side": pa.array(["bb", None])})
    assert evaluate(nested(expression, 3), table).column("x")[0].as_py().startswith("bb")
    assert evaluate(nested(expression, 45), table).column("x").to_pylist() == [None, None]


@pytest.mark.timeout(20)
def test_a_constant_text_that_grows_is_null_when_it_is_checked() -> None:
    long = "b" * 1_900
    sql = f"SELECT REPLACE(REPLACE('{long}', 'b', '{long}'), 'b', '{long}') AS x FROM ticks"
    assert evaluate(sql, pa.table({"side": ["a"]})).column("x").to_pylist() == [None]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    "sql",
    [
        nested("x || x", 12),
        nested("REPEAT(x, 1000)", 1),
        f"SELECT ARRAY_AGG(x) OVER (ORDER BY x ROWS 300 PRECEDING) FROM ({nested('x || x', 9)})",
        f"SELECT STRING_AGG(x, '') OVER (ORDER BY x) FROM ({nested('x || x', 9)})",
    ],
)
def test_texts_of_a_step_have_a_bound_in_all(sql: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("cep.limits", "cep.aggregates", "cep.functions_text"):
        monkeypatch.setattr(f"{module}.MADE_TEXTS", 1_000_000)
    with pytest.raises(TriggerRejected, match="the texts made in one step have more than 1000000 bytes"):
        evaluate(sql, pa.table({"side": ["b"] * 3_000}))


def test_a_joined_text_of_a_group_is_made_once() -> None:
    table = pa.table({"side": ["abc"] * 50_000})
    (joined,) = evaluate("SELECT STRING_AGG(side, '-') AS x FROM ticks", table).column("x").to_pylist()
    assert joined == ("abc-" * 2_500)[:10_000]
