"""Queries around row patterns, and without them: joins, groups, windows, OVER, set operations."""

from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate

TABLE = pa.table(
    {
        "sym": pa.array(["A", "A", "B", "A", "B", "A", "B", None], pa.string()),
        "ts": pa.array([0, 10, 10, 20, 20, 65, 70, 70], pa.int64()).cast(pa.timestamp("s")),
        "p": pa.array([1.0, 3.0, 10.0, 2.0, 12.0, 5.0, None, 7.0], pa.float64()),
        "v": pa.array([1, 2, 3, 4, 5, 6, 7, 8], pa.int64()),
    }
)


def rows(sql: str) -> list[tuple[Any, ...]]:
    found = evaluate(sql, TABLE)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True))


def seconds(sql: str) -> list[tuple[Any, ...]]:
    """The rows with times as seconds since the epoch."""
    return [tuple(int(x.timestamp()) if hasattr(x, "timestamp") else x for x in row) for row in _utc(sql)]


def _utc(sql: str) -> list[tuple[Any, ...]]:
    found = evaluate(sql, TABLE)
    columns = [
        column.cast(pa.timestamp("s", "UTC")) if pa.types.is_timestamp(column.type) else column
        for column in found.columns
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


CASES: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "group": (
        "SELECT sym, COUNT(*) AS n, COUNT(p) AS c, SUM(v) AS s, AVG(p) AS a FROM ticks GROUP BY sym ORDER BY sym",
        [("A", 4, 4, 13, 2.75), ("B", 3, 2, 15, 11.0), (None, 1, 1, 8, 7.0)],
    ),
    "having": ("SELECT sym FROM ticks GROUP BY sym HAVING MAX(v) > 6 ORDER BY 1 DESC NULLS FIRST", [(None,), ("B",)]),
    "no groups": ("SELECT COUNT(*), SUM(v) FROM ticks WHERE v > 100", [(0, None)]),
    "group by expression": (
        "SELECT v % 2 AS odd, MIN(v), MAX(sym) FROM ticks GROUP BY v % 2 ORDER BY odd",
        [(0, 2, "A"), (1, 1, "B")],
    ),
    "group by alias": ("SELECT v % 2 AS odd, COUNT(*) FROM ticks GROUP BY odd ORDER BY 1", [(0, 4), (1, 4)]),
    "distinct": ("SELECT DISTINCT sym FROM ticks ORDER BY sym NULLS FIRST", [(None,), ("A",), ("B",)]),
    "count distinct": ("SELECT COUNT(DISTINCT sym) FROM ticks", [(2,)]),
    "max_by": ("SELECT MAX_BY(sym, p), MIN_BY(v, p) FROM ticks", [("B", 1)]),
    "limit": ("SELECT v FROM ticks ORDER BY p DESC, v LIMIT 2 OFFSET 1", [(3,), (8,)]),
    "order by hidden": ("SELECT sym FROM ticks WHERE v < 4 ORDER BY v DESC", [("B",), ("A",), ("A",)]),
    "join": (
        "SELECT a.v, b.v FROM ticks a JOIN ticks b ON a.ts = b.ts AND a.sym = 'A' AND b.sym = 'B' ORDER BY 1",
        [(2, 3), (4, 5)],
    ),
    "left join": (
        "WITH a AS (SELECT ts, p FROM ticks WHERE sym = 'A'), b AS (SELECT ts, p FROM ticks WHERE sym = 'B') "
        "SELECT a.p, b.p, a.p - b.p AS spread FROM a LEFT JOIN b ON a.ts = b.ts ORDER BY a.ts",
        [(1.0, None, None), (3.0, 10.0, -7.0), (2.0, 12.0, -10.0), (5.0, None, None)],
    ),
    "full join using": (
        "SELECT ts IS NULL AS t, a.v, b.v FROM (SELECT * FROM ticks WHERE v IN (1, 2)) a FULL JOIN "
        "(SELECT * FROM ticks WHERE v IN (3, 6)) b USING (ts) ORDER BY a.v, b.v",
        [(False, 1, None), (False, 2, 3), (False, None, 6)],
    ),
    "cross join": ("SELECT COUNT(*) FROM ticks a, ticks b WHERE a.v < b.v", [(28,)]),
    "comma join that WHERE equates": (
        "SELECT a.v, b.v FROM ticks a, ticks b WHERE a.ts = b.ts AND a.sym = 'A' AND b.sym = 'B' AND b.v > 3",
        [(4, 5)],
    ),
    "inequality join": ("SELECT COUNT(*) FROM ticks a JOIN ticks b ON a.v + 6 < b.v", [(1,)]),
    "null keys do not join": ("SELECT COUNT(*) FROM ticks a JOIN ticks b ON a.sym = b.sym", [(25,)]),
    "union all": ("SELECT v FROM ticks WHERE v = 1 UNION ALL SELECT p FROM ticks WHERE v = 1", [(1.0,), (1.0,)]),
    "union": ("SELECT sym FROM ticks UNION SELECT 'C' FROM ticks ORDER BY 1", [("A",), ("B",), ("C",), (None,)]),
    "group window": (
        "SELECT sym, TUMBLE_START(ts, INTERVAL '1' MINUTE) AS w, SUM(v) AS s FROM ticks WHERE sym IS NOT NULL "
        "GROUP BY sym, TUMBLE(ts, INTERVAL '1' MINUTE) ORDER BY 1, 2",
        [("A", 0, 7), ("A", 60, 6), ("B", 0, 8), ("B", 60, 7)],
    ),
    "tumble table": (
        "SELECT window_start, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL "
        "'30' SECOND)) "
        "GROUP BY window_start, window_end ORDER BY 1",
        [(0, 30, 5), (60, 90, 3)],
    ),
    "named arguments": (
        "SELECT window_end, COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE ticks, TIMECOL => DESCRIPTOR(ts), "
        "SIZE => INTERVAL '30' SECOND)) GROUP BY window_start, window_end ORDER BY 1",
        [(30, 5), (90, 3)],
    ),
    "hop": (
        "SELECT window_start, COUNT(*) FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '10' SECOND, INTERVAL '20' "
        "SECOND)) WHERE ts < TIMESTAMP '1970-01-01 00:00:30' GROUP BY window_start, window_end ORDER BY 1",
        [(-10, 1), (0, 3), (10, 4), (20, 2)],
    ),
    "cumulate": (
        "SELECT window_start, window_end, SUM(v) FROM TABLE(CUMULATE(TABLE ticks, DESCRIPTOR(ts), INTERVAL "
        "'15' SECOND, "
        "INTERVAL '60' SECOND)) WHERE v < 6 GROUP BY window_start, window_end ORDER BY 2",
        [(0, 15, 6), (0, 30, 15), (0, 45, 15), (0, 60, 15)],
    ),
    "session": (
        "SELECT sym, SESSION_START(ts, INTERVAL '15' SECOND), SESSION_END(ts, INTERVAL '15' SECOND), "
        "COUNT(*) FROM ticks "
        "WHERE sym = 'A' GROUP BY sym, SESSION(ts, INTERVAL '15' SECOND)",
        [("A", 0, 35, 3), ("A", 65, 80, 1)],
    ),
    "session table": (
        "SELECT sym, window_end, COUNT(*) FROM TABLE(SESSION(TABLE ticks PARTITION BY sym, DESCRIPTOR(ts), "
        "INTERVAL '30' SECOND)) WHERE sym = 'B' GROUP BY sym, window_start, window_end ORDER BY 2",
        [("B", 50, 2), ("B", 100, 1)],
    ),
    "session of rows exactly the gap apart": (
        "SELECT sym, SESSION_START(ts, INTERVAL '10' SECOND), SESSION_END(ts, INTERVAL '10' SECOND), COUNT(*) "
        "FROM ticks WHERE sym = 'A' GROUP BY sym, SESSION(ts, INTERVAL '10' SECOND)",
        [("A", 0, 30, 3), ("A", 65, 75, 1)],
    ),
    "first and last of a group": (
        "SELECT sym, FIRST_VALUE(p), LAST_VALUE(p), LAST_VALUE(v) FROM ticks GROUP BY sym ORDER BY sym",
        [("A", 1.0, 5.0, 6), ("B", 10.0, 12.0, 7), (None, 7.0, 7.0, 8)],
    ),
    "filtered aggregates": (
        "SELECT sym, SUM(v) FILTER (WHERE p > 2), COUNT(*) FILTER (WHERE v > 2), MAX_BY(v, p) FILTER (WHERE v < 5) "
        "FROM ticks GROUP BY sym ORDER BY sym",
        [("A", 8, 2, 2), ("B", 8, 3, 3), (None, 8, 1, None)],
    ),
    "aggregates of different values": (
        "SELECT COUNT(DISTINCT v % 3), SUM(DISTINCT v % 3), AVG(DISTINCT v % 3), MIN(DISTINCT v) FROM ticks",
        [(3, 3, 1.0, 1)],
    ),
    "a filtered window function": (
        "SELECT v, COUNT(*) FILTER (WHERE v > 1) OVER (ORDER BY v) FROM ticks WHERE sym = 'A'",
        [(1, 0), (2, 1), (4, 2), (6, 3)],
    ),
    "ntile": (
        "SELECT v, NTILE(3) OVER (ORDER BY v), NTILE(9) OVER (ORDER BY v) FROM ticks WHERE v < 6",
        [(1, 1, 1), (2, 1, 2), (3, 2, 3), (4, 2, 4), (5, 3, 5)],
    ),
    "two numbers together": (
        "SELECT COVAR_POP(v, p), COVAR_SAMP(v, p), CORR(v, v * 3), CORR(v, -v), REGR_SLOPE(v * 2 + 1, v), "
        "REGR_INTERCEPT(v * 2 + 1, v), CORR(v, 1) FROM ticks WHERE v < 3",
        [(0.5, 1.0, 1.0, -1.0, 2.0, 1.0, None)],
    ),
    "named arguments with an offset": (
        "SELECT window_start, COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE ticks, TIMECOL => DESCRIPTOR(ts), "
        "SIZE => INTERVAL '1' MINUTE, OFFSET => INTERVAL '15' SECOND)) GROUP BY window_start ORDER BY 1",
        [(-45, 3), (15, 5)],
    ),
    "rows frame": (
        "SELECT v, SUM(v) OVER (PARTITION BY sym ORDER BY ts ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM ticks "
        "WHERE sym = 'A' ORDER BY v",
        [(1, 1), (2, 3), (4, 6), (6, 10)],
    ),
    "range frame": (
        "SELECT v, COUNT(*) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '10' SECOND PRECEDING AND CURRENT ROW) FROM ticks "
        "ORDER BY v",
        [(1, 1), (2, 3), (3, 3), (4, 4), (5, 4), (6, 1), (7, 3), (8, 3)],
    ),
    "default frame has peers": (
        "SELECT v, SUM(v) OVER (ORDER BY ts) FROM ticks WHERE v < 5 ORDER BY v",
        [(1, 1), (2, 6), (3, 6), (4, 10)],
    ),
    "following": (
        "SELECT v, MAX(p) OVER (ORDER BY v ROWS BETWEEN 1 FOLLOWING AND 2 FOLLOWING) FROM ticks WHERE v < 4",
        [(1, 10.0), (2, 10.0), (3, None)],
    ),
    "lag and lead": (
        "SELECT v, LAG(v) OVER w, LEAD(v, 2, -1) OVER w, FIRST_VALUE(v) OVER w FROM ticks WHERE sym = 'A' "
        "WINDOW w AS (PARTITION BY sym ORDER BY ts)",
        [(1, None, 4, 1), (2, 1, 6, 1), (4, 2, -1, 1), (6, 4, -1, 1)],
    ),
    "ranks": (
        "SELECT v, ROW_NUMBER() OVER (ORDER BY ts, v), RANK() OVER (ORDER BY ts), DENSE_RANK() OVER (ORDER BY ts) "
        "FROM ticks WHERE v < 6",
        [(1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 2, 2), (4, 4, 4, 3), (5, 5, 4, 3)],
    ),
    "over of groups": (
        "SELECT sym, SUM(v) AS s, SUM(SUM(v)) OVER (ORDER BY sym) AS t FROM ticks GROUP BY sym ORDER BY sym",
        [("A", 13, 13), ("B", 15, 28), (None, 8, 36)],
    ),
    "precision of an interval": (
        "SELECT sym, COUNT(*) FROM ticks WHERE v < 4 GROUP BY sym, TUMBLE(ts, INTERVAL '100' SECOND(3)) ORDER BY 1",
        [("A", 2), ("B", 1)],
    ),
    "distinct over": (
        "SELECT v, COUNT(DISTINCT sym) OVER (ORDER BY v ROWS 2 PRECEDING), SUM(DISTINCT v % 3) OVER (ORDER BY v), "
        "COUNT(DISTINCT v) FILTER (WHERE p >= 2) OVER (PARTITION BY sym) FROM ticks WHERE v < 5 ORDER BY v",
        [(1, 1, 1, 2), (2, 1, 3, 2), (3, 2, 3, 1), (4, 2, 3, 2)],
    ),
    "pattern over a subquery with OVER": (
        "SELECT sym, n FROM (SELECT sym, ts, p, AVG(p) OVER (PARTITION BY sym ORDER BY ts ROWS 1 PRECEDING) "
        "AS ma FROM ticks) "
        "MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES COUNT(*) AS n PATTERN (A B+) DEFINE B AS ma "
        "> PREV(ma)) AS m "
        "ORDER BY sym",
        [("A", 4), ("B", 3)],
    ),
    "pattern over a join": (
        "SELECT x FROM (SELECT a.ts AS ts, a.p - b.p AS d FROM ticks a JOIN ticks b ON a.ts = b.ts WHERE "
        "a.sym = 'A' AND "
        "b.sym = 'B') MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(D.d) AS x PATTERN (S D) DEFINE D AS d < PREV(d)) AS m",
        [(-10.0,)],
    ),
    "pattern in a query": (
        "SELECT m.sym, SUM(m.n) AS n FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES COUNT(*) AS n "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) DEFINE B AS v > A.v) AS m WHERE n > 1 GROUP BY m.sym "
        "HAVING SUM(n) > 4",
        [("A", 6)],
    ),
    "column aliases": (
        "SELECT who, much FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES SUM(v) AS s PATTERN (A+)) "
        "AS m (who, much) ORDER BY who",
        [("A", 13), ("B", 15), (None, 8)],
    ),
    "pattern in a window": (
        "SELECT v, top OVER w, COUNT(*) OVER w FROM ticks WHERE sym = 'A' WINDOW w AS (PARTITION BY sym ORDER BY ts "
        "MEASURES LAST(B.p) AS top ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (A B+) DEFINE B "
        "AS p > PREV(p)) "
        "ORDER BY v",
        [(1, 3.0, 2), (2, None, 0), (4, 5.0, 2), (6, None, 0)],
    ),
    "an exclusion in a window changes nothing": (
        "SELECT v, top OVER w, COUNT(*) OVER w FROM ticks WHERE sym = 'A' WINDOW w AS (PARTITION BY sym ORDER BY ts "
        "MEASURES LAST(B.p) AS top ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN (A {- B -}) DEFINE B "
        "AS p > PREV(p)) "
        "ORDER BY v",
        [(1, 3.0, 2), (2, None, 0), (4, 5.0, 2), (6, None, 0)],
    ),
    "pattern sought in a window": (
        "SELECT v, top OVER w FROM ticks WHERE sym = 'A' WINDOW w AS (PARTITION BY sym ORDER BY ts "
        "MEASURES FIRST(A.v) AS top ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING AFTER MATCH SKIP TO NEXT ROW SEEK "
        "PATTERN (A) DEFINE A AS v % 4 = 0) ORDER BY v",
        [(1, 4), (2, 4), (4, 4), (6, None)],
    ),
    "a frame is all that PREV sees in a window": (
        "SELECT v, n OVER w FROM ticks WHERE sym = 'A' WINDOW w AS (PARTITION BY sym ORDER BY ts "
        "MEASURES COUNT(*) AS n ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (A B?) DEFINE A AS PREV(v) IS NULL, B AS NEXT(v) IS NULL) ORDER BY v",
        [(1, 1), (2, 1), (4, 2), (6, 1)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_query_gives_its_rows(name: str) -> None:
    sql, wanted = CASES[name]
    assert seconds(sql) == wanted


def test_star_of_a_pattern_has_the_columns_in_order() -> None:
    one = "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES v AS m PATTERN (A)) AS x"
    assert evaluate(one, TABLE).column_names == ["sym", "m"]
    every = one.replace("PATTERN", "ALL ROWS PER MATCH PATTERN")
    assert evaluate(every, TABLE).column_names == ["sym", "ts", "m", "p", "v"]


def test_null_keys_are_one_partition() -> None:
    table = pa.table({"k": pa.array([None, "a", None], pa.string()), "v": [1, 2, 3]})
    sql = "SELECT k, n FROM ticks MATCH_RECOGNIZE (PARTITION BY k ORDER BY v MEASURES COUNT(*) AS n PATTERN (A+)) AS m"
    assert {row["k"]: row["n"] for row in evaluate(sql, table).to_pylist()} == {None: 2, "a": 1}


@pytest.mark.parametrize(
    ("order", "wanted"),
    [
        ("k, v", [1, 3, 2, 0]),
        ("k DESC, v DESC", [2, 3, 1, 0]),
        ("k NULLS FIRST, v", [0, 1, 3, 2]),
        ("k DESC NULLS FIRST, v", [0, 2, 1, 3]),
        ("v DESC", [3, 2, 1, 0]),
    ],
)
def test_several_order_keys(order: str, wanted: list[int]) -> None:
    table = pa.table({"k": pa.array([None, "a", "b", "a"], pa.string()), "v": [0, 1, 2, 3]})
    sql = (
        f"SELECT v, n FROM ticks MATCH_RECOGNIZE (ORDER BY {order} MEASURES COUNT(*) AS n ALL ROWS PER MATCH "
        "PATTERN (A+)) AS m ORDER BY n"
    )
    assert evaluate(sql, table).column("v").to_pylist() == wanted


def test_quoted_variables_keep_their_case() -> None:
    sql = (
        "SELECT c FROM ticks MATCH_RECOGNIZE (ORDER BY v MEASURES CLASSIFIER() AS c ALL ROWS PER MATCH "
        'PATTERN ("a" a B*) DEFINE "a" AS v = 1, A AS v = 2) AS m LIMIT 3'
    )
    assert rows(sql) == [("a",), ("A",), ("B",)]


def test_subquery_in_parentheses_with_set_operation() -> None:
    assert rows("SELECT COUNT(*) FROM ((SELECT v FROM ticks) UNION ALL (SELECT v FROM ticks)) AS u") == [(16,)]
    assert rows("SELECT COUNT(*) FROM ((SELECT v FROM ticks) AS a JOIN (SELECT v FROM ticks) AS b ON a.v = b.v)") == [
        (8,)
    ]


def test_ambiguous_columns_are_refused() -> None:
    with pytest.raises(TriggerRejected, match="ambiguous"):
        evaluate("SELECT v FROM ticks a JOIN ticks b ON a.ts = b.ts", TABLE)


def test_an_equality_in_where_joins_like_one_in_on() -> None:
    table = pa.table({"k": ["a", "a", "b", None], "t": [1, 2, 1, 1], "v": [10, 20, 30, 40]})
    select = "SELECT x.v AS one, y.v AS other FROM ticks x"
    rest = "x.k = 'a' AND y.v > 20"
    wanted = evaluate(f"{select} JOIN ticks y ON x.t = y.t WHERE {rest}", table).to_pylist()
    assert wanted == [{"one": 10, "other": 30}, {"one": 10, "other": 40}]
    for text in (
        f"{select}, ticks y WHERE x.t = y.t AND {rest}",
        f"{select} CROSS JOIN ticks y WHERE {rest} AND y.t = x.t",
        f"{select} JOIN ticks y ON x.v < y.v WHERE y.t = x.t AND {rest}",
    ):
        assert evaluate(text, table).to_pylist() == wanted


def test_a_comma_join_is_not_a_cross_join() -> None:
    count = 20_000
    table = pa.table({"k": pa.array(range(count), pa.int64()), "x": pa.array([1.0] * count)})
    sql = "SELECT COUNT(*) AS n FROM ticks AS a, ticks AS b WHERE a.k = b.k AND a.x = b.x"
    assert evaluate(sql, table).to_pylist() == [{"n": count}]


def test_columns_are_named_as_the_text_writes_them() -> None:
    found = evaluate("SELECT Sym, a.P, *, v + 1, SUM(v) OVER (ORDER BY v) FROM ticks AS a", TABLE)
    assert found.column_names == ["Sym", "P", "sym", "ts", "p", "v", "_col6", "_col7"]


def test_the_time_of_a_match_is_that_of_its_last_row() -> None:
    sql = (
        "SELECT t FROM ticks MATCH_RECOGNIZE (PARTITION BY sym ORDER BY ts MEASURES MATCH_ROWTIME() AS t "
        "PATTERN (A B) DEFINE B AS v > A.v) AS m WHERE sym = 'A'"
    )
    assert seconds(sql) == [(10,), (65,)]
    with pytest.raises(TriggerRejected, match=r"1:58: MATCH_ROWTIME\(\) stands alone and needs ORDER BY a time"):
        evaluate(
            "SELECT t FROM ticks MATCH_RECOGNIZE (ORDER BY v MEASURES MATCH_ROWTIME() AS t PATTERN (A)) AS m", TABLE
        )


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT ABS(v) FILTER (WHERE v > 1) FROM ticks", r"1:31: FILTER is possible only after an aggregate"),
        ("SELECT ARRAY_AGG(v) FILTER (WHERE v) FROM ticks", r"1:8: bigint where boolean is needed"),
        ("SELECT SUM(v) FILTER (WHERE SUM(v) > 1) FROM ticks", r"1:8: an aggregate is not possible inside another"),
        ("SELECT CORR(DISTINCT v, p) FROM ticks", r"1:8: DISTINCT is not possible with CORR here"),
        ("SELECT NTILE(0) OVER (ORDER BY v) FROM ticks", r"1:8: NTILE takes one whole number of at least 1"),
        ("SELECT MOD(v) FROM ticks", r"1:8: MOD has no form for \(bigint\)"),
        ("SELECT ABS(v, 2) FROM ticks", r"1:8: ABS has no form for \(bigint, int\)"),
    ],
)
def test_wrong_aggregates_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, TABLE)


