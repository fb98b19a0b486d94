"""Statistics of the last 24 hours and the top of an order book, from candles and trades."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sandbox.markets.candles import merge
from sandbox.markets.intervals import DAY, INTERVALS, MINUTE
from sandbox.markets.market import Market
from sandbox.markets.noise import derive_key, field, words
from sandbox.markets.wire import amount


@dataclass(kw_only=True, frozen=True, slots=True)
class DayStatistics:
    """The rolling day up to a time, in whole minutes; prices in ticks, sizes in lots."""

    open_time: int
    close_time: int
    open: int
    high: int
    low: int
    last: int
    last_lots: int
    volume: int
    quote: int
    count: int
    first_id: int
    last_id: int


@dataclass(frozen=True, slots=True)
class BookTop:
    """Best bid and ask in ticks and lots; `update_id` grows with the trades."""

    update_id: int
    bid: int
    bid_lots: int
    ask: int
    ask_lots: int


def day_statistics(market: Market, now: int) -> DayStatistics | None:
    """Statistics of the 24 hours before now; None if there was never a trade before now."""
    opened = now - DAY
    first = INTERVALS["1m"].ceil(opened)
    last_id = market.fill_at(now + 1) - 1
    if last_id < 1:
        return None
    newest = market.fills(last_id, 1, now)
    price, lots = int(newest.price[0]), int(newest.lots[0])
    minutes = market.candles(INTERVALS["1m"], first, now // MINUTE * MINUTE, now=now)
    if not len(minutes):
        return DayStatistics(
            open_time=first,
            close_time=now,
            open=price,
            high=price,
            low=price,
            last=price,
            last_lots=lots,
            volume=0,
            quote=0,
            count=0,
            first_id=-1,
            last_id=-1,
        )
    bounds = np.array([first], dtype=np.int64), np.array([now], dtype=np.int64)
    day = merge(minutes, *bounds)
    count = int(day.count[0])
    return DayStatistics(
        open_time=first,
        close_time=now,
        open=int(day.open[0]),
        high=int(day.high[0]),
        low=int(day.low[0]),
        last=price,
        last_lots=lots,
        volume=int(day.volume[0]),
        quote=int(day.quote[0]),
        count=count,
        first_id=market.fill_at(first) if count else -1,
        last_id=last_id if count else -1,
    )


def book_top(market: Market, now: int) -> BookTop | None:
    """The best prices around the last trade: a taker that bought lifted the ask, one that sold hit the bid."""
    last_id = market.fill_at(now + 1) - 1
    if last_id < 1:
        return None
    newest = market.fills(last_id, 1, now)
    price, bought = int(newest.price[0]), bool(newest.bought[0])
    bid = max(1, price - 1 if bought else price)
    sizes = _level_sizes(market.symbol, last_id, 2, int(newest.lots[0]))
    return BookTop(last_id, bid, sizes[0], bid + 1, sizes[1])


def book(market: Market, now: int, levels: int) -> tuple[BookTop, list[list[str]], list[list[str]]] | None:
    """An order book: bids and asks as [price, size] texts, best first."""
    top = book_top(market, now)
    if top is None:
        return None
    sizes = _level_sizes(market.symbol, top.update_id, 2 * levels, top.bid_lots)
    sides = []
    for side in (0, 1):
        prices = [top.bid - i if side == 0 else top.ask + i for i in range(levels)]
        lots = [top.bid_lots if side == 0 else top.ask_lots, *sizes[2 + side :: 2]]
        pairs = zip(prices, lots, strict=False)
        sides.append(
            [[amount(p, market.price_decimals), amount(q, market.lot_decimals)] for p, q in pairs if p > 0][:levels]
        )
    return top, sides[0], sides[1]


def _level_sizes(symbol: str, update_id: int, count: int, typical: int) -> list[int]:
    draws = field(words(derive_key(0, symbol, "book"), (update_id << 13) + np.arange(count, dtype=np.int64)), 0)
    return [int(size) for size in 1 + (typical + 1) * draws // 8192]
