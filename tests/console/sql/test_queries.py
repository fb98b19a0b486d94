"""Clients' queries: what they may read, what is refused and where, and that nothing else is accessible."""

import asyncio
import csv
import io
import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import candlewright as cw
from candlewright.wire.errors import InvalidRequest, TriggerRejected
from candlewright_cep import evaluate
from console.rows import Form, check_times, encoded
from console.server import Console
from console.sql import language
from console.sql.engine import Limits, run
from iceberg import create_tables, load_table, open_catalog
from iceberg.tables import OHLC
from tests.console.calls import calling, settings_in
from tests.rounds import rounds

LIMITS = Limits(1_000, 256 << 20)
MINUTE = 60_000_000
START = 1_704_067_200_000_000


def bars(count: int) -> pa.Table:
    closes = [100.0 + (number % 7) for number in range(count)]
    columns: dict[str, Any] = {
        "ticker": ["BTC/USDT.BINANCE"] * count,
        "period_seconds": pa.array([60] * count, pa.int32()),
        "open_time": pa.array([START + number * MINUTE for number in range(count)], pa.timestamp("us", "UTC")),
        **dict.fromkeys(("open", "high", "low", "close", "volume"), closes),
        "quote_volume": closes,
        "trade_count": [1] * count,
        "source": ["exchange"] * count,
        "complete": [True] * count,
        "updated_at": pa.array([START] * count, pa.timestamp("us", "UTC")),
    }
    return pa.table(columns).cast(OHLC.arrow_schema)


def tables(name: str) -> pa.Table | None:
    return bars(100) if name == "ohlc" else None


@pytest.mark.parametrize("name", ["ohlc", "market.ohlc", "lake.market.ohlc", "OHLC"])
def test_a_table_answers_to_its_names(name: str) -> None:
    found = run(f"SELECT count(*) AS n, max(open_time) AS last FROM {name} WHERE close > 100", tables, LIMITS)
    assert found.table.column_names == ["n", "last"] and found.table["n"].to_pylist() == [85]
    assert found.table.schema.field("last").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize("form", ["{}", "SELECT * FROM ({})", "WITH p AS ({}) SELECT * FROM p"])
def test_a_pivot_finds_its_columns(form: str) -> None:
    pivot = "PIVOT (SELECT ticker, close FROM ohlc WHERE close < 102) ON close USING count(*)"
    assert run(form.format(pivot), tables, LIMITS).table.to_pylist() == [
        {"ticker": "BTC/USDT.BINANCE", "100.0": 15, "101.0": 15}
    ]


def test_rows_past_the_limit_are_left_out_and_reported() -> None:
    found = run("SELECT * FROM ohlc ORDER BY open_time", tables, Limits(10, 256 << 20))
    assert (found.table.num_rows, found.is_truncated) == (10, True)
    assert run("SELECT 1 AS a, 2 AS a", tables, LIMITS).table.column_names == ["a", "a_2"]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_csv('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM glob('/*')",
        "SELECT * FROM tables",
        "SELECT * FROM LIMITS",
        "COPY (SELECT 1) TO '/tmp/x.csv'",
        "COPY ohlc FROM '/etc/passwd'",
        "ATTACH '/tmp/x.db' AS x",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET memory_limit = '100GB'",
        "PRAGMA memory_limit = '100GB'",
        "CREATE TABLE x AS SELECT 1",
        "DROP VIEW ohlc",
        "EXPORT DATABASE '/tmp/x'",
        "SELECT 1; SELECT 2",
        "CALL pragma_version()",
        "SELECT getenv('HOME')",
        "SELECT * FROM duckdb_secrets()",
        "",
        ";",
        "\x00",
    ],
)
def test_nothing_but_queries_over_the_tables_runs(sql: str) -> None:
    with pytest.raises(TriggerRejected):
        run(sql, tables, LIMITS)


_WORDS = st.sampled_from([
    "SELECT", "*", "FROM", "ohlc", "lake.market.ohlc", "WHERE", "close", ">", "-1", "100", "1e400", "NULL", "GROUP BY",
    "ORDER BY", "LIMIT", "(", ")", ",", ";", "'", '"', "--", "/*", "*/", "$$", "CAST", "AS", "STRUCT[]", "::", "JOIN",
    "UNION ALL", "WITH RECURSIVE x", "range(3)", "list(close)", "OVER ()", "unnest", "QUALIFY", "PATTERN (A+)",
    "DEFINE A", "DATE '0000-00-00'", "\x00", "é", "9" * 40, "read_text('/etc/passwd')",
])  # fmt: skip
_SOUND = "SELECT ticker, max(close) AS high FROM lake.market.ohlc WHERE close > 101 GROUP BY ticker"


