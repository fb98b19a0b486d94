"""A pair whose market is generated: any page of its history is computed from the seed when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandbox import wire
from sandbox.blocks import BLOCK_BITS, BLOCK_MINUTES, BlockMaker, FillNumbers, MinuteBlock
from sandbox.cache import Recent
from sandbox.candles import Candles, concat, merge
from sandbox.instruments import Instrument
from sandbox.intervals import DAY, INTERVALS, MINUTE, SECOND, Interval
from sandbox.market import Trades, concat_trades, no_trades
from sandbox.noise import Flags, Ints
from sandbox.prints import Orders, PrintMaker

_SEGMENT_MINUTES = 16  # orders are listed and kept by so many minutes
_SEGMENTS = BLOCK_MINUTES // _SEGMENT_MINUTES
_DAYS_A_CHUNK = 64
_NEVER = 1 << 62


@dataclass(frozen=True, slots=True, order=True)
class _Hole:
    """Minutes [start, stop), and the orders and fills that are hidden with them."""

    start: int
    stop: int
    first_order: int
    stop_order: int
    first_fill: int
    stop_fill: int


class Kept:
    """What generated markets keep of their computations: about 150 MB at most, for all of them together."""

    def __init__(self) -> None:
        self.blocks: Recent[MinuteBlock] = Recent(64)
        self.rows: Recent[tuple[bytes, Ints]] = Recent(128)
        self.segments: Recent[Orders] = Recent(384)


class GeneratedMarket:
    """Implements `market.Market` for one instrument and seed."""

    def __init__(self, instrument: Instrument, seed: int, kept: Kept | None = None) -> None:
        self.instrument = instrument
        self._maker = BlockMaker(instrument, seed)
        self._numbers = FillNumbers(seed, instrument.symbol)
        self._prints = PrintMaker(instrument.symbol, seed, self._numbers)
        self._first_minute = instrument.listed_ms // MINUTE
        delisted = instrument.delisted_ms
        self._stop_minute = _NEVER if delisted is None else delisted // MINUTE
        self._kept = kept or Kept()
        self._days: dict[int, Candles] = {}
        listing = self._maker.make(self._first_minute >> BLOCK_BITS, 0)
        self._origin = int(listing.first_order[self._first_minute & (BLOCK_MINUTES - 1)])
        self._holes: list[_Hole] = []

    @property
    def symbol(self) -> str:
        return self.instrument.symbol

    @property
    def base(self) -> str:
        return self.instrument.base

    @property
    def quote(self) -> str:
        return self.instrument.quote

    @property
    def status(self) -> str:
        return self.instrument.status

    @property
    def price_decimals(self) -> int:
        return self.instrument.price_decimals

    @property
    def lot_decimals(self) -> int:
        return self.instrument.lot_decimals

    # Candles

    def kline_page(self, interval: Interval, start: int | None, end: int | None, limit: int, now: int) -> bytes:
        """See Market."""
        last = interval.floor(min(now, self._stop_minute * MINUTE - 1, now if end is None else end))
        listed = interval.floor(self.instrument.listed_ms)
        if start is not None:
            first = max(interval.ceil(start), listed)
            last = min(last, interval.shift(first, limit - 1)) if not self._holes else last
        else:
            first = listed if self._holes else max(listed, interval.shift(last, 1 - limit))
        if interval.count(first, last) == 0:
            return b"[]"
        if self._holes:
            return self._page_around_holes(interval, first, last, limit, now, newest=start is None)
        if interval.step_ms == MINUTE:
            return self._minute_page(first // MINUTE, last // MINUTE, now)
        return wire.page(self._encode(self.candles(interval, first, last, now)))

    def candles(self, interval: Interval, first_open: int, last_open: int, now: int) -> Candles:
        """See Market."""
        count = interval.count(first_open, last_open)
        opens = interval.opens(first_open, count)
        stop = min(interval.shift(last_open, 1), now + 1)
        closes = interval.opens(interval.shift(first_open, 1), count) - 1
        if interval.step_ms == SECOND:
            return self._seconds(first_open, stop, now)
        if interval.step_ms == MINUTE:
            return self._minutes(first_open // MINUTE, -(-stop // MINUTE), now)
        if interval.step_ms and interval.step_ms <= DAY:
            return merge(self._minutes(first_open // MINUTE, -(-stop // MINUTE), now), opens, closes)
        return merge(self._daily(first_open, stop, now), opens, closes)

    def _minute_page(self, first: int, last: int, now: int) -> bytes:
        current = now // MINUTE
        parts = []
        minute, closed = first, min(last + 1, current)
        while minute < closed:
            block, offset = minute >> BLOCK_BITS, minute & (BLOCK_MINUTES - 1)
            stop = min(closed - (block << BLOCK_BITS), BLOCK_MINUTES)
            rows, offsets = self._rows(block)
            parts.append(rows[offsets[offset] : offsets[stop]])
            minute = (block << BLOCK_BITS) + stop
        if last == current:
            parts.append(self._encode(self._unfinished_minute(now)))
        return wire.page(b"".join(parts))

    def _page_around_holes(
        self, interval: Interval, first: int, last: int, limit: int, now: int, *, newest: bool
    ) -> bytes:
        """Window by window, until the page is full or the range is at its end."""
        parts: list[Candles] = []
        missing = limit
        while missing > 0 and first <= last:
            if newest:
                window = (max(first, interval.shift(last, 1 - missing)), last)
                last = interval.shift(window[0], -1)
            else:
                window = (first, min(last, interval.shift(first, missing - 1)))
                first = interval.shift(window[1], 1)
            found = self.candles(interval, *window, now)
            if len(found):
                parts.append(found)
                missing -= len(found)
                continue
            hole = next((h for h in self._holes if h.start * MINUTE < window[1] + MINUTE <= h.stop * MINUTE), None)
            if hole is not None and newest:
                last = min(last, interval.floor(hole.start * MINUTE))
            elif hole is not None:
                first = max(first, interval.floor(hole.stop * MINUTE))
        return wire.page(b"".join(self._encode(part) for part in (reversed(parts) if newest else parts)))

    def _encode(self, candles: Candles) -> bytes:
        return wire.encode_candles(candles, self.price_decimals, self.lot_decimals)[0] if len(candles) else b""

    def _block(self, block: int) -> MinuteBlock:
        return self._kept.blocks.get((self, block), lambda: self._maker.make(block, self._origin))

    def _rows(self, block: int) -> tuple[bytes, Ints]:
        """The block's candles as JSON rows, and where each starts."""

        def encode() -> tuple[bytes, Ints]:
            return wire.encode_candles(self._block(block).candles, self.price_decimals, self.lot_decimals)

        return self._kept.rows.get((self, block), encode)

    def _closed_minutes(self, first: int, stop: int) -> Candles:
        """Minutes [first, stop) that exist, whole, whatever the time is."""
        first, stop = max(first, self._first_minute), min(stop, self._stop_minute)
        parts = []
        minute = first
        while minute < stop:
            block, offset = minute >> BLOCK_BITS, minute & (BLOCK_MINUTES - 1)
            upto = min(stop - (block << BLOCK_BITS), BLOCK_MINUTES)
            parts.append(self._block(block).candles.slice(offset, upto))
            minute = (block << BLOCK_BITS) + upto
        if not parts:
            return self._block(self._first_minute >> BLOCK_BITS).candles.slice(0, 0)
        return self._outside_holes(concat(parts))

    def _minutes(self, first: int, stop: int, now: int) -> Candles:
        """Minutes [first, stop), of them the one that holds `now` as far as it has come."""
        current = now // MINUTE
        closed = self._closed_minutes(first, min(stop, current))
        if not first <= current < stop or not self._first_minute <= current < self._stop_minute:
            return closed
        return concat((closed, self._outside_holes(self._unfinished_minute(now))))

    def _unfinished_minute(self, now: int) -> Candles:
        return merge(self._seconds(now // MINUTE * MINUTE, now + 1, now), *_span(now // MINUTE * MINUTE, MINUTE))

    def _daily(self, first_open: int, stop_ms: int, now: int) -> Candles:
        """Days from kept chunks, and the unfinished day from its minutes."""
        today = now // DAY
        day, closed = first_open // DAY, min(-(-stop_ms // DAY), today)
        parts = []
        while day < closed:
            chunk = day // _DAYS_A_CHUNK
            upto = min(closed, (chunk + 1) * _DAYS_A_CHUNK)
            if chunk not in self._days:
                self._days[chunk] = self._merge_days(chunk)
            days = self._days[chunk]
            rows = np.searchsorted(days.open_time, (day * DAY, upto * DAY))
            parts.append(days.slice(int(rows[0]), int(rows[1])))
            day = upto
        if today * DAY < stop_ms:
            minutes = self._minutes(today * DAY // MINUTE, now // MINUTE + 1, now)
            parts.append(merge(minutes, *_span(today * DAY, DAY)))
        return concat(parts)

    def _merge_days(self, chunk: int) -> Candles:
        first = chunk * _DAYS_A_CHUNK * DAY
        opens = INTERVALS["1d"].opens(first, _DAYS_A_CHUNK)
        minutes = self._closed_minutes(first // MINUTE, (first + _DAYS_A_CHUNK * DAY) // MINUTE)
        return merge(minutes, opens, opens + DAY - 1)

    def _seconds(self, first_ms: int, stop_ms: int, now: int) -> Candles:
        """Second candles that open in [first_ms, stop_ms), from the orders until now; quiet seconds are flat."""
        first_ms = max(first_ms, self._first_minute * MINUTE)
        stop_ms = min(stop_ms, self._stop_minute * MINUTE)
        opens = np.arange(-(-first_ms // SECOND) * SECOND, stop_ms, SECOND, dtype=np.int64)
        if not len(opens):
            return self._closed_minutes(0, 0)
        start_minute = int(opens[0]) // MINUTE
        orders = self._orders(self._first_order(start_minute), self._order_at(min(int(opens[-1]) + SECOND, now + 1)))
        before = np.searchsorted(orders.time, opens)
        after = np.searchsorted(orders.time, opens + SECOND)
        start_block = self._block(start_minute >> BLOCK_BITS)
        start_price = start_block.candles.open[start_minute & (BLOCK_MINUTES - 1)]
        prices = np.concatenate((np.atleast_1d(start_price), orders.price))
        previous, closed = prices[before], prices[after]
        traded = after > before
        amounts = orders.price * orders.lots
        fills = self._numbers.prefix(np.append(orders.number, self._after(orders)) - self._origin)
        candles = Candles(
            opens,
            opens + (SECOND - 1),
            np.where(traded, prices[np.minimum(before + 1, len(orders))], previous),
            _extremes(np.maximum, orders.price, before, traded, previous),
            _extremes(np.minimum, orders.price, before, traded, previous),
            closed,
            _sums(orders.lots, before, after),
            _sums(amounts, before, after),
            fills[after] - fills[before],
            _sums(orders.lots * orders.bought, before, after),
            _sums(amounts * orders.bought, before, after),
        )
        return self._outside_holes(candles)

    def _after(self, orders: Orders) -> int:
        return int(orders.number[-1]) + 1 if len(orders) else self._origin

    # Orders, by their internal number

    def _first_order(self, minute: int) -> int:
        block = self._block(minute >> BLOCK_BITS)
        return int(block.first_order[minute & (BLOCK_MINUTES - 1)])

    def _segment(self, segment: int) -> Orders:
        """The orders of 16 minutes."""
        first = segment % _SEGMENTS * _SEGMENT_MINUTES

        def list_orders() -> Orders:
            return self._prints.orders(self._block(segment // _SEGMENTS), first, first + _SEGMENT_MINUTES)

        return self._kept.segments.get((self, segment), list_orders)

    def _order_at(self, time_ms: int) -> int:
        """The number of the first order at or after the time."""
        minute = time_ms // MINUTE
        if minute < self._first_minute:
            return self._origin
        if minute >= self._stop_minute:
            return self._first_order(self._stop_minute)
        segment = minute // _SEGMENT_MINUTES
        orders = self._segment(segment)
        first = self._first_order(segment * _SEGMENT_MINUTES)
        return first + int(np.searchsorted(orders.time, time_ms))

    def _segment_of(self, order: int) -> int:
        block = self._maker.block_of_order(order)
        minute = int(np.searchsorted(self._block(block).first_order, order, side="right")) - 1
        return block * _SEGMENTS + minute // _SEGMENT_MINUTES

    def _orders(self, first: int, stop: int) -> Orders:
        """Orders [first, stop) by number, hidden ones too."""
        parts: list[Orders] = []
        segment = self._segment_of(first)
        while not parts or first < stop:
            orders = self._segment(segment)
            if len(orders):
                skip = first - int(orders.number[0])
                parts.append(orders.slice(skip, skip + max(stop - first, 0)))
                first += len(parts[-1])
            segment += 1
        return Orders.concat(parts)

    # Trades, by public id: internal numbers from the listing on, from 1, without those that a hole hides

    def orders(self, first_id: int, limit: int, now: int) -> Trades:
        """See Market."""
        stop = min(first_id + limit, self._public_order(self._order_at(now + 1)))
        first = max(first_id, 1)
        if first >= stop:
            return no_trades()
        parts = [self._public_trades(self._orders(*span)) for span in self._visible_orders(first, stop)]
        return _join(parts)

    def order_at(self, time_ms: int) -> int:
        """See Market."""
        return self._public_order(self._order_at(time_ms))

    def fills(self, first_id: int, limit: int, now: int) -> Trades:
        """See Market."""
        stop = min(first_id + limit, self._public_fill(self._fill_of(self._order_at(now + 1))))
        first = max(first_id, 1)
        if first >= stop:
            return no_trades()
        from_order = self._public_order(self._origin + self._numbers.order_of(self._inner_fill(first)))
        to_order = self._public_order(self._origin + self._numbers.order_of(self._inner_fill(stop - 1))) + 1
        parts = []
        for span in self._visible_orders(from_order, to_order):
            fills = self._prints.fills(self._orders(*span), self._origin)
            ids = fills.number + 1 - _hidden(fills.number, [(h.first_fill, h.stop_fill) for h in self._holes])
            parts.append(Trades(ids, fills.price, fills.lots, fills.time, fills.bought, ids, ids))
        joined = _join(parts)
        skip = first - int(joined.id[0])
        return joined.slice(skip, skip + stop - first)

    def fill_at(self, time_ms: int) -> int:
        """See Market."""
        return self._public_fill(self._fill_of(self._order_at(time_ms)))

    def next_trade_time(self, now: int) -> int | None:
        """See Market."""
        found = self.order_at(now + 1)
        horizon = now + DAY
        if found >= self.order_at(horizon):
            return None
        return int(self.orders(found, 1, horizon).time[0])

    def drive_to(self, now: int) -> int | None:
        """See Market."""
        return None

    def _fill_of(self, order: int) -> int:
        return int(self._numbers.prefix(np.array([order - self._origin], dtype=np.int64))[0])

    def _public_order(self, order: int) -> int:
        hidden = _hidden(np.array([order]), [(hole.first_order, hole.stop_order) for hole in self._holes])
        return order - self._origin + 1 - int(hidden[0])

    def _public_fill(self, fill: int) -> int:
        hidden = _hidden(np.array([fill]), [(hole.first_fill, hole.stop_fill) for hole in self._holes])
        return fill + 1 - int(hidden[0])

    def _inner_fill(self, public: int) -> int:
        fill = public - 1
        for hole in self._holes:
            if fill >= hole.first_fill:
                fill += hole.stop_fill - hole.first_fill
        return fill

    def _visible_orders(self, first: int, stop: int) -> list[tuple[int, int]]:
        """Internal spans behind the public ids [first, stop)."""
        spans, start, left = [], first - 1 + self._origin, stop - first
        for hole in self._holes:
            if start >= hole.first_order:
                start += hole.stop_order - hole.first_order
                continue
            if start + left <= hole.first_order:
                break
            if start < hole.first_order:
                spans.append((start, hole.first_order))
            left -= hole.first_order - start
            start = hole.stop_order
        return [*spans, (start, start + left)]

    def _public_trades(self, orders: Orders) -> Trades:
        numbers = orders.number - self._origin
        fills = self._numbers.prefix(np.append(numbers, numbers[-1] + 1))
        hidden = _hidden(fills[:-1], [(hole.first_fill, hole.stop_fill) for hole in self._holes])
        ids = numbers + 1 - _hidden(orders.number, [(hole.first_order, hole.stop_order) for hole in self._holes])
        return Trades(
            ids, orders.price, orders.lots, orders.time, orders.bought, fills[:-1] + 1 - hidden, fills[1:] - hidden
        )

    # Holes

    def add_hole(self, start_ms: int, end_ms: int) -> None:
        """See Market. Raises ValueError when the bounds are not whole minutes or are out of order."""
        start, stop = start_ms // MINUTE, end_ms // MINUTE
        if start_ms % MINUTE or end_ms % MINUTE or start >= stop:
            raise ValueError("a hole has whole minutes as its bounds and a positive length")
        start = max(start, self._first_minute)
        spans = sorted([(hole.start, hole.stop) for hole in self._holes] + [(start, max(stop, start))])
        merged: list[tuple[int, int]] = []
        for low, high in spans:
            if merged and low <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
            else:
                merged.append((low, high))
        self._holes = [self._hole(low, high) for low, high in merged if low < high]
        self._days.clear()

    def clear_holes(self) -> None:
        """See Market."""
        self._holes = []
        self._days.clear()

    def _hole(self, start: int, stop: int) -> _Hole:
        orders = (self._first_order(start), self._first_order(stop))
        return _Hole(start, stop, *orders, *(self._fill_of(order) for order in orders))

    def _outside_holes(self, candles: Candles) -> Candles:
        if not self._holes:
            return candles
        minutes = candles.open_time // MINUTE
        kept = np.ones(len(minutes), dtype=np.bool_)
        for hole in self._holes:
            kept &= (minutes < hole.start) | (minutes >= hole.stop)
        return candles.where(kept)


def _span(open_ms: int, length_ms: int) -> tuple[Ints, Ints]:
    return np.array([open_ms], dtype=np.int64), np.array([open_ms + length_ms - 1], dtype=np.int64)


def _sums(values: Ints, before: Ints, after: Ints) -> Ints:
    totals = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(values)))
    return totals[after] - totals[before]


def _extremes(ufunc: np.ufunc, prices: Ints, before: Ints, traded: Flags, previous: Ints) -> Ints:
    """The highest or lowest price of each second, the previous price where it has no trade."""
    result = previous.copy()
    if traded.any():
        result[traded] = ufunc.reduceat(prices, before[traded])
    return result


def _hidden(numbers: Ints, spans: list[tuple[int, int]]) -> Ints:
    """How many hidden numbers lie before each of the numbers."""
    hidden = np.zeros(len(numbers), dtype=np.int64)
    for first, stop in spans:
        hidden += np.clip(numbers, first, stop) - first
    return hidden


def _join(parts: list[Trades]) -> Trades:
    parts = [part for part in parts if len(part)]
    return concat_trades(parts) if parts else no_trades()
