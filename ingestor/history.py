"""Exactly the candles of a range: paged by what came back, closed by the exchange's clock, nothing shifted.

A window is asked until it is answered: an exchange that fills a page from the newest end is asked again for what lies
before its page, one that fills it from the oldest for what lies after. An empty page is asked for twice, then the next
window is tried, up to the end of the range.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from core.errors import BadReply, DepthExceeded, NotOffered
from core.log import get_logger
from ingestor import metrics
from ingestor.candles import EMPTY, Candles, joined
from ingestor.client import Market, VenueClient
from ingestor.coverage import Coverage
from ingestor.pages import Fill, Page, PageSource, Query
from ingestor.progress import Progress
from ingestor.text import utc
from venues.grid import SECOND, closed_end, first_open_from, origin_of

log = get_logger()

#: A candle may still change for so long after its close (late trades); it is read again after that.
SETTLE_NS = 3 * SECOND
#: Pages of one window that begin later than asked, each before the last: more is an exchange that pages backwards.
MAX_BACKWARD_PAGES = 64

Older = Callable[[Query, Progress], AsyncIterator[Candles]]


@dataclass(frozen=True, slots=True)
class HistoryJob:
    """Candles with start <= open < end (ns); the first `limit` of them."""

    symbol: str
    period_seconds: int
    start: int
    end: int
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class HistorySummary:
    """`expected`, `holes`: of the range up to `limit` candles, where there is a limit."""

    rows: int
    expected: int
    holes: tuple[tuple[int, int], ...]
    exchange_time: int
    first_open: int
    last_open: int
    reason: str


class HistoryFetch:
    """One job; `emit(candles, source)` is awaited for each batch, ascending and unique by open time.

    `older`, where the exchange keeps only its newest candles: builds those before them, or raises DepthExceeded.
    """

    def __init__(
        self,
        client: VenueClient,
        source: PageSource,
        job: HistoryJob,
        progress: Progress,
        emit: Callable[[Candles, str], Awaitable[None]],
        older: Older | None = None,
    ) -> None:
        self._client = client
        self._source = source
        self._job = job
        self._progress = progress
        self._emit = emit
        self._older = older
        self._coverage = Coverage(job.start, job.period_seconds)
        self._period = job.period_seconds * SECOND
        self._now = 0
        self._stop = 0

    async def run(self) -> HistorySummary:
        """Raises ExchangeError (UnknownTicker, NotOffered, DepthExceeded and the retryable ones after their time)."""
        job = self._job
        timeframe = self._client.timeframe(job.period_seconds)
        market = await self._client.market(job.symbol, self._progress)
        await self._look_at_clock()
        at = first_open_from(job.start, job.period_seconds)
        while at < self._stop and not self._is_full:
            query = Query(market, timeframe, job.period_seconds, at, self._stop, self._now)
            end = self._source.window(query)
            at = await self._window(market, timeframe, at, end)
        return self._summary()

    @property
    def _is_full(self) -> bool:
        return self._job.limit is not None and self._coverage.rows >= self._job.limit

    async def _look_at_clock(self) -> None:
        job = self._job
        self._now = await self._client.clock(self._progress)
        if closed_end(job.end, job.period_seconds, self._now) < job.end:
            self._now = await self._client.clock(self._progress, newer_than=0.1)
        # On the grid, for exchanges are asked in whole milliseconds or seconds: an end just behind an open time would
        # be rounded to it, and the candle that opens there would be missing.
        self._stop = first_open_from(closed_end(job.end, job.period_seconds, self._now), job.period_seconds)

    async def _window(self, market: Market, timeframe: str, start: int, end: int) -> int:
        """Deliver what the exchange has of [start, end), or of its beginning; returns where to go on."""
        query = Query(market, timeframe, self._job.period_seconds, start, end, self._now)
        is_first = self._coverage.rows == 0
        rows, is_answered = await self._rows(query)
        if self._source.depth and is_first and self._older is not None:
            border = min(rows.first_open if len(rows) else end, self._stop)
            if border > start:
                await self._deliver_older(Query(market, timeframe, self._job.period_seconds, start, border, self._now))
        if not len(rows):
            return end if is_answered else min(end, start + self._source.max_candles * self._period)
        last_open = rows.last_open
        if not self._is_full:
            await self._deliver(rows, query)
        return end if self._source.fill is Fill.NEWEST_FIRST else last_open + self._period

    async def _rows(self, query: Query) -> tuple[Candles, bool]:
        """Candles of the window, and whether their absence was answered by candles after it."""
        parts: list[Candles] = []
        end = query.end
        while True:
            part = Query(
                query.market, query.timeframe, query.period_seconds, query.start, min(end, self._stop), query.now
            )
            page, rows = await self._page(part)
            is_after = len(page.candles) > 0 and page.candles.first_open >= end
            if not len(rows) and not parts and not is_after:
                metrics.EMPTY_PAGES.labels(self._client.venue).inc()
                page, rows = await self._page(part)
            if not len(rows):
                return (joined(parts) if parts else EMPTY), is_after
            parts.insert(0, rows)
            if rows.first_open == query.start or self._source.depth:
                return joined(parts), True
            end = rows.first_open
            if len(parts) > MAX_BACKWARD_PAGES:
                raise BadReply(f"{self._client.venue} fills its pages backwards over {len(parts)} pages")

    async def _page(self, query: Query) -> tuple[Page, Candles]:
        """A page, and what of it lies in the window and has closed."""
        if query.start >= query.end:
            return Page(EMPTY), EMPTY

        async def ask() -> Page:
            page = await self._source.page(query, self._progress)
            self._check(page, query)
            return page

        page = await self._client.call(ask, self._progress)
        if page.unfinished is not None and page.unfinished < self._stop:
            # The exchange itself says that its clock is not past this candle's close.
            self._stop = page.unfinished
            self._now = min(self._now, page.unfinished + self._period - 1)
        rows = page.candles.between(query.start, query.end)
        closed = rows.between(0, self._stop)
        if len(closed) < len(rows) or page.unfinished is not None:
            metrics.UNCLOSED_ROWS.labels(self._client.venue).inc(len(rows) - len(closed) or 1)
        return page, closed

    def _check(self, page: Page, query: Query) -> None:
        candles = page.candles
        if not len(candles):
            return
        remainders = (candles.open_time - origin_of(query.period_seconds)) % self._period
        if remainders.any():
            problem = f"{self._client.venue}'s {query.timeframe} candles do not open on multiples of their period"
            if (remainders == remainders[0]).all():
                raise NotOffered(problem)
            raise BadReply(problem)
        if len(candles.between(query.start, query.end)) or self._source.depth:
            return
        if candles.first_open >= query.end:
            if self._source.fill is Fill.OLDEST_FIRST:
                return
            if self._source.fill is Fill.UNKNOWN:
                self._check_depth(candles, query)
                return
        raise BadReply(f"no progress: asked from {utc(query.start)}, got {utc(candles.first_open)} and later")

    def _check_depth(self, candles: Candles, query: Query) -> None:
        """An exchange of which nothing is known answered an old window with its newest candles."""
        if candles.last_open >= query.now - 2 * self._period:
            raise DepthExceeded(
                f"{self._client.venue} answers with candles from {utc(candles.first_open)} when asked from "
                f"{utc(query.start)}: it keeps none that are older"
            )

    async def _deliver_older(self, query: Query) -> None:
        assert self._older is not None
        async for candles in self._older(query, self._progress):
            await self._hand_over(candles.between(query.start, query.end), "derived")
            if self._is_full:
                return

    async def _deliver(self, rows: Candles, query: Query) -> None:
        settled = self._now - SETTLE_NS
        if rows.last_open + self._period > settled:
            rows = await self._settled(rows, query)
        await self._hand_over(rows, "exchange")

    async def _settled(self, rows: Candles, query: Query) -> Candles:
        """Read the newest candle again once late trades have had their time."""
        last = rows.last_open
        wait = (last + self._period + SETTLE_NS - self._now) / SECOND
        await self._progress.sleep(max(wait, 0.0))
        again = Query(query.market, query.timeframe, query.period_seconds, last, last + self._period, query.now)
        _, newest = await self._page(again)
        if not len(newest):
            return rows
        before = rows.take(slice(-1, None))
        if any(
            getattr(before, name)[0] != getattr(newest, name)[0] for name in ("open", "high", "low", "close", "volume")
        ):
            metrics.LATE_ROWS.labels(self._client.venue).inc()
        return joined([rows.take(slice(0, -1)), newest]) if len(rows) > 1 else newest

    async def _hand_over(self, rows: Candles, source: str) -> None:
        if self._job.limit is not None:
            rows = rows.take(slice(0, max(self._job.limit - self._coverage.rows, 0)))
        if not len(rows):
            return
        self._coverage.add(rows)
        metrics.CANDLES.labels(self._client.venue).inc(len(rows))
        await self._emit(rows, source)

    def _summary(self) -> HistorySummary:
        coverage = self._coverage
        end = coverage.last_open + self._period if self._is_full else self._stop
        expected = coverage.close(end)
        reason = ""
        if coverage.rows and coverage.first_open >= first_open_from(self._job.start, self._job.period_seconds) + (
            self._source.max_candles * self._period
        ):
            reason = f"{self._client.venue} has no candle of {self._job.symbol} before {utc(coverage.first_open)}"
        elif not coverage.rows and expected:
            reason = f"{self._client.venue} has no candle of {self._job.symbol} in this range"
        return HistorySummary(
            coverage.rows,
            expected,
            tuple(coverage.holes),
            self._now,
            coverage.first_open,
            coverage.last_open,
            reason,
        )
