"""Once WITHIN is full, each row ends a start. A step then costs as much as its rows, not as those that are kept."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from candlewright_cep.matching import foresight
from candlewright_cep.matching.blocks import Blocks
from candlewright_cep.matching.search import PartitionSearch
from candlewright_cep.streaming.rows.release import ReleaseBuffer
from candlewright_cep.streaming.rows.retained import Gathered, RetainedRows
from candlewright_cep.streaming.stream import StreamInput, TriggerStream, compile_stream

#: A thousand rows a second; no price rises by half.
RISE = """SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES A.price AS a, C.price AS c
    PATTERN (A B*? C) WITHIN INTERVAL '20' SECOND DEFINE C AS C.price > A.price * 1.5)"""
KEPT, STEPS, ROWS = 20_000, 200, 10


class Steps:
    """A stream with a full WITHIN."""

    def __init__(self) -> None:
        self.table = pa.table(
            {
                "ticker": ["T"] * (KEPT + 2_000 + STEPS * ROWS),
                "ts": pa.array(np.arange(KEPT + 2_000 + STEPS * ROWS) * 10**6, pa.timestamp("ns")),
                "price": 100 + np.random.default_rng(5).random(KEPT + 2_000 + STEPS * ROWS),
            }
        )
        source = StreamInput(self.table.schema, ("ts",), "ticker")
        self.stream = TriggerStream(query=compile_stream(RISE, {"ticks": source}))
        self._buffer = ReleaseBuffer("ts", "ticker")
        self._next = 0
        while self._next < KEPT + 2_000:
            self.feed(500)
        assert KEPT <= self.stream.retained_rows < 1.1 * KEPT

    def feed(self, rows: int = ROWS) -> None:
        self.stream.feed(self._buffer.push(self.table.slice(self._next, rows)).rows, self._buffer.clock)
        self.stream.parts()
        self._next += rows

    def run(self) -> None:
        for _ in range(STEPS):
            self.feed()


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, count: Callable[..., int]) -> list[int]:
    """The results of `count` for the arguments of each call."""
    counts: list[int] = []
    plain = getattr(owner, name)

    def counted(*arguments: Any, **named: Any) -> Any:
        counts.append(count(*arguments))
        return plain(*arguments, **named)

    monkeypatch.setattr(owner, name, counted)
    return counts


def test_kept_rows_are_copied_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Steps()
    picked = counting(monkeypatch, Gathered, "_picked", count=lambda _, wanted: len(wanted))
    kept = counting(monkeypatch, RetainedRows, "add", count=lambda _, owners, lengths, rows: sum(lengths))
    running.run()
    assert sum(picked) < 2 * STEPS * ROWS
    assert sum(kept) < 10 * STEPS * ROWS


def test_starts_are_judged_by_blocks_of_the_rows_within_their_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Steps()
    spans = counting(monkeypatch, foresight, "span_of", count=len)
    read = counting(monkeypatch, Blocks, "of", count=lambda _, level, begin, end: end - begin)
    running.run()
    assert sum(spans) < 3 * STEPS * ROWS
    assert sum(read) < STEPS * KEPT / 4


def test_kept_rows_are_dropped_together(monkeypatch: pytest.MonkeyPatch) -> None:
    running = Steps()
    moved = counting(monkeypatch, PartitionSearch, "forget", count=lambda search, row: search.end - row)
    running.run()
    assert sum(moved) < 30 * STEPS * ROWS
