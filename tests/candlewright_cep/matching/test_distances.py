"""Earlier rows of a match that are always the same number of rows back, and patterns whose conditions read them."""

import random
from unittest.mock import patch

import pyarrow as pa
import pytest

from candlewright_cep import StreamInput, TriggerStream, compile_stream, evaluate
from candlewright_cep.binding.expressions import Shift, walk
from candlewright_cep.engine import compile_query
from candlewright_cep.matching import distances
from candlewright_cep.planning.plans import Match
from candlewright_cep.streaming.patterns import match_stream
from candlewright_cep.streaming.query import chain_of
from candlewright_cep.streaming.rows.release import ReleaseBuffer
from tests.candlewright_cep.streams import assert_streams, ordered
from tests.rounds import seeds

SCHEMA = pa.schema([("ticker", pa.string()), ("ts", pa.timestamp("ns", "UTC")), ("v", pa.int64())])
SKIPS = ("", "AFTER MATCH SKIP TO NEXT ROW", "AFTER MATCH SKIP TO LAST B")


def text(pattern: str, define: str, skip: str = "") -> str:
    return (
        "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(v) AS first, "
        f"LAST(v) AS last, COUNT(*) AS n, MATCH_NUMBER() AS m {skip} PATTERN ({pattern}) DEFINE {define}) AS found"
    )


@pytest.mark.parametrize(
    ("pattern", "reference", "delta"),
    [
        ("A B", "A.v", -1),
        ("A X B", "A.v", -2),
        ("A X{3} B", "A.v", -4),
        ("A X{3} B", "FIRST(X.v)", -3),
        ("A X+ B", "LAST(X.v)", -1),
        ("A+ B", "LAST(A.v)", -1),
        ("S A B+? C B", "PREV(S.v)", None),
        ("A (X | Y) B", "A.v", -2),
        ("S A B", "PREV(A.v)", -2),
        ("S A B", "NEXT(S.v)", -1),
        ("A B", "NEXT(A.v, 3)", None),
        ("(A B)+", "A.v", -1),
        ("(A B)+", "FIRST(A.v)", None),
        ("A X? B", "A.v", None),
        ("A X* B", "A.v", None),
        ("A+ B", "FIRST(A.v)", None),
        ("A B+", "A.v", None),
        ("PERMUTE(A, B)", "A.v", None),
        ("A? B", "A.v", None),
        ("(A | X) B", "A.v", None),
        ("A B A", "LAST(A.v, 1)", None),
        ("A X{40} B", "A.v", None),
        ("A B", "CLASSIFIER(A) = 'A' AND v", None),
    ],
)
def test_the_distance_of_a_reference(pattern: str, reference: str, delta: int | None) -> None:
    compiled = compile_query(text(pattern, f"B AS {reference} < v"), {"ticks": SCHEMA})
    plan = next(node for node in chain_of(compiled.plan) if isinstance(node, Match)).recognize
    local = plan.conditions.local[plan.variables.index("B")]
    found = [] if local is None else [part.delta for part in walk(local) if isinstance(part, Shift)]
    assert found == ([] if delta is None else [delta])
    assert (plan.conditions.path is None) == (delta is not None)


PATTERNS = (
    ("A B", "B AS v > A.v"),
    ("A B", "A AS v > 2, B AS v > A.v OR PREV(A.v) = 1"),
    ("A X{1,2} B", "X AS v >= A.v, B AS v > LAST(X.v)"),
    ("A X{2} B", "B AS v > A.v + FIRST(X.v) - LAST(X.v)"),
    ("A+ B", "A AS v < 4, B AS v > LAST(A.v) + 1"),
    ("A+? B X*", "B AS v < LAST(A.v), X AS v > B.v"),
    ("A (X | B) B", "X AS v = A.v, B AS v IS DISTINCT FROM A.v"),
    ("(A B){2,}", "A AS v < 5, B AS v > A.v"),
    ("(A X | X A) B", "X AS v < 3, B AS v > A.v"),
    ("A X B", "X AS NEXT(A.v, 2) > 2, B AS v > A.v"),
)


def table(chance: random.Random, rows: int) -> pa.Table:
    steps = [chance.choice([0, 1, 1, 2]) for _ in range(rows)]
    times = [sum(steps[: place + 1]) * 1_000_000_000 for place in range(rows)]
    return pa.table(
        {
            "ticker": [chance.choice("TU") for _ in range(rows)],
            "ts": pa.array(times, pa.int64()).cast(SCHEMA.field("ts").type),
            "v": pa.array([chance.choice([None, 1, 2, 3, 4, 5, 6]) for _ in range(rows)], pa.int64()),
        },
        schema=SCHEMA,
    )


@pytest.mark.parametrize("seed", seeds(10))
def test_matches_are_those_of_references_tested_in_the_search(seed: int) -> None:
    chance = random.Random(seed)
    rows = table(chance, 60)
    for pattern, define in PATTERNS:
        sql = text(pattern, define, chance.choice(SKIPS))
        with patch.object(distances, "_MOST_ROWS", -1):
            wanted = evaluate(sql, rows).to_pylist()
        assert evaluate(sql, rows).to_pylist() == wanted
        assert ordered(assert_streams(sql, rows, seed)) == ordered(wanted)


@pytest.mark.parametrize("seed", seeds(6))
def test_a_state_of_an_older_form_is_searched_again(seed: int) -> None:
    chance = random.Random(seed)
    rows = table(chance, 80)
    for pattern, define in PATTERNS:
        sql = text(pattern, define, chance.choice(SKIPS))
        inputs = {"ticks": StreamInput(SCHEMA, ("ts",))}
        wanted = ordered(evaluate(sql, rows).to_pylist())
        buffer, cut = ReleaseBuffer("ts", "ticker"), chance.randrange(80)
        with patch.object(distances, "_MOST_ROWS", -1), patch.object(match_stream, "_FORM", 0):
            older = TriggerStream(query=compile_stream(sql, inputs, default_table="ticks"))
            found = older.feed(buffer.push(rows.slice(0, cut)).rows, buffer.clock).table.to_pylist()
            parts = older.parts()
        stream = TriggerStream(query=compile_stream(sql, inputs, default_table="ticks"))
        stream.restore_parts(parts)
        stream.restore_parts(stream.parts())
        found += stream.feed(buffer.push(rows.slice(cut)).rows, buffer.clock).table.to_pylist()
        found += stream.feed(buffer.close({"T", "U"}), buffer.clock).table.to_pylist()
        assert ordered(found) == wanted
