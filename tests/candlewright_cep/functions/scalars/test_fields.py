# ruff: noqa: E501  (texts of SQL)
"""JSON_VALUE compared with DuckDB, fields of MAP and STRUCT columns with a loop, and the same on a stream."""

import json
import random

import duckdb
import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, compile_query, evaluate
from tests.candlewright_cep.streams import assert_streams, ordered

pytestmark = pytest.mark.timeout(60)


def _rows(seed: int, rows: int = 60) -> pa.Table:
    chance = random.Random(seed)
    bodies = [
        None, "", "{", "[1, 2]", "null", '"text"', "7", '{"a": 1.5, "b": [true, {"c": "x y"}], "d e": null}', '{"a": {"a": -3}}',
        '{"a": "1e3", "b": []}', '{"a": NaN}', "[" * 5_000, '{"a": 12345678901234567890}', '{"a": false}',
    ]  # fmt: skip
    times = sorted(chance.sample(range(1, 500), rows))
    maps = [None, [], [("k", "1"), ("reason", "x")], [("k", "2"), ("k", "3")], [("reason", None)]]
    structs = [None, {"p": 1.5, "q": {"r": "deep"}}, {"p": None, "q": None}, {"p": 4.0, "q": {"r": None}}]
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array([time * 10**9 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "body": pa.array([chance.choice(bodies) for _ in times], pa.string()),
            "m": pa.array([chance.choice(maps) for _ in times], pa.map_(pa.string(), pa.string())),
            "s": pa.array(
                [chance.choice(structs) for _ in times],
                pa.struct([("p", pa.float64()), ("q", pa.struct([("r", pa.string())]))]),
            ),
        }
    )


@pytest.mark.parametrize("path", ["$", "$.a", "$.b[1].c", "$.b[0]", '$."d e"', "$[1]", "$.a.a", "$.b[9]"])
def test_json_values_are_those_of_duckdb_where_it_reads_the_text(path: str) -> None:
    table = _rows(1, 200)
    found = evaluate(f"SELECT ts, body, JSON_VALUE(body, '{path}') AS v FROM ticks", table).to_pylist()
    with duckdb.connect() as connection:
        for row in found:
            try:
                json.loads(row["body"] or "", parse_constant=lambda word: json.loads("#" + word))
            except (ValueError, RecursionError):
                assert row["v"] is None or "NaN" in row["body"]
                continue
            (expected,) = connection.execute("SELECT json_value(?::JSON, ?)", [row["body"], path]).fetchone() or (None,)
            text = None if expected is None else json.loads(expected, parse_float=str, parse_int=str)
            text = str(text).lower() if isinstance(text, bool) else text
            assert row["v"] == (text if isinstance(text, str) else None), (row, expected)


def test_fields_of_maps_and_structs_are_those_of_a_loop() -> None:
    table = _rows(2)
    sql = "SELECT ts, m['k'] AS k, m[:key] AS r, s['p'] * 2 AS p, s['q']['r'] AS d FROM ticks"
    expected = []
    for row in table.to_pylist():
        entries = row["m"] or []
        struct = row["s"] or {"p": None, "q": None}
        expected.append(
            {
                "ts": row["ts"],
                "k": next((value for key, value in entries if key == "k"), None),
                "r": next((value for key, value in entries if key == "reason"), None),
                "p": None if struct["p"] is None else 2 * struct["p"],
                "d": None if struct["q"] is None else struct["q"]["r"],
            }
        )
    assert ordered(evaluate(sql, table, {"key": "reason"}).to_pylist()) == ordered(expected)


STREAMED = [
    "SELECT ts, JSON_VALUE(body, '$.a' RETURNING DOUBLE) AS a, JSON_VALUE(body, '$.b[0]' RETURNING BOOLEAN) AS b FROM ticks WHERE m['k'] = '1' OR s['p'] > 2",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(s['q']['r']) AS r, FIRST(JSON_VALUE(body, '$.a')) AS a "
    "PATTERN (X Y) DEFINE X AS JSON_VALUE(body, '$.a' RETURNING DOUBLE) > 0, Y AS JSON_VALUE(Y.body, '$.a') IS NULL) AS m",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str) -> None:
    assert assert_streams(sql, _rows(4, 150), 4)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("JSON_VALUE(body, 'a') = '1'", "takes a text and a path"),
        ("JSON_VALUE(body, '$.a[') = '1'", "takes a text and a path"),
        ("JSON_VALUE(body, body) = '1'", "takes a text and a path"),
        ("JSON_VALUE(body, '$" + "[1]" * 600 + "!') = '1'", "takes a text and a path"),
        ("JSON_VALUE(s, '$.a') = '1'", "has no form for"),
        ("s['nothing'] > 1", "the column has no field 'nothing'"),
        ("ticker['k'] = 'x'", "has no form for"),
        ("FIELD(s) > 1", "unknown function 'FIELD'"),
        ("s" + "['q']" * 300 + " = 'x'", "operators in one chain"),
    ],
)
def test_access_to_a_missing_field_is_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        compile_query(sql, {"ticks": _rows(1, 3).schema})