_PLACES = st.integers(0, len(_SOUND))
_EDITED = st.builds(
    lambda first, put, last: _SOUND[:first] + put + _SOUND[last:], _PLACES, st.text(max_size=5), _PLACES
)


@settings(deadline=None, max_examples=rounds(100))
@given(st.lists(_WORDS, max_size=12).map(" ".join) | _EDITED)
def test_any_text_is_answered_or_refused(sql: str) -> None:
    try:
        found = run(sql, tables, LIMITS)
    except (TriggerRejected, InvalidRequest) as error:
        assert str(error)
    else:
        assert found.table.num_rows <= 1_000


@pytest.mark.parametrize(
    ("sql", "shown"),
    [
        ("max(open_time) - min(open_time)", "01:39:00"),
        ("INTERVAL '1 month 2 days'", "1 month 2 days"),
        ("{'a': [INTERVAL 3 HOURS]}", "{'a': ['03:00:00']}"),
        ("'\\x00\\xff'::BLOB", "\\x00\\xFF"),
        ("'101'::BIT", "101"),
        ("TIMETZ '12:00:00+03'", "12:00:00+03"),
        ("union_value(k := 1)", "1"),
        ("row(1, 2)", "(1, 2)"),
        ("340282366920938463463374607431768211455::UHUGEINT", "340282366920938463463374607431768211455"),
        ("90::BIGNUM", "90"),
        ("[1::BIGNUM]", "[1]"),
        ("'POINT(1 2)'::GEOMETRY", "POINT (1 2)"),
        ("1::VARIANT", "1"),
        ("DATE 'infinity'::VARCHAR", "infinity"),
        ("MAP {'k': 1.5::DECIMAL(9, 2)}", [{"key": "k", "value": 1.5}]),
        ("{'at': TIMESTAMP '2024-01-01'}", {"at": "2024-01-01T00:00:00.000000000Z"}),
        ("[DATE '2024-01-02']", ["2024-01-02"]),
        ("[1, NULL]", [1, None]),
    ],
)  # fmt: skip
def test_a_value_of_any_type_is_written(sql: str, shown: object) -> None:
    found = run(f'SELECT {sql} AS "a ""value""" FROM ohlc LIMIT 1', tables, LIMITS, is_for_text=True).table
    check_times(found)
    assert json.loads(b"".join(encoded(iter([found]), Form.json)))["rows"] == [{'a "value"': shown}]
    (head, row) = csv.reader(io.StringIO(b"".join(encoded(iter([found]), Form.csv)).decode()))
    assert head == ['a "value"']
    assert row == [shown] or json.loads(row[0]) == shown


@pytest.mark.parametrize(
    "sql",
    ["TIMESTAMP 'infinity'", "DATE '-infinity'", "TIMESTAMP '10000-01-01'", "[{'a': DATE '10000-01-01'}]",
     "MAP {DATE '-infinity': 1}"],
)  # fmt: skip
def test_a_time_that_has_no_text_is_refused(sql: str) -> None:
    table = run(f"SELECT {sql} UNION ALL SELECT NULL", tables, LIMITS, is_for_text=True).table
    with pytest.raises(InvalidRequest, match="years 1 to 9999"):
        check_times(table)
    check_times(run("SELECT TIMESTAMP '9999-12-31', DATE '0001-01-01', NULL::DATE", tables, LIMITS).table)


def test_arrow_has_the_types_of_the_query() -> None:
    table = run("SELECT INTERVAL 1 DAY AS i, 'a'::BLOB AS b, 5::UHUGEINT AS u, 1::VARIANT AS v", tables, LIMITS).table
    assert [str(kind) for kind in table.schema.types] == ["month_day_nano_interval", "binary", "string", "string"]


