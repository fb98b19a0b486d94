"""Looking ahead skips only work that would have failed: results are those of trying every row."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from candlewright_cep import ReleaseBuffer, SkipFailed, StreamInput, TriggerStream, compile_stream, evaluate
from candlewright_cep.matching import blocks, foresight, search
from tests.candlewright_cep.random_matches import Case, cases
from tests.candlewright_cep.test_against_reference import check
from tests.candlewright_cep.test_stream_against_batch import streamed
from tests.rounds import rounds

_SETTINGS = settings(
    max_examples=rounds(60),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
)

PATTERNS = [
    "A B*? C", "A B* C", "A B+ C D", "A B*? (C | D)", "A+ B*? C", "A B*? C B* D", "A {- B* -} C", "(A | C) B* D",
    "A (B C)*? D", "(A B*? C)+", "^ A B* C", "A B*", "A B+? C", "PERMUTE(A, B*, C)", "A B* C $", "B* C", "A B{2,}? C",
]  # fmt: skip
ROWS = ["{0}.v", "{0}.w", "PREV({0}.v)", "{0}.v * {0}.w", "-{0}.v", "{0}.v / 3", "{0}.w - 5", "{0}.w * 3"]
POINTS = [
    "A.v", "A.v * 1.05", "A.v + 2", "FIRST(v)", "LAST(A.v)", "PREV(A.v)", "A.w", "A.w * 3", "MATCH_NUMBER()",
    "FIRST(A.v)", "A.v / A.w", "3", "COUNT(A.*)", "SUM(A.v)", "LAST(C.v)", "MAX(B.v)", "COUNT(*)", "A.w / 2",
    "MAX(B.v) * 0.9", "MIN(B.w)", "SUM(B.v)", "SUM(B.w)", "AVG(B.v) + 1", "COUNT(B.*) * 2", "B.v", "LAST(B.v, 1)",
    "PREV(LAST(B.v))",
    "AVG(v)", "SUM(ABS(v)) / 2", "FIRST(B.w)",
]  # fmt: skip
WITHIN = [
    "", " WITHIN INTERVAL '5' SECOND", " WITHIN INTERVAL '40' SECOND", " WITHIN INTERVAL '2' SECOND FROM PREVIOUS ROW",
    " WITHIN INTERVAL '20' SECOND FROM FIRST ROW, INTERVAL '2' SECOND FROM PREVIOUS ROW",
]  # fmt: skip
MODES = ["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH WITH UNMATCHED ROWS"]
SKIPS = ["PAST LAST ROW", "TO NEXT ROW", "TO LAST A"]


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Look ahead wherever it is possible, over small blocks."""
    with (
        patch.object(search, "_ROUNDS", 1),
        patch.object(search, "_WORTHWHILE", 0),
        patch.object(search, "_DEAR_STEPS", 0),
        patch.object(search, "_JUDGED", 3),
        patch.object(blocks, "FAN_BITS", 1),
        patch.object(foresight, "_MOST_BLOCKS", 1),
    ):
        yield


def blind() -> Any:
    return patch.object(foresight.Foresight, "of", staticmethod(lambda *_: None))


def conditions(name: str) -> st.SearchStrategy[str]:
    row = st.sampled_from(ROWS).map(lambda form: form.format(name))
    point = st.sampled_from(POINTS)
    symbol = st.sampled_from(["<", "<=", ">", ">=", "=", "<>"])
    simple = st.one_of(
        st.builds("{} {} {}".format, row, symbol, point),
        st.builds("{1} {0} {2}".format, symbol, point, row),
        st.builds("{} - {} {} {}".format, row, point, symbol, st.integers(-3, 3)),
        st.builds("({0} - {1}) / {1} {2} 0.1".format, row, point, symbol),
        st.builds("ABS({} - {}) {} 2".format, row, point, symbol),
        st.builds("{} BETWEEN {} AND {}".format, row, point, point),
        st.just(f"{name}.ts - A.ts > INTERVAL '4' SECOND"),
        st.just(f"{name}.ts > A.ts + INTERVAL '4' SECOND"),
        st.just(f"{name}.side = A.side"),
        st.just(f"{name}.side = 'buy'"),
        st.just(f"{name}.v IS NULL"),
    )
    return st.one_of(
        simple,
        simple,
        st.builds("({} AND {})".format, simple, simple),
        st.builds("({} OR {})".format, simple, simple),
        st.builds("NOT ({})".format, simple),
    )


