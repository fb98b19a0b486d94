"""Fetches one page of candles, from an exchange's raw endpoint or through ccxt's unified call.

A reply that is not a well-formed page raises BadReply, so an error never looks like an empty page.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from candlewright.wire.errors import BadReply
from candlewright.wire.grid import first_open_from
from ingestor.candles import RowLayout
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.venues.description import MILLISECOND, Fill, Page, Query
from ingestor.venues.limits import Call
from ingestor.venues.reading import rows_of


class PageSource(Protocol):
    """`is_wide`: a window may be longer than one page; `depth` > 0: the exchange keeps only this many of its newest
    candles.
    """

    max_candles: int
    fill: Fill
    is_wide: bool
    depth: int

    def window(self, query: Query) -> int:
        """The end (ns) of the window to request, at most query.end."""
        ...

    async def page(self, query: Query, progress: Progress) -> Page: ...


class _Source:
    def __init__(self, client: VenueClient) -> None:
        described = client.description.candles
        self.max_candles = described.max_candles
        self.fill = described.fill
        self.is_wide = described.is_wide
        self.depth = described.depth
        self._recent_bars = described.recent_bars
        self._client = client
        self._exchange = client.exchange

    def window(self, query: Query) -> int:
        if self.is_wide:
            return query.end
        end = min(query.end, query.start + self.max_candles * query.period)
        if not self._recent_bars:
            return end
        border = first_open_from(query.newest(self._recent_bars), query.period_seconds)
        return border if query.start < border < end else end


class RawPages(_Source):
    """Pages from a raw endpoint, whose rows become columns directly."""

    def __init__(self, client: VenueClient) -> None:
        super().__init__(client)
        described = client.description.candles
        assert described.ask is not None and described.read is not None
        self._ask, self._read = described.ask, described.read

    async def page(self, query: Query, progress: Progress) -> Page:
        interval = self._exchange.timeframes[query.timeframe]
        return self._read(await self._client.ask(self._ask(query, interval), progress), query)


class UnifiedPages(_Source):
    """Pages through ccxt's unified call, for exchanges whose paging order and depth are unknown.

    That call turns garbage into an empty list, so the decoded reply is checked as well. ccxt keeps the reply as an
    attribute of the instance, so only one call may run at a time.
    """

    _LAYOUT = RowLayout(time=0, open=1, high=2, low=3, close=4, volume=5)

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
                raise BadReply("an empty list from a reply that is not JSON")
        return rows_of(rows)


def source_of(client: VenueClient) -> PageSource:
    return (RawPages if client.description.candles.ask is not None else UnifiedPages)(client)
