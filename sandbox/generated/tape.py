"""The whole life of one generated instrument, by minute and by internal order number: no clock, no downtimes."""

from __future__ import annotations

import numpy as np

from sandbox.generated.blocks import BLOCK_BITS, BLOCK_MINUTES, BlockMaker, FillNumbers, MinuteBlock
from sandbox.generated.cache import Recent
from sandbox.generated.prints import Fills, Orders, PrintMaker
from sandbox.markets import wire
from sandbox.markets.candles import Candles, concat
from sandbox.markets.instruments import Instrument
from sandbox.markets.intervals import MINUTE, SECOND
from sandbox.markets.noise import Flags, Ints

_SEGMENT_MINUTES = 16  # orders are listed and cached this many minutes at a time
_SEGMENTS = BLOCK_MINUTES // _SEGMENT_MINUTES
_NEAR_SEGMENTS = 4  # segments that a stream of trades reads repeatedly: now, soon, and a day ahead
_NEVER = 1 << 62


class Kept:
    """The shared cache of all generated instruments: at most about 100 MB in total."""

    def __init__(self) -> None:
        self.blocks: Recent[MinuteBlock] = Recent(48)
        self.rows: Recent[tuple[bytes, Ints]] = Recent(96)
        self.segments: Recent[Orders] = Recent(384)


