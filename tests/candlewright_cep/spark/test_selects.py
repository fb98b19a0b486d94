"""Queries in the trigger language within Spark SQL texts."""

from collections.abc import Collection

import pytest

from candlewright_cep import TriggerRejected
from candlewright_cep.spark.selects import Query
from candlewright_cep.spark.statement import Statement

pytestmark = pytest.mark.timeout(10)

_EMA = "SELECT EMA(price, 5) OVER (PARTITION BY ticker ORDER BY ts) AS e FROM ticks"


def _short(text: str) -> str:
    return " ".join(text.split()).replace(" )", ")")


def _query(text: str, views: Collection[str] = ()) -> Query:
    found = Statement(text).query(views)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ticker, AVG(price) FROM ticks WHERE price > 1 GROUP BY ticker",
        "SELECT 'EMA(price, 5)', \"BARS BY\", `EMA` FROM ticks -- EMIT CHANGES",
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts PATTERN (A) DEFINE A AS EMA(price, 5) > 1)",
        "SELECT my.EMA(price), ema, asof, bars FROM ticks",
        "SELECT a, hammer FROM ticks ORDER BY a, hammer",
        "INSERT INTO t VALUES (EMA(1, 2))",
        "SELECT SUM(size) FILTER (WHERE side = 'buy'), filter(xs, x -> x > 1) FROM ticks",
    ],
)
def test_other_texts_hold_no_query(text: str) -> None:
    assert Statement(text).query({"hammer"}) is None


@pytest.mark.parametrize(
    "text",
    [
        "SELECT t.ts FROM ticks t ASOF JOIN ohlc o ON t.ts >= o.open_time",
        "SELECT * FROM ticks BARS BY VOLUME 100",
        "SELECT ticker, MAX(price) FROM ticks GROUP BY ticker EMIT CHANGES",
        "SELECT ts FROM ticks QUALIFY ROW_NUMBER() OVER (ORDER BY ts) = 1",
        "SELECT ts AT TIME ZONE 'UTC' FROM ticks",
        "SELECT * FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
        "SELECT x FROM ticks CROSS JOIN UNNEST(ARRAY[price]) AS u(x)",
        "SELECT MAX(top) OVER w FROM ticks WINDOW w AS (ORDER BY ts MEASURES MAX(A.price) AS top PATTERN (A+))",
        "SELECT * FROM HAMMER",
        "SELECT * FROM ticks t JOIN hammer h ON t.ticker = h.ticker",
        "SELECT a.x FROM (SELECT 1 AS x) a, hammer",
        "SELECT DATE_ADD('DAY', 1, ts) FROM ticks",
        "SELECT SUM(size) FILTER (WHERE side IN ('buy')) OVER (ORDER BY ts) FROM ticks",
    ],
)
def test_a_word_that_spark_lacks_makes_a_query(text: str) -> None:
    found = _query(text, {"hammer"})
    assert (found.text, found.line, found.column) == (text, 1, 1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("INSERT INTO lake.market.mine ", ""),
        ("CREATE TABLE mine AS\n  ", ";"),
        ("WITH a AS (SELECT 1 AS x), ticks AS (SELECT * FROM lake.market.ticks)\n", ""),
        ("SELECT e, COUNT(*) FROM (", ") AS f JOIN names ON names.e = f.e GROUP BY e"),
        ("WITH f AS (", ") SELECT MAX(e) FROM f"),
        ("SELECT * FROM x WHERE y IN (", ")"),
        ("SELECT MAX(e) FROM (", ") MATCH_RECOGNIZE (ORDER BY e PATTERN (A))"),
    ],
)
def test_a_query_is_the_select_around_the_word(before: str, after: str) -> None:
    found = _query(f"{before}{_EMA}{after}")
    assert found.text == _EMA
    assert f"{before}{_EMA}{after}"[found.start : found.end] == _EMA
    assert found.for_engine().splitlines()[-1].index("SELECT") == len(before.rpartition("\n")[2])


def test_a_query_includes_the_queries_within_it() -> None:
    inner = f"SELECT e FROM ({_EMA}) MATCH_RECOGNIZE (ORDER BY e PATTERN (A))"
    text = f"SELECT * FROM x JOIN ({inner} QUALIFY e > 1) y"
    assert _query(text).text == f"{inner} QUALIFY e > 1"
    # Without a word of its own, the outer query stays Spark's.
    assert _query(f"SELECT * FROM x JOIN ({inner}) y").text == _EMA


