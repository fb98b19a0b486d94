"""Work that must not grow with the square of the rows, and limits that stop work that does."""

import time

import numpy as np
import pyarrow as pa
import pytest

import candlewright_cep
from candlewright_cep import (
    Limits,
    ReleaseBuffer,
    StreamInput,
    TriggerRejected,
    TriggerStream,
    compile_stream,
    evaluate,
    vector,
)
from candlewright_cep import limits as bounds
from candlewright_cep.matching import automaton


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
    # With eight times the rows, quadratic work would take sixty-four times as long.
    assert large < 24 * small + 0.2


def test_many_small_partitions_are_cheap() -> None:
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
    assert candlewright_cep.__all__ == sorted(candlewright_cep.__all__)
    assert all(hasattr(candlewright_cep, name) for name in candlewright_cep.__all__)


DEEP = {
    "parentheses": lambda n: "(" * n + "p" + ")" * n + " > 0",
    "functions": lambda n: "ABS(" * n + "p" + ")" * n + " > 0",
    "casts": lambda n: "CAST(" * n + "p" + " AS DOUBLE)" * n + " > 0",
    "NOT": lambda n: "NOT " * n + "p > 0",
    "CASE": lambda n: "CASE WHEN p > 1 THEN " * n + "p" + " END" * n + " > 0",
    "subqueries": lambda n: "SELECT * FROM " + "(SELECT * FROM " * n + "ticks" + ")" * n,
    "pattern": lambda n: matching(f"PATTERN ({'(' * n}A{')?' * n})"),
    "definition": lambda n: matching("PATTERN (A B) DEFINE B AS " + "ABS(" * n + "A.p" + ")" * n + " > 0"),
    "logic": lambda n: matching(
        "PATTERN (A B) DEFINE B AS " + "(A.p > 1 AND (A.p < 9 OR " * (n // 2) + "A.p = 5" + "))" * (n // 2)
    ),
}


@pytest.mark.parametrize("form", sorted(DEEP))
def test_texts_may_be_nested_as_deep_as_documented(form: str) -> None:
    evaluate(DEEP[form](120), rising(3))
    with pytest.raises(TriggerRejected, match=r"INVALID_SQL 1:\d{3,}: the text is nested deeper than 120 levels"):
        evaluate(DEEP[form](124), rising(3))


@pytest.mark.parametrize("join", ["AND", "OR"])
def test_a_long_definition_gives_the_same_rows_as_a_column(join: str) -> None:
    """Each part is evaluated only if the previous ones did not decide, with up to 60 of them nested."""
    other = "OR" if join == "AND" else "AND"
    prices = pa.array([5.0, None])
    # By start, its price and the next one.
    pairs = pa.table({"start": [0, 0, 1, 1], "n": [1, 2, 1, 2], "p": prices.take(pa.array([0, 1, 1, 1]))})
    for wanted in (0, 60, 99, 100):
        chain = f" {join} ".join(f"(p <> {n} {other} p = {1_000 if n == wanted else 5})" for n in range(100))
        for condition in (chain, f"NOT ({chain})", f"({chain}) IS NULL"):
            column = evaluate(f"SELECT ({condition}) IS TRUE AS x FROM ticks", pa.table({"p": prices}))
            own = condition.replace("p ", "FIRST(p) ")
            match = "PARTITION BY start ORDER BY n MEASURES 1 AS one PATTERN (A B) DEFINE B AS"
            found = evaluate(f"SELECT start FROM ticks MATCH_RECOGNIZE ({match} {own}) AS m", pairs)
            wanted_starts = [start for start, is_met in enumerate(column.column("x").to_pylist()) if is_met]
            assert sorted(found.column("start").to_pylist()) == wanted_starts, condition[:80]


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


@pytest.mark.parametrize(
    "frame", ["ROWS 5 PRECEDING", "ROWS 5 PRECEDING EXCLUDE CURRENT ROW", "ROWS BETWEEN 2 FOLLOWING AND 5 FOLLOWING"]
)
def test_frames_have_the_same_values_whatever_is_computed_at_a_time(
    frame: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = ["MODE(n)", "SUM(DISTINCT n)", "LISTAGG(side, ',')", "ARRAY_AGG(n)", "MEDIAN(n)", "MAX_BY(side, n)"]
    shown = [f"{call} OVER w" for call in calls]
    shown += ["ARRAY_JOIN(ARRAY_AGG(n) OVER w, '-')", "ARRAY_JOIN(ARRAY_AGG(side) OVER w, '', '?')"]
    columns = ", ".join(f"{part} AS x{place}" for place, part in enumerate(shown))
    sql = f"SELECT {columns} FROM ticks WINDOW w AS (ORDER BY ts {frame})"
    numbers = [None if row % 7 == 3 else row * row % 5 for row in range(40)]
    sides = [None if row % 5 == 1 else "abc"[row % 3] for row in range(40)]
    table = pa.table({"ts": pa.array(range(40)).cast(pa.timestamp("ns")), "n": numbers, "side": sides})
    whole = evaluate(sql, table)
    monkeypatch.setattr(vector, "_AT_A_TIME", 8)
    assert evaluate(sql, table) == whole


def test_a_long_constant_before_many_texts_takes_no_memory_if_the_whole_is_too_long() -> None:
    table = pa.table({"side": ["b"] * 250_000})
    long = " || ".join([f"'{'a' * 2_000}'"] * 5)
    assert evaluate(f"SELECT ({long}) || side AS x FROM ticks", table).column("x").null_count == 250_000


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
    monkeypatch.setattr(bounds, "MADE_TEXTS", 1_000_000)
    monkeypatch.setattr(bounds, "MADE_A_ROW", 0)
    with pytest.raises(TriggerRejected, match="the texts and arrays made in one step have more than 1000000 bytes"):
        evaluate(sql, pa.table({"side": ["b"] * 3_000}))


def of_long_texts(rest: str) -> str:
    """`rest` over texts of 8,400 bytes in each row."""
    long = f"CONCAT({', '.join(['REPEAT(side, 240)'] * 10)})"
    return rest.replace("long", f"(SELECT ts, {long} AS x FROM ticks)")


#: Texts that made gigabytes, or asked for more than a machine has, from 3,000 rows.
GIGABYTES = {
    "a join": "SELECT a.x FROM long AS a JOIN long AS b ON a.ts >= b.ts",
    "panes": "SELECT * FROM TABLE(HOP(long, DESCRIPTOR(ts), INTERVAL '0.1' SECOND, INTERVAL '60' SECOND))",
    "UNNEST": f"SELECT x FROM long CROSS JOIN UNNEST(ARRAY[{', '.join('1' * 800)}]) AS u(n)",
    "overlapping matches": "SELECT * FROM long MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(x) AS l ALL ROWS PER MATCH "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A{,200})) AS m",
    "measures": "SELECT * FROM long MATCH_RECOGNIZE (ORDER BY ts MEASURES "
    + ", ".join(f"LAST(x, {n}) AS l{n}" for n in range(90))
    + " ALL ROWS PER MATCH PATTERN (A+)) AS m",
    "functions": f"SELECT {', '.join(f'UPPER(x) || {n} AS u{n}' for n in range(90))} FROM long",
    "rows before": f"SELECT {', '.join(f'LAG(x, {n}) OVER (ORDER BY ts) AS l{n}' for n in range(90))} FROM long",
    "one text in many rows": "SELECT "
    + ", ".join(f"FIRST_VALUE(x) OVER (ORDER BY ts, {n}) AS f{n}" for n in range(90))
    + " FROM long",
    "a sorted copy": f"SELECT {', '.join(f'x AS x{n}' for n in range(90))} FROM long ORDER BY ts DESC",
    "ARRAY": f"SELECT ARRAY[{', '.join('x' * 61)}] AS a FROM long",
    "arrays of matches": "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES "
    + ", ".join(f"ARRAY_AGG(ts_ns + {n}) AS a{n}" for n in range(20))
    + " ALL ROWS PER MATCH PATTERN (A+)) AS m",
    "lists of matches": "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES "
    + ", ".join(f"LISTAGG(side, 'and {n}') AS a{n}" for n in range(20))
    + " ALL ROWS PER MATCH PATTERN (A+)) AS m",
}


