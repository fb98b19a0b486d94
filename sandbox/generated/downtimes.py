"""Downtimes of a market: hidden minutes and trades, and the resulting public ids.

An exchange that was down numbers its trades without a gap: public ids count from 1 and skip hidden trades.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandbox.markets.candles import Candles
from sandbox.markets.intervals import MINUTE
from sandbox.markets.noise import Ints


@dataclass(frozen=True, slots=True, order=True)
class Downtime:
    """Hidden minutes [start, stop), and their orders and fills by internal number (from 0 at the listing)."""

    start: int
    stop: int
    first_order: int
    stop_order: int
    first_fill: int
    stop_fill: int


class Downtimes:
    """Disjoint downtimes in time order."""

    def __init__(self, downtimes: tuple[Downtime, ...] = ()) -> None:
        self._all = downtimes

    def __bool__(self) -> bool:
        return bool(self._all)

    def spans_with(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The hidden spans of minutes including [start, stop), merged if they touch."""
        merged: list[tuple[int, int]] = []
        for low, high in sorted([*((one.start, one.stop) for one in self._all), (start, stop)]):
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        return merged

    def covering(self, start_ms: int, end_ms: int) -> Downtime | None:
        """The downtime that hides all of [start, end)."""
        return next((one for one in self._all if one.start * MINUTE <= start_ms and end_ms <= one.stop * MINUTE), None)

    def visible(self, candles: Candles) -> Candles:
        """The candles (of a minute or less) that are not hidden."""
        if not self._all:
            return candles
        minutes = candles.open_time // MINUTE
        kept = np.ones(len(minutes), dtype=np.bool_)
        for one in self._all:
            kept &= (minutes < one.start) | (minutes >= one.stop)
        return candles.where(kept)

    def order_ids(self, orders: Ints) -> Ints:
        """Public ids of orders by internal number; a hidden order has that of the next visible one."""
        return orders + 1 - _hidden(orders, [(one.first_order, one.stop_order) for one in self._all])

    def fill_ids(self, fills: Ints) -> Ints:
        """Public ids of fills by internal number."""
        return fills + 1 - _hidden(fills, [(one.first_fill, one.stop_fill) for one in self._all])

    def inner_fill(self, public: int) -> int:
        """The internal number of the fill with this public id."""
        fill = public - 1
        for one in self._all:
            if fill >= one.first_fill:
                fill += one.stop_fill - one.first_fill
        return fill

    def inner_orders(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Spans of internal numbers for the public ids [first, stop)."""
        spans, start, left = [], first - 1, stop - first
        for one in self._all:
            if start >= one.first_order:
                start += one.stop_order - one.first_order
                continue
            if start + left <= one.first_order:
                break
            spans.append((start, one.first_order))
            left -= one.first_order - start
            start = one.stop_order
        return [*spans, (start, start + left)]


def _hidden(numbers: Ints, spans: list[tuple[int, int]]) -> Ints:
    """How many hidden numbers precede each of the numbers."""
    hidden = np.zeros(len(numbers), dtype=np.int64)
    for first, stop in spans:
        hidden += np.clip(numbers, first, stop) - first
    return hidden
