"""Minute candles in blocks of 2,048 minutes, each block computed independently from the seed.

The price at minute boundaries is a Brownian path built from coarse to fine by midpoint displacement (each level adds
hat functions of half the width); its fine levels follow the volatility of the time. Weights distribute a block's orders
over its minutes. A minute's candle has a closed form: its orders come in mirrored pairs along three legs (open to one
extreme, to the other, to the close), so that volume and quote amount are known without listing the orders; `prints`
lists them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from sandbox.markets.candles import Candles
from sandbox.markets.instruments import Instrument
from sandbox.markets.noise import Floats, Ints, Words, bell, derive_key, exponential, field, unit, words

BLOCK_BITS = 11
BLOCK_MINUTES = 1 << BLOCK_BITS
_TOP_BITS = 25  # the path returns to the typical price every 2**25 minutes (64 years)
_MINUTES_A_DAY = 1440
MIN_LOTS = 16  # of one order, so that each of its fills gets at least one lot

# Fills: every 16 orders have 8 more fills than orders, distributed at random.
ORDERS_A_ROUND = 16
FILLS_A_ROUND = 24
# 4 bits pick the order for each of the 8; each uses its own byte of the round's word.
_THROWS = np.arange(0, 64, 8, dtype=np.uint64)[:, None]


def _intraday_season() -> Ints:
    """Relative activity for each minute of the day (1024 = mean): busy in the European and American hours."""
    knots = [(0, 900), (180, 760), (420, 860), (480, 1120), (780, 1180), (870, 1900), (960, 1500), (1200, 1000)]
    knots.append((_MINUTES_A_DAY, knots[0][1]))
    season = np.zeros(_MINUTES_A_DAY, dtype=np.int64)
    for (left, low), (right, high) in pairwise(knots):
        for minute in range(left, right):
            season[minute] = low + (high - low) * (minute - left) // (right - left)
    return season


_SEASON = _intraday_season()
_HATS = [1.0 - np.abs(2.0 * np.arange(1 << k) / (1 << k) - 1.0) for k in range(BLOCK_BITS + 1)]
# The levels wider than a block, as columns: number, span in blocks, and the root of the width in minutes. The widest
# are damped, so that prices stay within a small multiple of the typical one.
_LEVELS = np.arange(BLOCK_BITS + 1, _TOP_BITS + 1, dtype=np.int64)[:, None]
_SPANS = 1 << (_LEVELS - BLOCK_BITS)
_SCALES = np.sqrt((1 << _LEVELS).astype(np.float64)) * np.where(_LEVELS >= 17, 0.4, 1.0)
_RAMP = np.arange(BLOCK_MINUTES) / BLOCK_MINUTES


@dataclass(kw_only=True, frozen=True, slots=True)
class MinuteBlock:
    """The minutes of one block: candles, and the data from which their orders are listed.

    `first_order[i]` is the number of the first order of minute i (one entry more than minutes). Legs are rows 0 to 2
    of the leg arrays: `pairs` mirrored pairs, of them `buy_pairs` bought by the taker, with `buy_lots` and `sell_lots`
    for one side of the mirror, from price `start` to price `stop`. `single_lots` is the one order without a mirror.
    """

    first_minute: int
    first_order: Ints
    candles: Candles
    pairs: Ints
    buy_pairs: Ints
    buy_lots: Ints
    sell_lots: Ints
    start: Ints
    stop: Ints
    single_lots: Ints
    single_bought: Ints


class FillNumbers:
    """Numbers fills (raw trades) by orders: prefix(order) is the number of fills before it."""

    def __init__(self, seed: int, symbol: str) -> None:
        self._key = derive_key(seed, symbol, "fills")

    def prefix(self, orders: Ints) -> Ints:
        """Fills of all orders before each of the given order numbers."""
        rounds, place = orders >> 4, orders & 15
        throws = (words(self._key, rounds) >> _THROWS) & np.uint64(15)
        extra: Ints = (throws < place.astype(np.uint64)).sum(axis=0, dtype=np.int64)
        return rounds * FILLS_A_ROUND + place + extra

    def order_of(self, fill: int) -> int:
        """The order to which the fill with this number belongs."""
        first = fill // FILLS_A_ROUND * ORDERS_A_ROUND
        prefixes = self.prefix(np.arange(first, first + ORDERS_A_ROUND, dtype=np.int64))
        return first + int(np.searchsorted(prefixes, fill, side="right")) - 1


class BlockMaker:
    """Makes the blocks of one instrument; the same (seed, symbol, block) always gives the same block."""

    def __init__(self, instrument: Instrument, seed: int) -> None:
        symbol = instrument.symbol
        self._instrument = instrument
        self._minute_volatility = instrument.daily_volatility / 37.94733192202055  # the root of 1440
        self._typical_ticks = instrument.typical_price * 10.0**instrument.price_decimals
        self._orders_a_block = max(64, round(instrument.orders_per_minute * BLOCK_MINUTES))
        self._coarse_key = derive_key(seed, symbol, "coarse")
        self._fine_key = derive_key(seed, symbol, "fine")
        self._regime_key = derive_key(seed, symbol, "regime")
        self._orders_key = derive_key(seed, symbol, "orders")
        self._minute_key = derive_key(seed, symbol, "minute")
        self._legs_key = derive_key(seed, symbol, "legs")
        self._fills = FillNumbers(seed, symbol)

    def orders_before(self, block: int) -> int:
        """How many orders precede the block; telescoping, so it need not walk from the start."""
        draw = int(field(words(self._orders_key, np.array([block], dtype=np.int64)), 0)[0])
        return self._orders_a_block * block + (self._orders_a_block * 2 // 5 * draw >> 16)

    def block_of_order(self, order: int) -> int:
        """The block to which the order belongs."""
        block = order // self._orders_a_block
        while self.orders_before(block) > order:
            block -= 1
        while self.orders_before(block + 1) <= order:
            block += 1
        return block

    def make(self, block: int, first_fill_of: int) -> MinuteBlock:
        """Compute a block. Fills are numbered from those of the order `first_fill_of`."""
        minutes = block * BLOCK_MINUTES + np.arange(BLOCK_MINUTES, dtype=np.int64)
        volatility = self._volatility(block, minutes)
        path = self._path(block, volatility)
        draws = words(self._minute_key, minutes)
        orders = self._split_orders(block, volatility, draws)
        first_order = np.empty(BLOCK_MINUTES + 1, dtype=np.int64)
        first_order[0] = self.orders_before(block)
        np.cumsum(orders, out=first_order[1:])
        first_order[1:] += first_order[0]

        # Minutes with at most one order keep the price, so a longer candle opens at the previous close in any merge.
        moving = orders >= 2
        last = np.maximum.accumulate(np.where(moving, np.arange(BLOCK_MINUTES), -1))
        closes = np.concatenate((path[:1], path[1:][last]))  # index -1 is the block's end; replaced below
        closes[1:][last < 0] = path[0]
        opened, closed = closes[:-1], closes[1:]

        pairs, start, stop, high, low = self._legs(orders, opened, closed, volatility, draws)
        sizes = words(self._legs_key, (minutes << 2) + np.arange(3)[:, None])
        rising = 96 + 64 * (stop > start)
        buy_pairs = (pairs * (rising + (field(sizes, 0) >> 10))) >> 8
        mean = self._instrument.lots_per_order
        # field >> 6 is 0 to 1023. A leg rarely has up to four times the mean orders: the product of two draws.
        weight = 24 + ((field(sizes, 1) >> 6) * (field(sizes, 2) >> 6) >> 10)
        buy_lots = buy_pairs * MIN_LOTS + (buy_pairs * mean * weight >> 8)
        sell_pairs = pairs - buy_pairs
        sell_lots = sell_pairs * MIN_LOTS + (sell_pairs * mean * (field(sizes, 3) >> 7) >> 8)
        odd = orders & 1
        single_lots = odd * (MIN_LOTS + (mean * (field(draws, 3) >> 7) >> 8))
        single_bought = odd * (field(draws, 2) & 1)

        legs_lots = (buy_lots + sell_lots).sum(axis=0)
        price_sum = start + stop
        fills = self._fills.prefix(first_order - first_fill_of)
        candles = Candles(
            open_time=minutes * 60_000,
            close_time=minutes * 60_000 + 59_999,
            open=opened,
            high=high,
            low=low,
            close=closed,
            volume=2 * legs_lots + single_lots,
            quote=(price_sum * (buy_lots + sell_lots)).sum(axis=0) + single_lots * opened,
            count=np.diff(fills),
            taker_volume=2 * buy_lots.sum(axis=0) + single_lots * single_bought,
            taker_quote=(price_sum * buy_lots).sum(axis=0) + single_lots * single_bought * opened,
        )
        return MinuteBlock(
            first_minute=block * BLOCK_MINUTES,
            first_order=first_order,
            candles=candles,
            pairs=pairs,
            buy_pairs=buy_pairs,
            buy_lots=buy_lots,
            sell_lots=sell_lots,
            start=start,
            stop=stop,
            single_lots=single_lots,
            single_bought=single_bought,
        )

    def _volatility(self, block: int, minutes: Ints) -> Floats:
        """The volatility factor of each minute: drifting over days and hours, times the season of the day."""
        slow = unit(words(self._regime_key, np.array([block >> 3, (block >> 3) + 1], dtype=np.int64)))
        ramp = ((block & 7) + _RAMP) * 0.125
        factor = 0.5 + slow[0] + (slow[1] - slow[0]) * ramp
        days = unit(words(self._regime_key, (1 << 40) + np.array([block, block + 1], dtype=np.int64)))
        factor = factor * (0.5 + days[0] + (days[1] - days[0]) * _RAMP)
        hours = unit(words(self._regime_key, (2 << 40) + block * 8 + np.arange(9, dtype=np.int64)))
        quarter = np.arange(256) / 256.0
        hourly = hours[:-1, None] + (hours[1:] - hours[:-1])[:, None] * quarter
        factor = factor * (0.7 + 0.6 * hourly.reshape(BLOCK_MINUTES))
        season = _SEASON[minutes % _MINUTES_A_DAY] * (1.0 / 1024.0)
        volatility: Floats = factor * season
        return volatility

    def _path(self, block: int, volatility: Floats) -> Ints:
        """Prices in ticks at the block's minute boundaries, BLOCK_MINUTES + 1 of them."""
        edges = self._coarse(block)
        fine = np.zeros(BLOCK_MINUTES)
        draws = bell(words(self._fine_key, block * BLOCK_MINUTES + np.arange(BLOCK_MINUTES, dtype=np.int64)))
        for level in range(1, BLOCK_BITS + 1):
            width = 1 << level
            hats = BLOCK_MINUTES >> level
            # Entries [hats, 2 * hats) of the draws belong to this level: each draw is used once.
            heights = draws[hats : 2 * hats] * volatility[width // 2 :: width]
            heights = heights * (self._minute_volatility * 0.5 * math.sqrt(width))
            fine.reshape(hats, width)[:] += heights[:, None] * _HATS[level]
        logs = np.concatenate((edges[0] + (edges[1] - edges[0]) * _RAMP + fine, edges[1:]))
        return np.maximum(np.rint(exponential(logs) * self._typical_ticks), 20.0).astype(np.int64)

    def _coarse(self, block: int) -> Floats:
        """The path at the block's two ends, from the levels wider than a block."""
        ends = np.array([block, block + 1], dtype=np.int64)
        hats = 1.0 - np.abs(2.0 * (ends % _SPANS) / _SPANS - 1.0)
        heights = bell(words(self._coarse_key, (_LEVELS << 40) + ends // _SPANS))
        edges = np.zeros(2)
        for term in hats * heights * (_SCALES * (self._minute_volatility * 0.5)):
            edges = edges + term  # one by one, because a library may sum in any order
        return edges

    def _split_orders(self, block: int, volatility: Floats, draws: Words) -> Ints:
        """Orders of each minute; the last minute has at least two, so that a block starts at a traded price."""
        total = self.orders_before(block + 1) - self.orders_before(block)
        burst = (1 << 22) // (67584 - field(draws, 0))  # 62 to 2048: many calm minutes, few wild ones
        weights = np.cumsum(np.rint(volatility * burst * 16.0).astype(np.int64) + 1)
        bounds = (total - 2) * weights // weights[-1]
        orders: Ints = np.diff(bounds, prepend=0)
        orders[-1] += 2
        return orders

    def _legs(
        self,
        orders: Ints,
        opened: Ints,
        closed: Ints,
        volatility: Floats,
        draws: Words,
    ) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """Pairs, start and stop price of the three legs of each minute, and the minute's high and low."""
        half = orders >> 1
        wide = half >= 3
        first = np.where(wide, 1 + ((half - 3) * (64 + (field(draws, 1) & 255)) >> 9), half)
        second = np.where(wide, 1 + ((half - first - 2) * (64 + (field(draws, 1) >> 8)) >> 9), 0)
        pairs = np.stack((first, second, half - first - second))

        top, bottom = np.maximum(opened, closed), np.minimum(opened, closed)
        scale = volatility * (self._minute_volatility / 65536.0 / 65536.0) * top
        above, below = field(draws, 2), field(draws, 3)
        high = np.where(wide, top + np.rint(scale * above * above).astype(np.int64), top)
        low = np.where(wide, bottom - np.rint(scale * below * below).astype(np.int64), bottom)
        low = np.maximum(low, np.minimum(bottom, 10))

        up_first = (field(draws, 0) & 1).astype(bool)
        turn_1 = np.where(wide, np.where(up_first, high, low), closed)
        turn_2 = np.where(wide, np.where(up_first, low, high), closed)
        start = np.stack((opened, turn_1, turn_2))
        stop = np.stack((turn_1, turn_2, closed))
        return pairs, start, stop, high, low
