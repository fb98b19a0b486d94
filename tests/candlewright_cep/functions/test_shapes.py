# ruff: noqa: E501  (texts of SQL)
"""Comparison of arrays, ordered lists, calendar months in intervals, FILTER over matches: compared with DuckDB or a
loop, and the same on a stream.
"""

import math
import random

import numpy as np
import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, evaluate
from candlewright_cep.functions.aggregates.aggregates import reduced
from candlewright_cep.functions.aggregates.folds import FOLDS
from candlewright_cep.types import BIGINT, BOOLEAN, DOUBLE, INT, STRING, Kind, SqlType
from candlewright_cep.vector import constant, from_list
from tests.candlewright_cep.streams import assert_streams, duckdb_rows, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)


def _trades(seed: int, rows: int = 120) -> pa.Table:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(0, 4 * 365 * 86_400, 3_600), rows))
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array([(1_700_000_000 + time) * 10**9 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "n": list(range(rows)),
            "price": [None if chance.random() < 0.2 else chance.randrange(4) for _ in times],
            "side": pa.array([chance.choice(["buy", "sell", None]) for _ in times], pa.string()),
        }
    )


SAME = [
    "SELECT n, ts + INTERVAL '1' MONTH AS a, ts - INTERVAL '3' YEAR AS b, INTERVAL '2' MONTH + ts AS c, ts + INTERVAL '-5' MONTH AS d FROM ticks",
    "SELECT n FROM ticks WHERE ts BETWEEN TIMESTAMP '2025-01-31 00:00:00' - INTERVAL '2' MONTH AND TIMESTAMP '2025-01-31 00:00:00' + INTERVAL '1' MONTH",
    "SELECT ticker, STRING_AGG(side, ',' ORDER BY n DESC) AS a FROM ticks GROUP BY ticker",
    "SELECT ticker, LIST(n ORDER BY price DESC NULLS FIRST, side, n DESC) AS a, STRING_AGG(side, '|' ORDER BY price, n DESC) AS b, "
    "STRING_AGG(side, '' ORDER BY side NULLS FIRST, n) AS c, LIST(price ORDER BY n DESC) AS d, "
    "LIST({'n': n, 'price': price} ORDER BY price DESC, n) AS e FROM ticks GROUP BY ticker",
    "SELECT n, LIST(n ORDER BY price DESC, n) OVER (PARTITION BY ticker ORDER BY ts ROWS 4 PRECEDING) AS a, "
    "STRING_AGG(side, ',' ORDER BY price, n DESC) OVER (PARTITION BY ticker ORDER BY ts) AS b FROM ticks",
    "SELECT n, ROW(price, side) = ROW(1, 'buy') AS a, ROW(price, n) < ROW(2, 60) AS b, ROW(side, n) >= ROW('c', 40) AS c, "
    "ROW(price, side) <> ROW(price, side) AS d, {'p': price, 's': side}.p AS e FROM ticks",
    "SELECT ticker, LIST({'n': n, 'price': price} ORDER BY n) AS a, (LIST({'n': n} ORDER BY n))[2].n AS b, "
    "LIST_CONTAINS(LIST({'p': price, 's': side} ORDER BY n), {'p': 1, 's': 'buy'}) AS c FROM ticks GROUP BY ticker",
    "SELECT n, ROW(price, side) IN (ROW(1, 'buy'), ROW(2, 'sell')) AS a, ROW(price, side) NOT IN (ROW(0, 'buy')) AS b, "
    "ROW(price, n) BETWEEN ROW(1, 10) AND ROW(2, 60) AS c, [price, n] IN ([1, n], [2, 7]) AS d FROM ticks",
    "SELECT n, CASE WHEN price > 1 THEN {'p': price, 's': side} ELSE {'p': n + 0.5, 's': 'x'} END AS a, "
    "COALESCE(CASE WHEN price > 1 THEN {'p': price} END, {'p': n}) AS b, CASE WHEN price > 1 THEN {'p': price} END IS NULL AS c, "
    "COALESCE(CASE WHEN price > 1 THEN [price] END, [n + 0.5]) AS d FROM ticks",
    "SELECT ticker, COUNT(DISTINCT {'p': price, 's': side}) AS a, COUNT(DISTINCT [price, 1]) AS b FROM ticks GROUP BY ticker",
    "SELECT DISTINCT {'p': price, 's': side} AS a, [price, price] AS b FROM ticks",
    "SELECT {'p': price, 's': side} AS a FROM ticks WHERE n < 60 UNION SELECT {'p': n + 0.5, 's': ticker} FROM ticks WHERE n > 90",
    "SELECT a.n, b.n AS m FROM (SELECT n, {'p': price, 's': side} AS r FROM ticks) a "
    "JOIN (SELECT n, {'p': price, 's': side} AS r FROM ticks WHERE n < 30) b ON a.r = b.r WHERE a.n > 60",
    "SELECT n, [{'n': n, 'p': price}, {'n': 0, 'p': 1}] AS a, ([{'n': n, 'p': price}])[1].p AS b, "
    "list_contains([{'p': price, 's': side}], {'p': 1, 's': 'buy'}) AS c FROM ticks",
    "SELECT n, [price, n] = [n, price] AS a, [price, 2] = [1, 2] AS b, [price, n] <> [price, n] AS c, list_contains([1, n], price) AS d FROM ticks",
    "SELECT a.n, b.n AS m FROM (SELECT n, {'p': n} AS r, [n] AS l FROM ticks) a "
    "JOIN (SELECT n, {'p': CAST(price AS DOUBLE)} AS r, [CAST(price AS DOUBLE)] AS l FROM ticks) b ON a.r = b.r AND a.l = b.l",
    "SELECT n, [CAST(price AS DECIMAL(8, 2)), 1] = [n / 1, 1] AS a, [n] <> [CAST(price AS DECIMAL(8, 2))] AS b, "
    "[CAST(price AS DECIMAL(8, 2))] = [CAST(n AS DECIMAL(12, 4))] AS c, LIST_CONTAINS([CAST(price AS DECIMAL(8, 2))], n) AS d, "
    "{'p': CAST(price AS DECIMAL(8, 2)), 's': side} < {'p': n, 's': 'buy'} AS e FROM ticks",
    "SELECT ticker, LIST(n ORDER BY n) FILTER (WHERE side = 'buy') AS a, LIST(price ORDER BY side NULLS FIRST, n DESC) FILTER (WHERE price > 1) AS b, "
    "LIST(n) FILTER (WHERE n < 0) AS c, LIST({'n': n, 's': side} ORDER BY price DESC, n) FILTER (WHERE n % 3 = 0) AS d FROM ticks GROUP BY ticker",
    "SELECT n, LIST(price ORDER BY ts) FILTER (WHERE side = 'buy') OVER (PARTITION BY ticker ORDER BY ts ROWS 4 PRECEDING) AS a FROM ticks",
    "SELECT ticker, MAX_BY({'p': price, 's': side}, n) AS a, MIN_BY([price, n], price * 1000 + n) AS b, FIRST({'n': n} ORDER BY n) AS c, "
    "LAST([n] ORDER BY n) AS d, MAX_BY({'n': n}, n) FILTER (WHERE side = 'buy') AS e FROM ticks GROUP BY ticker",
    "SELECT n, [COALESCE(2, price), 7] AS a, CASE WHEN price > 1 THEN [COALESCE(2, price)] END AS b FROM ticks",
]  # fmt: skip
OURS = [
    *SAME[:2],
    "SELECT ticker, LISTAGG(side, ',') WITHIN GROUP (ORDER BY n DESC) AS a FROM ticks GROUP BY ticker",
    "SELECT ticker, ARRAY_AGG(n ORDER BY price DESC NULLS FIRST, side, n DESC) AS a, STRING_AGG(side, '|' ORDER BY price, n DESC) AS b, "
    "LISTAGG(side) WITHIN GROUP (ORDER BY side NULLS FIRST, n) AS c, ARRAY_AGG(price) WITHIN GROUP (ORDER BY n DESC) AS d, "
    "ARRAY_AGG(ROW(n, price) ORDER BY price DESC, n) AS e FROM ticks GROUP BY ticker",
    "SELECT n, ARRAY_AGG(n ORDER BY price DESC, n) OVER (PARTITION BY ticker ORDER BY ts ROWS 4 PRECEDING) AS a, "
    "LISTAGG(side, ',' ORDER BY price, n DESC) OVER (PARTITION BY ticker ORDER BY ts) AS b FROM ticks",
    "SELECT n, ROW(price, side) = ROW(1, 'buy') AS a, ROW(price, n) < ROW(2, 60) AS b, ROW(side, n) >= ROW('c', 40) AS c, "
    "ROW(price, side) <> ROW(price, side) AS d, ROW(price AS p, side AS s).p AS e FROM ticks",
    "SELECT ticker, ARRAY_AGG(ROW(n, price)) AS a, ARRAY_AGG(STRUCT(n))[2].n AS b, "
    "ARRAY_CONTAINS(ARRAY_AGG(ROW(price, side)), ROW(1, 'buy')) AS c FROM ticks GROUP BY ticker",
    "SELECT n, ROW(price, side) IN (ROW(1, 'buy'), ROW(2, 'sell')) AS a, ROW(price, side) NOT IN (ROW(0, 'buy')) AS b, "
    "ROW(price, n) BETWEEN ROW(1, 10) AND ROW(2, 60) AS c, ARRAY[price, n] IN (ARRAY[1, n], ARRAY[2, 7]) AS d FROM ticks",
    "SELECT n, CASE WHEN price > 1 THEN ROW(price AS p, side AS s) ELSE ROW(n + 0.5, 'x') END AS a, "
    "COALESCE(IF(price > 1, ROW(price AS p)), ROW(n)) AS b, CASE WHEN price > 1 THEN ROW(price) END IS NULL AS c, "
    "COALESCE(CASE WHEN price > 1 THEN ARRAY[price] END, ARRAY[n + 0.5]) AS d FROM ticks",
    "SELECT ticker, COUNT(DISTINCT ROW(price, side)) AS a, COUNT(DISTINCT ARRAY[price, 1]) AS b FROM ticks GROUP BY ticker",
    "SELECT DISTINCT ROW(price AS p, side AS s) AS a, ARRAY[price, price] AS b FROM ticks",
    "SELECT ROW(price AS p, side AS s) AS a FROM ticks WHERE n < 60 UNION SELECT ROW(n + 0.5, ticker) FROM ticks WHERE n > 90",
    "SELECT a.n, b.n AS m FROM (SELECT n, ROW(price, side) AS r FROM ticks) a "
    "JOIN (SELECT n, ROW(price, side) AS r FROM ticks WHERE n < 30) b ON a.r = b.r WHERE a.n > 60",
    "SELECT n, ARRAY[ROW(n, price AS p), ROW(0, 1)] AS a, ARRAY[ROW(n, price AS p)][1].p AS b, "
    "ARRAY_CONTAINS(ARRAY[ROW(price, side)], ROW(1, 'buy')) AS c FROM ticks",
    "SELECT n, ARRAY[price, n] = ARRAY[n, price] AS a, ARRAY[price, 2] = ARRAY[1, 2] AS b, ARRAY[price, n] <> ARRAY[price, n] AS c, "
    "ARRAY_CONTAINS(ARRAY[1, n], price) AS d FROM ticks",
    "SELECT a.n, b.n AS m FROM (SELECT n, ROW(n AS p) AS r, ARRAY[n] AS l FROM ticks) a "
    "JOIN (SELECT n, ROW(CAST(price AS DOUBLE) AS p) AS r, ARRAY[CAST(price AS DOUBLE)] AS l FROM ticks) b ON a.r = b.r AND a.l = b.l",
    "SELECT n, ARRAY[CAST(price AS DECIMAL(8, 2)), 1] = ARRAY[n / 1.0, 1] AS a, ARRAY[n] <> ARRAY[CAST(price AS DECIMAL(8, 2))] AS b, "
    "ARRAY[CAST(price AS DECIMAL(8, 2))] = ARRAY[CAST(n AS DECIMAL(12, 4))] AS c, ARRAY_CONTAINS(ARRAY[CAST(price AS DECIMAL(8, 2))], n) AS d, "
    "ROW(CAST(price AS DECIMAL(8, 2)), side) < ROW(n, 'buy') AS e FROM ticks",
    "SELECT ticker, ARRAY_AGG(n) FILTER (WHERE side = 'buy') AS a, ARRAY_AGG(price ORDER BY side NULLS FIRST, n DESC) FILTER (WHERE price > 1) AS b, "
    "ARRAY_AGG(n) FILTER (WHERE n < 0) AS c, ARRAY_AGG(ROW(n, side AS s) ORDER BY price DESC, n) FILTER (WHERE n % 3 = 0) AS d FROM ticks GROUP BY ticker",
    "SELECT n, ARRAY_AGG(price) FILTER (WHERE side = 'buy') OVER (PARTITION BY ticker ORDER BY ts ROWS 4 PRECEDING) AS a FROM ticks",
    "SELECT ticker, MAX_BY(ROW(price AS p, side AS s), n) AS a, MIN_BY(ARRAY[price, n], price * 1000 + n) AS b, FIRST_VALUE(ROW(n)) AS c, "
    "LAST_VALUE(ARRAY[n]) AS d, MAX_BY(ROW(n), n) FILTER (WHERE side = 'buy') AS e FROM ticks GROUP BY ticker",
    "SELECT n, ARRAY[COALESCE(2, price), 7] AS a, CASE WHEN price > 1 THEN ARRAY[COALESCE(2, price)] END AS b FROM ticks",
]  # fmt: skip


