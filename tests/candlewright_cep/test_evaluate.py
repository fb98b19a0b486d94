"""The library's entry point: one table under any name, or several under their own names."""

import duckdb
import polars
import pyarrow as pa
import pytest

import candlewright_cep
from candlewright_cep import TriggerRejected
from flink_replacement_spark import cep

TRADES = pa.table({"ticker": ["A", "A", "B"], "price": [1.0, 2.0, 3.0]})
LIMITS = pa.table({"ticker": ["A", "B"], "most": [1.5, 5.0]})
JOINED = "SELECT t.price FROM trades t JOIN limits l ON t.ticker = l.ticker WHERE t.price > l.most"


def test_a_single_table_answers_to_any_name() -> None:
    found = candlewright_cep.evaluate("SELECT a.price FROM clicks a JOIN Visits b ON a.price = b.price + 1", TRADES)
    assert found.column("price").to_pylist() == [2.0, 3.0]
    assert candlewright_cep.evaluate("price > :least", TRADES, {"least": "1"}).num_rows == 2


@pytest.mark.parametrize("evaluate", [candlewright_cep.evaluate, cep.evaluate])
def test_several_tables_answer_to_their_names_alone(evaluate: object) -> None:
    assert callable(evaluate)
    tables = {"trades": TRADES, "limits": LIMITS}
    assert evaluate(JOINED, tables).column("price").to_pylist() == [2.0]
    with pytest.raises(TriggerRejected, match=r"INVALID_SQL 1:15: unknown table 'ticks'"):
        evaluate("SELECT * FROM ticks", tables)
    with pytest.raises(TriggerRejected, match="a bare condition applies to ticks, which is not an input"):
        evaluate("price > 1", tables)
    assert evaluate("price > 1", tables, table_name="trades").num_rows == 2
    assert evaluate("price > 1", {"trades": TRADES}).num_rows == 2


def test_the_platforms_entry_keeps_its_arguments() -> None:
    assert cep.evaluate("price > :n", TRADES, "quotes", {"n": "2"}).num_rows == 1
    assert cep.evaluate("SELECT * FROM quotes", table=TRADES, table_name="quotes").num_rows == 3
    with pytest.raises(TriggerRejected, match="unknown table 'other'"):
        cep.evaluate("SELECT * FROM other", TRADES)


def test_anything_that_exports_arrow_is_accepted_as_a_table() -> None:
    frame = polars.DataFrame({"user": ["a", None, "b"], "price": [1.0, 2.0, 3.0]})
    text = "SELECT user FROM anything WHERE price > 1.5"
    wanted = {"user": [None, "b"]}
    assert candlewright_cep.evaluate(text, frame).to_pydict() == wanted
    assert candlewright_cep.evaluate(text, {"anything": frame}).to_pydict() == wanted
    assert candlewright_cep.evaluate(text, frame.to_arrow().to_batches()[0]).to_pydict() == wanted
    with duckdb.connect() as connection:
        relation = connection.sql("SELECT * FROM (VALUES ('a', 1.0), (NULL, 2.0), ('b', 3.0)) AS t(user, price)")
        assert candlewright_cep.evaluate(text, relation).to_pydict() == wanted


def test_data_that_does_not_export_arrow_is_refused_by_its_type() -> None:
    with pytest.raises(TypeError, match=r"LazyFrame does not export Arrow: collect\(\) it first"):
        candlewright_cep.evaluate("price > 1", polars.LazyFrame({"price": [1.0]}))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list does not export Arrow"):
        candlewright_cep.evaluate("price > 1", [])  # type: ignore[arg-type]