def test_queries_come_in_the_order_in_which_they_read_each_other() -> None:
    statement = Statement(f"WITH a AS ({_EMA}), b AS (SELECT * FROM a BARS BY TRADES 5) SELECT * FROM b QUALIFY 1 = 1")
    found = []
    while (query := statement.query(())) is not None:
        found.append((query.text, query.column, _short(query.rows_of("a"))))
        statement.replace(query, f"v{len(found)}")
    assert _short(statement.text) == "WITH a AS (SELECT * FROM v1), b AS (SELECT * FROM v2) SELECT * FROM v3"
    assert found == [
        (_EMA, 12, "SELECT * FROM `a`"),
        ("SELECT * FROM a BARS BY TRADES 5", 96, "WITH a AS (SELECT * FROM v1) SELECT * FROM a"),
        (
            "SELECT * FROM b QUALIFY 1 = 1",
            130,
            "WITH a AS (SELECT * FROM v1) SELECT * FROM `a`",
        ),
    ]


def test_a_replaced_query_moves_nothing_after_it() -> None:
    for query in (_EMA, f"{_EMA}\n  WHERE price > 1\n  AND size > 1", f"\n{_EMA}\n"):
        text = f"WITH a AS ({query}) SELECT\n nosuch FROM a"
        statement = Statement(text)
        statement.replace(_query(text), "v")
        assert "SELECT * FROM v" in statement.text
        assert [line.find("nosuch") for line in statement.text.split("\n")] == [
            line.find("nosuch") for line in text.split("\n")
        ]
        assert len(statement.text.partition(") SELECT")[0].rpartition("\n")[2]) == len(
            text.partition(") SELECT")[0].rpartition("\n")[2]
        )


def test_a_name_that_the_text_defines_is_no_view() -> None:
    assert Statement("WITH hammer AS (SELECT 1 AS n) SELECT m FROM hammer").query({"hammer"}) is None
    assert Statement("WITH hammer (n) AS (SELECT 1) SELECT m FROM hammer").query({"hammer"}) is None
    assert Statement("WITH a AS (SELECT hammer (1)) SELECT m FROM hammer").query({"hammer"}) is not None


def test_a_chain_repeats_only_the_definitions_that_it_reads() -> None:
    outer = "WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a), c AS (SELECT * FROM ticks BARS BY TRADES 5)"
    inner = "WITH d (y) AS (SELECT x FROM b), e AS (SELECT 2)"
    statement = Statement(f"{outer} SELECT * FROM ({inner} SELECT y FROM d QUALIFY 1 = 1)")
    first = statement.query(())
    assert first is not None
    assert first.rows_of("ticks") == "SELECT * FROM ticks"
    statement.replace(first, "v")
    second = statement.query(())
    assert second is not None
    assert second.rows_of("d") == (
        "WITH a AS (SELECT 1 AS x), b AS (SELECT * FROM a) "
        "SELECT * FROM (WITH d (y) AS (SELECT x FROM b) SELECT * FROM d)"
    )


def test_qualified_tables_become_one_word_at_the_same_place() -> None:
    text = """SELECT t.ts, market.x, EXTRACT(HOUR FROM t.ts AT TIME ZONE 'UTC'), a IS DISTINCT FROM t.b
  FROM lake.market.ticks t, other.`my table` JOIN lake.market.ohlc AS o ON o.ticker = t.ticker"""
    found = _query(text)
    assert len(found.text) == len(text)
    assert found.text.split() == text.replace("lake.market.", "").replace("other.", "").split()
    assert found.rows_of("OHLC") == "SELECT * FROM lake.market.ohlc"
    assert found.rows_of("my table") == "SELECT * FROM other.`my table`"
    assert found.rows_of("else") == "SELECT * FROM `else`"
    window = _query("SELECT * FROM TABLE(TUMBLE(TABLE lake.market.ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))")
    assert window.rows_of("ticks") == "SELECT * FROM lake.market.ticks"


def test_two_tables_of_one_name_are_refused() -> None:
    for text in ("FROM a.t JOIN b.t ON 1 = 1 QUALIFY 1 = 1", "FROM t JOIN b.t ON 1 = 1 QUALIFY 1 = 1"):
        with pytest.raises(TriggerRejected, match=r"INVALID_SQL 2:\d+: the tables (a.)?t and b.t have the same name"):
            Statement(f"SELECT *\n{text}").query(())
