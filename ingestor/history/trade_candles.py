"""Builds candles from trades, for exchanges that keep only their newest candles but all their trades."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bars import Bars, exact, from_trades, merge
from candlewright.wire.errors import BadReply, DepthExceeded
from candlewright.wire.grid import SECOND
from ingestor.candles import Candles
from ingestor.exchange.client import VenueClient
from ingestor.history.fetch import Older
from ingestor.progress import Progress
from ingestor.text import utc
from ingestor.trade import ORDER, PRICE, SIZE, TIME
from ingestor.venues.description import Market, Query, TradeCursor

#: Calls that one job may spend on trades, at about one per second.
MAX_TRADE_PAGES = 120
#: How far (ns) before the range to search for the trade that proves that nothing is missing at its start.
LOOKBACK_SECONDS = (60, 3_600, 86_400)


@dataclass(frozen=True, slots=True, eq=False)
class _Trades:
    """Columns of equal length, ascending by id; `cursor` requests the trades that follow."""

    trade_id: NDArray[np.int64]
    time: NDArray[np.int64]
    price: NDArray[np.float64]
    size: NDArray[np.float64]
    cursor: int

    def __len__(self) -> int:
        return len(self.trade_id)

    def take(self, chosen: NDArray[Any]) -> "_Trades":
        return _Trades(self.trade_id[chosen], self.time[chosen], self.price[chosen], self.size[chosen], self.cursor)


def older_candles_of(client: VenueClient) -> Older | None:
    """The builder for `client`'s exchange; None if it needs none."""
    cursor = client.description.candles.older
    return TradeCandles(client, cursor).candles if cursor is not None else None


class TradeCandles:
    """Candles from trades that are read by a nanosecond cursor, and whose ids count up by one per market."""

    def __init__(self, client: VenueClient, cursor: TradeCursor) -> None:
        self._client = client
        self._cursor = cursor

    async def candles(self, query: Query, progress: Progress) -> AsyncIterator[Candles]:
        """Candles of [query.start, query.end), each from all its trades.

        Raises DepthExceeded if the trades cannot be reached within MAX_TRADE_PAGES calls, or if nothing proves that
        they are complete.
        """
        page = await self._first_page(query, progress)
        previous_id = int(page.trade_id[0]) - 1
        unfinished: Bars | None = None
        for number in range(MAX_TRADE_PAGES):
            if number == 1:
                self._check_reach(page, query)
            if number:
                # The cursor is exclusive, and trades of one nanosecond may be split between two pages.
                page = await self._page(query, page.cursor - 1, progress, previous_id)
                page = page.take(page.trade_id > previous_id)
            if not len(page):
                break
            self._check_contiguous(page, previous_id, query)
            previous_id = int(page.trade_id[-1])
            inside = page.take((page.time >= query.start) & (page.time < query.end))
            if len(inside):
                groups = np.zeros(len(inside), np.int64)
                bars = from_trades(
                    groups,
                    inside.time,
                    inside.trade_id,
                    price=inside.price,
                    size=inside.size,
                    period_seconds=query.period_seconds,
                )
                bars = bars if unfinished is None else merge([unfinished, bars])
                # More trades of the newest candle may follow on the next page.
                is_newest = bars.open_time == bars.open_time[-1]
                unfinished = bars.take(is_newest)
                if len(bars) > 1:
                    yield _candles(bars.take(~is_newest))
            if page.time[-1] >= query.end:
                break
        else:
            raise DepthExceeded(f"{self._depth(query)}, and the trades since then are over {MAX_TRADE_PAGES} calls")
        if unfinished is not None:
            yield _candles(unfinished)

    async def _first_page(self, query: Query, progress: Progress) -> _Trades:
        """A page that begins before the range, or with the market's very first trade."""
        for seconds in LOOKBACK_SECONDS:
            page = await self._page(query, query.start - seconds * SECOND, progress)
            if len(page) and (page.time[0] < query.start or page.trade_id[0] == 1):
                return page
        raise DepthExceeded(f"{self._depth(query)}, and its trades do not prove what was before")

    async def _page(self, query: Query, since_ns: int, progress: Progress, known_id: int | None = None) -> _Trades:
        """Trades after `since_ns`. `known_id` is a trade that must be among them; an answer without it proves nothing
        and raises.
        """

        async def ask() -> _Trades:
            reply = await self._client.ask(self._cursor.ask(query.market, since_ns), progress)
            page = self._read(reply, query.market)
            if known_id is not None and known_id not in page.trade_id:
                raise BadReply(f"{self._client.venue} no longer shows its trade {known_id}")
            return page

        return await self._client.call(ask, progress)

    def _read(self, reply: Any, market: Market) -> _Trades:
        rows, cursor = self._cursor.read(reply, market)
        try:
            trades = [self._cursor.parse(row, 0) for row in rows]
            trade_id = np.array([trade[ORDER] for trade in trades], np.int64)
            time = np.array([trade[TIME] for trade in trades], np.int64)
            price = np.array([trade[PRICE] for trade in trades], np.float64)
            size = np.array([trade[SIZE] for trade in trades], np.float64)
        except (ValueError, TypeError, KeyError, IndexError, ArithmeticError) as error:
            raise BadReply(f"rows that are not trades: {error}") from error
        if not (np.isfinite(price).all() and np.isfinite(size).all()) or (price < 0).any() or (size < 0).any():
            raise BadReply("a trade without a price or size")
        return _Trades(trade_id, time, price, size, cursor).take(np.argsort(trade_id, kind="stable"))

    def _check_contiguous(self, page: _Trades, previous_id: int, query: Query) -> None:
        if page.trade_id[0] != previous_id + 1 or (np.diff(page.trade_id) != 1).any():
            raise DepthExceeded(f"{self._depth(query)}, and its trades after id {previous_id} have gaps")

    def _check_reach(self, page: _Trades, query: Query) -> None:
        """Raise DepthExceeded early if the density of the first page shows that the range needs too many calls."""
        span = max(int(page.time[-1] - page.time[0]), 1)
        if (query.end - int(page.time[-1])) / span > MAX_TRADE_PAGES:
            raise DepthExceeded(f"{self._depth(query)}, and the trades since then are over {MAX_TRADE_PAGES} calls")

    def _depth(self, query: Query) -> str:
        depth = self._client.description.candles.depth
        return (
            f"{self._client.venue} keeps its newest {depth} candles of {query.timeframe} only, "
            f"from {utc(query.end)} on; asked was {utc(query.start)}"
        )


def _candles(bars: Bars) -> Candles:
    return Candles(
        open_time=bars.open_time,
        open=bars.open,
        high=bars.high,
        low=bars.low,
        close=bars.close,
        volume=exact.to_doubles(bars.volume),
        quote_volume=exact.to_doubles(bars.quote_volume),
        trade_count=bars.trade_count.astype(np.uint64),
    )
