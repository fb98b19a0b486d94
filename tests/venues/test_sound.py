"""Records that readers of the bus accept as valid."""

import math
import time
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.grid import SECOND
from protobuf import records_pb2 as records
from venues import sound


def control(version: int) -> records.TriggerControl:
    registration = records.TriggerRegistration(trigger_id="t", sql="price > 0", registered_at=1, version=version)
    return records.TriggerControl(register=registration)


@pytest.mark.parametrize("version", [1, time.time_ns()], ids=["counted", "a time, as the relay gives it"])
def test_a_trigger_of_the_relay_is_sound(version: int) -> None:
    assert sound.problem_with_control(control(version)) == ""


def test_a_version_that_no_counter_holds_is_not() -> None:
    assert "version" in sound.problem_with_control(control(2**64 - 1))


_PRICES = ("open", "high", "low", "close")
_NUMBERS = [0.5, 2.0, -1.0, math.nan, math.inf]
_CHANGES = {
    "ticker": ["", "X" * 300],
    "period_seconds": [0, 604_800, 604_801],
    "open_time": [0, 1, 4 * 86_400 * SECOND, 2**63, 2**64 - 1],
    **dict.fromkeys((*_PRICES, "volume", "quote_volume"), _NUMBERS),
    "trade_count": [0, 2**53, 2**64 - 1],
    "revision": [1, 2**30, 2**31],
}
_SOUND: dict[str, Any] = {
    "ticker": "BTC/USDT.BINANCE",
    "period_seconds": 60,
    "open_time": 60 * SECOND,
    **dict.fromkeys((*_PRICES, "volume"), 1.0),
}


def test_bars_are_sound_together_when_each_is() -> None:
    changes = [(name, value) for name, found in _CHANGES.items() for value in found]
    bars = [OHLCV(**{**_SOUND, **dict(pair)}) for pair in combinations_with_replacement(changes, 2)]
    problems = [sound.problem_with_bar(bar) for bar in bars]

    assert [_are_sound([OHLCV(**_SOUND), bar]) for bar in bars] == [not problem for problem in problems]
    assert {True, False} == {bool(problem) for problem in problems}
    assert _are_sound([])


def _are_sound(bars: list[OHLCV]) -> bool:
    return sound.are_sound_bars(
        [bar.ticker for bar in bars],
        period_seconds=np.array([bar.period_seconds for bar in bars], np.int64),
        open_time=np.array([bar.open_time for bar in bars], np.uint64),
        prices=np.array([[getattr(bar, name) for bar in bars] for name in _PRICES]),
        volumes=np.array([[bar.volume for bar in bars], [bar.quote_volume for bar in bars]]),
        trade_count=np.array([bar.trade_count for bar in bars], np.uint64),
        revision=np.array([bar.revision for bar in bars], np.int64),
    )
