"""The queries that a listed pair answers, whether its data is generated or recorded.

Aggregate trades ("orders") and raw trades ("fills") have public ids here: two separate sequences, contiguous and
ascending with time. `now` is the exchange's time in ms; nothing later is visible.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sandbox.markets.candles import Candles
from sandbox.markets.intervals import Interval
from sandbox.markets.noise import Flags, Ints


@dataclass(kw_only=True, frozen=True, slots=True)
class Trades:
    """Columns of trades ascending by id: prices in ticks, sizes in lots, times in ms, `bought` = the taker bought.

    For aggregate trades `first` and `last` are the ids of their raw trades; for raw trades both are the id.
    """

    id: Ints
    price: Ints
    lots: Ints
    time: Ints
    bought: Flags
    first: Ints
    last: Ints

    def __len__(self) -> int:
        return len(self.id)

    def slice(self, first: int, last: int) -> Trades:
        """Rows [first, last)."""
        cut = slice(first, last)
        return Trades(
            id=self.id[cut],
            price=self.price[cut],
            lots=self.lots[cut],
            time=self.time[cut],
            bought=self.bought[cut],
            first=self.first[cut],
            last=self.last[cut],
        )

    def columns(self) -> tuple[Ints, Ints, Ints, Ints, Flags, Ints, Ints]:
        return self.id, self.price, self.lots, self.time, self.bought, self.first, self.last


def concat_trades(parts: list[Trades]) -> Trades:
    """The rows of all parts in order; at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Trades(
        id=np.concatenate([part.id for part in parts]),
        price=np.concatenate([part.price for part in parts]),
        lots=np.concatenate([part.lots for part in parts]),
        time=np.concatenate([part.time for part in parts]),
        bought=np.concatenate([part.bought for part in parts]),
        first=np.concatenate([part.first for part in parts]),
        last=np.concatenate([part.last for part in parts]),
    )


def no_trades() -> Trades:
    """Trades of length 0."""
    empty = np.zeros(0, dtype=np.int64)
    return Trades(id=empty, price=empty, lots=empty, time=empty, bought=empty.astype(bool), first=empty, last=empty)


class Market(Protocol):
    """One pair."""

    @property
    def symbol(self) -> str: ...

    @property
    def base(self) -> str: ...

    @property
    def quote(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def price_decimals(self) -> int: ...

    @property
    def lot_decimals(self) -> int: ...

    def kline_page(self, interval: Interval, start: int | None, end: int | None, *, limit: int, now: int) -> bytes:
        """A klines reply: the first `limit` candles from start, or without a start the last ones; bounds inclusive."""

    def candles(self, interval: Interval, first_open: int, last_open: int, *, now: int) -> Candles:
        """The candles that open in [first_open, last_open], the unfinished one included."""

    def orders(self, first_id: int, limit: int, now: int) -> Trades:
        """At most `limit` aggregate trades from that id."""

    def order_at(self, time_ms: int) -> int:
        """The id of the first aggregate trade at or after the time (that of the next one to come if there is none)."""

    def fills(self, first_id: int, limit: int, now: int) -> Trades:
        """At most `limit` raw trades from that id."""

    def fill_at(self, time_ms: int) -> int:
        """The id of the first raw trade at or after the time."""

    def next_trade_time(self, now: int) -> int | None:
        """The time of the first trade after `now`; None if there is none within a day."""

    def drive_to(self, now: int) -> int | None:
        """The time to which a driven clock may advance from now: only a recording of trades drives it."""

    def add_hole(self, start_ms: int, end_ms: int) -> None:
        """Hide the candles and trades of [start, end) (whole minutes), as in a downtime."""

    def clear_holes(self) -> None:
        """Remove all holes."""
