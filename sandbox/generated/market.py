"""A pair with a generated market: any page of its history is computed from the seed on request."""

from __future__ import annotations

import numpy as np

from sandbox.generated.downtimes import Downtime, Downtimes
from sandbox.generated.tape import Kept, Tape
from sandbox.markets import wire
from sandbox.markets.candles import Candles, concat, merge
from sandbox.markets.instruments import Instrument
from sandbox.markets.intervals import DAY, INTERVALS, MINUTE, SECOND, Interval
from sandbox.markets.market import Trades, concat_trades, no_trades
from sandbox.markets.noise import Ints

_DAYS_A_CHUNK = 16
_FEW_DAYS = 7


class GeneratedMarket:
    """Implements `market.Market` for one instrument and seed."""

    def __init__(self, instrument: Instrument, seed: int, kept: Kept | None = None) -> None:
        self.instrument = instrument
        self._tape = Tape(instrument, seed, kept or Kept())
        self._downtimes = Downtimes()
        self._days: dict[int, Candles] = {}

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

    def kline_page(self, interval: Interval, start: int | None, end: int | None, *, limit: int, now: int) -> bytes:
        """See Market."""
        last = interval.floor(min(now, self._tape.stop_minute * MINUTE - 1, now if end is None else end))
        listed = interval.floor(self.instrument.listed_ms)
        first = listed if start is None else max(interval.ceil(start), listed)
        if self._downtimes:
            return self._page_around_downtimes(interval, first, last, limit, now, newest=start is None)
        if start is None:
            first = max(first, interval.shift(last, 1 - limit))
        else:
            last = min(last, interval.shift(first, limit - 1))
        if last < first:
            return b"[]"
        if interval.step_ms != MINUTE:
            return wire.page(self._encode(self.candles(interval, first, last, now=now)))
        closed = self._tape.rows(first // MINUTE, min(last // MINUTE + 1, now // MINUTE))
        return wire.page(
            closed + (self._encode(self._unfinished_minute(now)) if last // MINUTE == now // MINUTE else b"")
        )

    def candles(self, interval: Interval, first_open: int, last_open: int, *, now: int) -> Candles:
        """See Market."""
        stop = min(interval.shift(last_open, 1), now + 1)
        if interval.step_ms == SECOND:
            return self._downtimes.visible(self._tape.seconds(first_open, stop, now))
        if interval.step_ms == MINUTE:
            return self._minutes(first_open, stop, now)
        count = interval.count(first_open, last_open)
        if interval.step_ms and interval.step_ms < DAY:
            return self._merged(interval, first_open, count, now)
        bounds = interval.opens(first_open, count), interval.opens(interval.shift(first_open, 1), count) - 1
        return merge(self._daily(first_open, stop, now), *bounds)

    def _merged(self, interval: Interval, first_open: int, count: int, now: int) -> Candles:
        """`count` candles shorter than a day, merged a few days at a time, since a page may span a year of minutes."""
        parts = []
        opens = interval.opens(first_open, count)
        step = max(1, _DAYS_A_CHUNK * DAY // interval.step_ms)
        for first in range(0, count, step):
            some = opens[first : first + step]
            stop = min(int(some[-1]) + interval.step_ms, now + 1)
            minutes = self._minutes(int(some[0]), stop, now, keep=count <= step)
            parts.append(merge(minutes, some, some + (interval.step_ms - 1)))
        return concat(parts) if parts else self._tape.minutes(0, 0)

    def _page_around_downtimes(
        self, interval: Interval, first: int, last: int, limit: int, now: int, *, newest: bool
    ) -> bytes:
        """A page built window by window, until it is full or the range ends."""
        parts: list[Candles] = []
        missing = limit
        while missing > 0 and first <= last:
            if newest:
                window = (max(first, interval.shift(last, 1 - missing)), last)
                last = interval.shift(window[0], -1)
            else:
                window = (first, min(last, interval.shift(first, missing - 1)))
                first = interval.shift(window[1], 1)
            found = self.candles(interval, *window, now=now)
            if len(found):
                parts.append(found)
                missing -= len(found)
            elif downtime := self._downtimes.covering(window[0], interval.shift(window[1], 1)):
                if newest:
                    last = min(last, interval.floor(downtime.start * MINUTE))
                else:
                    first = max(first, interval.floor(downtime.stop * MINUTE))
        return wire.page(b"".join(self._encode(part) for part in (reversed(parts) if newest else parts)))

    def _encode(self, candles: Candles) -> bytes:
        return wire.encode_candles(candles, self.price_decimals, self.lot_decimals)[0] if len(candles) else b""

    def _minutes(self, first_ms: int, stop_ms: int, now: int, *, keep: bool = True) -> Candles:
        """Visible minutes that open in [first_ms, stop_ms), with the current minute as it is at `now`."""
        current = now // MINUTE
        first, stop = -(-first_ms // MINUTE), -(-stop_ms // MINUTE)
        closed = self._downtimes.visible(self._tape.minutes(first, min(stop, current), keep=keep))
        if not first <= current < stop or not self._tape.first_minute <= current < self._tape.stop_minute:
            return closed
        return concat((closed, self._downtimes.visible(self._unfinished_minute(now))))

    def _unfinished_minute(self, now: int) -> Candles:
        opened = now // MINUTE * MINUTE
        return merge(self._tape.seconds(opened, now + 1, now), *_span(opened, MINUTE))

    def _daily(self, first_open: int, stop_ms: int, now: int) -> Candles:
        """Days: most from cached chunks, a few computed one by one, and the unfinished day from its minutes."""
        today = now // DAY
        day, closed = first_open // DAY, min(-(-stop_ms // DAY), today)
        parts = []
        while day < closed:
            chunk = day // _DAYS_A_CHUNK
            upto = min(closed, (chunk + 1) * _DAYS_A_CHUNK)
            if chunk not in self._days and upto - day <= _FEW_DAYS:
                parts.append(self._merge_days(day, upto - day))
            else:
                if chunk not in self._days:
                    self._days[chunk] = self._merge_days(chunk * _DAYS_A_CHUNK, _DAYS_A_CHUNK)
                days = self._days[chunk]
                rows = np.searchsorted(days.open_time, (day * DAY, upto * DAY))
                parts.append(days.slice(int(rows[0]), int(rows[1])))
            day = upto
        if today * DAY < stop_ms:
            parts.append(merge(self._minutes(today * DAY, now + 1, now), *_span(today * DAY, DAY)))
        return concat(parts)

    def _merge_days(self, first_day: int, count: int) -> Candles:
        first = first_day * DAY
        opens = INTERVALS["1d"].opens(first, count)
        minutes = self._tape.minutes(first // MINUTE, (first + count * DAY) // MINUTE, keep=False)
        return merge(self._downtimes.visible(minutes), opens, opens + DAY - 1)

    # Trades

    def orders(self, first_id: int, limit: int, now: int) -> Trades:
        """See Market."""
        first, stop = max(first_id, 1), min(first_id + limit, self.order_at(now + 1))
        parts = []
        for span in self._downtimes.inner_orders(first, stop) if first < stop else ():
            orders = self._tape.orders(*span)
            if len(orders):
                bounds = self._tape.fills_before(np.append(orders.number, orders.number[-1] + 1))
                parts.append(
                    Trades(
                        id=self._downtimes.order_ids(orders.number),
                        price=orders.price,
                        lots=orders.lots,
                        time=orders.time,
                        bought=orders.bought,
                        first=self._downtimes.fill_ids(bounds[:-1]),
                        last=self._downtimes.fill_ids(bounds[1:] - 1),
                    )
                )
        return concat_trades(parts) if parts else no_trades()

    def order_at(self, time_ms: int) -> int:
        """See Market."""
        return int(self._downtimes.order_ids(_one(self._tape.order_at(time_ms)))[0])

    def fills(self, first_id: int, limit: int, now: int) -> Trades:
        """See Market."""
        first, stop = max(first_id, 1), min(first_id + limit, self.fill_at(now + 1))
        if first >= stop:
            return no_trades()
        ends = [self._tape.order_of(self._downtimes.inner_fill(fill)) for fill in (first, stop - 1)]
        from_order, to_order = self._downtimes.order_ids(np.array(ends, dtype=np.int64)).tolist()
        parts = []
        for span in self._downtimes.inner_orders(from_order, to_order + 1):
            fills = self._tape.fills(self._tape.orders(*span))
            ids = self._downtimes.fill_ids(fills.number)
            parts.append(
                Trades(
                    id=ids,
                    price=fills.price,
                    lots=fills.lots,
                    time=fills.time,
                    bought=fills.bought,
                    first=ids,
                    last=ids,
                )
            )
        joined = concat_trades(parts)
        skip = first - int(joined.id[0])
        return joined.slice(skip, skip + stop - first)

    def fill_at(self, time_ms: int) -> int:
        """See Market."""
        return int(self._downtimes.fill_ids(self._tape.fills_before(_one(self._tape.order_at(time_ms))))[0])

    def next_trade_time(self, now: int) -> int | None:
        """See Market."""
        found, horizon = self.order_at(now + 1), now + DAY
        ahead = self.orders(found, 1, horizon)
        return int(ahead.time[0]) if len(ahead) else None

    def drive_to(self, now: int) -> int | None:
        """See Market."""
        return None

    # Downtimes

    def add_hole(self, start_ms: int, end_ms: int) -> None:
        """See Market. Raises ValueError if the bounds are not whole minutes or are out of order."""
        start, stop = start_ms // MINUTE, end_ms // MINUTE
        if start_ms % MINUTE or end_ms % MINUTE or start >= stop:
            raise ValueError("the bounds of a hole must be whole minutes, start before end")
        start = max(start, self._tape.first_minute)
        if start < stop:
            self._downtimes = Downtimes(tuple(map(self._downtime, self._downtimes.spans_with(start, stop))))
            self._days.clear()

    def clear_holes(self) -> None:
        """See Market."""
        self._downtimes = Downtimes()
        self._days.clear()

    def _downtime(self, span: tuple[int, int]) -> Downtime:
        orders = [self._tape.first_order(minute) for minute in span]
        return Downtime(*span, *orders, *self._tape.fills_before(np.array(orders, dtype=np.int64)).tolist())


def _one(value: int) -> Ints:
    return np.array([value], dtype=np.int64)


def _span(open_ms: int, length_ms: int) -> tuple[Ints, Ints]:
    return _one(open_ms), _one(open_ms + length_ms - 1)
