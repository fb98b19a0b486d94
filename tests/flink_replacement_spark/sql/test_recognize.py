"""MATCH_RECOGNIZE in the operator's SQL, over a running driver's Spark Connect."""

import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer

from candlewright.cli import tables
from candlewright.cli.output import FileOutput
from candlewright.wire.errors import InvalidRequest, TriggerRejected
from candlewright.wire.spark_connect import connect_session
from candlewright_cep import evaluate
from candlewright_cep.spark.clauses import frame_of
from flink_replacement_spark.sql.connect import run_sql
from iceberg import OHLC, load_table, open_catalog, read_ohlc
from tests.flink_replacement_spark.harness import MINUTE
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(300)

_TICKERS = [f"MATCH{number}/USDT.BINANCE" for number in range(7)]
_CLAUSE = """MATCH_RECOGNIZE (
    PARTITION BY ticker ORDER BY open_time
    MEASURES FIRST(open_time) AS since, FIRST(close) AS top, LAST(D.close) AS bottom, LAST(U.close) AS back,
             COUNT(*) AS n
    PATTERN (S D+ U+)
    DEFINE D AS close < PREV(close), U AS close > PREV(close)
  ) AS v"""
_OURS = "lake.market.ohlc"


def _bars(ticker: str, seed: int, schema: pa.Schema) -> pa.Table:
    chance = random.Random(seed)
    minutes = range(300)
    columns = {
        "ticker": [ticker] * len(minutes),
        "period_seconds": [60] * len(minutes),
        "open_time": [minute * MINUTE // 1_000 for minute in minutes],
        "close": [float(chance.randint(1, 9)) for _ in minutes],
    }
    empty = [None] * len(minutes)
    return pa.table([pa.array(columns.get(part.name, empty), part.type) for part in schema], schema.names)


@pytest.fixture(scope="module")
def rows(platform: Platform) -> pa.Table:
    """The bars of all tickers as pyiceberg reads them."""
    table = load_table(open_catalog(platform.settings), OHLC)
    schema = table.schema().as_arrow()
    table.append(pa.concat_tables([_bars(ticker, seed, schema) for seed, ticker in enumerate(_TICKERS)]))
    return pa.concat_tables(
        [read_ohlc(platform.settings, ticker, 60, start_ns=0, end_ns=10**6 * MINUTE) for ticker in _TICKERS]
    )


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=repr)


def _by_matcher(text: str, rows: pa.Table) -> pa.Table:
    return evaluate(text.replace(_OURS, "ohlc"), rows, table_name="ohlc")


def test_v_shapes_of_several_tickers_are_those_of_the_matcher(platform: Platform, rows: pa.Table) -> None:
    found = run_sql(platform.settings, f"SELECT * FROM {_OURS} {_CLAUSE} WHERE v.ticker LIKE 'MATCH%'")
    wanted = evaluate(f"SELECT * FROM ohlc {_CLAUSE}", rows, table_name="ohlc")
    assert wanted.num_rows > 100
    assert _sorted(found) == _sorted(wanted)
    assert found.schema.names == wanted.schema.names
    assert found.schema.field("since").type == pa.timestamp("us", "UTC")


def test_all_rows_keep_the_columns_of_the_table(platform: Platform, rows: pa.Table) -> None:
    inner = f"(SELECT ticker, open_time, period_seconds, close, CAST(close AS DECIMAL(9, 2)) AS d FROM {_OURS}) AS o"
    found = run_sql(
        platform.settings,
        f"""SELECT * FROM {inner} MATCH_RECOGNIZE (
              PARTITION BY o.ticker, period_seconds ORDER BY open_time MEASURES CLASSIFIER() AS c, RUNNING COUNT(*) AS n
              ALL ROWS PER MATCH PATTERN (S D+ U+) DEFINE D AS close < PREV(close), U AS close > PREV(close)
            ) WHERE ticker = '{_TICKERS[2]}'""",
    )
    assert found.schema.names == ["ticker", "period_seconds", "open_time", "c", "n", "close", "d"]
    assert found.schema.field("period_seconds").type == pa.int32()
    assert found.schema.field("d").type == pa.decimal128(9, 2)
    assert set(found.column("ticker").to_pylist()) == {_TICKERS[2]}
    assert [float(value) for value in found.column("d").to_pylist()] == found.column("close").to_pylist()
    assert {"S", "D", "U"} == set(found.column("c").to_pylist())


