"""Every construct of the language: over finished tables as its oracle says, and the same over a stream that is cut
anywhere and restarted at every cut.
"""

import datetime as dt
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from candlewright_cep import (
    JoinedStream,
    ReleaseBuffer,
    StreamInput,
    TriggerRejected,
    TriggerStream,
    compile_query,
    compile_stream,
)
from candlewright_cep.engine import evaluate_named
from candlewright_cep.functions.usage import STRICT
from tests.candlewright_cep.constructs import (
    Construct,
    bars,
    functions_of,
    of_functions,
    of_one_row,
    of_patterns,
    of_the_grammar,
    page,
    ticks,
)
from tests.candlewright_cep.streams import ordered
from tests.candlewright_cep.test_conformance import FEATURES, ROWS
from tests.conftest import ROOT
from triggers.texts.check import INPUTS

TABLES = {"ticks": ticks(), "ohlc": bars()}
GRAMMAR = list(of_the_grammar())
FUNCTIONS = list(of_functions())
SCALARS = list(of_one_row())
PATTERNS = list(of_patterns())
#: The rows of the standard's items, with their numbers as times.
ITEM_ROWS = ROWS.append_column("time", ROWS.column("t").cast(pa.int64()).cast(pa.timestamp("ns"))).sort_by("t")
ITEMS = {"r": StreamInput(ITEM_ROWS.schema, ("time", "t"), "k")}
NULLS = {entry.name: entry.nulls for entry in functions_of("scalar")}
#: Its condition is FALSE.
_EMPTY = "FALSE"


class Running:
    """A text on a stream, restarted after every piece of its inputs."""

    def __init__(self, text: str, inputs: Mapping[str, StreamInput], keys: set[str]) -> None:
        self.query = compile_stream(text, inputs, partitions_close=True)
        self.stream: TriggerStream | JoinedStream = self._started()
        leaves = () if self.query.joined is None else self.query.joined.leaves()
        self.places = sorted({(leaf.name, leaf.period) for leaf in leaves}) or [(self.query.input_name, 0)]
        self.buffers = {place: _buffer(inputs[place[0]], keys) for place in self.places}
        self.found: list[dict[str, Any]] = []

    def _started(self) -> TriggerStream | JoinedStream:
        return TriggerStream(query=self.query) if self.query.joined is None else JoinedStream(query=self.query)

    def feed(self, place: tuple[str, int], rows: pa.Table) -> None:
        clock = self.buffers[place].clock
        if isinstance(self.stream, JoinedStream):
            events = self.stream.feed_input(*place, rows, clock=clock)
        else:
            events = self.stream.feed(rows, clock)
        self.found += events.table.to_pylist()
        state = self.stream.snapshot()
        self.stream = self._started()
        self.stream.restore(state)


def streamed(text: str, tables: Mapping[str, pa.Table], inputs: Mapping[str, StreamInput]) -> list[dict[str, Any]]:
    """The rows of a text whose inputs arrive in pieces."""
    keys = {key for name, rows in tables.items() for key in rows.column(inputs[name].ticker_column).to_pylist()}
    running, chance = Running(text, inputs, keys), random.Random(len(text))
    waiting = [(place, piece) for place in running.places for piece in _pieces(tables[place[0]], chance)]
    turns = chance.sample([place for place, _ in waiting], len(waiting))
    for turn in turns:
        place, piece = waiting.pop(next(number for number, (place, _) in enumerate(waiting) if place == turn))
        running.feed(place, running.buffers[place].push(piece).rows)
    for place, buffer in running.buffers.items():
        running.feed(place, buffer.close(keys))
    return running.found


def _buffer(source: StreamInput, keys: set[str]) -> ReleaseBuffer:
    buffer = ReleaseBuffer(source.time_columns[0], source.ticker_column)
    # As for a trigger with named tickers, tickers without rows so far are waited for.
    buffer.advance(dict.fromkeys(keys, -1))
    return buffer


def _pieces(table: pa.Table, chance: random.Random) -> Iterator[pa.Table]:
    cuts = sorted(chance.sample(range(1, table.num_rows), min(5, table.num_rows - 1)))
    for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        yield table.slice(start, end - start)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        for name, table in TABLES.items():
            connection.register(name, _naive(table))
        yield connection