@pytest.mark.parametrize("name", GIGABYTES)
def test_the_texts_and_arrays_of_a_step_have_a_bound_in_all(name: str) -> None:
    rows = np.arange(3_000)
    times = pa.array(rows * 40_000_000).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"ts": times, "ts_ns": rows, "side": ["buy", "sell"] * 1_500})
    begin = time.thread_time()
    with pytest.raises(TriggerRejected, match=r"the text took more than|the texts and arrays made in one step have"):
        evaluate(of_long_texts(GIGABYTES[name]), table)
    assert time.thread_time() - begin < 4


def test_a_column_that_is_shown_several_times_is_made_once() -> None:
    shown = ", ".join(f"x AS x{number}" for number in range(900))
    table = pa.table({"ts": pa.array(np.arange(3_000)).cast(pa.timestamp("ms")), "side": ["buy"] * 3_000})
    found = evaluate(of_long_texts(f"SELECT {shown} FROM long"), table)
    assert found.column(0).chunk(0).buffers()[2].address == found.column(899).chunk(0).buffers()[2].address


def test_a_joined_text_of_a_group_is_made_once() -> None:
    table = pa.table({"side": ["abc"] * 50_000})
    (joined,) = evaluate("SELECT STRING_AGG(side, '-') AS x FROM ticks", table).column("x").to_pylist()
    assert joined == ("abc-" * 2_500)[:10_000]