def test_a_mistake_has_its_place() -> None:
    with pytest.raises(TriggerRejected) as refused:
        run("SELECT close,\n   clse FROM ohlc", tables, LIMITS)
    assert (refused.value.line, refused.value.column) == (2, 4)
    assert "clse" in refused.value.message and "close" in refused.value.hint


def test_an_unknown_table_is_answered_with_the_existing_tables() -> None:
    with pytest.raises(TriggerRejected) as refused:
        run("SELECT * FROM bars", tables, LIMITS)
    assert "ohlc" in refused.value.hint and "pg_" not in refused.value.hint


def test_match_recognize_goes_to_the_trigger_engine() -> None:
    text = """SELECT * FROM lake.market.ohlc MATCH_RECOGNIZE (
      PARTITION BY ticker ORDER BY open_time
      MEASURES A.close AS low, LAST(B.close) AS high
      PATTERN (A B+) DEFINE A AS close = 100, B AS close > PREV(close)) AS m"""
    found = run(text, tables, LIMITS)
    assert found.table.column_names == ["ticker", "low", "high"]
    assert set(found.table["high"].to_pylist()) <= {101.0, 106.0} and found.table.num_rows == 15
    named = run(text.replace("A.close AS low", "'lake.market.ohlc' AS name"), tables, LIMITS)
    assert named.table["name"].unique().to_pylist() == ["lake.market.ohlc"]
    with pytest.raises(TriggerRejected) as refused:
        run(text.replace("A.close", "A.clse"), tables, LIMITS)
    assert refused.value.line == 3


VIEWS = {"fast": "SELECT *, EMA(close, 3) OVER (PARTITION BY ticker ORDER BY open_time) AS e FROM ohlc"}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT open_time, EMA(close, 3) OVER (PARTITION BY ticker ORDER BY open_time) AS e FROM lake.market.ohlc",
        "SELECT open_time, e FROM fast WHERE e > 103 AND open_time > TIMESTAMP '2024-01-01 00:30:00'",
        "SELECT open_time, doji FROM candle_patterns WHERE ticker = 'BTC/USDT.BINANCE'",
        "SELECT o.open_time, h.value FROM ohlc o JOIN spinning_top h USING (ticker, open_time)",
    ],
)
def test_a_text_with_words_of_the_trigger_language_goes_to_its_engine(text: str) -> None:
    found = run(text, tables, LIMITS, views=VIEWS)
    assert found.table.equals(evaluate(text.replace("lake.market.", ""), {"ohlc": bars(100), **VIEWS}))
    assert found.table.num_rows > 0 or "spinning_top" in text


def test_duckdb_runs_each_text_that_it_accepts() -> None:
    text = "SELECT a.close FROM ohlc a ASOF JOIN ohlc b ON a.open_time >= b.open_time QUALIFY row_number() OVER () <= 3"
    assert run(f"{text} ORDER BY hash(a.close)", tables, LIMITS).table.num_rows == 3
    with pytest.raises(TriggerRejected) as refused:
        run("SELECT EMA(clse, 3) OVER (ORDER BY open_time) AS e FROM ohlc", tables, LIMITS)
    assert (refused.value.line, refused.value.column) == (1, 12) and "close" in refused.value.hint
    with pytest.raises(TriggerRejected, match="fats"):
        run("SELECT e FROM fats", tables, LIMITS, views=VIEWS)


