"""Requests windows of one market's candles, each until it is answered. Does not decide which candles have closed."""

from dataclasses import dataclass

from candlewright.wire.errors import BadReply, DepthExceeded, NotOffered
from candlewright.wire.grid import SECOND, origin_of
from ingestor import metrics
from ingestor.candles import EMPTY, Candles, joined
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import PageSource
from ingestor.progress import Progress
from ingestor.text import utc
from ingestor.venues.description import Fill, Market, Page, Query

#: The most pages of one window that may each begin before the last one but after the requested start; more means that
#: the exchange pages backwards.
MAX_BACKWARD_PAGES = 64


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """`rows` of the window. `shown`: the newest open time received, even outside the window or unfinished; 0 = none.
    `unfinished`: the open time of a candle that the exchange marked as not closed. `is_cut`: more rows may follow.
    """

    rows: Candles
    shown: int = 0
    unfinished: int | None = None
    is_cut: bool = False


class Paging:
    """`now`: a time (ns) that the exchange's clock had reached before the first request."""

    def __init__(
        self,
        client: VenueClient,
        source: PageSource,
        market: Market,
        *,
        period_seconds: int,
        now: int,
        progress: Progress,
    ) -> None:
        self.period = period_seconds * SECOND
        self.now = now
        self.source = source
        self._client = client
        self._market = market
        self._period_seconds = period_seconds
        self._timeframe = client.timeframe(period_seconds)
        self._progress = progress

    def query(self, start: int, end: int) -> Query:
        return Query(self._market, self._timeframe, self._period_seconds, start, end, self.now)

    def window_end(self, start: int, end: int) -> int:
        """The end of the window that begins at `start`, at most `end`."""
        return self.source.window(self.query(start, end))

    async def window(self, start: int, end: int) -> Answer:
        """The exchange's candles of [start, end), or of its beginning; one request if its answer has rows."""
        page, rows = await self._page(start, end)
        shown = max(page.candles.last_open if len(page.candles) else 0, page.unfinished or 0)
        is_cut = self.source.fill is Fill.OLDEST_FIRST and len(rows) >= self.source.max_candles
        parts = [rows]
        while len(parts[0]) and parts[0].first_open > start and not self.source.depth:
            _, earlier = await self._page_twice(start, parts[0].first_open)
            if not len(earlier):
                break
            if self.source.fill is Fill.OLDEST_FIRST:
                # Whether candles exist between the two is unknown.
                parts, shown, is_cut = [], earlier.last_open, True
            parts.insert(0, earlier)
            if len(parts) > MAX_BACKWARD_PAGES:
                raise BadReply(f"{self._client.venue} fills its pages backwards over {len(parts)} pages")
        return Answer(joined(parts), shown, page.unfinished, is_cut)

    async def window_twice(self, start: int, end: int) -> Answer:
        """`window`, repeated if an answer had no candle in the window or after it."""
        answer = await self.window(start, end)
        return answer if len(answer.rows) or answer.shown >= end else await self.window(start, end)

    async def _page_twice(self, start: int, end: int) -> tuple[Page, Candles]:
        page, rows = await self._page(start, end)
        is_answered = len(page.candles) and page.candles.last_open >= end
        return (page, rows) if len(rows) or is_answered else await self._page(start, end)

    async def _page(self, start: int, end: int) -> tuple[Page, Candles]:
        """A page, and the part of it inside the window."""
        query = self.query(start, end)
        if start >= end:
            return Page(EMPTY), EMPTY

        async def ask() -> Page:
            page = await self.source.page(query, self._progress)
            self._check(page, query)
            return page

        page = await self._client.call(ask, self._progress)
        rows = page.candles.between(start, end)
        if not len(rows):
            metrics.EMPTY_PAGES.labels(self._client.venue).inc()
        return page, rows

    def _check(self, page: Page, query: Query) -> None:
        candles = page.candles
        if not len(candles):
            return
        remainders = (candles.open_time - origin_of(query.period_seconds)) % self.period
        if remainders.any():
            problem = f"{self._client.venue}'s {query.timeframe} candles do not open on multiples of their period"
            if (remainders == remainders[0]).all():
                raise NotOffered(problem)
            raise BadReply(problem)
        if self.source.depth:
            return
        is_stuck = self.source.fill is Fill.OLDEST_FIRST and candles.first_open < query.start
        if len(candles.between(query.start, query.end)) and not is_stuck:
            return
        if candles.first_open >= query.end:
            if self.source.fill is Fill.OLDEST_FIRST:
                return
            if self.source.fill is Fill.UNKNOWN:
                self._check_depth(candles, query)
                return
        raise BadReply(f"no progress: asked from {utc(query.start)}, got {utc(candles.first_open)} and later")

    def _check_depth(self, candles: Candles, query: Query) -> None:
        """Raise DepthExceeded if an exchange of unknown depth answered an old window with its newest candles."""
        if candles.last_open >= query.now - 2 * self.period:
            raise DepthExceeded(
                f"{self._client.venue} answers with candles from {utc(candles.first_open)} when asked from "
                f"{utc(query.start)}: it keeps none that are older"
            )
