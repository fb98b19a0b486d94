"""The orders and fills of minute candles; their sums are exactly those that `blocks` computes in closed form.

An order (one taker order at one price, which the exchange reports as an aggregate trade) consists of one or more
fills (raw trades) with the same price, side and millisecond.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandbox.generated.blocks import MIN_LOTS, FillNumbers, MinuteBlock
from sandbox.markets.noise import Flags, Ints, derive_key, field, words


@dataclass(frozen=True, slots=True)
class Orders:
    """Columns of orders ascending by number; `time` in ms ascends too. `bought` says that the taker bought."""

    number: Ints
    time: Ints
    price: Ints
    lots: Ints
    bought: Flags

    def __len__(self) -> int:
        return len(self.number)

    def slice(self, first: int, last: int) -> Orders:
        """Rows [first, last)."""
        cut = slice(first, last)
        return Orders(self.number[cut], self.time[cut], self.price[cut], self.lots[cut], self.bought[cut])

    @staticmethod
    def concat(parts: list[Orders]) -> Orders:
        """The rows of all parts in order; at least one part."""
        if len(parts) == 1:
            return parts[0]
        return Orders(
            np.concatenate([part.number for part in parts]),
            np.concatenate([part.time for part in parts]),
            np.concatenate([part.price for part in parts]),
            np.concatenate([part.lots for part in parts]),
            np.concatenate([part.bought for part in parts]),
        )


@dataclass(frozen=True, slots=True)
class Fills:
    """Columns of fills ascending by number; see Orders."""

    number: Ints
    time: Ints
    price: Ints
    lots: Ints
    bought: Flags

    def __len__(self) -> int:
        return len(self.number)


class PrintMaker:
    """Lists the orders and fills of one instrument."""

    def __init__(self, symbol: str, seed: int, fill_numbers: FillNumbers) -> None:
        self._fill_numbers = fill_numbers
        self._price_key = derive_key(seed, symbol, "order price")
        self._size_key = derive_key(seed, symbol, "order size")
        self._time_key = derive_key(seed, symbol, "order time")
        self._fill_key = derive_key(seed, symbol, "fill size")

    def orders(self, block: MinuteBlock, first: int, last: int, *, origin: int) -> Orders:
        """The orders of the block's minutes [first, last), counted from the block's first minute.

        Numbering starts at the order `origin`.
        """
        numbers = np.arange(block.first_order[first], block.first_order[last], dtype=np.int64)
        minute = np.repeat(np.arange(first, last), np.diff(block.first_order[first : last + 1]))
        clock_minute = block.first_minute + minute
        place = numbers - block.first_order[minute]
        total = block.first_order[minute + 1] - block.first_order[minute]
        single = block.single_lots[minute] > 0
        mirrored = ~(single & (place == 0))

        step = place - single  # the position among the mirrored orders
        pairs = block.pairs[:, minute]
        leg = (step >= 2 * pairs[0]).astype(np.int64) + (step >= 2 * (pairs[0] + pairs[1]))
        step = step - np.where(leg >= 1, 2 * pairs[0], 0) - np.where(leg == 2, 2 * pairs[1], 0)
        count = np.maximum(block.pairs[leg, minute], 1)
        back = step >= count
        pair = np.where(back, 2 * count - 1 - step, step)

        # Both orders of a pair share one draw: one is as far above the leg's middle as the other is below it.
        start, stop = block.start[leg, minute], block.stop[leg, minute]
        draw = field(words(self._price_key, (((clock_minute << 2) + leg) << 20) + pair), 0)
        distance = np.abs(stop - start)
        move = np.clip(distance * ((pair << 16) + 3 * draw - 65536) // (count << 17), 0, distance)
        move = np.where(pair == 0, 0, move) * np.sign(stop - start)
        price = np.where(back, stop - move, start + move)

        buys = block.buy_pairs[leg, minute]
        buy_rank = pair * buys // count
        bought = (pair + 1) * buys // count > buy_rank
        group = np.where(bought, buys, count - buys)
        rank = np.where(bought, buy_rank, pair - buy_rank)
        lots = np.where(bought, block.buy_lots[leg, minute], block.sell_lots[leg, minute]) - MIN_LOTS * group
        identity = (((clock_minute << 3) + (leg << 1) + bought) << 20) + rank
        lots = MIN_LOTS + _share(self._size_key, identity, lots, rank, np.maximum(group, 1))

        return Orders(
            numbers - origin,
            clock_minute * 60_000 + self._offsets(clock_minute, place, total),
            np.where(mirrored, price, block.candles.open[minute]),
            np.where(mirrored, lots, block.single_lots[minute]),
            np.where(mirrored, bought, block.single_bought[minute] == 1),
        )

    def fills(self, orders: Orders) -> Fills:
        """The fills of the orders; those of order 0 are numbered from 0."""
        bounds = self._fill_numbers.prefix(orders.number)
        counts = self._fill_numbers.prefix(orders.number + 1) - bounds
        row = np.repeat(np.arange(len(orders)), counts)
        numbers = np.arange(len(row), dtype=np.int64) - (np.cumsum(counts) - counts)[row] + bounds[row]
        parts = counts[row]
        lots = 1 + _share(self._fill_key, numbers, orders.lots[row] - parts, numbers - bounds[row], parts)
        return Fills(numbers, orders.time[row], orders.price[row], lots, orders.bought[row])

    def _offsets(self, clock_minute: Ints, place: Ints, total: Ints) -> Ints:
        """Milliseconds after the minute's start, ascending; a third of the groups of four share one millisecond."""
        lead = place & ~3
        shared = field(words(self._time_key, (clock_minute << 20) + (lead << 1) + 1), 1) < 23_000
        place = np.where(shared, lead, place)
        draw = field(words(self._time_key, (clock_minute << 20) + (place << 1)), 0)
        return 60_000 * ((place << 16) + draw) // (np.maximum(total, 1) << 16)


def _share(key: np.uint64, identity: Ints, whole: Ints, rank: Ints, parts: Ints) -> Ints:
    """Part number `rank` of `whole`, cut into `parts` at random; the parts add up to exactly the whole.

    `identity` plus one is the identity of the next part, so that neighbours draw the same cut between them.
    """
    left = np.where(rank == 0, 0, (rank << 16) + field(words(key, identity), 0))
    right = np.where(rank + 1 >= parts, parts << 16, ((rank + 1) << 16) + field(words(key, identity + 1), 0))
    return whole * right // (parts << 16) - whole * left // (parts << 16)
