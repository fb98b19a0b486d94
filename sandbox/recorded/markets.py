"""A pair with a recorded market: given candles, or given trades from which everything else is derived."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import orjson

from sandbox.markets import wire
from sandbox.markets.candles import Candles, merge
from sandbox.markets.instruments import QUOTES
from sandbox.markets.intervals import DAY, INTERVALS, Interval
from sandbox.markets.market import Trades, no_trades
from sandbox.markets.noise import Ints

WireRow = Sequence[Any]
_DECIMALS = 8
_DRIVE = 64  # the number of trades by which a driven clock advances


class RecordedCandles:
    """Candles of one pair, served as given; missing intervals are merged from the given ones.

    A pair with only candles has no trades.
    """

    status = "TRADING"

    def __init__(self, pair: str) -> None:
        self.base, self.quote = split_pair(pair)
        self.symbol = self.base + self.quote
        self.price_decimals = 0
        self.lot_decimals = 0
        self._rows: dict[str, list[list[Any]]] = {}
        self._served: dict[str, tuple[list[int], list[list[Any]]]] = {}  # open times of the rows
        self._holes: list[tuple[int, int]] = []

    def add(self, interval: str, rows: Iterable[WireRow]) -> None:
        """Add candles: (open time in ms, o, h, l, c, v) or the twelve columns of the exchange, as numbers or text, in
        any order. Columns missing from the six are served as zero. Raises ValueError for an unknown interval, a row of
        another width, and an open time that does not fit the interval.
        """
        if interval not in INTERVALS:
            raise ValueError(f"{interval!r} is not an interval; known: {', '.join(INTERVALS)}")
        kept = {row[0]: row for row in self._rows.get(interval, [])}
        kept |= {int(row[0]): _wire_row(row, INTERVALS[interval]) for row in rows}
        self._rows[interval] = [kept[opened] for opened in sorted(kept)]
        self._served.clear()
        for row in kept.values():
            self.price_decimals = max(self.price_decimals, *(_decimals(text) for text in row[1:5]))
            self.lot_decimals = max(self.lot_decimals, _decimals(row[5]))

    def kline_page(self, interval: Interval, start: int | None, end: int | None, *, limit: int, now: int) -> bytes:
        """See market.Market."""
        rows = self._visible(interval, 0 if start is None else start, now if end is None else min(end, now))
        return orjson.dumps(rows[-limit:] if start is None else rows[:limit])

    def candles(self, interval: Interval, first_open: int, last_open: int, *, now: int) -> Candles:
        """See market.Market."""
        rows = self._visible(interval, first_open, min(last_open, now))
        prices, lots = self.price_decimals, self.lot_decimals

        def scaled(place: int, decimals: int) -> Ints:
            return _ints([_scaled(row[place], decimals) for row in rows])

        return Candles(
            open_time=_ints([row[0] for row in rows]),
            close_time=_ints([row[6] for row in rows]),
            open=scaled(1, prices),
            high=scaled(2, prices),
            low=scaled(3, prices),
            close=scaled(4, prices),
            volume=scaled(5, lots),
            quote=scaled(7, prices + lots),
            count=_ints([row[8] for row in rows]),
            taker_volume=scaled(9, lots),
            taker_quote=scaled(10, prices + lots),
        )

    def orders(self, first_id: int, limit: int, now: int) -> Trades:
        """See market.Market."""
        return no_trades()

    def order_at(self, time_ms: int) -> int:
        """See market.Market."""
        return 1

    def fills(self, first_id: int, limit: int, now: int) -> Trades:
        """See market.Market."""
        return no_trades()

    def fill_at(self, time_ms: int) -> int:
        """See market.Market."""
        return 1

    def next_trade_time(self, now: int) -> int | None:
        """See market.Market."""
        return None

    def drive_to(self, now: int) -> int | None:
        """See market.Market."""
        return None

    def add_hole(self, start_ms: int, end_ms: int) -> None:
        """See market.Market."""
        self._holes.append((start_ms, end_ms))
        self._served.clear()

    def clear_holes(self) -> None:
        """See market.Market."""
        self._holes.clear()
        self._served.clear()

    def _visible(self, interval: Interval, first: int, last: int) -> list[list[Any]]:
        """Rows that open in [first, last]."""
        opens, rows = self._of(interval)
        return rows[bisect_left(opens, first) : bisect_right(opens, last)]

    def _of(self, interval: Interval) -> tuple[list[int], list[list[Any]]]:
        if interval.name not in self._served:
            given = self._rows.get(interval.name)
            rows = self._merged(interval) if given is None else given
            rows = [row for row in rows if not any(start <= row[0] < end for start, end in self._holes)]
            self._served[interval.name] = [row[0] for row in rows], rows
        return self._served[interval.name]

    def _merged(self, interval: Interval) -> list[list[Any]]:
        """Rows of a missing interval, merged from the longest given one that divides it."""
        sources = [INTERVALS[name] for name in self._rows if _divides(INTERVALS[name], interval)]
        if not sources:
            return []
        _, fine = self._of(max(sources, key=lambda source: source.step_ms))
        groups: dict[int, list[list[Any]]] = {}
        for row in fine:
            groups.setdefault(interval.floor(row[0]), []).append(row)
        return [_merge_rows(interval, opened, rows) for opened, rows in groups.items()]


class RecordedTrades:
    """Raw trades of one pair; aggregate trades and candles are derived from them (quiet candles are flat)."""

    status = "TRADING"

    def __init__(self, pair: str, trades: Iterable[tuple[int, str, str, int, bool]]) -> None:
        """`trades`: (id, price text, size text, time in ms, taker bought), in any order; repeated ids are allowed.

        Raises ValueError if there are none, if ids are not contiguous, or if the amounts do not fit 64 bits.
        """
        self.base, self.quote = split_pair(pair)
        self.symbol = self.base + self.quote
        rows = sorted({row[0]: row for row in trades}.values())
        if not rows:
            raise ValueError(f"{pair}: no trades")
        if rows[-1][0] - rows[0][0] + 1 != len(rows):
            raise ValueError(f"{pair}: the trade ids are not contiguous")
        self.price_decimals = max(_decimals(row[1]) for row in rows)
        self.lot_decimals = max(_decimals(row[2]) for row in rows)
        prices = [_scaled(row[1], self.price_decimals) for row in rows]
        lots = [_scaled(row[2], self.lot_decimals) for row in rows]
        if max(prices) * sum(lots) >= 1 << 63:
            raise ValueError(f"{pair}: prices and sizes have too many digits to sum exactly")
        ids = np.array([row[0] for row in rows], dtype=np.int64)
        times = np.array([row[3] for row in rows], dtype=np.int64)
        bought = np.array([row[4] for row in rows], dtype=np.bool_)
        self._fills = Trades(
            id=ids, price=_ints(prices), lots=_ints(lots), time=times, bought=bought, first=ids, last=ids
        )
        self._visible_times = np.maximum.accumulate(times)  # a trade is visible once all earlier ones are
        self._orders = _aggregate(self._fills)
        self._order_times = np.maximum.accumulate(self._orders.time)
        self._hidden: list[tuple[int, int]] = []

    @property
    def first_time(self) -> int:
        """The time of the first trade, ms."""
        return int(self._fills.time[0])

    @property
    def last_time(self) -> int:
        """The time of the last trade, ms."""
        return int(self._visible_times[-1])

    def kline_page(self, interval: Interval, start: int | None, end: int | None, *, limit: int, now: int) -> bytes:
        """See market.Market."""
        last = interval.floor(min(now, self.last_time, now if end is None else end))
        listed = interval.floor(self.first_time)
        if start is None:
            first = max(listed, interval.shift(last, 1 - limit))
        else:
            first = max(listed, interval.ceil(start))
            last = min(last, interval.shift(first, limit - 1))
        found = self.candles(interval, first, last, now=now)
        if not len(found):
            return b"[]"
        return wire.page(wire.encode_candles(found, self.price_decimals, self.lot_decimals)[0])

    def candles(self, interval: Interval, first_open: int, last_open: int, *, now: int) -> Candles:
        """See market.Market."""
        first_open = max(first_open, interval.floor(self.first_time))
        last_open = min(last_open, interval.floor(min(now, self.last_time)))
        count = interval.count(first_open, last_open)
        opens = interval.opens(first_open, count)
        closes = interval.opens(interval.shift(first_open, 1), count) - 1
        shown = self._fills.slice(0, int(np.searchsorted(self._visible_times, now, side="right")))
        kept = np.ones(len(shown), dtype=np.bool_)
        for start, end in self._hidden:
            kept &= (shown.time < start) | (shown.time >= end)
        return _flat_where_quiet(merge(_as_candles(shown).where(kept), opens, closes), opens, closes, self._hidden)

    def orders(self, first_id: int, limit: int, now: int) -> Trades:
        """See market.Market."""
        return self._page(self._orders, self._order_times, first_id, limit, now)

    def order_at(self, time_ms: int) -> int:
        """See market.Market."""
        return int(self._orders.id[0]) + int(np.searchsorted(self._order_times, time_ms))

    def fills(self, first_id: int, limit: int, now: int) -> Trades:
        """See market.Market."""
        return self._page(self._fills, self._visible_times, first_id, limit, now)

    def fill_at(self, time_ms: int) -> int:
        """See market.Market."""
        return int(self._fills.id[0]) + int(np.searchsorted(self._visible_times, time_ms))

    def next_trade_time(self, now: int) -> int | None:
        """See market.Market."""
        place = int(np.searchsorted(self._visible_times, now, side="right"))
        return int(self._visible_times[place]) if place < len(self._visible_times) else None

    def drive_to(self, now: int) -> int | None:
        """See market.Market."""
        place = int(np.searchsorted(self._visible_times, now, side="right"))
        ahead = self._visible_times[place : place + _DRIVE]
        return int(ahead[-1]) if len(ahead) else None

    def add_hole(self, start_ms: int, end_ms: int) -> None:
        """Hides candles; the recorded trades remain unchanged."""
        self._hidden.append((start_ms, end_ms))

    def clear_holes(self) -> None:
        """See market.Market."""
        self._hidden.clear()

    @staticmethod
    def _page(trades: Trades, times: Ints, first_id: int, limit: int, now: int) -> Trades:
        first = max(0, first_id - int(trades.id[0]))
        visible = int(np.searchsorted(times, now, side="right"))
        return trades.slice(first, max(first, min(first + limit, visible)))


def split_pair(pair: str) -> tuple[str, str]:
    """(base, quote) of BASE/QUOTE or of an exchange symbol such as BTCUSDT. Raises ValueError."""
    base, slash, quote = pair.upper().partition("/")
    if slash and base and quote:
        return base, quote
    for quote in QUOTES:
        if base.endswith(quote) and len(base) > len(quote) and not slash:
            return base[: -len(quote)], quote
    raise ValueError(f"{pair!r} is not a pair of the form BASE/QUOTE")


def _ints(values: list[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _text(value: Any) -> str:
    """A number or text as text with at least eight decimals; text that already has them is unchanged."""
    text = value if isinstance(value, str) else str(value)
    whole, _, part = text.partition(".")
    if whole.isdecimal() and (part.isdecimal() or not part):
        return f"{whole}.{part:0<{_DECIMALS}}"
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is not a number") from error
    exponent = number.as_tuple().exponent
    if not isinstance(exponent, int):
        raise ValueError(f"{value!r} is not a number")
    return f"{number:.{max(_DECIMALS, -exponent)}f}"


def _decimals(text: str) -> int:
    return len(text.rpartition(".")[2].rstrip("0")) if "." in text else 0


def _scaled(text: str, decimals: int) -> int:
    return int(Decimal(text).scaleb(decimals))


def _wire_row(row: WireRow, interval: Interval) -> list[Any]:
    opened = int(row[0])
    if interval.floor(opened) != opened:
        raise ValueError(f"{opened} is not an open time of the interval {interval.name}")
    closed = interval.shift(opened, 1) - 1
    if len(row) == 6:
        zero = _text(0)
        return [opened, *map(_text, row[1:6]), closed, zero, 0, zero, zero, "0"]
    if len(row) != 12:
        raise ValueError(f"a candle has 6 or 12 columns, not {len(row)}")
    texts = [_text(value) for value in row]
    return [opened, *texts[1:6], closed, texts[7], int(row[8]), texts[9], texts[10], "0"]


def _divides(fine: Interval, coarse: Interval) -> bool:
    if not fine.step_ms:
        return False
    if not coarse.step_ms:
        return DAY % fine.step_ms == 0
    return coarse.step_ms % fine.step_ms == 0 and coarse.origin_ms % fine.step_ms == 0


def _merge_rows(interval: Interval, opened: int, rows: list[list[Any]]) -> list[Any]:
    def total(place: int) -> str:
        return _text(f"{sum((Decimal(row[place]) for row in rows), Decimal(0)):f}")

    return [
        opened,
        rows[0][1],
        max((row[2] for row in rows), key=Decimal),
        min((row[3] for row in rows), key=Decimal),
        rows[-1][4],
        total(5),
        interval.shift(opened, 1) - 1,
        total(7),
        sum(row[8] for row in rows),
        total(9),
        total(10),
        "0",
    ]


def _aggregate(fills: Trades) -> Trades:
    """Combine neighbouring trades of one price, side and millisecond into one taker order; orders have their own id
    sequence.
    """
    changed = (np.diff(fills.price) != 0) | (np.diff(fills.time) != 0) | (fills.bought[1:] != fills.bought[:-1])
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.flatnonzero(changed) + 1))
    stops = np.append(starts[1:], len(fills))
    ids = int(fills.id[0]) * 2 // 3 + np.arange(len(starts), dtype=np.int64)
    lots = np.add.reduceat(fills.lots, starts)
    return Trades(
        id=ids,
        price=fills.price[starts],
        lots=lots,
        time=fills.time[starts],
        bought=fills.bought[starts],
        first=fills.id[starts],
        last=fills.id[stops - 1],
    )


def _as_candles(fills: Trades) -> Candles:
    amounts = fills.price * fills.lots
    price = fills.price
    count = np.ones(len(fills), dtype=np.int64)
    times = np.maximum.accumulate(fills.time) if len(fills) else fills.time
    return Candles(
        open_time=times,
        close_time=times,
        open=price,
        high=price,
        low=price,
        close=price,
        volume=fills.lots,
        quote=amounts,
        count=count,
        taker_volume=fills.lots * fills.bought,
        taker_quote=amounts * fills.bought,
    )


def _flat_where_quiet(candles: Candles, opens: Ints, closes: Ints, hidden: list[tuple[int, int]]) -> Candles:
    """Fill candles without a trade with the previous close; hidden ones stay absent."""
    if not len(candles):
        return candles
    kept = opens >= candles.open_time[0]
    for start, end in hidden:
        kept &= (opens < start) | (opens >= end)
    opens, closes = opens[kept], closes[kept]
    source = np.searchsorted(candles.open_time, opens, side="right") - 1
    quiet = candles.open_time[source] != opens
    close = candles.close[source]

    def prices(column: Ints) -> Ints:
        return np.where(quiet, close, column[source])

    def amounts(column: Ints) -> Ints:
        return np.where(quiet, 0, column[source])

    return Candles(
        open_time=opens,
        close_time=closes,
        open=prices(candles.open),
        high=prices(candles.high),
        low=prices(candles.low),
        close=close,
        volume=amounts(candles.volume),
        quote=amounts(candles.quote),
        count=amounts(candles.count),
        taker_volume=amounts(candles.taker_volume),
        taker_quote=amounts(candles.taker_quote),
    )