def test_the_engine_reads_only_what_matters(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[set[str], int]] = []
    rows_of = language._rows

    def watched(table: Any, *wanted: Any) -> pa.Table:
        found = rows_of(table, *wanted)
        read.append(({name for name in found.schema.names if found.column(name).null_count == 0}, found.num_rows))
        return found

    monkeypatch.setattr(language, "_rows", watched)
    text = """SELECT open_time, EMA(close, 3) OVER (PARTITION BY ticker ORDER BY open_time) AS e FROM ohlc
        WHERE ticker IN ('BTC/USDT.BINANCE', 'x') AND period_seconds = 60 AND trade_count BETWEEN 1 AND 5
        AND open_time >= TIMESTAMP '2024-01-01 01:00:00' AND TIMESTAMP '2024-01-01 01:10:00' > open_time"""
    stored = ds.dataset(bars(100))
    found = run(text, lambda name: stored if name == "ohlc" else None, LIMITS)
    assert read == [({"ticker", "period_seconds", "open_time", "close", "trade_count"}, 11)]
    assert found.table.equals(evaluate(text, bars(100)))
    run("SELECT COUNT(*) AS n, TRUNCATE(1.5) AS t FROM ohlc WHERE close > 100", tables, LIMITS)
    assert read[-1] == ({"close"}, 100)


def test_memory_is_bounded() -> None:
    with pytest.raises(InvalidRequest, match="memory"):
        run("SELECT list(range) FROM range(100000000)", tables, Limits(10, 64 << 20))


@pytest.mark.processes
@pytest.mark.timeout(120)
async def test_queries_over_http_have_time_limits_and_separate_processes(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, sql_seconds=1.0)
    create_tables(open_catalog(settings))
    load_table(open_catalog(settings), OHLC).append(bars(50))
    async with calling(settings) as http:

        async def ask(sql: str, **more: Any) -> Any:
            return await http.post("/api/v1/sql", json={"sql": sql, **more}, timeout=60)

        answer = await ask("SELECT open_time, close FROM ohlc ORDER BY 1", limit=2)
        body = answer.json()
        assert body["rows"][0] == {"open_time": "2024-01-01T00:00:00.000000000Z", "close": 100.0}
        assert (len(body["rows"]), body["truncated"]) == (2, True)
        assert [column["name"] for column in body["columns"]] == ["open_time", "close"]
        span = await ask("SELECT max(open_time) - min(open_time) AS span FROM ohlc")
        assert span.json()["rows"] == [{"span": "00:49:00"}]
        assert (await ask("SELECT TIMESTAMP 'infinity'")).status_code == 400
        wrong = await ask("SELECT nothing FROM ohlc")
        assert wrong.status_code == 400 and wrong.headers["content-type"] == "application/problem+json"
        assert (wrong.json()["line"], wrong.json()["column"]) == (1, 8) and wrong.json()["errors"]
        began = time.monotonic()
        slow = await ask("SELECT count(*) FROM range(10000000) a, range(1000000) b WHERE a.range + b.range = 7")
        assert slow.status_code == 400 and "console.sql_seconds" in slow.json()["detail"]
        assert time.monotonic() - began < 15
        huge = await ask("SELECT repeat('x', 8000000000) AS x")
        assert huge.status_code == 400
        assert (await ask("SELECT 1 AS one")).json()["rows"] == [{"one": 1}]
        arrow = await http.post("/api/v1/sql?format=arrow", json={"sql": "SELECT count(*) AS n FROM ticks"})
        assert pa.ipc.open_stream(arrow.content).read_all().to_pylist() == [{"n": 0}]


@pytest.mark.processes
@pytest.mark.timeout(120)
async def test_the_python_client_gets_arrow_without_spark(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, bind="127.0.0.1:0", sql_rows=40)
    create_tables(open_catalog(settings))
    load_table(open_catalog(settings), OHLC).append(bars(50))
    console = Console(settings)
    serving = asyncio.create_task(console.serve())
    bound = settings_in(tmp_path, bind=f"127.0.0.1:{console.port}")
    client = cw.aconnect(settings=bound)
    try:
        assert (await client.sql("SELECT count(*) AS n FROM lake.market.ohlc"))["n"].to_pylist() == [50]
        assert (await client.sql("SELECT * FROM ohlc", limit=3)).num_rows == 3
        with pytest.raises(cw.InvalidRequest, match="more than 40 rows"):
            await client.sql("SELECT * FROM ohlc")
        with pytest.raises(cw.InvalidTrigger) as refused:
            await client.sql("SELECT clse FROM ohlc")
        assert (refused.value.line, refused.value.column) == (1, 8)
    finally:
        console.stop()
        await serving
    with pytest.raises(cw.PlatformUnreachable):
        await client.sql("SELECT 1")
