"""Trades per second."""

from ingestor.realtime.rate import Rate


def test_the_rate_is_that_of_the_last_ten_whole_seconds() -> None:
    rate = Rate(100.0)
    assert rate.per_second(100.5) == 0
    for second in range(100, 130):
        for part in range(4):
            rate.add(5, second + part / 4)
    assert rate.per_second(130.0) == 20
    assert rate.per_second(135.0) == 10
    assert rate.per_second(145.0) == 0


def test_a_young_ticker_is_not_measured_over_time_before_it() -> None:
    rate = Rate(100.0)
    rate.add(10, 100.5)
    rate.add(10, 101.5)
    assert rate.per_second(102.0) == 10
