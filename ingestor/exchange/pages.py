"""One page of candles from each exchange, by its raw endpoint: the reply's rows become columns without a detour.

A reply that is no well-formed page raises BadReply: only a well-formed empty page is an empty page.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from candlewright.wire.errors import BadReply
from candlewright.wire.grid import SECOND, first_open_from
from ingestor.candles import EMPTY, Candles, RowLayout
from ingestor.exchange.client import Market, VenueClient
from ingestor.progress import Progress
from ingestor.venues.limits import Call

MILLISECOND = 1_000_000


class Fill(Enum):
    """Which end of the window a page that cannot hold all of it begins at."""

    OLDEST_FIRST = "oldest first"
    NEWEST_FIRST = "newest first"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Query:
    """Candles with start <= open < end (ns, on the grid); `now` is a time that the exchange's clock had reached."""

    market: Market
    timeframe: str
    period_seconds: int
    start: int
    end: int
    now: int

    @property
    def period(self) -> int:
        return self.period_seconds * SECOND


@dataclass(frozen=True, slots=True, eq=False)
class Page:
    """What came back, also outside the window; `unfinished` is the open time of a candle that the exchange itself
    says has not closed (it is not among `candles`).
    """

    candles: Candles
    unfinished: int | None = None


class PageSource(Protocol):
    """`is_wide`: a window may reach past one page; `depth` > 0: only so many of the newest candles are kept."""

    max_candles: int
    fill: Fill
    is_wide: bool
    depth: int

    def window(self, query: Query) -> int:
        """The end of the window to ask for, at most query.end."""
        ...

    async def page(self, query: Query, progress: Progress) -> Page: ...


class _Source:
    max_candles = 1_000
    fill = Fill.NEWEST_FIRST
    is_wide = False
    depth = 0

    def __init__(self, client: VenueClient) -> None:
        self._client = client
        self._exchange = client.exchange

    def window(self, query: Query) -> int:
        if self.is_wide:
            return query.end
        return min(query.end, query.start + self.max_candles * query.period)

    async def _ask(self, kind: Call, method: str, params: dict[str, Any], progress: Progress) -> Any:
        return await self._client.attempt(kind, lambda: getattr(self._exchange, method)(params), progress)

    def _native(self, query: Query) -> Any:
        return self._exchange.timeframes[query.timeframe]


def rows_of(reply: Any, *path: str) -> Sequence[Any]:
    """The list at `path` of a decoded reply; raises BadReply where the reply is something else."""
    for key in path:
        if not isinstance(reply, dict) or key not in reply:
            raise BadReply(f"a reply without {key!r}: {str(reply)[:120]!r}")
        reply = reply[key]
    if not isinstance(reply, list):
        raise BadReply(f"a reply that is no list of candles: {str(reply)[:120]!r}")
    return reply


class BinancePages(_Source):
    fill = Fill.OLDEST_FIRST
    is_wide = True
    _LAYOUT = RowLayout(0, 1, 2, 3, 4, 5, quote_volume=7, trade_count=8)

    async def page(self, query: Query, progress: Progress) -> Page:
        params = {
            "symbol": query.market.market_id,
            "interval": self._native(query),
            "startTime": query.start // MILLISECOND,
            "endTime": query.end // MILLISECOND - 1,
            "limit": self.max_candles,
        }
        return Page(self._LAYOUT.read(rows_of(await self._ask(Call.CANDLES, "publicGetKlines", params, progress))))


