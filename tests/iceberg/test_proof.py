"""Which candles need not be fetched again, compared with a slow check of each open time."""

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog import Catalog

from iceberg import (
    COVERAGE,
    OHLC,
    CoverageFiles,
    Proven,
    Stored,
    claims_of,
    load_table,
    proof,
    proven_parts,
    scan_stored,
)
from tests.iceberg.rows import MINUTE, TICKER, candles
from tests.rounds import rounds

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Holes = Sequence[tuple[int, int]]


def covered(start: int, end: int, holes: Holes = (), **other: Any) -> dict[str, Any]:
    """The coverage row that a request for these minutes leaves."""
    missing = sum(last - first for first, last in holes)
    row = {
        "request_id": "r",
        "ticker": TICKER,
        "period_seconds": 60,
        "start": _time(start),
        "end": _time(end),
        "expected": end - start,
        "got": end - start - missing,
        "holes": [{"start": _time(first), "end": _time(last)} for first, last in holes],
        "status": "OK",
        "closed_until": None,
    }
    return {**row, **other}


def _time(minute: int) -> datetime:
    return EPOCH + timedelta(minutes=minute)


def proven(
    rows: Sequence[dict[str, Any]],
    stored: Sequence[int],
    start: int,
    *,
    end: int,
    limit: int | None = None,
    foreign: Collection[int] = (),
) -> list[tuple[int, int, int, list[tuple[int, int]]]]:
    """Parts as (start, end, rows, holes), in minutes."""
    claims = claims_of(pa.Table.from_pylist(list(rows), schema=COVERAGE.arrow_schema), TICKER, 60)
    opens = np.array(sorted(stored), dtype=np.int64) * MINUTE
    found = proven_parts(
        claims,
        60,
        [(start * MINUTE, end * MINUTE)],
        stored=Stored(opens, np.isin(opens // MINUTE, sorted(foreign), invert=True)).between,
        limit=limit,
    )
    return [_in_minutes(part) for part in found]


def _in_minutes(part: Proven) -> tuple[int, int, int, list[tuple[int, int]]]:
    assert part.expected == part.rows + sum(end - start for start, end in part.holes) // MINUTE
    return (
        part.start // MINUTE,
        part.end // MINUTE,
        part.rows,
        [(start // MINUTE, end // MINUTE) for start, end in part.holes],
    )


def test_a_range_that_a_request_covered_is_proven_whole() -> None:
    assert proven([covered(0, 10)], range(10), 2, end=8) == [(2, 8, 6, [])]


def test_the_rest_of_an_overlapping_range_is_not_proven() -> None:
    assert proven([covered(0, 10), covered(20, 30)], range(30), 5, end=25) == [(5, 10, 5, []), (20, 25, 5, [])]


def test_deleted_rows_are_not_proven() -> None:
    assert proven([covered(0, 10)], [0, 1, 2, 6, 7, 8, 9], 0, end=10) == [(0, 3, 3, []), (6, 10, 4, [])]


def test_a_hole_between_candles_is_proven_and_one_at_the_end_of_a_request_is_not() -> None:
    assert proven([covered(0, 10, [(4, 6), (8, 10)])], [0, 1, 2, 3, 6, 7], 0, end=10) == [(0, 8, 6, [(4, 6)])]


def test_unclosed_candles_are_not_proven() -> None:
    open_ended = covered(0, 10, expected=6, got=6, closed_until=_time(6))
    assert proven([open_ended], range(10), 0, end=10) == [(0, 6, 6, [])]


@pytest.mark.parametrize(
    "changed",
    [
        {"status": "ERROR"},
        {"status": "TIMEOUT"},
        {"expected": 5, "got": 5},  # a limit
        {"got": 9},
        {"ticker": "ETH/USDT.BINANCE"},
        {"period_seconds": 300},
    ],
)
def test_other_requests_prove_nothing(changed: dict[str, Any]) -> None:
    assert proven([covered(0, 10, **changed)], range(10), 0, end=10) == []


def test_a_long_run_of_the_exchanges_own_candles_proves_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "LONG_RUN", 10)
    failed = covered(0, 40, status="ERROR")
    assert proven([failed], [*range(15), *range(20, 29)], 0, end=40) == [(0, 15, 15, [])]
    assert proven([], range(15), 0, end=40, limit=12) == [(0, 12, 12, [])]
    # Bars that the platform derived are not the exchange's, and a proven hole ends no run.
    assert proven([failed], range(15), 0, end=40, foreign={7}) == []
    assert proven([covered(5, 9, [(6, 7)])], [*range(6), *range(7, 12)], 0, end=40) == [(0, 12, 11, [(6, 7)])]


def test_a_limit_takes_the_first_candles_and_nothing_after_a_gap() -> None:
    rows = [covered(0, 10, [(2, 4)]), covered(12, 20)]
    stored = [0, 1, *range(4, 20)]
    assert proven(rows, stored, 0, end=20, limit=3) == [(0, 5, 3, [(2, 4)])]
    assert proven(rows, stored, 0, end=20, limit=15) == [(0, 10, 8, [(2, 4)])]
    assert proven(rows, stored, 11, end=20, limit=3) == []
    assert proven(rows, stored, 0, end=20, limit=0) == []


def test_a_range_off_the_grid_is_proven_to_its_own_ends() -> None:
    claims = claims_of(pa.Table.from_pylist([covered(0, 10)], schema=COVERAGE.arrow_schema), TICKER, 60)
    start, end = 2 * MINUTE - 7, 8 * MINUTE + 7
    found = proven_parts(
        claims, 60, [(start, end)], stored=lambda *_: Stored(np.arange(2, 9) * MINUTE, np.ones(7, np.bool_))
    )
    assert found == [Proven(start, end, 7, 7, ())]


def test_long_ranges_and_many_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "WINDOW", 10)
    monkeypatch.setattr(proof, "MAX_OPENS", 30)
    assert proven([covered(0, 100)], range(100), 0, end=100) == [(0, 10, 10, []), (10, 20, 10, []), (20, 30, 10, [])]
    assert proven([covered(0, 100)], range(100), 0, end=100, limit=15) == [(0, 10, 10, []), (10, 15, 5, [])]
    monkeypatch.setattr(proof, "MAX_PARTS", 2)
    assert proven([covered(0, 100)], range(0, 100, 2), 0, end=100) == [(0, 1, 1, []), (2, 3, 1, [])]
    monkeypatch.setattr(proof, "MAX_HOLES", 2)
    sparse = covered(0, 9, [(1, 2), (3, 4), (5, 6)])
    assert proven([sparse], [0, 2, 4, 6, 7, 8], 0, end=9) == []


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[int]]:
    rows = []
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, 20))
        end = draw(st.integers(start + 1, 24))
        missing = draw(st.sets(st.integers(start, end - 1)))
        holes = [(minute, minute + 1) for minute in sorted(missing)]
        whole = draw(st.sampled_from(({}, {}, {}, {"status": "ERROR"}, {"expected": max(0, end - start - 1)})))
        rows.append(covered(start, end, holes, **whole))
    return rows, sorted(draw(st.sets(st.integers(0, 24))))


