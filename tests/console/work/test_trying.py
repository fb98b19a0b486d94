"""What happened after the events of a tried trigger."""

from dataclasses import dataclass

import pytest

from console.work.trying import after


@dataclass
class Candle:
    open_time: float
    close: float


def test_changes_are_those_of_the_close_a_number_of_bars_later() -> None:
    candles = [Candle(60.0 * number, 100.0 + number) for number in range(20)]
    five, fifteen, sixty = after(candles, [0, 60_000_000_000, 18 * 60_000_000_000])
    assert (five["bars"], five["count"], five["rose"]) == (5, 2, 1.0)
    assert five["mean"] == pytest.approx((105 / 100 - 1 + 106 / 101 - 1) / 2)
    assert fifteen["count"] == 2
    assert sixty == {"bars": 60, "count": 0, "mean": None, "median": None, "rose": None}
