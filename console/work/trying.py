"""Computes what happened after a trigger would have fired. Pure."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

__all__ = ["HORIZONS", "after"]

#: After how many bars the price is checked.
HORIZONS = (5, 15, 60)
_SECOND = 1_000_000_000


class Candle(Protocol):
    """`open_time` in seconds since the epoch."""

    @property
    def open_time(self) -> float: ...

    @property
    def close(self) -> float: ...


def after(candles: Sequence[Candle], fired: Sequence[int]) -> list[dict[str, Any]]:
    """For each horizon, how much the close had changed since the bar in which the trigger fired (times in ns)."""
    times = np.array([candle.open_time for candle in candles])
    closes = np.array([candle.close for candle in candles])
    # The last bar that opened at or before the event.
    places = np.searchsorted(times, np.array(fired) / _SECOND, side="right") - 1
    places = places[places >= 0]
    return [_change(closes, places[places + bars < len(closes)], bars) for bars in HORIZONS]


def _change(closes: "np.ndarray[Any, Any]", places: "np.ndarray[Any, Any]", bars: int) -> dict[str, Any]:
    if not len(places):
        return {"bars": bars, "count": 0, "mean": None, "median": None, "rose": None}
    changes = closes[places + bars] / closes[places] - 1
    return {
        "bars": bars,
        "count": len(places),
        "mean": float(changes.mean()),
        "median": float(np.median(changes)),
        "rose": float((changes > 0).mean()),
    }
