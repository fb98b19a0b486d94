# ruff: noqa: E501  (texts of SQL)
"""JSON_VALUE beside DuckDB, fields of MAP and STRUCT columns beside a loop, and the same on a stream."""

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
def test_what_has_no_such_field_is_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        compile_query(sql, {"ticks": _rows(1, 3).schema})