@pytest.mark.parametrize("place", range(len(OURS)))
@pytest.mark.parametrize("seed", seeds(2))
def test_answers_are_those_of_duckdb(place: int, seed: int) -> None:
    table = _trades(seed)
    found = ordered(evaluate(OURS[place], table).to_pylist())
    assert found == ordered(duckdb_rows(SAME[place], table))
    assert found


STREAMED = [
    "SELECT ticker, window_start, LISTAGG(side, '>') WITHIN GROUP (ORDER BY price DESC) AS s, APPROX_PERCENTILE(price, 0.9) AS p, "
    "APPROX_COUNT_DISTINCT(price) AS d, ARRAY_AGG(price) AS a FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '60' DAY)) "
    "GROUP BY ticker, window_start, window_end",
    "SELECT ticker, n, LISTAGG(side, ',') WITHIN GROUP (ORDER BY price) OVER (PARTITION BY ticker ORDER BY ts ROWS 5 PRECEDING) AS s FROM ticks",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) FILTER (WHERE side = 'buy') AS buys, "
    "SUM(A.price) FILTER (WHERE A.side = 'sell') AS s, LISTAGG(side) WITHIN GROUP (ORDER BY price DESC) AS l, "
    "ARRAY_AGG(CLASSIFIER()) = ARRAY['A', 'A', 'B'] AS two "
    "PATTERN (A+ B) DEFINE A AS COUNT(*) FILTER (WHERE side = 'sell') < 3, B AS SUM(A.price) FILTER (WHERE A.price > 1) > 2 OR B.price = 3) AS m",
    "SELECT ticker, window_start, ARRAY_AGG(ROW(ts, price, side)) AS a FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '60' DAY)) "
    "GROUP BY ticker, window_start, window_end",
    "SELECT ticker, n, ARRAY_AGG(STRUCT(n, side)) OVER (PARTITION BY ticker ORDER BY ts ROWS 3 PRECEDING) AS a FROM ticks",
    "SELECT m.at.price, path[2].n AS second, CARDINALITY(path) AS c, path FROM (SELECT *, ROW(price, n) AS r FROM ticks) MATCH_RECOGNIZE ("
    "PARTITION BY ticker ORDER BY ts MEASURES LAST(B.r) AS at, ARRAY_AGG(ROW(ts, price, n)) AS path PATTERN (A+ B) "
    "DEFINE A AS A.r.price < 3, B AS B.r.price = 3 AND r.n > 0) AS m WHERE path[1] <= path[2]",
    "SELECT ticker, window_start, ARRAY_AGG(n ORDER BY price DESC NULLS FIRST, side) AS a, STRING_AGG(side, '>' ORDER BY price, n DESC) AS s "
    "FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '30' DAY, INTERVAL '60' DAY)) GROUP BY ticker, window_start, window_end",
    "SELECT ticker, window_start, COUNT(DISTINCT ROW(price, side)) AS a, COUNT(DISTINCT ARRAY[price]) AS b, "
    "ARRAY_AGG(CASE WHEN price > 1 THEN ROW(n, side) ELSE ROW(0, 'x') END) AS c "
    "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '60' DAY)) GROUP BY ticker, window_start, window_end",
    "SELECT n, ARRAY[ROW(n, price), ROW(0, 1)] AS a, COALESCE(IF(price > 1, ROW(price)), ROW(0.5)) AS c FROM ticks "
    "WHERE ROW(price, side) IN (ROW(1, 'buy'), ROW(2, 'sell')) OR ROW(price, n) BETWEEN ROW(1, 10) AND ROW(2, 20)",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES IF(LAST(price) > 1, ROW(LAST(n) AS n), ROW(0)) AS a, "
    "COUNT(DISTINCT ROW(price, side)) AS d, ARRAY[ROW(FIRST(n) AS n), ROW(LAST(n))] AS e PATTERN (A+ B) DEFINE "
    "A AS (CASE WHEN A.price > 1 THEN ROW(A.n AS x) ELSE ROW(0 AS x) END).x < 90, B AS ARRAY[A.n] IN (ARRAY[B.n - 1], ARRAY[B.n - 2])) AS m",
    "SELECT n, ARRAY_AGG(price ORDER BY side, n DESC) OVER (PARTITION BY ticker ORDER BY ts ROWS 5 PRECEDING) AS a FROM ticks",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES ARRAY_AGG(A.n ORDER BY A.price DESC, A.side) AS a, "
    "RUNNING STRING_AGG(side, ',' ORDER BY price NULLS FIRST, n DESC) AS s ALL ROWS PER MATCH PATTERN (A+ B) DEFINE "
    "A AS ARRAY_AGG(A.price ORDER BY A.price DESC)[1] < 3 OR n < 20, B AS STRING_AGG(A.side, ',' ORDER BY A.price DESC NULLS FIRST, A.n) <> B.side) AS m",
    "SELECT ticker, window_start, ARRAY_AGG(n ORDER BY price DESC) FILTER (WHERE side = 'buy') AS a, MAX_BY(ROW(price, side), price) AS b, ANY_VALUE(ARRAY[n]) AS c "
    "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '60' DAY)) GROUP BY ticker, window_start, window_end",
    "SELECT n, MIN_BY(ROW(price, n), price) OVER (PARTITION BY ticker ORDER BY ts ROWS 5 PRECEDING) AS a, ANY_VALUE(ROW(n)) OVER (PARTITION BY ticker ORDER BY ts) AS b, "
    "ARRAY_AGG(n) FILTER (WHERE price > 1) OVER (PARTITION BY ticker ORDER BY ts ROWS 5 PRECEDING) AS c FROM ticks",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES ARRAY_AGG(A.n) FILTER (WHERE A.price > 1) AS a, "
    "MAX_BY(ROW(n, price), price) AS b, RUNNING ARRAY_AGG(n ORDER BY price DESC) FILTER (WHERE side = 'buy') AS c ALL ROWS PER MATCH PATTERN (A+ B) "
    "DEFINE A AS CARDINALITY(COALESCE(ARRAY_AGG(A.n ORDER BY A.n DESC) FILTER (WHERE A.side = 'buy'), ARRAY[0])) < 3, B AS MAX_BY(A.n, A.price) < B.n - 1) AS m",
    "SELECT n, ts FROM ticks WHERE ts + INTERVAL '1' YEAR > TIMESTAMP '2026-02-01 00:00:00' AND ARRAY_CONTAINS(ARRAY['buy', 'hold'], side)",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
