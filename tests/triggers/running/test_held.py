"""The rows that open attempts wait with: kept in few chunks, and no longer than they are needed."""

import pyarrow as pa
import pytest

from triggers.running import held
from triggers.running.held import HeldRows


def added(rows: HeldRows, step: int) -> None:
    """Three rows of A and two of B; a row's value is its number."""
    a, b = range(3 * step, 3 * step + 3), range(2 * step, 2 * step + 2)
    rows.add(pa.table({"ticker": ["A"] * 3 + ["B"] * 2, "n": [*a, *b]}), {"A": (0, 3, a[0]), "B": (3, 2, b[0])})


def numbers(rows: HeldRows, ticker: str, first: int, *, end: int) -> list[int]:
    parts = list(rows.rows(ticker, first, end))
    assert all(name == ticker for part in parts for name in part.column("ticker").to_pylist())
    return [number for part in parts for number in part.column("n").to_pylist()]


def test_needed_rows_come_back_in_order_from_few_chunks_over_restarts() -> None:
    rows = HeldRows()
    added(rows, 0)
    assert rows.save() == {}
    rows.needs = {"A": 5}
    for step in range(1, 60):
        before = rows.save()
        added(rows, step)
        after = rows.save()
        assert len(after) < 10
        assert all(after[number] is before[number] for number in after.keys() & before.keys())
        if step % 7 == 0:
            rows = HeldRows.load(rows.needs, after)
    assert numbers(rows, "A", 5, end=180) == list(range(5, 180))
    assert numbers(rows, "A", 70, end=75) == list(range(70, 75))
    assert numbers(rows, "B", 0, end=120) == []


def test_rows_that_nothing_needs_any_more_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "_SPARE_ROWS", 10)
    rows = HeldRows({"A": 0, "B": 0})
    for step in range(40):
        added(rows, step)
    rows.needs = {"B": 78}
    added(rows, 40)
    assert numbers(rows, "A", 0, end=200) == []
    assert numbers(rows, "B", 0, end=200) == [78, 79, 80, 81]
    rows.needs = {}
    added(rows, 41)
    assert rows.save() == {}