def wandering(count: int) -> pa.Table:
    """Prices that never rise by a hundred, 25 a second."""
    random = np.random.default_rng(1)
    return pa.table(
        {
            "ticker": ["T"] * count,
            "ts": pa.array(np.arange(count) * 40).cast(pa.timestamp("ms")),
            "price": 1_000 + np.round(np.sin(np.arange(count) / 900) * 20 + random.normal(0, 1, count), 2),
            "size": random.exponential(1, count),
        }
    )


def thresholds(pattern: str, define: str, within: str = "", *, clauses: str = "") -> str:
    return (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES A.price AS a, C.price AS c "
        f"{clauses} PATTERN ({pattern}) {within} DEFINE {define}) AS m"
    )


PRUNED = [
    thresholds("A B* C", "C AS C.price > A.price + 100"),
    thresholds("A B*? C", "C AS C.price < A.price * 0.5"),
    thresholds("A B*? C", "C AS (C.price - A.price) / A.price > 0.5", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B* C", "C AS C.price > A.price * 1.5", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B*? C", "C AS C.price > A.price * 1.5 AND C.size > A.size", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B*? (C | D)", "C AS C.price > A.price * 1.5, D AS D.price < A.price * 0.5"),
    thresholds("A B* C", "B AS B.price < A.price * 1.5, C AS C.price >= A.price * 1.5", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B*? C", "C AS C.price > 5000", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B+? C", "C AS C.price < MAX(B.price) * 0.9", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B+ C", "C AS C.price > LAST(B.price) * 2", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B*? C", "C AS SUM(B.size) > 1000000 AND C.price > A.price", "WITHIN INTERVAL '60' SECOND"),
    thresholds("A B*? C", "C AS C.price > AVG(B.price) * 1.1 AND COUNT(B.*) > 3", "WITHIN INTERVAL '60' SECOND"),
]
# Conditions about which nothing is known before they are tried.
SEARCHED = [
    thresholds("A B* C", "C AS C.price > STDDEV(B.price) * 1e9"),
    thresholds("(A | B)* C", "A AS COUNT(*) > 0, B AS COUNT(B.*) + COUNT(A.*) > 0, C AS COUNT(A.*) < 0"),
    thresholds("A B* C", "C AS VARIANCE(B.size) < 0 AND SQRT(C.price) > 0", clauses="AFTER MATCH SKIP TO NEXT ROW"),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sql", PRUNED)
def test_a_loop_before_a_threshold_is_skipped(sql: str) -> None:
    table = wandering(20_000)
    begin = time.process_time()
    assert evaluate(sql, table).num_rows == 0
    # The naive search takes from ten seconds to minutes.
    assert time.process_time() - begin < 3


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sql", PRUNED[2:])
def test_a_loop_before_a_threshold_is_skipped_on_a_stream(sql: str) -> None:
    begin = time.process_time()
    assert on_stream(sql, wandering(20_000), 500) == 0
    assert time.process_time() - begin < 5


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sql", SEARCHED)
def test_work_has_a_limit_for_any_text(sql: str) -> None:
    limits = Limits(steps_per_batch=500_000, steps_per_row=1, steps_per_match=100_000)
    begin = time.process_time()
    with pytest.raises(TriggerRejected, match=r"INVALID_SQL 1:15: (the text|one match) took more than"):
        evaluate(sql, wandering(20_000), limits=limits)
    assert time.process_time() - begin < 10


def test_time_has_a_limit_for_any_text() -> None:
    limits = Limits(steps_per_batch=10**12, seconds_per_batch=0.2, seconds_per_row=0)
    begin = time.process_time()
    with pytest.raises(TriggerRejected, match=r"took more than 0\.2 seconds over 20000 rows"):
        evaluate(SEARCHED[0], wandering(20_000), limits=limits)
    assert time.process_time() - begin < 5


@pytest.mark.timeout(120)
def test_work_has_a_limit_on_a_stream() -> None:
    sql = thresholds("A B* C", "C AS C.price > STDDEV(B.price) * 1e9", "WITHIN INTERVAL '60' SECOND")
    with pytest.raises(TriggerRejected, match="took more than"):
        on_stream(sql, wandering(20_000), 500, limits=Limits(steps_per_batch=100_000, steps_per_row=1))


def on_stream(sql: str, table: pa.Table, batch: int, *, limits: Limits | None = None) -> int:
    query = compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))}, limits=limits or Limits())
    running, buffer = TriggerStream(query=query), ReleaseBuffer("ts", "ticker")
    return sum(
        running.feed(buffer.push(table.slice(start, batch)).rows, buffer.clock).table.num_rows
        for start in range(0, table.num_rows, batch)
    )


