"""Whether users get their data, judged by the records that arrived and the progress of the queries."""

from bus.api import partition_of
from flink_replacement_spark.driver.vitals import BARLESS_SECONDS, LOST_SECONDS, STUCK_SECONDS, Reading, Vitals


def seen(vitals: Vitals, at: float, steps: int, *, end: int, held: int = 0, is_idle: bool = False) -> None:
    vitals.observe_query("live", Reading(steps, at, (end, 0), {0: held, 1: 0}, is_idle), at)


def test_a_query_that_makes_steps_is_healthy_however_far_behind_it_is() -> None:
    vitals = Vitals()
    for at in range(200):
        seen(vitals, at, steps=at, end=10_000 * at, held=10 * at)
    assert vitals.is_well(199) and not list(vitals.problems(199)) + list(vitals.warnings(199))
    assert vitals.to_json(199)["queries"]["live"]["lag"] == 9_990 * 199


def test_a_query_with_nothing_to_read_is_healthy_without_a_step() -> None:
    vitals = Vitals()
    for at in range(0, 1_000, 5):
        seen(vitals, at, steps=7, end=100, held=60, is_idle=True)
    assert vitals.is_well(1_000) and not list(vitals.warnings(1_000))
    # The hold lags by a step, and no record waits.
    assert vitals.to_json(1_000)["queries"]["live"]["lag"] == 0


def test_a_stalled_query_is_first_a_warning_and_later_a_problem() -> None:
    vitals = Vitals()
    for at in range(0, 30, 5):
        seen(vitals, at, steps=7, end=100 + at, held=100)
    assert vitals.is_well(29) and "live query has made no step" in next(vitals.warnings(29))
    for at in range(30, 80, 5):
        seen(vitals, at, steps=7, end=100 + at, held=100)
    assert not vitals.is_well(STUCK_SECONDS + 6)
    assert "75 records waiting" in next(vitals.problems(STUCK_SECONDS + 6))
    seen(vitals, 80, steps=8, end=200, held=150)
    assert vitals.is_well(80) and not list(vitals.problems(80))


def test_losing_all_executors_restarts_the_driver() -> None:
    vitals = Vitals()
    vitals.observe_executors(2, 0)
    vitals.observe_executors(0, 10)
    assert not vitals.is_well(10) and not vitals.must_begin_anew(11)
    assert vitals.must_begin_anew(10 + LOST_SECONDS)
    vitals.observe_executors(1, 40)
    assert vitals.is_well(40) and not vitals.must_begin_anew(100)


def test_a_cluster_without_any_executor_yet_is_waited_for() -> None:
    vitals = Vitals()
    vitals.observe_executors(0, 0)
    assert not vitals.must_begin_anew(1_000)
    assert "no executors for 1000 s" in next(vitals.problems(1_000))


def test_a_local_master_needs_no_executors() -> None:
    vitals = Vitals()
    vitals.observe_executors(None, 0)
    assert vitals.is_well(100) and vitals.to_json(100)["executors"] is None


def test_trades_without_bars_are_named_after_the_longest_minute() -> None:
    vitals = Vitals()
    for at in range(0, int(BARLESS_SECONDS) + 20, 5):
        vitals.observe_bars((at, 0), (0, 0), at)
    (warning,) = vitals.warnings(BARLESS_SECONDS + 15)
    assert "partition 0" in warning
    vitals.observe_bars((10_000, 0), (1, 0), BARLESS_SECONDS + 20)
    assert not list(vitals.warnings(BARLESS_SECONDS + 20))


def test_a_ticker_that_falls_silent_lacks_no_bars() -> None:
    vitals = Vitals()
    for at in range(0, 50, 5):
        vitals.observe_bars((at,), (0,), at)
    vitals.observe_bars((45,), (0,), 1_000)
    assert not list(vitals.warnings(1_000))
    vitals.observe_bars((46,), (0,), 1_005)
    assert not list(vitals.warnings(1_010))


def test_a_live_ticker_whose_trades_come_without_bars_is_named_while_others_get_theirs() -> None:
    vitals = Vitals()
    names = ("GOOD/X.Y", "BAD/X.Y", "CALM/X.Y")
    vitals.observe_bars((0,), (0,), 0)
    for at in range(0, int(BARLESS_SECONDS) + 20, 2):
        vitals.observe_tickers(names, {"GOOD/X.Y": (at, at // 60), "BAD/X.Y": (at, 0), "CALM/X.Y": (0, 0)}, at)
    at = BARLESS_SECONDS + 15
    assert vitals.tickers_without_bars(at) == ["BAD/X.Y"]
    assert list(vitals.warnings(at)) == ["no bar of BAD/X.Y for 163 s although its trades arrive"]
    # A restart helps if a whole partition stalls, not if only one ticker is at fault.
    assert vitals.is_well(at) and not list(vitals.problems(at))
    assert vitals.to_json(at)["newest_bar_seconds_ago"] == {"BAD/X.Y": 165.0, "CALM/X.Y": 165.0, "GOOD/X.Y": 45.0}
    assert vitals.oldest_bar_seconds(at) == 165.0
    vitals.observe_tickers(names, {"BAD/X.Y": (200, 1)}, at + 1)
    assert vitals.tickers_without_bars(at + 1) == []
    vitals.observe_tickers(("CALM/X.Y",), {"CALM/X.Y": (0, 0)}, at + 2)
    assert list(vitals.to_json(at + 2)["newest_bar_seconds_ago"]) == ["CALM/X.Y"]


def test_a_partition_whose_live_tickers_all_get_no_bars_is_a_problem() -> None:
    vitals = Vitals()
    vitals.observe_bars((0, 0), (0, 0), 0)
    stuck = [f"T{number}/X.Y" for number in range(40) if partition_of(b"T%d/X.Y" % number, 2) == 0]
    others = [f"T{number}/X.Y" for number in range(40) if partition_of(b"T%d/X.Y" % number, 2) == 1]
    at = 0
    for at in range(0, int(BARLESS_SECONDS) + 4, 2):
        numbers = dict.fromkeys(stuck, (at, 0)) | dict.fromkeys(others, (at, at // 60))
        vitals.observe_tickers(numbers, numbers, at)
    assert not vitals.is_well(at)
    (problem,) = vitals.problems(at)
    assert problem == "no live ticker of partition 0 has had a bar for 150 s although trades arrive"
    vitals.observe_tickers(stuck, {stuck[0]: (1_000, 1)}, at)
    assert vitals.is_well(at)
