"""Fetches exactly the candles of a range: paging follows what was received, and the exchange's clock decides which
candles have closed.

The clock is read before any request, so an up-to-date exchange returns every candle that had closed by then in its
final state. Its replicas may lag, and lack the newest candles or return an older state of one; see `_newest`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from candlewright.wire.grid import SECOND, closed_end, first_open_from, open_containing
from core.log import get_logger
from ingestor import metrics
from ingestor.candles import EMPTY, Candles, joined
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import PageSource
from ingestor.history.coverage import Coverage
from ingestor.history.paging import Paging
from ingestor.history.quiet import QuietBook, QuietSearch
from ingestor.progress import Progress
from ingestor.text import utc
from ingestor.venues.description import Market, Query

log = get_logger()

#: A candle may still change for this long after its close (late trades), so it is requested after that.
SETTLE_NS = 3 * SECOND
#: The most that a replica of an exchange lags behind its clock.
LAG_NS = 3_600 * SECOND
#: Pauses (s) before the requests that confirm that the newest candle shown is really the newest.
PAUSES = (1.0, 2.0)

Older = Callable[[Query, Progress], AsyncIterator[Candles]]


@dataclass(frozen=True, slots=True)
class HistoryJob:
    """Candles with start <= open < end (ns); the first `limit` of them."""

    symbol: str
    period_seconds: int
    start: int
    end: int
    limit: int | None = None


@dataclass(kw_only=True, frozen=True, slots=True)
class HistorySummary:
    """`expected` and `holes` describe the range, or with a limit, its part up to the last candle.

    `closed_until`: the open time of the first candle that had not closed; 0 = all had.
    """

    rows: int
    expected: int
    holes: tuple[tuple[int, int], ...]
    exchange_time: int
    first_open: int
    last_open: int
    reason: str
    closed_until: int = 0


class HistoryFetch:
    """One job; `emit(candles, source)` is awaited for each batch, ascending and unique by open time.

    `older`: for an exchange that keeps only its newest candles, builds the earlier ones or raises DepthExceeded.
    `quiet`: known quiet ranges of the market `ticker`; None to remember none.
    """

    def __init__(
        self,
        client: VenueClient,
        source: PageSource,
        job: HistoryJob,
        *,
        progress: Progress,
        emit: Callable[[Candles, str], Awaitable[None]],
        older: Older | None = None,
        quiet: QuietBook | None = None,
        ticker: str = "",
    ) -> None:
        self._client = client
        self._source = source
        self._job = job
        self._progress = progress
        self._emit = emit
        self._older = older
        self._quiet_book = quiet
        self._quiet: QuietSearch | None = None
        self._ticker = ticker
        self._coverage = Coverage(start=job.start, period_seconds=job.period_seconds)
        self._period = job.period_seconds * SECOND
        self._now = 0
        self._stop = 0
        self._border = 0

    async def run(self) -> HistorySummary:
        """Fetch the range. Raises ExchangeError: UnknownTicker, NotOffered, DepthExceeded, or a retryable one after its
        retries.
        """
        job = self._job
        self._client.timeframe(job.period_seconds)
        market = await self._client.market(job.symbol, self._progress)
        await self._look_at_clock()
        self._paging = self._paging_of(market, job.period_seconds)
        self._border = open_containing(self._now - LAG_NS, job.period_seconds)
        at = first_open_from(job.start, job.period_seconds)
        await self._prepare_quiet(market, at)
        while at < self._stop and not self._is_full:
            if self._quiet is not None and (end := self._quiet.end_of_known(at)) > at:
                at = end
            elif self._is_near_end(at):
                await self._newest(at)
                break
            else:
                at = await self._window(at)
        return self._summary()

    def _paging_of(self, market: Market, period_seconds: int) -> Paging:
        return Paging(
            self._client, self._source, market, period_seconds=period_seconds, now=self._now, progress=self._progress
        )

    async def _prepare_quiet(self, market: Market, at: int) -> None:
        """Load the known quiet ranges, which end before the border."""
        if self._quiet_book is None or at >= self._border:
            return
        self._quiet = QuietSearch(
            self._quiet_book,
            self._ticker,
            list(self._client.periods),
            period_seconds=self._job.period_seconds,
            paging_of=lambda period_seconds: self._paging_of(market, period_seconds),
            progress=self._progress,
        )
        await self._quiet.load()

    @property
    def _is_full(self) -> bool:
        return self._is_enough(0)

    def _is_enough(self, more: int) -> bool:
        return self._job.limit is not None and self._coverage.rows + more >= self._job.limit

    async def _look_at_clock(self) -> None:
        job = self._job
        self._now = await self._client.clock(self._progress)
        if closed_end(job.end, job.period_seconds, self._now) < job.end:
            self._now = await self._client.clock(self._progress, newer_than=0.1)
        # On the grid, because exchanges take whole milliseconds or seconds: an end just after an open time would be
        # rounded down to it, and the candle that opens there would be missing.
        self._stop = first_open_from(closed_end(job.end, job.period_seconds, self._now), job.period_seconds)

    def _stop_at(self, unfinished: int) -> None:
        """End the range before this candle, which the exchange repeatedly marked as not closed."""
        self._stop = unfinished
        self._now = min(self._now, unfinished + self._period - 1)
        metrics.UNCLOSED_ROWS.labels(self._client.venue).inc()

    # ---- candles older than the lag of any replica

    def _is_near_end(self, at: int) -> bool:
        """Whether the next page may reach into the time that a lagging replica may not have yet."""
        reach = min(self._paging.window_end(at, self._stop), at + self._source.max_candles * self._period)
        return self._border < self._stop and reach > self._border

    async def _window(self, start: int) -> int:
        """Deliver the exchange's candles from `start` on, at most one window; returns where to continue.

        If a window lacked its newest candles, the next one begins at the newest that arrived, so the missing ones are
        requested again until an answer has a candle.
        """
        limit = min(self._border, self._stop)
        end = self._paging.window_end(start, self._stop)
        answer = await self._paging.window(start, end)
        if not len(answer.rows) and answer.shown < end:
            later = await self._quiet.end_of(start, self._border) if self._quiet is not None else None
            if later is not None and later > start:
                return min(later, limit)
            # Longer candles may have shown that the window is not empty.
            ask = self._paging.window if later is None else self._paging.window_twice
            answer = await ask(start, end)
        end = min(end, limit)
        if answer.unfinished is not None and answer.unfinished < limit:
            self._stop_at(answer.unfinished)
            end = min(end, self._stop)
        rows = answer.rows.between(start, end)
        await self._deliver_older(start, rows, end)
        await self._hand_over(rows.between(self._coverage.next_open, end), "exchange")
        if not len(rows) or max(answer.shown, rows.last_open + self._period) >= end:
            return end
        if rows.last_open > start and not answer.is_cut:
            return rows.last_open
        return rows.last_open + self._period

    # ---- the newest

    async def _newest(self, start: int) -> None:
        """Deliver [start, end of the range). Because replicas may lag, a candle or hole is accepted only once the same
        answer shows a later candle, or after repeated answers have agreed for a while.
        """
        found, unfinished = EMPTY, None
        # Late trades may change a candle just after its close.
        await self._pause((self._stop + SETTLE_NS - self._now) / SECOND)
        pauses = iter(PAUSES)
        while True:
            rows, shown, unfinished = await self._up_to_now(found.last_open if len(found) else start)
            has_more = len(rows) and (not len(found) or rows.last_open > found.last_open)
            found = self._with(found, rows)
            if shown >= self._stop and (unfinished is None or unfinished >= self._stop):
                break
            if self._is_enough(len(found.between(self._coverage.next_open, self._stop)) - 1):
                break
            if has_more:
                pauses = iter(PAUSES)
            pause = next(pauses, None)
            if pause is None:
                break
            await self._pause(pause)
        if unfinished is not None and unfinished < self._stop:
            self._stop_at(unfinished)
        found = found.between(start, self._stop)
        await self._deliver_older(start, found, self._stop)
        await self._hand_over(found.between(self._coverage.next_open, self._stop), "exchange")

    async def _pause(self, seconds: float) -> None:
        if seconds > 0:
            await self._progress.sleep(seconds)

    async def _up_to_now(self, start: int) -> tuple[Candles, int, int | None]:
        """The candles from `start` to the one after the range, the newest open time shown, and the first one marked as
        unfinished. Each request begins at the newest candle of the previous answer.
        """
        end = self._stop + self._period
        parts: list[Candles] = [EMPTY]
        shown, unfinished = 0, None
        at = start
        while at < end:
            window_end = self._paging.window_end(at, end)
            # The caller repeats the last window anyway.
            ask = self._paging.window if window_end >= end else self._paging.window_twice
            answer = await ask(at, window_end)
            shown = max(shown, answer.shown)
            if answer.unfinished is not None:
                unfinished = min(answer.unfinished, unfinished or answer.unfinished)
            parts.append(answer.rows)
            if not len(answer.rows) or (window_end >= end and not answer.is_cut):
                at = window_end
            elif answer.rows.last_open > at:
                at = answer.rows.last_open
            else:
                at += self._period if answer.is_cut else window_end - at
        found = EMPTY
        for part in parts:
            found = self._with(found, part)
        return found, shown, unfinished

    def _with(self, found: Candles, rows: Candles) -> Candles:
        """`found` extended by `rows`, which were requested from its newest candle on."""
        if not len(rows) or not len(found):
            return rows if len(rows) else found
        if rows.first_open == found.last_open:
            before, after = found.volume[-1], rows.volume[0]
            metrics.LATE_ROWS.labels(self._client.venue).inc(before != after)
            # A single row may be an older state of the candle, from a replica that lags further.
            if len(rows) == 1 and after < before:
                return found
        return joined([found.between(0, rows.first_open), rows])

    # ---- delivery

    async def _deliver_older(self, start: int, rows: Candles, end: int) -> None:
        """If the exchange keeps only its newest candles, build and deliver those of [start, end) before the first that
        it has.
        """
        border = min(rows.first_open if len(rows) else end, self._stop)
        if self._older is None or not self._source.depth or self._coverage.rows or border <= start:
            return
        query = self._paging.query(start, border)
        async for candles in self._older(query, self._progress):
            await self._hand_over(candles.between(query.start, query.end), "derived")
            if self._is_full:
                return

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
            rows=coverage.rows,
            expected=expected,
            holes=tuple(coverage.holes),
            exchange_time=self._now,
            first_open=coverage.first_open,
            last_open=coverage.last_open,
            reason=reason,
            closed_until=0 if self._is_full or self._stop >= self._job.end else max(self._stop, self._job.start),
        )
