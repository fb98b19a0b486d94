import itertools
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import grid

_PERIODS = st.sampled_from([1, 60, 180, 300, 3_600, 14_400, 86_400, 259_200, grid.WEEK_SECONDS])
_TIMES = st.integers(0, 4_000_000_000 * grid.SECOND)


def _ns(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * grid.SECOND


def test_weeks_start_on_monday() -> None:
    assert grid.first_open_from(_ns("2024-01-02"), grid.WEEK_SECONDS) == _ns("2024-01-08")
    assert grid.open_containing(_ns("2024-01-07"), grid.WEEK_SECONDS) == _ns("2024-01-01")


def test_an_unaligned_start_takes_the_first_open_after_it() -> None:
    assert grid.first_open_from(_ns("2024-01-01") + 1, 60) == _ns("2024-01-01T00:01:00")


@pytest.mark.parametrize(
    ("exchange_time", "expected"),
    [("2024-01-01T00:05:00", 5), ("2024-01-01T00:04:59", 4), ("2024-01-01T00:00:30", 0), ("2024-01-02", 10)],
)
def test_only_closed_candles_are_expected(exchange_time: str, expected: int) -> None:
    start, end = _ns("2024-01-01"), _ns("2024-01-01T00:10:00")
    assert grid.expected_candles(start, end, 60, exchange_time=_ns(exchange_time)) == expected


@given(_TIMES, st.integers(-10, 500), _PERIODS, _TIMES)
def test_the_expected_count_equals_an_enumeration(start: int, periods: int, seconds: int, now: int) -> None:
    end = start + periods * seconds * grid.SECOND + 1
    opens = range(grid.first_open_from(start, seconds), end, seconds * grid.SECOND)
    closed = [o for o in opens if o + seconds * grid.SECOND <= now]
    assert grid.expected_candles(start, end, seconds, exchange_time=now) == len(closed)


@given(_TIMES, st.integers(1, 300), _PERIODS, st.integers(1, 50))
def test_pieces_cover_the_range_once_and_cut_on_the_absolute_grid(
    start: int, periods: int, seconds: int, per_piece: int
) -> None:
    end = start + periods * seconds * grid.SECOND
    pieces = list(grid.split(start, end, seconds, candles_per_piece=per_piece))
    assert pieces[0][0] == start
    assert pieces[-1][1] == end
    assert all(left[1] == right[0] for left, right in itertools.pairwise(pieces))
    step = seconds * grid.SECOND * per_piece
    assert all((cut - grid.origin_of(seconds)) % step == 0 for _, cut in pieces[:-1])
    assert sum(grid.count_opens(a, b, seconds) for a, b in pieces) == grid.count_opens(start, end, seconds)


@given(st.integers(grid.EARLIEST_NS + grid.SECOND, grid.LATEST_NS - 1))
def test_a_time_in_another_unit_is_distinguished_from_nanoseconds(time: int) -> None:
    assert grid.other_unit(time) is None
    assert grid.other_unit(time // 10**9) == "seconds"
    assert grid.other_unit(time // 10**6) == "milliseconds"
    assert grid.other_unit(time // 10**3) == "microseconds"
    assert grid.other_unit(1) is None and grid.other_unit(grid.LATEST_NS) is None