def _naive(table: pa.Table) -> pa.Table:
    """Times without a zone, which DuckDB reads as UTC."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            naive = table.column(place).cast(pa.timestamp("us", "UTC")).cast(pa.timestamp("us"))
            table = table.set_column(place, field.name, naive)
    return table


def _comparable(rows: Iterable[Sequence[Any]]) -> list[str]:
    return sorted(repr([_plain(value) for value in row]) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds")
    return round(value, 9) if isinstance(value, float) else value


@pytest.mark.parametrize("construct", [*GRAMMAR, *FUNCTIONS], ids=lambda construct: construct.name)
def test_a_construct_gives_the_same_rows_everywhere(construct: Construct, database: duckdb.DuckDBPyConnection) -> None:
    rows = evaluate_named(construct.text, TABLES).to_pylist()
    assert bool(rows) == (construct.name != _EMPTY)
    if construct.oracle:
        assert _comparable(row.values() for row in rows) == _comparable(database.execute(construct.oracle).fetchall())
    if construct.refused:
        with pytest.raises(TriggerRejected, match=construct.refused):
            compile_stream(construct.text, INPUTS)
    else:
        assert ordered(streamed(construct.text, TABLES, INPUTS)) == ordered(rows)


@pytest.mark.parametrize("construct", PATTERNS, ids=lambda construct: construct.name)
def test_an_item_of_the_standard_has_its_answer_on_a_stream(construct: Construct) -> None:
    # The frame of a window is counted there.
    text = construct.text.replace("UNBOUNDED FOLLOWING", "9 FOLLOWING")
    if construct.refused:
        with pytest.raises(TriggerRejected, match=construct.refused):
            compile_stream(text, ITEMS, partitions_close=True)
        return
    code, _, item = construct.name.partition(" ")
    expected = FEATURES[code][item].rows
    assert expected is not None
    found = streamed(text, {"r": ITEM_ROWS}, ITEMS)
    assert _comparable(row.values() for row in found) == _comparable(expected)


def test_functions_of_one_row_are_as_duckdb_has_them(database: duckdb.DuckDBPyConnection) -> None:
    wrong = [each.name for each in SCALARS if each.oracle and database.execute(each.oracle).fetchone() != (True,)]
    assert wrong == []


def test_functions_of_one_row_read_columns_as_they_read_literals() -> None:
    """Each literal of an example becomes a column where that is possible: true in the first row, NULL in the second."""
    columns: dict[str, pa.Array] = {"ticker": pa.array(["A"] * 2), "ts": pa.array([1, 2], pa.timestamp("ns", "UTC"))}
    shown, strict = [], []
    for each in SCALARS:
        text, is_whole = _with_columns(each.text, columns)
        shown.append(f'{text} AS "{each.name}"')
        if is_whole and NULLS[each.name] == STRICT:
            strict.append(each.name)
    table = pa.table(columns)
    text = f"SELECT {', '.join(shown)} FROM ticks"
    holds, empty = evaluate_named(text, {"ticks": table}).to_pylist()
    assert [name for name, value in holds.items() if value is not True] == []
    assert len(strict) > 60 and [name for name in strict if empty[name] is not None] == []
    inputs = {"ticks": StreamInput(table.schema, ("ts",))}
    assert streamed(text, {"ticks": table}, inputs) == [holds, empty]


_LITERAL = re.compile(r"(?:(?:TIMESTAMP|DATE) )?'[^']*'|(?<![\w.'-])-?[0-9]+(?:\.[0-9]+)?(?![\w.'])")


def _with_columns(example: str, columns: dict[str, pa.Array]) -> tuple[str, bool]:
    """The example with new `columns` for literals, except where one must be written; and whether all became columns."""
    found, last = list(_LITERAL.finditer(example)), example
    is_whole = True
    for literal in reversed(found):
        name = f"c{len(columns)}"
        value = evaluate_named(f"SELECT {literal[0]} AS v FROM ticks", {"ticks": pa.table({"x": [1]})}).column("v")
        column = pa.concat_arrays([value.chunk(0), pa.nulls(1, value.type)])
        text = last[: literal.start()] + name + last[literal.end() :]
        known = columns | {name: column}
        try:
            compile_query(f"SELECT {text} FROM ticks", {"ticks": pa.table(known).schema})
        except TriggerRejected:
            is_whole = False
        else:
            columns[name], last = column, text
    return last, is_whole


def test_the_page_has_these_lines() -> None:
    assert (ROOT / "docs" / "reference" / "constructs.md").read_text() == page()
