from __future__ import annotations

import pytest

from sandbox.behaviour.clock import ExchangeClock, http_date


class Watch:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def test_clock_runs_from_its_start_at_its_speed() -> None:
    watch = Watch()
    clock = ExchangeClock(1_000_000, 60.0, monotonic=watch)
    watch.seconds += 2.0
    assert clock.now() == 1_120_000


def test_without_a_start_it_shows_the_real_time() -> None:
    assert ExchangeClock(monotonic=Watch(), wall=lambda: 1234.5678).now() == 1_234_567


def test_change_of_speed_keeps_the_time_without_a_jump() -> None:
    watch = Watch()
    clock = ExchangeClock(0, 10.0, monotonic=watch)
    watch.seconds += 1.0
    clock.set(speed=0.0)
    watch.seconds += 5.0
    assert (clock.now(), clock.jumps) == (10_000, 0)


def test_setting_the_time_is_a_jump_and_advancing_is_not() -> None:
    clock = ExchangeClock(0, 0.0)
    clock.set(5_000)
    assert (clock.now(), clock.jumps) == (5_000, 1)
    clock.advance(250)
    assert (clock.now(), clock.jumps) == (5_250, 1)


def test_listener_gets_each_change_until_it_is_removed() -> None:
    clock, heard = ExchangeClock(0, 0.0), list[int]()
    off = clock.on_change(lambda: heard.append(clock.now()))
    clock.advance(1)
    clock.set(7)
    off()
    clock.advance(1)
    assert heard == [1, 7]


@pytest.mark.parametrize("speed", [-1.0, 1e7, float("nan")])
def test_impossible_speed_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="speed"):
        ExchangeClock(0, speed)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="only advances"):
        ExchangeClock(0, 0.0).advance(-1)


def test_date_header_has_the_exchange_time() -> None:
    assert http_date(1_709_640_030_999) == "Tue, 05 Mar 2024 12:00:30 GMT"


def test_the_time_until_an_event_has_no_steps_of_milliseconds() -> None:
    watch = Watch()
    clock = ExchangeClock(1_000, 2.0, monotonic=watch)
    assert clock.seconds_until(1_010) == 0.005
    watch.seconds += 0.0004
    assert clock.now() == 1_000
    assert clock.seconds_until(1_010) == pytest.approx(0.0046)
    watch.seconds += 0.006
    assert clock.seconds_until(1_010) < 0
