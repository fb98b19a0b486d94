"""Columns of a view that a text does not read, by `columns_read`, make no difference to its results."""

import pyarrow as pa
import pytest

from candlewright_cep import compile_query, evaluate
from candlewright_cep.planning.reads import columns_read
from tests.candlewright_cep.constructs import Construct, bars, of_functions, of_the_grammar, ticks

TABLES = {"trades": ticks(), "ohlc": bars()}
VIEW = {"ticks": "SELECT * FROM trades"}
QUERIES = [each for each in (*of_the_grammar(), *of_functions()) if "SELECT" in each.text]


@pytest.mark.parametrize("construct", QUERIES, ids=lambda each: each.name)
def test_columns_that_are_not_read_may_be_null(construct: Construct) -> None:
    plan = compile_query(construct.text, {name: table.schema for name, table in TABLES.items()}, views=VIEW).plan
    emptied = TABLES["trades"]
    for place, field in enumerate(emptied.schema):
        if field.name not in columns_read(plan, "ticks"):
            emptied = emptied.set_column(place, field, pa.nulls(emptied.num_rows, field.type))
    found = evaluate(construct.text, {**TABLES, "trades": emptied, **VIEW})
    assert found.to_pydict() == evaluate(construct.text, {**TABLES, **VIEW}).to_pydict()
