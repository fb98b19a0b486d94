"""The language as editors get it: complete, and consistent with the engine."""

import ast
import datetime as dt
import inspect

import pyarrow as pa
import pytest

from candlewright_cep import TriggerRejected, compile_query, compile_stream, evaluate
from candlewright_cep.binding.pattern_binder import PATTERN_FUNCTIONS
from candlewright_cep.functions.aggregates.aggregates import AGGREGATE_ALIASES, AGGREGATES
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.functions.scalars.scalar import FUNCTIONS
from candlewright_cep.functions.usage import SKIPPED, STRICT
from candlewright_cep.language import Entry, forms, functions, keywords, types
from candlewright_cep.planning.over import RANKING, VALUES
from candlewright_cep.syntax import expression_parser, pattern_parser, query_parser, source_parser
from candlewright_cep.syntax.reader import KEY_WORDS, RESERVED
from triggers.texts.check import INPUTS

ENTRIES = functions()
BY_KIND = {kind: [entry for entry in ENTRIES if entry.kind == kind] for kind in sorted({e.kind for e in ENTRIES})}
SCHEMAS = {name: source.schema for name, source in INPUTS.items()}
TUMBLED = (
    "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end"
)
#: The grammar has its own forms for these.
OF_THE_GRAMMAR = {"NEGATE", "ARRAY", "MATCH_RECOGNIZE"}


def ticks(price: float | None) -> pa.Table:
    start = dt.datetime(2024, 1, 31, 9, 30, tzinfo=dt.UTC)
    rows = [
        {"ticker": "A/B.C", "ts": start + dt.timedelta(seconds=number), "price": price, "size": price, "side": None}
        for number in range(3)
    ]
    return pa.Table.from_pylist(rows, schema=pa.schema([INPUTS["ticks"].schema.field(name) for name in rows[0]]))


def query(entry: Entry) -> str:
    """A text with the entry's example."""
    frame = " ROWS BETWEEN 9 PRECEDING AND CURRENT ROW" if "frame" in entry.stream else ""
    over = f"OVER (PARTITION BY ticker ORDER BY ts{frame})"
    if entry.kind == "scalar":
        return f"SELECT ts FROM ticks WHERE {entry.example}"
    if entry.kind == "aggregate":
        return f"SELECT ticker, {entry.example} AS x {TUMBLED}"
    if entry.kind == "pattern":
        measures = f"MEASURES {entry.example} AS x PATTERN (A B) DEFINE B AS price > PREV(price)"
        return f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts {measures}) AS m"
    if entry.name in RANKING:
        return f"SELECT ticker, {entry.example} OVER (PARTITION BY window_start ORDER BY COUNT(*)) AS x {TUMBLED}"
    return f"SELECT ts, {entry.example} {over} AS x FROM ticks"


def test_every_function_has_an_entry_and_every_entry_is_one() -> None:
    names = {*FUNCTIONS, *AGGREGATES, *AGGREGATE_ALIASES, *INDICATORS, *RANKING, *VALUES, *PATTERN_FUNCTIONS}
    called = {name for name in names if name.isidentifier() and name not in RESERVED - {"LEFT", "RIGHT"}}
    assert {entry.name for entry in ENTRIES} == called - OF_THE_GRAMMAR - {
        "COUNT_DISTINCT",
        "SUM_DISTINCT",
        "AVG_DISTINCT",
    }
    assert all(entry.signature.startswith(f"{entry.name}(") and entry.text and entry.nulls for entry in ENTRIES)
    assert all(len(entry.text) <= 100 and not entry.text.endswith(".") for entry in ENTRIES)


def test_examples_of_scalar_functions_hold() -> None:
    shown = ", ".join(f'{entry.example} AS "{entry.name}"' for entry in BY_KIND["scalar"])
    found = evaluate(f"SELECT {shown} FROM ticks", ticks(1.0)).to_pylist()[0]
    assert [name for name, holds in found.items() if holds is not True] == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_an_example_runs_over_stored_rows_and_over_a_stream(entry: Entry) -> None:
    compile_query(query(entry), SCHEMAS)
    compile_stream(query(entry), INPUTS)


def test_emit_changes_refuses_exactly_the_aggregates_that_keep_every_value() -> None:
    refused = set()
    for entry in BY_KIND["aggregate"]:
        try:
            compile_stream(f"SELECT ticker, {entry.example} AS x FROM ticks GROUP BY ticker EMIT CHANGES", INPUTS)
        except TriggerRejected:
            refused.add(entry.name)
    assert refused == {entry.name for entry in BY_KIND["aggregate"] if "EMIT CHANGES" not in entry.stream}


def test_null_rules_are_those_of_the_engine() -> None:
    strict = [entry for entry in BY_KIND["scalar"] if entry.nulls == STRICT and "," not in entry.signature]
    shown = ", ".join(
        f'{entry.name}(CAST(price AS {"VARCHAR" if "text" in entry.signature else "DOUBLE"})) IS NULL AS "{entry.name}"'
        for entry in strict
        if "(x)" in entry.signature or "(text)" in entry.signature
    )
    found = evaluate(f"SELECT {shown} FROM ticks", ticks(None)).to_pylist()[0]
    assert len(found) > 30 and all(found.values()), found
    skipping = [entry for entry in BY_KIND["aggregate"] if entry.nulls == SKIPPED]
    shown = ", ".join(f"{entry.example} AS {entry.name}" for entry in skipping if "side = " not in entry.example)
    (row,) = evaluate(f"SELECT {shown} FROM ticks", ticks(None)).to_pylist()
    assert len(row) > 20 and set(row.values()) == {None}
    (row,) = evaluate(
        "SELECT COUNT(price) AS a, COUNT_IF(price > 1) AS b, ARRAY_AGG(price) AS c FROM ticks", ticks(None)
    ).to_pylist()
    assert row == {"a": 0, "b": 0, "c": [None] * 3}


@pytest.mark.parametrize("form", forms(), ids=lambda form: form.form)
def test_an_example_of_a_form_is_accepted_and_uses_it(form) -> None:  # type: ignore[no-untyped-def]
    compile_query(form.example, SCHEMAS)
    assert all(word in form.example for word in form.name.split())


def test_every_key_word_is_in_a_form() -> None:
    words = {
        word
        for form in forms()
        for word in (form.form + " " + form.text).replace("(", " ").replace(",", " ").replace(";", " ").split()
    }
    refused = {"INTERSECT", "EXCEPT", "NATURAL", "EXISTS"}
    assert {*RESERVED, *KEY_WORDS} - words - refused == set()
    assert {"PERMUTE", "ASOF", "EMIT", "UNNEST", "QUALIFY"} <= set(keywords())


def test_every_word_that_the_parsers_accept_is_a_key_word() -> None:
    parsers = (expression_parser, pattern_parser, query_parser, source_parser)
    calls = [node for module in parsers for node in ast.walk(ast.parse(inspect.getsource(module)))]
    accepted = {
        argument.value
        for call in calls
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in ("accept_words", "expect_words", "is_word")
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    refused = {"ILIKE", "LATERAL", "RECURSIVE", "REPLACE", "TOP", "TRANSFORM"}
    assert len(accepted) > 80
    assert accepted - {*keywords(), *types()} == refused | {"TIME"}
    assert all(len(word) > 1 for word in keywords())
