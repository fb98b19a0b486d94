"""Views: a text that reads views by name gives the same as the text with the views written out."""

import time
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright_cep import StreamInput, TriggerRejected, TriggerStream, compile_query, compile_stream, evaluate
from candlewright_cep.planning.plans import Filter
from candlewright_cep.planning.relation import Relation
from candlewright_cep.streaming.rows.release import ReleaseBuffer
from tests.rounds import rounds

STEPS = np.random.default_rng(7).integers(0, 6, 60)
TRADES = pa.table(
    {
        "ticker": [f"T{place % 3}" for place in range(60)],
        "ts": pa.array((np.arange(60) * 10**9).tolist(), pa.timestamp("ns", "UTC")),
        "price": (100.0 + STEPS).tolist(),
        "size": (1.0 + STEPS % 4).tolist(),
    }
)
VIEWS = {
    "large": "SELECT * FROM ticks WHERE size >= 2",
    "moves": """CREATE VIEW moves AS
        SELECT *, price - LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS step FROM ticks""",
    "falls": "SELECT ticker, ts, price FROM moves WHERE step < 0",
    "named": "CREATE VIEW named (who, at, paid) AS SELECT ticker, ts, price FROM large;",
}
#: A text over views, and the same text with each view written out.
PAIRS = [
    ("SELECT * FROM large WHERE price > 102", "SELECT * FROM ticks WHERE size >= 2 AND price > 102"),
    (
        "SELECT f.ticker, f.price + 1 AS more FROM falls f",
        """SELECT ticker, price + 1 AS more FROM (SELECT *, price - LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS
        step FROM ticks) WHERE step < 0""",
    ),
    (
        """SELECT * FROM falls MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES A.price AS a, B.price AS b
        PATTERN (A B) DEFINE B AS B.price < A.price)""",
        """WITH f AS (SELECT *, price - LAG(price) OVER (PARTITION BY ticker ORDER BY ts) AS step FROM ticks)
        SELECT * FROM (SELECT ticker, ts, price FROM f WHERE step < 0) MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts
        MEASURES A.price AS a, B.price AS b PATTERN (A B) DEFINE B AS B.price < A.price)""",
    ),
    (
        """SELECT who, window_end, MAX(paid) AS top FROM TABLE(TUMBLE(TABLE named, DESCRIPTOR(at),
        INTERVAL '10' SECOND)) GROUP BY who, window_start, window_end""",
        """SELECT ticker AS who, window_end, MAX(price) AS top FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts),
        INTERVAL '10' SECOND)) WHERE size >= 2 GROUP BY ticker, window_start, window_end""",
    ),
    (
        "CREATE VIEW own AS SELECT * FROM large; SELECT a.price, b.price AS other FROM own a JOIN own b ON a.ts = b.ts",
        "SELECT price, price AS other FROM ticks WHERE size >= 2",
    ),
]


def rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize(("over_views", "written_out"), PAIRS)
def test_a_view_answers_as_its_text_would_where_it_is_read(over_views: str, written_out: str) -> None:
    found = rows(evaluate(over_views, {"ticks": TRADES, **VIEWS}))
    assert found
    assert found == rows(evaluate(written_out, TRADES))


@settings(max_examples=rounds(20), deadline=None)
@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 60), max_size=6), st.booleans())
def test_a_stream_over_views_gives_the_rows_of_the_batch(
    pair: tuple[str, str], cuts: list[int], restarts: bool
) -> None:
    wanted = rows(evaluate(pair[1], TRADES))
    query = compile_stream(pair[0], {"ticks": StreamInput(TRADES.schema, ("ts",))}, views=VIEWS, partitions_close=True)
    stream, buffer = TriggerStream(query=query), ReleaseBuffer("ts", "ticker")
    found: list[str] = []
    places = sorted({0, *cuts, TRADES.num_rows})
    for start, end in pairwise(places):
        found += rows(stream.feed(buffer.push(TRADES.slice(start, end - start)).rows, buffer.clock).table)
        if restarts:
            state = stream.snapshot()
            stream = TriggerStream(query=query)
            stream.restore(state)
    found += rows(stream.feed(buffer.close(set(TRADES["ticker"].to_pylist())), buffer.clock).table)
    assert sorted(found) == wanted