@pytest.mark.parametrize("seed", seeds(2))
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str, seed: int) -> None:
    assert assert_streams(sql, _trades(seed), seed)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_list_ordered_row_by_row_is_the_one_ordered_at_once(seed: int) -> None:
    chance = random.Random(seed)
    size = chance.randrange(1, 30)
    keys = [
        ([chance.choice([None, math.nan, -0.0, 0.0, 1.5]) for _ in range(size)], DOUBLE),
        ([chance.choice([None, "", "a", "\u00e9", "\U0001f4c8", "\uffff"]) for _ in range(size)], STRING),
        ([chance.choice([None, True, False]) for _ in range(size)], BOOLEAN),
    ]
    chance.shuffle(keys)
    arguments = [from_list(BIGINT, list(range(size)))]
    for values, kind in keys:
        arguments += [from_list(kind, values), constant(INT, chance.randrange(4), size)]
    kind = SqlType(Kind.OPAQUE, arrow=pa.list_(pa.int64()))
    firsts, sizes = np.array([0, size], np.int64), np.array([size, 0], np.int64)
    at_once = reduced("ARRAY_AGG ORDERED", arguments, firsts, sizes=sizes, length=size, kind=kind).to_list()
    fold = FOLDS["ARRAY_AGG ORDERED"]
    state = fold.initial
    for row in zip(*(argument.to_list() for argument in arguments), strict=True):
        state = fold.step(state, *row)
    assert [list(fold.result(state)), fold.result(fold.initial)] == at_once