def test_an_automaton_forgets_states_past_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    table = wandering(5_000)
    sql = thresholds("(A | B)* A (A | B){20} C", "A AS size > 0.7, B AS size <= 0.7, C AS size > 4")
    wanted = evaluate(sql, table)
    monkeypatch.setattr(automaton, "MOST_STATES", 50)
    assert evaluate(sql, table) == wanted


def over(function: str, preceding: int, copies: int = 1) -> str:
    frame = f"OVER (ORDER BY ts ROWS {preceding} PRECEDING)"
    columns = ", ".join(f"{function.replace('price', f'price + {n}')} {frame} AS x{n}" for n in range(copies))
    return f"SELECT {columns} FROM ticks"


def hop(panes: int) -> str:
    return (
        "SELECT window_start, COUNT(DISTINCT size) AS s FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), "
        f"INTERVAL '1' SECOND, INTERVAL '{panes}' SECOND)) GROUP BY window_start, window_end"
    )


#: Texts without a pattern, each of which took from ten seconds to minutes, or gigabytes.
HEAVY = {
    "different values in frames": over("SUM(DISTINCT price)", 290, 40),
    "texts in frames": over("STRING_AGG(ticker, 'price')", 290, 30),
    "panes": hop(2_000),
    "panes and their values": hop(400),
    "a join": "SELECT AVG(a.price * b.price) AS n FROM ticks a JOIN ticks b ON FLOOR(a.size / 5) = FLOOR(b.size / 5)",
    "an interval": "SELECT AVG(a.price * b.price) AS n FROM ticks a JOIN ticks b "
    "ON b.ts BETWEEN a.ts - INTERVAL '1' DAY AND a.ts + INTERVAL '1' DAY",
    "branches": " UNION ALL ".join(["SELECT * FROM ticks"] * 400),
    "functions": "SELECT " + ", ".join(f"DATE_FORMAT(ts, '%Y {n}') AS x{n}" for n in range(300)) + " FROM ticks",
}


#: A tenth of the usual allowance, for a tenth of the time.
LITTLE = Limits(steps_per_batch=250_000, seconds_per_batch=0.3)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", sorted(HEAVY))
def test_work_has_a_limit_without_a_pattern_too(name: str) -> None:
    table = wandering(3_000)
    begin = time.thread_time()
    with pytest.raises(TriggerRejected, match="the text took more than"):
        evaluate(HEAVY[name], table, limits=LITTLE)
    # Work that had begun when the allowance ran out may be finished.
    assert time.thread_time() - begin < 1.5


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["different values in frames", "panes", "functions"])
def test_work_has_a_limit_without_a_pattern_on_a_stream(name: str) -> None:
    begin = time.thread_time()
    with pytest.raises(TriggerRejected, match="the text took more than"):
        on_stream(HEAVY[name], wandering(3_000), 3_000, limits=LITTLE)
    assert time.thread_time() - begin < 1.5


@pytest.mark.parametrize("function", ["STDDEV(price)", "MAX(price)", "CORR(price, size)", "SUM(price)"])
def test_long_frames_are_within_the_limit(function: str) -> None:
    assert evaluate(over(function, 2_900, 40), wandering(3_000), limits=LITTLE).num_rows == 3_000


def test_windows_that_share_rows_are_within_the_limit() -> None:
    table = wandering(3_000)
    found = evaluate(hop(2_000).replace("COUNT(DISTINCT size)", "STDDEV(size)"), table, limits=LITTLE)
    assert found.num_rows == 2_000 + 3_000 // 25 - 1


@pytest.mark.timeout(60)
def test_a_wide_frame_on_a_stream_costs_only_its_new_rows() -> None:
    """The rows that it holds were computed before: recomputing 1,000 frames of 1,000 rows with every batch would be too
    much.
    """
    sql, table = over("STDDEV(price)", 1_000), wandering(1_500)
    assert on_stream(sql, table, 10, limits=Limits(steps_per_batch=50_000)) == 1_499