class Tape:
    """Orders are numbered from the listing: the maker's numbers minus `origin`."""

    def __init__(self, instrument: Instrument, seed: int, kept: Kept) -> None:
        self.first_minute = instrument.listed_ms // MINUTE
        delisted = instrument.delisted_ms
        self.stop_minute = _NEVER if delisted is None else delisted // MINUTE
        self._instrument = instrument
        self._maker = BlockMaker(instrument, seed)
        self._numbers = FillNumbers(seed, instrument.symbol)
        self._prints = PrintMaker(instrument.symbol, seed, self._numbers)
        self._kept = kept
        #: The latest segments, with the number of their first order. Not shared, so other markets do not evict them.
        self._near: dict[int, tuple[int, Orders]] = {}
        listing = self._maker.make(self.first_minute >> BLOCK_BITS, 0)
        self._origin = int(listing.first_order[self.first_minute & (BLOCK_MINUTES - 1)])

    # Candles

    def rows(self, first: int, stop: int) -> bytes:
        """The wire rows of minutes [first, stop), which must exist."""
        parts = []
        while first < stop:
            block, offset = first >> BLOCK_BITS, first & (BLOCK_MINUTES - 1)
            upto = min(stop - (block << BLOCK_BITS), BLOCK_MINUTES)
            rows, offsets = self._encoded(block)
            parts.append(rows[offsets[offset] : offsets[upto]])
            first = (block << BLOCK_BITS) + upto
        return b"".join(parts)

    def minutes(self, first: int, stop: int, *, keep: bool = True) -> Candles:
        """Minutes [first, stop), limited to those between listing and delisting.

        Without `keep` the blocks are not cached, so that years of minutes do not evict those in use.
        """
        first, stop = max(first, self.first_minute), min(stop, self.stop_minute)
        parts = []
        while first < stop:
            block, offset = first >> BLOCK_BITS, first & (BLOCK_MINUTES - 1)
            upto = min(stop - (block << BLOCK_BITS), BLOCK_MINUTES)
            made = self._block(block) if keep else self._maker.make(block, self._origin)
            parts.append(made.candles.slice(offset, upto))
            first = (block << BLOCK_BITS) + upto
        return concat(parts) if parts else self._block(self.first_minute >> BLOCK_BITS).candles.slice(0, 0)

    def seconds(self, first_ms: int, stop_ms: int, now: int) -> Candles:
        """Second candles that open in [first_ms, stop_ms), from orders until now; quiet seconds are flat."""
        first_ms = max(first_ms, self.first_minute * MINUTE)
        stop_ms = min(stop_ms, self.stop_minute * MINUTE)
        opens = np.arange(-(-first_ms // SECOND) * SECOND, stop_ms, SECOND, dtype=np.int64)
        if not len(opens):
            return self.minutes(0, 0)
        minute = int(opens[0]) // MINUTE
        orders = self.orders(self.first_order(minute), self.order_at(min(int(opens[-1]) + SECOND, now + 1)))
        before = np.searchsorted(orders.time, opens)
        after = np.searchsorted(orders.time, opens + SECOND)
        # Entry i is the price before order i: the first is the close of the previous minute.
        start_price = self._block(minute >> BLOCK_BITS).candles.open[minute & (BLOCK_MINUTES - 1)]
        prices = np.concatenate((np.atleast_1d(start_price), orders.price))
        traded = after > before
        amounts = orders.price * orders.lots
        fills = self.fills_before(np.append(orders.number, orders.number[-1:] + 1)) if len(orders) else opens[:1] * 0
        return Candles(
            open_time=opens,
            close_time=opens + (SECOND - 1),
            open=np.where(traded, prices[np.minimum(before + 1, len(orders))], prices[before]),
            high=_extremes(np.maximum, orders.price, before, traded, prices[before]),
            low=_extremes(np.minimum, orders.price, before, traded, prices[before]),
            close=prices[after],
            volume=_sums(orders.lots, before, after),
            quote=_sums(amounts, before, after),
            count=fills[after] - fills[before],
            taker_volume=_sums(orders.lots * orders.bought, before, after),
            taker_quote=_sums(amounts * orders.bought, before, after),
        )

    # Orders and fills

    def first_order(self, minute: int) -> int:
        """The number of the first order of the minute."""
        block = self._block(minute >> BLOCK_BITS)
        return int(block.first_order[minute & (BLOCK_MINUTES - 1)]) - self._origin

    def order_at(self, time_ms: int) -> int:
        """The number of the first order at or after the time."""
        minute = time_ms // MINUTE
        if minute < self.first_minute:
            return 0
        if minute >= self.stop_minute:
            return self.first_order(self.stop_minute)
        first, orders = self._segment(minute // _SEGMENT_MINUTES)
        return first + int(np.searchsorted(orders.time, time_ms))

    def orders(self, first: int, stop: int) -> Orders:
        """Orders [first, stop) by number."""
        parts: list[Orders] = []
        segment = self._segment_of(first)
        while not parts or first < stop:
            start, orders = self._segment(segment)
            if len(orders):
                skip = first - start
                parts.append(orders.slice(skip, skip + max(stop - first, 0)))
                first += len(parts[-1])
            segment += 1
        return Orders.concat(parts)

    def fills(self, orders: Orders) -> Fills:
        """The fills of the orders."""
        return self._prints.fills(orders)

    def fills_before(self, orders: Ints) -> Ints:
        """How many fills precede each of the orders: the number of its first fill."""
        return self._numbers.prefix(orders)

    def order_of(self, fill: int) -> int:
        """The number of the order to which the fill belongs."""
        return self._numbers.order_of(fill)

    def _block(self, block: int) -> MinuteBlock:
        return self._kept.blocks.get((self, block), lambda: self._maker.make(block, self._origin))

    def _encoded(self, block: int) -> tuple[bytes, Ints]:
        """The block's candles as wire rows, and where each starts."""

        def encode() -> tuple[bytes, Ints]:
            decimals = self._instrument.price_decimals, self._instrument.lot_decimals
            return wire.encode_candles(self._block(block).candles, *decimals)

        return self._kept.rows.get((self, block), encode)

    def _segment(self, segment: int) -> tuple[int, Orders]:
        """The number of its first order, and its orders."""
        near = self._near.get(segment)
        if near is None:
            first = segment % _SEGMENTS * _SEGMENT_MINUTES

            def list_orders() -> Orders:
                block = self._block(segment // _SEGMENTS)
                return self._prints.orders(block, first, first + _SEGMENT_MINUTES, origin=self._origin)

            orders = self._kept.segments.get((self, segment), list_orders)
            near = (int(orders.number[0]) if len(orders) else self.first_order(segment * _SEGMENT_MINUTES), orders)
            # Replaced, never mutated: heavy pages are computed in other threads.
            self._near = {**dict(list(self._near.items())[1 - _NEAR_SEGMENTS :]), segment: near}
        return near

    def _segment_of(self, order: int) -> int:
        for segment, (first, orders) in self._near.items():
            if first <= order < first + len(orders):
                return segment
        number = order + self._origin
        block = self._maker.block_of_order(number)
        minute = int(np.searchsorted(self._block(block).first_order, number, side="right")) - 1
        return block * _SEGMENTS + minute // _SEGMENT_MINUTES


def _sums(values: Ints, before: Ints, after: Ints) -> Ints:
    totals = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
    return totals[after] - totals[before]


def _extremes(ufunc: np.ufunc, prices: Ints, before: Ints, traded: Flags, previous: Ints) -> Ints:
    """The highest or lowest price of each second; the previous price if it has no trade."""
    result = previous.copy()
    if traded.any():
        result[traded] = ufunc.reduceat(prices, before[traded])
    return result
