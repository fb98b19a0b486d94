# ruff: noqa: E501  (texts of SQL)
"""Queries in the trigger language in the operator's SQL: the rows are those of `evaluate`."""

import random
import re
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.connect.session import SparkSession

from candlewright.wire.errors import InvalidRequest, TriggerRejected
from candlewright.wire.spark_connect import connect_session
from candlewright_cep.engine import evaluate_named
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.language import functions
from candlewright_cep.spark.marks import FUNCTIONS
from flink_replacement_spark.sql.connect import answer, run_sql
from iceberg import OHLC, load_table, open_catalog
from tests.candlewright_cep.constructs import bars, functions_of, of_functions, of_one_row, of_the_grammar, ticks
from tests.documentation.cookbook_markets import MARKETS
from tests.documentation.test_cookbook import RECIPES, table_of
from tests.flink_replacement_spark.running import Platform

pytestmark = pytest.mark.timeout(600)

_MINUTES = (
    "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end"
)
#: Spark numbers equal times in any order.
_ORDERED = ("OVER (PARTITION BY ticker ORDER BY ts", "AS (PARTITION BY ticker ORDER BY ts")
#: Spark's CAST to a whole number leaves out the fraction.
_SPARKS = "CAST(x AS type)"


def _microseconds(table: pa.Table) -> pa.Table:
    """The columns as Spark has them."""
    columns = [
        column.cast(pa.timestamp("us", "UTC"), safe=False) if pa.types.is_timestamp(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, table.schema.names)


TABLES = {"ticks": _microseconds(ticks()), "ohlc": _microseconds(bars())}


@pytest.fixture(scope="module")
def session(platform: Platform) -> Iterator[SparkSession]:
    with connect_session(platform.settings.spark.connect_url) as found:
        for name, table in TABLES.items():
            found.createDataFrame(table).repartition(3).createOrReplaceTempView(name)
        yield found


def _shown(table: pa.Table) -> list[str]:
    rows = table.rename_columns([f"c{i}" for i in range(table.num_columns)]).to_pylist()
    return sorted(repr([round(v, 9) if isinstance(v, float) else v for v in row.values()]) for row in rows)


def _agrees(session: SparkSession, text: str, views: Mapping[str, str] | None = None) -> None:
    for short in _ORDERED:
        text = text.replace(f"{short})", f"{short}, ts_ns, trade_id)").replace(
            f"{short} ROWS", f"{short}, ts_ns, trade_id ROWS"
        )
    views = views or {}
    assert _shown(answer(session, text, views=lambda: views)) == _shown(evaluate_named(text, {**TABLES, **views})), text


def _texts() -> Iterator[Any]:
    """Each construct of the grammar, all functions together, and (long) each function alone."""
    for each in of_the_grammar():
        if not each.text.startswith("CREATE VIEW") and each.name != _SPARKS:
            text = each.text if re.match(r"(SELECT|WITH)\b", each.text) else f"SELECT * FROM ticks WHERE {each.text}"
            yield pytest.param(text, id=each.name)
    of_a_row = [each.text for each in of_one_row()]
    yield pytest.param(f"SELECT ts FROM ticks WHERE {' AND '.join(of_a_row)}", id="functions of a row")
    called = [f"{entry.example} AS x{number}" for number, entry in enumerate(functions_of("aggregate"))]
    yield pytest.param(f"SELECT ticker, window_start, {', '.join(called)} {_MINUTES}", id="aggregates")
    over = "OVER (PARTITION BY ticker ORDER BY ts, ts_ns, trade_id)"
    called = [f"{entry.example} {over} AS x{number}" for number, entry in enumerate(functions_of("indicator"))]
    yield pytest.param(f"SELECT ticker, ts, {', '.join(called)} FROM ticks", id="indicators")
    yield pytest.param(f"SELECT ts, SUM(size) FILTER (WHERE side = 'buy') {over} AS n FROM ticks", id="FILTER of OVER")
    for each in [*of_functions(), *of_one_row()]:
        text = each.text if each.text.startswith("SELECT") else f"SELECT ts FROM ticks WHERE {each.text}"
        yield pytest.param(text, id=each.name, marks=pytest.mark.long)


@pytest.mark.parametrize("text", list(_texts()))
def test_a_construct_has_the_rows_of_evaluate(session: SparkSession, text: str) -> None:
    _agrees(session, text)


@pytest.mark.long
@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_finds_its_pattern(platform: Platform, name: str) -> None:
    recipe = RECIPES[name]
    text = recipe.text.sql
    for key, value in recipe.text.parameters.items():
        text = re.sub(rf":{key}\b", value if re.fullmatch(r"[\d.]+", value) else f"'{value}'", text)
    stored = _microseconds(table_of(name, MARKETS[name](random.Random(1), occurs=True)))
    wanted = evaluate_named(text, {recipe.input: stored}, table_name=recipe.input)
    assert wanted.num_rows
    with connect_session(platform.settings.spark.connect_url) as own:
        own.createDataFrame(stored).repartition(3).createOrReplaceTempView(recipe.input)
        assert _shown(answer(own, text)) == _shown(wanted)


def test_the_functions_that_spark_lacks_are_known(session: SparkSession) -> None:
    sparks = {row.function.upper() for row in session.sql("SHOW FUNCTIONS").collect()}
    of_patterns = {entry.name for entry in functions() if entry.kind == "pattern"}
    lacking = {entry.name for entry in functions()} - sparks - of_patterns
    assert lacking == {*FUNCTIONS} - sparks
    assert not INDICATORS.keys() & sparks


def test_views_are_read_by_name(session: SparkSession) -> None:
    views = {
        "fast": "SELECT *, EMA(price, 5) OVER (PARTITION BY ticker ORDER BY ts, ts_ns, trade_id) AS e FROM ticks",
        "Above": "CREATE VIEW above AS SELECT ticker, ts, price, e FROM fast WHERE price > e",
    }
    _agrees(session, "SELECT * FROM above WHERE e > 101", views)
    _agrees(session, "SELECT ticker, COUNT(*) AS n FROM fast GROUP BY ticker", views)
    clause = (
        "MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(B.e) AS e PATTERN (A B) DEFINE B AS e > A.e)"
    )
    _agrees(session, f"SELECT * FROM above {clause}", views)
    _agrees(session, "SELECT h.ticker, h.open_time FROM doji h JOIN candle_patterns c USING (ticker, open_time)")
    own = "WITH hammer AS (SELECT * FROM ticks WHERE side = 'buy') SELECT ts, RSI(price, 3) OVER (PARTITION BY ticker ORDER BY ts, trade_id) AS r FROM hammer"
    _agrees(session, own)
    _agrees(session, own.replace("hammer", "fast"), views)
    with pytest.raises(TriggerRejected, match="hammer is one table here, and another one in a view"):
        answer(
            session,
            f"{own} JOIN doji_hammers USING (ts)",
            views=lambda: {"doji_hammers": "SELECT open_time AS ts FROM hammer"},
        )
    with pytest.raises(TriggerRejected, match=r"INVALID_SQL 1:15: in the view 'above' at 1:\d+: unknown column 'e'"):
        answer(session, "SELECT * FROM above", views=lambda: {**views, "fast": "SELECT * FROM ticks"})


def test_spark_runs_the_text_around_a_query(session: SparkSession) -> None:
    ema = "EMA(price, 5) OVER (PARTITION BY ticker ORDER BY ts, ts_ns, trade_id) AS e"
    text = f"""WITH buys AS (SELECT * FROM ticks WHERE side = 'buy'), fast AS (SELECT *, {ema} FROM buys)
        SELECT ticker, MAX(e) AS top, MAX(n) AS n FROM fast
        JOIN (SELECT ticker, COUNT(*) AS n FROM ticks BARS BY TRADES 10 GROUP BY ticker) AS b USING (ticker)
        WHERE price > e GROUP BY ticker HAVING MAX(e) > 1 ORDER BY ticker"""
    wanted = evaluate_named(text, TABLES)
    assert wanted.num_rows == 2
    found = answer(session, text)
    assert _shown(found) == _shown(wanted)
    assert found.column("ticker").to_pylist() == wanted.column("ticker").to_pylist()
    assert answer(session, f"SELECT ts, {ema} FROM ticks ORDER BY e DESC, ts", 3).num_rows == 3


def test_a_plan_shows_what_spark_reads_for_a_query(session: SparkSession) -> None:
    query = "SELECT RSI(price, 14) OVER (PARTITION BY ticker ORDER BY ts) AS r FROM ticks WHERE ticker = '{}'"
    [plan] = answer(session, f"EXPLAIN {query.format('BTC/USDT.BINANCE')}").column("plan").to_pylist()
    assert "MapInArrow" in plan
    assert "<empty>" not in plan
    # Spark has applied the condition to these few rows while it planned.
    [plan] = answer(session, f"EXPLAIN {query.format('none')}").column("plan").to_pylist()
    assert "<empty>" in plan
    [plain] = answer(session, "EXPLAIN SELECT price FROM ticks").column("plan").to_pylist()
    assert "MapInArrow" not in plain


def test_tables_of_the_lake_need_no_qualifier_and_take_results(platform: Platform) -> None:
    table = load_table(open_catalog(platform.settings), OHLC)
    schema = table.schema().as_arrow()
    rows = bars()
    columns = [
        (rows.column(field.name) if field.name in rows.schema.names else pa.nulls(len(rows))).cast(field.type)
        for field in schema
    ]
    columns[0] = pa.array([f"L{ticker}" for ticker in rows.column("ticker").to_pylist()])
    table.append(pa.table(columns, schema))
    text = "SELECT ticker, open_time, RSI(close, 3) OVER (PARTITION BY ticker ORDER BY open_time) AS r FROM {} WHERE ticker = 'LBTC/USDT.BINANCE'"
    wanted = evaluate_named(text.format("ohlc"), {"ohlc": pa.table(columns, schema)})
    assert wanted.num_rows == 8
    for name in ("ohlc", "market.ohlc", "lake.market.ohlc", "`lake`.market.`ohlc`"):
        assert _shown(run_sql(platform.settings, text.format(name))) == _shown(wanted), name
    run_sql(platform.settings, f"CREATE TABLE lake.market.strengths AS {text.format('ohlc')}")
    try:
        assert _shown(run_sql(platform.settings, "SELECT * FROM strengths")) == _shown(wanted)
        run_sql(platform.settings, f"INSERT INTO strengths {text.format('lake.market.ohlc')}")
        assert run_sql(platform.settings, "SELECT COUNT(*) AS n FROM strengths").to_pylist() == [{"n": 16}]
    finally:
        run_sql(platform.settings, "DROP TABLE lake.market.strengths")


def test_wrong_texts_get_the_error_of_the_language_they_are_in(session: SparkSession) -> None:
    wrong = {
        "SELECT 1,\n  EMA(prize, 5) OVER (ORDER BY ts) AS e FROM ticks": r"2:7: unknown column 'prize'.*price",
        "SELECT EMA(price) OVER (ORDER BY ts) AS e FROM ticks": r"1:8: ",
        "SELECT * FROM tiks BARS BY VOLUME 5": r"TABLE_OR_VIEW_NOT_FOUND.*tiks",
        "SELECT * FROM ticks BARS BY VOLUME 5 LATERAL VIEW EXPLODE(x) AS y": r"1:46: 'VIEW' is not expected",
        "WITH a AS (SELECT ts, RSI(price, 3) OVER (ORDER BY ts) AS r FROM ticks)\nSELECT r, prize FROM a": r"UNRESOLVED_COLUMN.*prize.*line 2 pos 10",
        "CREATE VIEW lake.market.strong AS SELECT RSI(price, 3) OVER (ORDER BY ts) AS r FROM ticks": "view add",
        "WITH hammer AS (SELECT ts FROM ticks) SELECT prize FROM hammer": r"UNRESOLVED_COLUMN.*prize",
        "SELECT prize FROM ticks": r"UNRESOLVED_COLUMN.*prize",
        "SELEC EMA(price, 5) FROM ticks": r"PARSE_SYNTAX_ERROR",
    }
    for text, reason in wrong.items():
        with pytest.raises((TriggerRejected, InvalidRequest), match=f"(?s){reason}"):
            answer(session, text)


def test_work_is_limited_on_executors(session: SparkSession) -> None:
    text = "SELECT COUNT(*) AS n FROM ticks a JOIN ticks b ON a.price < b.price JOIN ticks c ON b.price < c.price JOIN ticks d ON TRUNCATE(c.price, 1) <> d.price"
    with pytest.raises(TriggerRejected, match=r"the join makes \d+ rows"):
        answer(session, text)
