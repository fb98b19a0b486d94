"""Columns of candles in integer ticks and lots, and exact merging of candles into longer ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from sandbox.markets.noise import Flags, Ints


@dataclass(kw_only=True, frozen=True, slots=True)
class Candles:
    """Columns of equal length. Prices in ticks, volumes in lots, quote amounts in ticks times lots, times in ms."""

    open_time: Ints
    close_time: Ints
    open: Ints
    high: Ints
    low: Ints
    close: Ints
    volume: Ints
    quote: Ints
    count: Ints
    taker_volume: Ints
    taker_quote: Ints

    def __len__(self) -> int:
        return len(self.open_time)

    def slice(self, first: int, last: int) -> Candles:
        """Rows [first, last)."""
        return Candles(**{column.name: getattr(self, column.name)[first:last] for column in fields(self)})

    def where(self, kept: Flags) -> Candles:
        """The rows whose flag is set."""
        return Candles(**{column.name: getattr(self, column.name)[kept] for column in fields(self)})


def concat(parts: Sequence[Candles]) -> Candles:
    """The rows of all parts, in order; `parts` must not be empty."""
    if len(parts) == 1:
        return parts[0]
    return Candles(
        **{column.name: np.concatenate([getattr(part, column.name) for part in parts]) for column in fields(Candles)}
    )


def merge(fine: Candles, opens: Ints, closes: Ints) -> Candles:
    """Merge time-ordered fine candles into those of the given open and close times (ms, closes inclusive).

    Target candles without any fine candle are left out.
    """
    starts = np.searchsorted(fine.open_time, opens, side="left")
    stops = np.searchsorted(fine.open_time, closes, side="right")
    kept = stops > starts
    starts, stops, opens, closes = starts[kept], stops[kept], opens[kept], closes[kept]
    if not len(starts):
        return fine.slice(0, 0)
    whole = fine.slice(0, int(stops[-1]))
    return Candles(
        open_time=opens,
        close_time=closes,
        open=whole.open[starts],
        high=np.maximum.reduceat(whole.high, starts),
        low=np.minimum.reduceat(whole.low, starts),
        close=whole.close[stops - 1],
        volume=np.add.reduceat(whole.volume, starts),
        quote=np.add.reduceat(whole.quote, starts),
        count=np.add.reduceat(whole.count, starts),
        taker_volume=np.add.reduceat(whole.taker_volume, starts),
        taker_quote=np.add.reduceat(whole.taker_quote, starts),
    )