@st.composite
def texts(draw: st.DrawFn) -> str:
    pattern = draw(st.sampled_from(PATTERNS))
    names = [name for name in "ABCD" if name in pattern]
    defined = [name for name in names if name in "CD" or draw(st.integers(0, 2)) == 0]
    defines = ", ".join(f"{name} AS {draw(conditions(name))}" for name in defined)
    mode = draw(st.sampled_from(MODES[:2] if "{-" in pattern else MODES))
    if "A" not in names:
        defines = defines.replace("A.", "C.").replace("(A.", "(C.")
    if "B" not in names:
        defines = defines.replace("B.", "C.")
    if "C" not in names:
        defines = defines.replace("C.", "B.").replace("C AS", "B AS")
    skip = draw(st.sampled_from(SKIPS[: 3 if "A" in names else 2]))
    return (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES MATCH_NUMBER() AS n, FIRST(id) AS a, LAST(id) AS z, "
        f"COUNT(*) AS c {mode} AFTER MATCH SKIP {skip} PATTERN ({pattern}){draw(st.sampled_from(WITHIN))}"
        f"{' DEFINE ' + defines if defines else ''})"
    )


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 60))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    doubles = np.round(random.normal(10, draw(st.sampled_from([1, 5, 20])), count), 1).tolist()
    for odd in (math.nan, math.inf, -math.inf, None, 0.0):
        if draw(st.integers(0, 3)) == 0:
            doubles[draw(st.integers(0, count - 1))] = odd
    big = draw(st.sampled_from([10, 2**53, 2**62]))
    integers = random.integers(-big, big, count).tolist()
    if draw(st.booleans()):
        integers[draw(st.integers(0, count - 1))] = None
    return pa.table(
        {
            "id": np.arange(count),
            "ts": pa.array(np.cumsum(random.integers(0, 3, count)) * 1000).cast(pa.timestamp("ms")),
            "v": pa.array(doubles, pa.float64()),
            "w": pa.array(integers, pa.int64()),
            "side": random.choice(["buy", "sell"], count).tolist(),
            "ticker": ["T"] * count,
        }
    )


def rows(sql: str, table: pa.Table) -> list[tuple[Any, ...]] | None:
    try:
        return sorted((tuple(row.values()) for row in evaluate(sql, table).to_pylist()), key=repr)
    except SkipFailed:
        return None


@_SETTINGS
@given(texts(), tables())
def test_looking_ahead_changes_no_answer(sql: str, table: pa.Table) -> None:
    with blind():
        wanted = rows(sql, table)
    with eager():
        assert repr(rows(sql, table)) == repr(wanted)


@_SETTINGS
@given(texts(), tables(), st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_looking_ahead_changes_no_answer_of_a_stream(sql: str, table: pa.Table, cuts: list[int], restart: bool) -> None:
    places = sorted({cut for cut in cuts if cut <= table.num_rows})
    for text in (sql, sql.replace("MATCH SKIP TO LAST A", "MATCH SKIP PAST LAST ROW")):
        with blind():
            wanted = streamed(text, table, places, restart=restart)
        with eager():
            assert repr(streamed(text, table, places, restart=restart)) == repr(wanted)


@_SETTINGS
@given(cases())
def test_matches_are_those_of_the_slow_matcher(case: Case) -> None:
    with eager():
        check(case)


@_SETTINGS
@given(cases(within=True))
def test_matches_with_within_are_those_of_the_slow_matcher(case: Case) -> None:
    with eager():
        check(case)


PICKED = [
    "C AS C.v < MAX(B.v) * 0.9",
    "C AS C.v > MIN(B.v) + 3 AND C.w > 0",
    "B AS B.v > 5, C AS C.v < LAST(B.v) - 4",
    "C AS MAX(B.w) > 5",
    "C AS C.v < MAX(v) - 8",
    "C AS C.v - C.w * 0 <= ANY_VALUE(B.v) / 2",
]


@_SETTINGS
@given(
    tables(),
    st.sampled_from(PICKED),
    st.sampled_from(["A B+ C", "A B*? C", "A B+? C"]),
    st.sampled_from(WITHIN),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_a_condition_on_one_row_of_the_loop(
    table: pa.Table, define: str, pattern: str, within: str, cuts: list[int]
) -> None:
    sql = (
        "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES FIRST(id) AS a, LAST(id) AS z "
        f"PATTERN ({pattern}){within} DEFINE {define})"
    )
    places = sorted({cut for cut in cuts if cut <= table.num_rows})
    with blind():
        wanted, on_stream = rows(sql, table), streamed(sql, table, places, restart=False)
    with eager():
        assert rows(sql, table) == wanted
        assert streamed(sql, table, places, restart=False) == on_stream


def _steps_of_a_row(pattern: str, drift: float) -> float:
    """The steps that a stream takes for each row of a random walk."""
    count = 6_000
    walk = np.cumsum(np.random.default_rng(5).normal(drift, 2e-4, count))
    table = pa.table(
        {
            "ticker": ["T"] * count,
            "ts": pa.array(np.arange(count) * 10**9).cast(pa.timestamp("ns", "UTC")),
            "v": 100 * np.exp(walk),
        }
    )
    sql = f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES FIRST(ts) AS a {pattern})"
    stream = TriggerStream(query=compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))}))
    buffer = ReleaseBuffer("ts", "ticker")
    for at in range(0, count, 1_000):
        stream.feed(buffer.push(table.slice(at, 1_000)).rows, buffer.clock)
    return stream.steps / count


def test_a_start_is_skipped_if_no_row_in_reach_is_far_enough_below_the_maximum() -> None:
    """The values rise within each window more often than they fall that far."""
    pattern = "PATTERN (A B+? C) WITHIN INTERVAL '1500' SECOND DEFINE C AS C.v < MAX(B.v) * 0.993"
    assert _steps_of_a_row(pattern, 1e-5) < 10


def test_matches_from_each_row_are_found_without_trying_the_rows_between() -> None:
    pattern = (
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B*? C) WITHIN INTERVAL '250' SECOND DEFINE C AS C.v > A.v * 1.002"
    )
    assert _steps_of_a_row(pattern, 1e-5) < 60