def test_aggregates_order_and_limit_apply_on_top(platform: Platform, rows: pa.Table) -> None:
    around = "SELECT ticker, COUNT(*) AS n, MAX(top - bottom) AS depth FROM {0} WHERE top - bottom > 2 AND ticker LIKE "
    around += "'MATCH%' GROUP BY ticker HAVING COUNT(*) > 3 ORDER BY n DESC, ticker LIMIT 3"
    found = run_sql(platform.settings, around.format(f"{_OURS} {_CLAUSE}"))
    wanted = evaluate(around.format(f"ohlc {_CLAUSE}"), rows, table_name="ohlc")
    assert found.to_pylist() == wanted.to_pylist()
    assert found.num_rows == 3


def test_joins_with_queries_and_further_matches_are_sparks(platform: Platform, rows: pa.Table) -> None:
    text = f"""
        WITH mine AS (SELECT * FROM {_OURS} WHERE ticker IN ('{_TICKERS[0]}', '{_TICKERS[1]}')),
             shapes AS (SELECT * FROM mine {_CLAUSE} WHERE n > 3),
             names AS (SELECT DISTINCT ticker AS name FROM shapes)
        SELECT a.ticker, a.many, COALESCE(b.n, 0) AS deep, r.runs
        FROM (SELECT ticker, COUNT(*) AS many FROM shapes GROUP BY ticker) AS a
        JOIN names ON names.name = a.ticker
        LEFT JOIN (SELECT ticker, COUNT(*) AS n FROM shapes WHERE top - bottom > 4 GROUP BY ticker) AS b USING (ticker)
        JOIN (SELECT ticker, COUNT(*) AS runs FROM shapes MATCH_RECOGNIZE (
                PARTITION BY ticker ORDER BY since MEASURES COUNT(*) AS n
                PATTERN (A B+) DEFINE B AS bottom > PREV(bottom)
              ) AS rising GROUP BY ticker) AS r ON r.ticker = a.ticker
        ORDER BY a.ticker"""
    found = run_sql(platform.settings, text).to_pylist()
    shapes = [
        row
        for row in evaluate(f"SELECT * FROM ohlc {_CLAUSE}", rows, table_name="ohlc").to_pylist()
        if row["n"] > 3 and row["ticker"] in _TICKERS[:2]
    ]
    for row, ticker in zip(found, _TICKERS[:2], strict=True):
        own = [shape for shape in shapes if shape["ticker"] == ticker]
        bottoms = [shape["bottom"] for shape in own]
        rises = [after > before for before, after in pairwise(bottoms)]
        runs = sum(rises[at] and not (at and rises[at - 1]) for at in range(len(rises)))
        deep = sum(shape["top"] - shape["bottom"] > 4 for shape in own)
        assert row == {"ticker": ticker, "many": len(own), "deep": deep, "runs": runs}


def test_without_partition_all_rows_are_one_sequence_in_one_order(platform: Platform, rows: pa.Table) -> None:
    text = f"""SELECT m.* FROM (SELECT * FROM {_OURS} WHERE ticker = '{_TICKERS[3]}') MATCH_RECOGNIZE (
        ORDER BY close DESC, open_time MEASURES A.open_time AS at, NEXT(A.close) AS after, MATCH_NUMBER() AS number
        PATTERN (A) DEFINE A AS close > NEXT(close)) AS m (at, after, number) ORDER BY number"""
    found = run_sql(platform.settings, text)
    assert found.to_pylist() == _number_sorted(_by_matcher(text, rows))
    assert found.column("number").to_pylist() == list(range(1, found.num_rows + 1))


