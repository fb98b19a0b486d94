"""What is written of an open attempt follows its changes, at the cost of those."""

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright_cep.matching.search import PartitionSearch
from candlewright_cep.streaming.patterns import match_state
from candlewright_cep.streaming.rows.release import ReleaseBuffer
from candlewright_cep.streaming.stream import StreamInput, TriggerStream, compile_stream
from tests.candlewright_cep.random_matches import Case, cases
from tests.candlewright_cep.test_stream_against_batch import with_ticker
from tests.rounds import rounds

_WRITTEN = match_state.snapshot


def checked(search: PartitionSearch) -> dict[str, Any]:
    """The state, which must be the one that is written of the whole attempt."""
    found = _WRITTEN(search)
    attempt = search.attempt
    if attempt is not None:
        search.attempt = replace(attempt, saved=None, kept=0)
        assert found == _WRITTEN(search)
        search.attempt = attempt
    return found


def saved_after_each_row(sql: str, table: pa.Table) -> None:
    source = StreamInput(table.schema, ("ts",), "ticker")
    running = TriggerStream(query=compile_stream(sql, {"ticks": source}, partitions_close=True))
    buffer = ReleaseBuffer("ts", "ticker")
    for start in range(table.num_rows):
        running.feed(buffer.push(table.slice(start, 1)).rows, buffer.clock)
        running.parts()


def trades(prices: Sequence[float]) -> pa.Table:
    """One a second."""
    return pa.table(
        {
            "ticker": ["T"] * len(prices),
            "ts": pa.array([second * 10**9 for second in range(len(prices))], pa.timestamp("ns")),
            "price": pa.array(prices, pa.float64()),
        }
    )


def text(pattern: str, define: str) -> str:
    return f"""SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES C.price AS c
        PATTERN ({pattern}) WITHIN INTERVAL '120' SECOND DEFINE {define})"""


@settings(max_examples=rounds(40), deadline=None)
@given(st.one_of(cases(), cases(within=True)))
def test_states_of_random_patterns(case: Case) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(match_state, "snapshot", checked)
        saved_after_each_row(case.sql, with_ticker(case))


@pytest.mark.parametrize("pattern", ["A B* C", "A B*? C", "A (B | D)* C", "A (B D?)* C", "A B* D* C", "A (B* D)*? C C"])
def test_states_of_long_attempts(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_state, "snapshot", checked)
    chance = random.Random(3)
    define = "B AS price > 5, D AS price < 60, C AS price > A.price + 90" if "D" in pattern else "C AS price > 95"
    saved_after_each_row(text(pattern, define), trades([float(chance.randrange(100)) for _ in range(400)]))


@pytest.mark.parametrize("pattern", ["A B* C", "A B*? C"])
def test_a_state_costs_as_much_as_has_changed(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read = 0
    same, run = match_state._are_same, match_state._run

    def counted_same(one: Sequence[Any], other: Sequence[Any]) -> bool:
        nonlocal read
        read += 1
        return same(one, other)

    def counted_run(labels: bytearray, start: int) -> int:
        nonlocal read
        read += len(labels) - start
        return run(labels, start)

    monkeypatch.setattr(match_state, "_are_same", counted_same)
    monkeypatch.setattr(match_state, "_run", counted_run)
    saved_after_each_row(text(pattern, "C AS price > A.price + 9").replace("'120'", "'9000'"), trades([1.0] * 600))
    assert 600 <= read <= 3 * 600