@settings(max_examples=rounds(400), deadline=None)
@given(histories(), st.integers(0, 20), st.integers(1, 8), st.none() | st.integers(1, 6))
def test_proven_parts_agree_with_each_open_time(
    history: tuple[list[dict[str, Any]], list[int]], start: int, length: int, limit: int | None
) -> None:
    rows, stored = history
    end = start + length
    lengths = [_index(row["end"]) - _index(row["start"]) for row in rows]
    is_sure = [row["status"] == "OK" and row["expected"] == length for row, length in zip(rows, lengths, strict=True)]
    sure = [row for row, is_whole in zip(rows, is_sure, strict=True) if is_whole]

    def is_proven(minute: int) -> bool:
        own = [row for row in sure if _index(row["start"]) <= minute < _index(row["end"])]
        holes = [[minute == _index(hole["start"]) for hole in row["holes"]] for row in own]
        is_hole = [any(each) for each in holes]
        if minute in stored:
            return not all(is_hole)
        settled = [hole and minute + 1 < _index(row["end"]) for hole, row in zip(is_hole, own, strict=True)]
        return all(is_hole) and any(settled)

    expected = [minute for minute in range(start, end) if is_proven(minute)]
    if limit is not None:
        first = [minute for minute in range(start, end) if minute not in expected][:1] or [end]
        expected = list(range(start, first[0]))
        of_limit = [minute for minute in expected if minute in stored][:limit]
        if len(of_limit) == limit:
            expected = list(range(start, of_limit[-1] + 1))
    found = proven(rows, stored, start, end=end, limit=limit)
    assert [minute for low, high, _, _ in found for minute in range(low, high)] == expected
    holes = [minute for *_, each in found for low, high in each for minute in range(low, high)]
    assert holes == [minute for minute in expected if minute not in stored]


def _index(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(minutes=1)


def test_the_tables_are_read_by_series(catalog: Catalog) -> None:
    load_table(catalog, COVERAGE).append(
        pa.Table.from_pylist(
            [covered(0, 5, [(1, 2)]), covered(0, 9, ticker="ETH/USDT.BINANCE"), covered(0, 9, status="ERROR")],
            schema=COVERAGE.arrow_schema,
        )
    )
    ohlc = load_table(catalog, OHLC)
    ohlc.append(candles([0, 2, 3]))
    ohlc.append(candles([1], source="ticks"))
    ohlc.append(candles([4], ticker="ETH/USDT.BINANCE"))
    claims = claims_of(CoverageFiles().scan(load_table(catalog, COVERAGE), [TICKER]), TICKER, 60)
    ohlc = load_table(catalog, OHLC)
    found = proven_parts(
        claims, 60, [(0, 5 * MINUTE)], stored=lambda start, end: scan_stored(ohlc, TICKER, 60, start=start, end=end)
    )
    assert found == [Proven(0, 4 * MINUTE, 3, 4, ((MINUTE, 2 * MINUTE),))]


@pytest.mark.parametrize("max_bytes", [64 << 20, 0])
def test_a_file_of_coverage_is_read_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch, max_bytes: int) -> None:
    reads: list[str] = []
    real = proof.ArrowScan.to_table

    def counted(scan: Any, tasks: Any) -> pa.Table:
        reads.extend(task.file.file_path for task in tasks)
        return real(scan, tasks)

    monkeypatch.setattr(proof.ArrowScan, "to_table", counted)
    files = CoverageFiles(max_bytes)
    for minute in range(4):
        row = covered(minute, minute + 1, ticker=TICKER if minute % 2 == 0 else "ETH/USDT.BINANCE")
        load_table(catalog, COVERAGE).append(pa.Table.from_pylist([row], schema=COVERAGE.arrow_schema))
        for ticker in (TICKER, "ETH/USDT.BINANCE"):
            found = claims_of(files.scan(load_table(catalog, COVERAGE), [ticker]), ticker, 60)
            own = [each for each in range(minute + 1) if (each % 2 == 0) == (ticker == TICKER)]
            assert sorted(found.start // MINUTE) == own
    assert len(reads) == (4 if max_bytes else 10)