def test_a_long_match_is_listed_in_order() -> None:
    rows = 12_000
    table = pa.table({"ts": range(rows), "n": [row * 7919 % rows for row in range(rows)]})
    sql = "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES ARRAY_AGG(n ORDER BY n) AS a PATTERN (A+)) AS m"
    assert evaluate(sql, table).to_pylist() == [{"a": list(range(rows))}]


def test_filter_counts_rows_of_a_match_as_a_loop_does() -> None:
    table = _trades(5)
    sql = (
        "SELECT * FROM (SELECT * FROM ticks WHERE ticker = 'A') MATCH_RECOGNIZE (ORDER BY ts MEASURES COUNT(*) FILTER (WHERE side = 'buy') AS b, "
        "FIRST(n) AS f, LAST(n) AS l PATTERN (X+) DEFINE X AS COUNT(*) FILTER (WHERE side = 'buy') < 4) AS m"
    )
    rows = [row for row in table.to_pylist() if row["ticker"] == "A"]
    expected = []
    at = 0
    while at < len(rows):
        taken = [rows[at]]
        while at + len(taken) < len(rows) and sum(r["side"] == "buy" for r in [*taken, rows[at + len(taken)]]) < 4:
            taken.append(rows[at + len(taken)])
        expected.append({"b": sum(row["side"] == "buy" for row in taken), "f": taken[0]["n"], "l": taken[-1]["n"]})
        at += len(taken)
    assert evaluate(sql, table).to_pylist() == expected


