"""Finds long ranges in which a market has no candle (before its listing, after delisting, during a halt) with a few
requests for long candles, and stores them on the bus for all ingestors.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from google.protobuf.message import DecodeError

from bus import KeyedTables
from bus.topics import TABLE_QUIET_RANGES
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BadReply, BusError, DepthExceeded, NotOffered
from candlewright.wire.grid import SECOND, WEEK_SECONDS, first_open_from, open_containing
from core.log import get_logger
from ingestor import metrics
from ingestor.history.paging import Paging
from ingestor.progress import Progress
from ingestor.threads import BusThreads
from ingestor.venues.description import Fill
from protobuf import records_pb2 as rec

log = get_logger()

Range = tuple[int, int]
#: Quiet ranges of the last day are not stored, because the market may be halted or the exchange late.
RECENT_NS = 86_400 * SECOND
KEEP_SECONDS = 30 * 86_400.0
#: Ranges stored per market; the longest are kept.
MAX_RANGES = 64


class QuietBook:
    """The known quiet ranges of each market. While the bus cannot be reached, none are known and none are stored."""

    def __init__(self, bus: KeyedTables, threads: BusThreads) -> None:
        self._bus = bus
        self._threads = threads
        self._turns: dict[str, asyncio.Lock] = {}

    async def known(self, ticker: str, progress: Progress) -> list[Range]:
        """Ascending ranges without trades, so no candle is wholly inside one."""
        try:
            [value] = await self._threads.run(lambda: self._bus.get(TABLE_QUIET_RANGES, [ticker]), progress)
            stored = rec.QuietRanges.FromString(value or b"")
        except (BusError, DecodeError) as error:
            log.info("quiet_ranges_unknown", ticker=ticker, error=str(error))
            return []
        return [(each.start_time, each.end_time) for each in stored.ranges]

    async def remember(self, ticker: str, found: Range, progress: Progress) -> None:
        ranges = sorted([*await self.known(ticker, progress), found])
        joined = ranges[:1]
        for start, end in ranges[1:]:
            if start <= joined[-1][1]:
                joined[-1] = joined[-1][0], max(end, joined[-1][1])
            else:
                joined.append((start, end))
        longest = sorted(sorted(joined, key=lambda each: each[0] - each[1])[:MAX_RANGES])
        stored = rec.QuietRanges(ranges=[cw.TimeRange(start_time=start, end_time=end) for start, end in longest])
        values = {ticker: stored.SerializeToString()}
        try:
            await self._threads.run(
                lambda: self._bus.put(TABLE_QUIET_RANGES, values, keep_seconds=KEEP_SECONDS), progress
            )
        except BusError as error:
            log.info("quiet_range_not_stored", ticker=ticker, error=str(error))

    @asynccontextmanager
    async def turn(self, ticker: str, progress: Progress) -> AsyncIterator[None]:
        """Let one job of a market search at a time; the others then find what it stored."""
        lock = self._turns.setdefault(ticker, asyncio.Lock())
        try:
            async with progress.turn(lock):
                yield
        finally:
            if not lock.locked():
                self._turns.pop(ticker, None)


class QuietSearch:
    """One job's search in its market. `paging_of` returns the paging of the market's candles of another period."""

    def __init__(
        self,
        book: QuietBook,
        ticker: str,
        periods: Sequence[int],
        *,
        period_seconds: int,
        paging_of: Callable[[int], Paging],
        progress: Progress,
    ) -> None:
        self._book = book
        self._ticker = ticker
        self._period_seconds = period_seconds
        self._paging_of = paging_of
        self._progress = progress
        self._known: list[Range] = []
        source = paging_of(period_seconds).source
        self._is_direct = source.is_wide and source.fill is Fill.OLDEST_FIRST
        self._has_all = not source.depth
        self._steps = _steps(periods, period_seconds, source.max_candles)
        self._least = source.max_candles * period_seconds * SECOND

    async def load(self) -> None:
        if self._has_all:
            self._known = await self._book.known(self._ticker, self._progress)

    def end_of_known(self, at: int) -> int:
        """The first open time from `at` on that may have a candle, according to the stored ranges."""
        for start, end in self._known:
            if start <= at < end:
                return max(at, open_containing(end, self._period_seconds))
        return at

    async def end_of(self, at: int, now: int) -> int | None:
        """The first open time from `at` on that may have a candle, according to the exchange, or `now` if it has none
        since; None if the exchange does not support this search.
        """
        if not self._has_all or not (self._is_direct or self._steps):
            return None
        async with self._book.turn(self._ticker, self._progress):
            await self.load()
            if (end := self.end_of_known(at)) > at:
                return end
            try:
                found = await (self._next_candle(at, now) if self._is_direct else self._first_in(at, now, 0))
            except (NotOffered, DepthExceeded, BadReply) as error:
                metrics.QUIET_SEARCHES.labels("failed").inc()
                log.info("quiet_range_not_found", ticker=self._ticker, error=str(error))
                return None
            end = now if found is None else found
            metrics.QUIET_SEARCHES.labels("found" if end - at >= self._least else "short").inc()
            lasting = min(end, now - RECENT_NS)
            if lasting - at >= self._least:
                log.info("quiet_range_found", ticker=self._ticker, start=at, end=lasting)
                await self._book.remember(self._ticker, (at, lasting), self._progress)
        return max(at, open_containing(end, self._period_seconds))

    async def _next_candle(self, at: int, now: int) -> int | None:
        """The next candle of an exchange whose pages begin with the oldest candle after the start: one request."""
        answer = await self._paging_of(self._period_seconds).window_twice(
            at, first_open_from(now, self._period_seconds)
        )
        return answer.rows.first_open if len(answer.rows) else None

    async def _first_in(self, start: int, end: int, step: int) -> int | None:
        """A time in [start, end) before which no trade happened, or None if none happened at all. Searches for the
        first long candle, then for shorter ones inside it.
        """
        if step == len(self._steps):
            return start
        period_seconds = self._steps[step]
        paging = self._paging_of(period_seconds)
        at, last = open_containing(start, period_seconds), first_open_from(end, period_seconds)
        while at < last:
            window_end = paging.window_end(at, last)
            answer = await paging.window_twice(at, window_end)
            for opened in answer.rows.open_time.tolist():
                low, high = max(start, opened), min(end, opened + paging.period)
                found = await self._first_in(low, high, step + 1)
                if found is not None or opened >= start:
                    return low if found is None else found
            at = answer.rows.last_open + paging.period if answer.is_cut else window_end
        return None


def _steps(periods: Sequence[int], period_seconds: int, max_candles: int) -> list[int]:
    """The periods to search with, longest first; a page of each spans a candle of the previous one, and the last is no
    longer than a page of the wanted candles.
    """
    longer = sorted(each for each in periods if period_seconds < each <= WEEK_SECONDS and each % period_seconds == 0)
    steps: list[int] = longer[-1:]
    while steps and steps[-1] > max_candles * period_seconds:
        fitting = [each for each in longer if each < steps[-1] <= each * max_candles]
        if not fitting:
            break
        steps.append(fitting[0])
    return steps