ROWS = [
    "SELECT ts, ROW(s['p'], ticker, ts AS at) AS r, STRUCT(1 AS one, NULL AS nothing) AS c FROM ticks",
    "SELECT r['p'] AS p, r['at'] AS at FROM (SELECT ticker, ts, ROW(s['p'] AS p, ts AS at) AS r FROM ticks) WHERE r['p'] > 1",
    """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
       MEASURES ROW(FIRST(A.s['p']) AS low, B.s['p'] AS high, COUNT(*) AS n) AS r, ROW(A.ts)['ts'] AS since
       PATTERN (A B) DEFINE B AS ROW(B.s['p'] AS p)['p'] > ROW(A.s['p'] AS p)['p'])""",
]


@pytest.mark.parametrize("sql", ROWS)
def test_rows_are_made_and_read_over_stored_rows_and_on_a_stream(sql: str) -> None:
    assert assert_streams(sql, _rows(4), 4)


def test_a_row_has_its_values_under_their_names() -> None:
    table = pa.table({"ticker": ["A"], "ts": pa.array([1], pa.timestamp("ns", "UTC")), "price": [1.5]})
    found = evaluate("SELECT ROW(price, price * 2, price + 1 AS next) AS r FROM ticks", table)
    assert found.column("r").to_pylist() == [{"price": 1.5, "field2": 3.0, "next": 2.5}]
    with duckdb.connect() as connection:
        connection.register("ticks", table)
        wanted = connection.execute("SELECT {'low': price, 'part': {'n': 1}} AS r FROM ticks").to_arrow_table()
    assert (
        evaluate("SELECT ROW(price AS low, ROW(1 AS n) AS part) AS r FROM ticks", table).to_pylist()
        == wanted.to_pylist()
    )


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT ROW(price, price) AS r FROM ticks", "two fields of the ROW are named 'price'"),
        ("SELECT ROW(price)['prise'] AS r FROM ticks", "did you mean 'price'"),
        ("SELECT ROW() AS r FROM ticks", "expected an expression"),
        ("ROW(price) = ROW(price, price + 1)", "cannot be applied"),
        ("ROW(price) < ROW('x')", "cannot be applied"),
        ("price.low > 1", "has no fields"),
        ("ticks.price.low > 1", "has no fields"),
        ("ROW(price AS low).high > 1", "the value has no field 'high'"),
        ("(price).* > 1", "expected a field after '.'"),
        ("SELECT ARRAY_AGG(ROW(ARRAY[price])) AS a FROM ticks", "ARRAY_AGG has no form for"),
        (
            "WITH t0 AS (SELECT price AS r FROM ticks)"
            + "".join(f", t{n} AS (SELECT ROW(ARRAY[r] AS a, r AS b) AS r FROM t{n - 1})" for n in range(1, 30))
            + " SELECT r FROM t29",
            "a ROW has too many fields",
        ),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A B) DEFINE B AS ROW(B.price) > ROW(A.price))",
            "in DEFINE, a STRUCT cannot be compared or gathered",
        ),
        (
            "SELECT * FROM ticks MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS CARDINALITY(ARRAY_AGG(ROW(price))) > 1)",
            "in DEFINE, a STRUCT cannot be compared or gathered",
        ),
        (f"SELECT ROW({', '.join(f'price AS f{n}' for n in range(101))}) AS r FROM ticks", "too many fields"),
    ],
)
def test_other_rows_are_refused(sql: str, said: str) -> None:
    with pytest.raises(TriggerRejected, match=said):
        evaluate(sql, pa.table({"price": [1.0]}))