WINDOW = (
    "SELECT v, m OVER w FROM ticks WHERE sym = 'A' WINDOW w AS (ORDER BY ts MEASURES {measure} AS m "
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING PATTERN ({pattern}) DEFINE B AS {define})"
)


@pytest.mark.parametrize(
    ("measure", "pattern", "define", "message"),
    [
        ("1 + MATCH_NUMBER()", "A B", "v > 1", r"1:85: MATCH_NUMBER\(\) is not possible in a window"),
        ("v", "A B", "MATCH_NUMBER() > 1", r"MATCH_NUMBER\(\) is not possible in a window"),
        ("v", "A (B $)?", "v > 1", r"1:151: \^ and \$ are not possible in a window"),
        ("v", "PERMUTE(^ A, B)", "v > 1", r"\^ and \$ are not possible in a window"),
    ],
)
def test_a_pattern_in_a_window_has_no_numbers_and_no_anchors(
    measure: str, pattern: str, define: str, message: str
) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(WINDOW.format(measure=measure, pattern=pattern, define=define), TABLE)


@pytest.mark.parametrize("word", ["SEEK", "INITIAL"])
def test_seek_and_initial_are_refused_outside_a_window(word: str) -> None:
    sql = f"SELECT * FROM ticks MATCH_RECOGNIZE (MEASURES v AS w {word} PATTERN (A)) AS m"
    with pytest.raises(TriggerRejected, match=f"1:54: {word} is possible only in a window"):
        evaluate(sql, TABLE)


def test_a_measure_may_bring_its_window() -> None:
    sql = (
        "SELECT v, top OVER (ORDER BY ts MEASURES LAST(B.p) AS top ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING "
        "PATTERN (A B+) DEFINE B AS p > PREV(p)) FROM ticks WHERE sym = 'A'"
    )
    assert rows(sql) == [(1, 3.0), (2, None), (4, 5.0), (6, None)]


def test_varchar_of_a_length_keeps_the_first_characters() -> None:
    sql = "SELECT CAST(v * 1000 AS VARCHAR(2)), p::VARCHAR(3), CAST(sym AS VARCHAR(9)), CAST(v AS VARCHAR) FROM ticks"
    assert rows(sql)[4] == ("50", "12.", "B", "5")