def _number_sorted(table: pa.Table) -> list[dict[str, Any]]:
    return table.sort_by("number").to_pylist()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            f"SELECT *\nFROM {_OURS}\n  MATCH_RECOGNIZE (ORDER BY open_tim PATTERN (A))",
            r"INVALID_SQL 3:29: .*open_time",
        ),
        (
            f"SELECT 1, 2 FROM {_OURS} MATCH_RECOGNIZE (ORDER BY open_time PATTERN (A) DEFINE B AS close > 1)",
            "1:90: 'B'",
        ),
        (f"SELECT * FROM {_OURS} MATCH_RECOGNIZE (ORDER BY open_time PATTERN (A))", "no columns"),
        (f"SELECT * FROM {_OURS} a, {_OURS} b, (SELECT 1 AS x, 2 AS x) MATCH_RECOGNIZE (PATTERN (A))", "two columns"),
    ],
)
def test_an_invalid_clause_is_refused_with_its_position(platform: Platform, text: str, said: str) -> None:
    with pytest.raises(TriggerRejected, match=said):
        run_sql(platform.settings, text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"SELECT nonsense FROM {_OURS} {_CLAUSE}", "nonsense"),
        (f"SELECT * FROM lake.market.nothing {_CLAUSE}", "nothing"),
        (
            f"""SELECT * FROM {_OURS} MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time MEASURES A.close AS c
                AFTER MATCH SKIP TO FIRST A PATTERN (A))""",
            "SKIP",
        ),
    ],
)
def test_errors_of_spark_and_of_the_data_are_reported_in_a_sentence(
    platform: Platform, rows: pa.Table, text: str, said: str
) -> None:
    with pytest.raises(InvalidRequest, match=said):
        run_sql(platform.settings, text)


def test_conditions_on_partitions_and_the_named_columns_reach_the_table(platform: Platform, rows: pa.Table) -> None:
    with connect_session(platform.settings.spark.connect_url) as session:
        text = f"SELECT * FROM {_OURS} {_CLAUSE} WHERE v.ticker = '{_TICKERS[1]}' AND n > 3"
        frame = frame_of(session, text)
        plan = frame._explain_string(extended=True)
        (scan,) = (line for line in plan.partition("== Physical Plan ==")[2].splitlines() if "BatchScan" in line)
        assert f"ticker = '{_TICKERS[1]}'" in scan
        assert "quote_volume" not in scan
        assert "close" in scan
        wanted = [row for row in _sorted(_by_matcher(f"SELECT * FROM {_OURS} {_CLAUSE}", rows)) if row["n"] > 3]
        assert _sorted(frame.toArrow()) == [row for row in wanted if row["ticker"] == _TICKERS[1]]


def test_the_command_prints_rows_and_says_where_a_text_is_wrong(
    platform: Platform, rows: pa.Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "candlewright.toml"
    config.write_text(f'[spark]\nconnect_bind = "{platform.settings.spark.connect_bind}"\n')
    text = f"SELECT COUNT(*) AS n FROM {_OURS} {_CLAUSE} WHERE v.ticker = '{_TICKERS[0]}'"
    tables.sql(text, output=FileOutput.json, file=None, config=config)
    shapes = _by_matcher(f"SELECT * FROM {_OURS} {_CLAUSE}", rows).to_pylist()
    assert json.loads(capsys.readouterr().out) == {"n": sum(row["ticker"] == _TICKERS[0] for row in shapes)}
    with pytest.raises(typer.Exit) as ended:
        tables.sql(
            text.replace("DEFINE D AS close", "DEFINE D AS clos"), output=FileOutput.json, file=None, config=config
        )
    assert ended.value.exit_code == 1
    said = capsys.readouterr().err
    assert said.startswith("INVALID_SQL 6:17: ")
    assert "did you mean 'close'?" in said