class KrakenPages(_Source):
    """Whatever is asked, the newest 720 candles at most; the last row is the unfinished one."""

    max_candles = 720
    fill = Fill.OLDEST_FIRST
    is_wide = True
    depth = 720
    _LAYOUT = RowLayout(0, 1, 2, 3, 4, 6, trade_count=7, time_unit_ns=SECOND)

    async def page(self, query: Query, progress: Progress) -> Page:
        params = {
            "pair": query.market.market_id,
            "interval": self._native(query),
            # `since` is exclusive.
            "since": str((query.start - query.period) // SECOND),
        }
        reply = await self._ask(Call.CANDLES, "publicGetOHLC", params, progress)
        result = reply.get("result") if isinstance(reply, dict) else None
        if not isinstance(result, dict):
            raise BadReply(f"a reply without 'result': {str(reply)[:120]!r}")
        candles = self._LAYOUT.read(rows_of(result, _pair_key(result, query.market.market_id)))
        last = result.get("last")
        if not str(last).isdigit():
            return Page(candles)
        last_finished = int(str(last)) * SECOND
        later = candles.between(last_finished + 1, 1 << 62)
        return Page(candles.between(0, last_finished + 1), later.first_open if len(later) else None)


def _pair_key(result: dict[str, Any], market_id: str) -> str:
    if market_id in result:
        return market_id
    others = [key for key in result if key != "last"]
    if len(others) != 1:
        raise BadReply(f"a reply without candles of {market_id}")
    return others[0]


class OkxPages(_Source):
    max_candles = 300
    #: `candles` holds the newest 1440 bars, `history-candles` the older ones; stay clear of the border.
    _RECENT_BARS = 1_400
    _LAYOUT = RowLayout(0, 1, 2, 3, 4, 5, quote_volume=7)
    _SHORT_LAYOUT = RowLayout(0, 1, 2, 3, 4, 5)

    def _border(self, query: Query) -> int:
        return query.now - self._RECENT_BARS * query.period

    def window(self, query: Query) -> int:
        end = super().window(query)
        border = first_open_from(self._border(query), query.period_seconds)
        return border if query.start < border < end else end

    async def page(self, query: Query, progress: Progress) -> Page:
        bar = self._native(query)
        params = {
            "instId": query.market.market_id,
            "bar": f"{bar}utc" if query.period_seconds >= 21_600 else bar,
            # Both bounds are exclusive.
            "before": str(query.start // MILLISECOND - 1),
            "after": str(query.end // MILLISECOND),
            "limit": str(self.max_candles),
        }
        if query.start >= self._border(query):
            reply = await self._ask(Call.CANDLES, "publicGetMarketCandles", params, progress)
        else:
            reply = await self._ask(Call.HISTORY_CANDLES, "publicGetMarketHistoryCandles", params, progress)
        rows = rows_of(reply, "data")
        open_ones = [row for row in rows if isinstance(row, list) and len(row) > 8 and str(row[8]) == "0"]
        closed = [row for row in rows if row not in open_ones] if open_ones else rows
        has_quote = all(isinstance(row, list) and len(row) > 7 for row in closed)
        candles = (self._LAYOUT if has_quote else self._SHORT_LAYOUT).read(closed)
        unfinished = self._SHORT_LAYOUT.read(open_ones) if open_ones else EMPTY
        return Page(candles, unfinished.first_open if len(unfinished) else None)


class BybitPages(_Source):
    _LAYOUT = RowLayout(0, 1, 2, 3, 4, 5, quote_volume=6)

    async def page(self, query: Query, progress: Progress) -> Page:
        params = {
            "category": "spot",
            "symbol": query.market.market_id,
            "interval": self._native(query),
            "start": query.start // MILLISECOND,
            "end": query.end // MILLISECOND - 1,
            "limit": self.max_candles,
        }
        reply = await self._ask(Call.CANDLES, "publicGetV5MarketKline", params, progress)
        return Page(self._LAYOUT.read(rows_of(reply, "result", "list")))


class CoinbasePages(_Source):
    max_candles = 300
    _LAYOUT = RowLayout("start", "open", "high", "low", "close", "volume", time_unit_ns=SECOND)

    async def page(self, query: Query, progress: Progress) -> Page:
        params = {
            "product_id": query.market.market_id,
            "granularity": self._native(query),
            "start": str(query.start // SECOND),
            # Inclusive.
            "end": str((query.end - query.period) // SECOND),
        }
        reply = await self._ask(Call.CANDLES, "v3PublicGetBrokerageMarketProductsProductIdCandles", params, progress)
        return Page(self._LAYOUT.read(rows_of(reply, "candles")))


class CoinbaseExchangePages(_Source):
    max_candles = 300
    _LAYOUT = RowLayout(0, 3, 2, 1, 4, 5, time_unit_ns=SECOND)

    async def page(self, query: Query, progress: Progress) -> Page:
        params = {
            "id": query.market.market_id,
            "granularity": self._native(query),
            "start": self._exchange.iso8601(query.start // MILLISECOND),
            "end": self._exchange.iso8601((query.end - query.period) // MILLISECOND),
        }
        reply = await self._ask(Call.CANDLES, "publicGetProductsIdCandles", params, progress)
        return Page(self._LAYOUT.read(rows_of(reply)))


class UnifiedPages(_Source):
    """Any other exchange, through ccxt's unified call, of which neither order nor depth is known.

    That call turns garbage into an empty list, so that the decoded reply must be looked at as well; it is an
    attribute of the instance, hence one call at a time.
    """

    max_candles = 100
    fill = Fill.UNKNOWN
    _LAYOUT = RowLayout(0, 1, 2, 3, 4, 5)

    def __init__(self, client: VenueClient) -> None:
        super().__init__(client)
        features = self._exchange.features or {}
        spot = features.get("spot") or {}
        limit = (spot.get("fetchOHLCV") or {}).get("limit")
        if isinstance(limit, int) and limit > 0:
            self.max_candles = min(limit, 1_000)

    async def page(self, query: Query, progress: Progress) -> Page:
        return Page(self._LAYOUT.read(await self._client.attempt(Call.CANDLES, lambda: self._fetch(query), progress)))

    async def _fetch(self, query: Query) -> Sequence[Any]:
        async with self._client.one_at_a_time:
            self._exchange.last_json_response = None
            rows = await self._exchange.fetch_ohlcv(
                query.market.symbol,
                query.timeframe,
                query.start // MILLISECOND,
                self.max_candles,
                {"until": query.end // MILLISECOND - 1},
            )
            if not rows and not isinstance(self._exchange.last_json_response, (list, dict)):
                raise BadReply("an empty list from a reply that is no JSON")
        return rows_of(rows)


_SOURCES: dict[str, type[_Source]] = {
    "binance": BinancePages,
    "kraken": KrakenPages,
    "okx": OkxPages,
    "bybit": BybitPages,
    "coinbase": CoinbasePages,
    "coinbaseexchange": CoinbaseExchangePages,
}


def source_of(client: VenueClient) -> PageSource:
    return _SOURCES.get(client.ccxt_id, UnifiedPages)(client)  # type: ignore[return-value]