def test_a_view_that_is_read_twice_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    filtered: list[Filter] = []
    run = Filter.run

    def noted(self: Filter, inputs: Mapping[str, Relation]) -> Relation:
        filtered.append(self)
        return run(self, inputs)

    monkeypatch.setattr(Filter, "run", noted)
    text = "SELECT a.ticker FROM large a JOIN large b ON a.ts = b.ts"
    assert evaluate(text, {"ticks": TRADES, "large": VIEWS["large"]}).num_rows
    assert len(filtered) == 1


def test_the_views_that_a_text_reads_are_known() -> None:
    compiled = compile_query("SELECT * FROM falls", {"ticks": TRADES.schema}, views=VIEWS)
    assert compiled.views == ("falls", "moves")


@pytest.mark.parametrize(
    ("text", "views", "said"),
    [
        ("SELECT * FROM a", {"a": "SELECT * FROM b", "b": "SELECT * FROM A"}, "1:15: .*'a' reads itself: a -> b -> a"),
        ("SELECT\n* FROM a", {"a": "SELECT prise FROM ticks"}, "2:8: in the view 'a' at 1:8: unknown column 'prise'"),
        ("SELECT * FROM a", {"a": "SELECT * FROM ticks WHERE price > :p"}, "in the view 'a' at 1:35: no value for"),
        ("SELECT * FROM a", {"a": "price > 1"}, "in the view 'a' at 1:1: expected SELECT"),
        ("SELECT * FROM larg", {"large": VIEWS["large"]}, "1:15: unknown table 'larg' .did you mean 'large'"),
        ("CREATE VIEW v AS SELECT * FROM ticks", {}, "a view alone is not a trigger"),
        ("CREATE VIEW v AS SELECT * FROM ticks; price > 1", {}, "1:39: a condition reads no view"),
        ("CREATE VIEW v AS SELECT * FROM v; SELECT * FROM v", {}, "1:32: unknown table 'v'"),
        ("CREATE VIEW v AS SELECT * FROM ticks SELECT 1", {}, "1:38: 'SELECT' is not expected here"),
        ("CREATE TABLE v AS SELECT * FROM ticks", {}, "1:1: CREATE is not a trigger"),
    ],
)
def test_errors_in_views_are_reported_where_the_views_are_read(text: str, views: dict[str, str], said: str) -> None:
    with pytest.raises(TriggerRejected, match=said):
        evaluate(text, {"ticks": TRADES, **views})


def doubling(levels: int) -> dict[str, str]:
    found = {"v0": "SELECT * FROM ticks"}
    for level in range(1, levels):
        below = f"v{level - 1}"
        found[f"v{level}"] = f"SELECT x.* FROM {below} x JOIN {below} y ON x.ts = y.ts"
    return found


@pytest.mark.parametrize(
    ("views", "text"),
    [
        (doubling(100), "SELECT * FROM v99"),
        (doubling(15), "SELECT * FROM v14"),
        (
            {"v0": "SELECT * FROM ticks"} | {f"v{n}": f"SELECT * FROM v{n - 1}" for n in range(1, 50)},
            "SELECT * FROM v49",
        ),
        (
            {f"v{n}": f"SELECT '{'x' * 1_900}' AS x FROM ticks" for n in range(40)},
            " UNION ALL ".join(f"SELECT * FROM v{n}" for n in range(40)),
        ),
        (
            {f"v{n}": "SELECT * FROM ticks" for n in range(120)},
            " UNION ALL ".join(f"SELECT * FROM v{n}" for n in range(120)),
        ),
    ],
)
def test_hostile_views_are_refused_within_a_second(views: dict[str, str], text: str) -> None:
    began = time.process_time()
    with pytest.raises(TriggerRejected, match=r"more than (500 tables|20 views build|65536 bytes|100 views)"):
        evaluate(text, {"ticks": TRADES, **views})
    assert time.process_time() - began < 1
