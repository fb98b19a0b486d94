from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.markets.intervals import DAY, INTERVALS

times = st.integers(0, 4_000_000_000_000)


@given(times, st.sampled_from(sorted(INTERVALS)))
def test_open_time_is_at_or_before_and_the_next_is_after(time: int, name: str) -> None:
    interval = INTERVALS[name]
    opened = interval.floor(time)
    assert opened <= time < interval.shift(opened, 1)
    assert interval.floor(opened) == opened
    assert interval.ceil(opened) == opened
    assert interval.shift(interval.shift(opened, 7), -7) == opened
    assert interval.count(opened, interval.shift(opened, 4)) == 5
    assert interval.opens(opened, 3).tolist() == [interval.shift(opened, n) for n in range(3)]


@given(times)
def test_weeks_open_on_monday_and_months_on_the_first(time: int) -> None:
    week = datetime.fromtimestamp(INTERVALS["1w"].floor(time) / 1000, tz=UTC)
    month = datetime.fromtimestamp(INTERVALS["1M"].floor(time) / 1000, tz=UTC)
    assert (week.weekday(), week.hour) == (0, 0)
    assert (month.day, month.hour) == (1, 0)


@pytest.mark.parametrize("name", ["1s", "1m", "3m", "5m", "15m", "30m", "1h", "2h", "4h", "6h", "8h", "12h", "1d"])
def test_days_hold_whole_candles(name: str) -> None:
    assert DAY % INTERVALS[name].step_ms == 0


def test_no_candle_opens_in_an_empty_range() -> None:
    assert INTERVALS["1M"].count(DAY * 400, DAY) == 0
    assert INTERVALS["1m"].count(60_000, 0) == 0
