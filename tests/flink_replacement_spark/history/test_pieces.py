"""Many pieces read together give the same rows as each piece read alone."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as hyp

from bus import Bus, Record
from bus import topics as bus_topics
from candlewright.wire import candlewright_pb2 as cw
from flink_replacement_spark.history.pieces import PieceFault, read_piece, read_pieces
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import MINUTE, page
from tests.fresh_bus import FreshBus

TICKERS = ("AAA/USDT.BINANCE", "BBB/USDT.BINANCE")
#: Possible faults of a piece.
FAULTS = ("", "", "", "", "rows", "ticker", "nan", "bytes", "trimmed", "other job")
PLANS = hyp.lists(
    hyp.tuples(hyp.sampled_from(TICKERS), hyp.integers(1, 5), hyp.integers(0, 3), hyp.sampled_from(FAULTS)), max_size=12
)


def published(bus: Bus, plan: Sequence[tuple[str, int, int, str]]) -> list[records.PieceDone]:
    """Pieces of one wave, some with a fault, their pages among those of other waves."""
    bus.create_topic(bus_topics.HISTORY, 1)
    found, minute = [], 0
    for number, (ticker, size, strangers, fault) in enumerate(plan):
        minutes = range(minute, minute + size)
        minute += size + number % 2
        own = page("stranger" if fault == "other job" else f"job-{number}", minutes, ticker)
        if fault == "ticker":
            own.ticker = "CCC/USDT.BINANCE"
        if fault == "nan":
            own.close[0] = float("nan")
        values = [b"\xff" if fault == "bytes" else own.SerializeToString()]
        values += [page("stranger", minutes, ticker, close=5.0).SerializeToString()] * strangers
        places = bus.publish(bus_topics.HISTORY, [Record(value) for value in values])
        first = 1_000_000 if fault == "trimmed" else places[0].offset
        span = cw.Span(first_offset=first, last_offset=first + strangers)
        found.append(
            records.PieceDone(
                request_id=f"r{number}",
                job_id=f"job-{number}",
                ticker=ticker,
                period_seconds=60,
                start_time=minutes[0] * MINUTE,
                end_time=(minutes[-1] + 1) * MINUTE,
                spans=[span],
                rows=size + (fault == "rows"),
            )
        )
    return found


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=lambda row: (row["ticker"], row["open_time"]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(PLANS)
def test_pieces_read_together_equal_pieces_read_alone(plan: list[tuple[str, int, int, str]]) -> None:
    bus = FreshBus()
    pieces = published(bus, plan)
    alone, faults = [], {}
    for index, piece in enumerate(pieces):
        try:
            alone += read_piece(bus, piece, 7).to_pylist()
        except PieceFault as fault:
            faults[index] = str(fault)
    together, found = read_pieces(bus, pieces, 7)
    assert found == faults
    assert rows_of(together) == sorted(alone, key=lambda row: (row["ticker"], row["open_time"]))


def test_a_job_named_by_two_pieces_gives_each_its_own_candles() -> None:
    bus = FreshBus()
    first, second = published(bus, [(TICKERS[0], 3, 0, ""), (TICKERS[0], 2, 0, "")])
    second.job_id, second.rows = first.job_id, 1
    rows, faults = read_pieces(bus, [first, second], 7)
    assert rows.num_rows == 3
    assert list(faults) == [1]


def test_small_pieces_are_read_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many small requests of one client must not delay another client's: their pages are adjacent."""
    bus = FreshBus()
    pieces = published(bus, [(TICKERS[0], 2, 1, "")] * 300)
    reads: list[Any] = []
    read = bus.read

    def counted(*place: Any, **more: Any) -> Any:
        reads.append(place)
        return read(*place, **more)

    monkeypatch.setattr(bus, "read", counted)
    rows, faults = read_pieces(bus, pieces, 7)
    assert (rows.num_rows, faults, len(reads)) == (600, {}, 1)
