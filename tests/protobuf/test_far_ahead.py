from dataclasses import replace

import numpy as np
import pytest

from candlewright.wire import tick_columns
from candlewright.wire.candlewright_pb2 import Tick
from candlewright.wire.tick_columns import TickColumns
from protobuf import far_ahead
from protobuf import records_pb2 as records

SECOND = 1_000_000_000
NOW = 1_700_000_000 * SECOND
BOUND = 5 * SECOND


def columns(*seconds: float, exchange_ahead: int | None = None, received: float = 0) -> TickColumns:
    """Trades at these seconds after NOW."""
    times = np.array([NOW + round(second * SECOND) for second in seconds])
    ids = np.array([str(n).encode() for n in range(len(seconds))])
    ones = np.ones(len(seconds))
    received_at = np.full(len(seconds), NOW + round(received * SECOND))
    return TickColumns(
        ticker="A/B.C",
        first_sequence=7,
        timestamp=times,
        price=ones,
        size=ones,
        side=ones.astype(np.uint8),
        trade_id=ids,
        received_at=received_at,
        exchange_ahead=exchange_ahead,
    )


def test_a_record_within_the_bound_stays_as_it_is() -> None:
    value = tick_columns.encode(columns(-1, 5, 0))
    assert far_ahead.checked_ticks(value, NOW, BOUND) == (value, "")


def test_a_trade_too_far_ahead_loses_its_time_and_the_others_keep_their_numbers() -> None:
    value, reason = far_ahead.checked_ticks(tick_columns.encode(columns(1, 3_500, 2)), NOW, BOUND)
    found = tick_columns.decode(value)
    assert found.timestamp.tolist() == [NOW + SECOND, 0, NOW + 2 * SECOND]
    assert (found.first_sequence, found.trade_id.tolist()) == (7, [b"0", b"1", b"2"])
    assert "A/B.C" in reason and "3500.0 s ahead" in reason and "ticks.max_ahead_seconds = 5" in reason


@pytest.mark.parametrize(("ahead", "second", "is_sound"), [(60, 64, True), (60, 66, False), (-60, -54, False)])
def test_the_exchanges_clock_counts_where_it_was_measured(ahead: int, second: int, is_sound: bool) -> None:
    value = tick_columns.encode(columns(second, exchange_ahead=ahead * SECOND))
    assert (far_ahead.checked_ticks(value, NOW, BOUND)[1] == "") == is_sound


def test_an_ingestor_whose_clock_is_ahead_of_the_bus_loses_nothing() -> None:
    value = tick_columns.encode(columns(20, exchange_ahead=0, received=20))
    assert far_ahead.checked_ticks(value, NOW, BOUND)[1] == ""
    unmeasured = tick_columns.encode(columns(20, received=20))
    assert far_ahead.checked_ticks(unmeasured, NOW, BOUND)[1]


def test_a_single_tick_is_checked_alike() -> None:
    tick = Tick(ticker="A/B.C", trade_id="x", timestamp=NOW + 6 * SECOND, price=1, size=1)
    value, reason = far_ahead.checked_ticks(tick.SerializeToString(), NOW, BOUND)
    assert tick_columns.decode(value).timestamp.tolist() == [0] and reason
    tick.timestamp = NOW
    assert far_ahead.checked_ticks(tick.SerializeToString(), NOW, BOUND) == (tick.SerializeToString(), "")


def test_bytes_that_are_not_ticks_are_left_to_their_reader() -> None:
    assert far_ahead.checked_ticks(b"\xff\xff", NOW, BOUND) == (b"\xff\xff", "")


@pytest.mark.parametrize(
    "body",
    [
        {"clock": records.Clock(exchange_time=NOW + 6 * SECOND)},
        {"covered": records.Covered(from_time=NOW + 6 * SECOND)},
        {"gap": records.Gap(from_time=NOW, to_time=NOW + 6 * SECOND)},
        {"seed": records.Seed(open_time=[NOW, NOW + 6 * SECOND])},
    ],
)
def test_marks_of_a_time_too_far_ahead_are_refused(body: dict[str, object]) -> None:
    mark = records.TickMark(ticker="A/B.C", **body)  # type: ignore[arg-type]
    assert "6.0 s ahead" in far_ahead.checked_mark(mark, NOW, BOUND)
    assert far_ahead.checked_mark(mark, NOW + SECOND, BOUND) == ""
    mark.exchange_ahead = SECOND
    assert far_ahead.checked_mark(mark, NOW, BOUND) == ""


@pytest.mark.parametrize("exchange_ahead", [None, -(2**40), 0, 2**40])
def test_the_range_of_times_is_read_without_the_columns(exchange_ahead: int | None) -> None:
    value = tick_columns.encode(replace(columns(1, 9, 2), exchange_ahead=exchange_ahead, clock_ahead=-3))
    assert tick_columns.time_range(value) == (NOW + SECOND, NOW + 9 * SECOND, exchange_ahead)