def test_months_end_with_the_month() -> None:
    table = pa.table({"d": pa.array([19_754], pa.int32()).cast(pa.date32())})
    sql = "SELECT CAST(d + INTERVAL '1' MONTH AS VARCHAR) AS a, CAST(d - INTERVAL '1' YEAR AS VARCHAR) AS b FROM ticks"
    assert evaluate("SELECT CAST(d AS VARCHAR) AS d FROM ticks", table).to_pylist() == [{"d": "2024-02-01"}]
    assert evaluate(sql, table).to_pylist() == [{"a": "2024-03-01", "b": "2023-02-01"}]
    last = pa.table({"d": pa.array([19_782], pa.int32()).cast(pa.date32())})
    assert evaluate(sql, last).to_pylist() == [{"a": "2024-03-29", "b": "2023-02-28"}]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("ts > TIMESTAMP '2024-01-01 00:00:00' - INTERVAL '1.5' MONTH", "not a whole number of MONTHs"),
        ("ts > INTERVAL '1' MONTH", "has no fixed length \\(add it to a time"),
        ("price + INTERVAL '1' MONTH > 3", "has no form for"),
        ("ARRAY[1, 'x'] = ARRAY[1]", "has no form for|cannot be applied"),
        ("ARRAY[1] = ARRAY['x']", "cannot be applied"),
        ("ARRAY[1] < ARRAY[2]", r"1:10: < cannot be applied to .*\(a\[1\] is one of the values of an array; = and <> compare"),
        ("ARRAY[n] BETWEEN ARRAY[1] AND ARRAY[2]", "1:10: >= cannot be applied to"),
        ("SELECT MAX(ROW(n)) FROM ticks", r"1:8: MAX has no form for .*\(r.name is one of the fields of a STRUCT r"),
        ("SELECT MAX(ARRAY[n]) FROM ticks", r"1:8: MAX has no form for .*\(a\[1\] is one of the values of an array"),
        ("ROW(n) > 1", r"1:8: > cannot be applied to .*\(a STRUCT is compared with another one of like fields"),
        ("ROW(n) IN (ROW(1), ROW('x'))", "1:8: = cannot be applied to"),
        ("SELECT IF(n > 1, ROW(n), 0) FROM ticks", "1:8: IF has no form for"),
        ("SELECT ARRAY[ARRAY[n]] FROM ticks", "1:8: ARRAY has no form for"),
        ("SELECT COUNT(*) FROM ticks GROUP BY ROW(n)", r"GROUP BY cannot use a column of type struct.*\(r.name is one"),
        ("SELECT SUM(n) OVER (PARTITION BY ARRAY[n]) FROM ticks", r"PARTITION BY cannot use a column of type list"),
        ("SELECT n FROM ticks ORDER BY ROW(n)", "1:30: ORDER BY cannot use a column of type struct"),
        ("ARRAY[] = ARRAY[1]", "expected an expression"),
        ("ARRAY_CONTAINS(price, 1)", "has no form for"),
        ("SELECT SUM(price ORDER BY n) FROM ticks", "1:18: SUM takes no ORDER BY"),
        ("SELECT LISTAGG(DISTINCT side, ',' ORDER BY side) FROM ticks", "DISTINCT is not possible with STRING_AGG"),
        ("SELECT ARRAY_AGG(n, n, n ORDER BY n) FROM ticks", "1:8: ARRAY_AGG has a wrong number of arguments"),
        ("SELECT ARRAY_AGG(n ORDER BY ROW(n)) FROM ticks", r"ARRAY_AGG has no form for"),
        ("SELECT ARRAY_JOIN(ARRAY[ROW(n)], ',') FROM ticks", "1:8: ARRAY_JOIN has no form for"),
        ("SELECT MAX_BY(n, ROW(n)) FROM ticks", "1:8: MAX_BY has no form for"),
        ("SELECT ARRAY_AGG(n ORDER BY n) WITHIN GROUP (ORDER BY n) FROM ticks", "WITHIN GROUP does not belong to ARRAY_AGG"),
        ("SELECT APPROX_PERCENTILE(price, 2) FROM ticks", "takes a number from 0 to 1"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES COUNT(A.*) FILTER (WHERE price > 1) AS n PATTERN (A))", "takes no FILTER"),
        ("price > " + "ARRAY[" * 500 + "1" + "]" * 500, "nested"),
    ],
)  # fmt: skip
def test_values_of_the_wrong_shape_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades(1, 5))
