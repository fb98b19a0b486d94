"""Ranges without a candle cost a few requests, once per market."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.api import Bus
from candlewright.wire.errors import BusUnavailable
from candlewright.wire.grid import SECOND, open_containing, split
from ingestor.exchange.pages import source_of
from ingestor.history.fetch import HistoryFetch, HistoryJob, HistorySummary
from ingestor.history.quiet import MAX_RANGES, RECENT_NS, QuietBook, Range
from ingestor.progress import Progress
from ingestor.threads import BusThreads
from ingestor.venues.description import Fill, Page, Query
from sandbox import Sandbox
from sandbox.markets.instruments import utc_ms
from tests.fresh_bus import FreshBus
from tests.ingestor.history.test_fetch import FakeClient, FakeSource, candles_at
from tests.ingestor.venues_on_loopback import HastyProgress, client_of
from tests.rounds import rounds

MINUTE = 60 * SECOND
DAY = 1_440 * MINUTE
PERIODS = {60: "1m", 300: "5m", 3_600: "1h", 14_400: "4h", 86_400: "1d", 604_800: "1w"}
#: A Thursday.
T0 = 1_704_326_400 * SECOND


class Known(QuietBook):
    """Stores quiet ranges without a bus."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Lock] = {}
        self.ranges: list[Range] = []

    async def known(self, ticker: str, progress: Progress) -> list[Range]:
        return list(self.ranges)

    async def remember(self, ticker: str, found: Range, progress: Progress) -> None:
        self.ranges.append(found)


class Traded(FakeSource):
    """Candles of any period for a market that traded at `opens`; quiet times have no candle."""

    async def page(self, query: Query, progress: Progress) -> Page:
        self.asked.append(query)
        held = {open_containing(time, query.period_seconds) for time in self.opens}
        inside = sorted(time for time in held if query.start <= time < query.end)
        size = self.max_candles
        return Page(candles_at(inside[:size] if self.fill is Fill.OLDEST_FIRST else inside[-size:]))


class AnyPeriod(FakeClient):
    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.periods = PERIODS


async def run(
    source: FakeSource, job: HistoryJob, now: int, *, book: QuietBook | None
) -> tuple[HistorySummary, list[int]]:
    got: list[int] = []

    async def emit(candles: Any, origin: str) -> None:
        got.extend(candles.open_time.tolist())

    client: Any = AnyPeriod(now)
    fetch = HistoryFetch(
        client, source, job, progress=HastyProgress(), emit=emit, older=None, quiet=book, ticker="A/B.TEST"
    )
    return await fetch.run(), got


@settings(max_examples=rounds(150), deadline=None)
@given(
    days=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 1_439), st.integers(1, 4)), max_size=8),
    fill=st.sampled_from(Fill),
    is_wide=st.booleans(),
    ranges=st.lists(st.tuples(st.integers(-10, 420), st.integers(1, 60)), min_size=1, max_size=4),
    period_seconds=st.sampled_from([60, 300, 3_600, 86_400]),
    shift=st.integers(0, 6),
)
def test_skipped_ranges_have_no_candle(
    days: list[tuple[int, int, int]],
    fill: Fill,
    is_wide: bool,
    ranges: list[tuple[int, int]],
    period_seconds: int,
    shift: int,
) -> None:
    base = T0 + shift * DAY
    traded = sorted({base + day * DAY + (at + n) * MINUTE for day, at, count in days for n in range(count)})
    now = base + 430 * DAY + 17 * MINUTE
    book = Known()
    period = period_seconds * SECOND
    held = sorted({open_containing(time, period_seconds) for time in traded})
    source = Traded(opens=traded, fill=fill, max_candles=100, is_wide=is_wide and fill is Fill.OLDEST_FIRST)
    for first, length in ranges:
        job = HistoryJob("A/B", period_seconds, base + first * DAY, base + (first + length) * DAY)
        summary, got = asyncio.run(run(source, job, now, book=book))
        assert got == [time for time in held if job.start <= time < job.end and time + period <= now]
        assert summary.expected == summary.rows + sum((end - start) // period for start, end in summary.holes)
    for start, end in book.ranges:
        assert not any(start <= time < end for time in traded)
        assert end <= now - RECENT_NS


@pytest.mark.parametrize("fill", [Fill.OLDEST_FIRST, Fill.NEWEST_FIRST])
async def test_a_long_halt_costs_few_questions(fill: Fill) -> None:
    """Two and a half years without a trade, as has happened in real markets."""
    opens = [T0 + n * MINUTE for n in range(500)] + [T0 + 900 * DAY + n * MINUTE for n in range(500)]
    source = Traded(opens=opens, fill=fill, max_candles=300, is_wide=fill is Fill.OLDEST_FIRST)
    job = HistoryJob("A/B", 60, T0, opens[-1] + MINUTE)
    summary, got = await run(source, job, opens[-1] + 10 * DAY, book=Known())
    assert got == opens
    assert len(summary.holes) == 1
    assert len(source.asked) < 20


async def test_a_page_that_is_empty_by_mistake_is_nothing_to_remember() -> None:
    opens = [T0 + n * MINUTE for n in range(20_000)]
    source = Traded(opens=opens, fill=Fill.NEWEST_FIRST, max_candles=300, is_wide=False)
    lies = {0, 3}
    tell = source.page

    async def page(query: Query, progress: Progress) -> Page:
        number = len(source.asked)
        found = await tell(query, progress)
        return Page(candles_at([])) if number in lies else found

    source.page = page  # type: ignore[method-assign]
    book = Known()
    _, got = await run(source, HistoryJob("A/B", 60, T0, opens[-1] + MINUTE), opens[-1] + 10 * DAY, book=book)
    assert got == opens
    assert book.ranges == []


# ---- what is remembered


@pytest.fixture
def fresh_bus() -> Iterator[Bus]:
    bus = FreshBus()
    yield bus
    bus.close()


@pytest.fixture
def threads() -> Iterator[BusThreads]:
    made = BusThreads(2)
    yield made
    made.close()


async def test_ranges_are_joined_bounded_and_kept_for_all(fresh_bus: Bus, threads: BusThreads) -> None:
    book, progress = QuietBook(fresh_bus, threads), Progress()
    for found in ((50, 60), (10, 20), (15, 30), (30, 40)):
        await book.remember("A/B.X", found, progress)
    assert await QuietBook(fresh_bus, threads).known("A/B.X", progress) == [(10, 40), (50, 60)]
    assert await book.known("A/C.X", progress) == []
    for number in range(MAX_RANGES):
        await book.remember("A/B.X", (1_000 * number + 100, 1_000 * number + 100 + 10 * number + 1), progress)
    kept = await book.known("A/B.X", progress)
    assert len(kept) == MAX_RANGES
    assert (10, 40) in kept and (100, 101) not in kept


async def test_an_unreachable_bus_costs_no_candle(threads: BusThreads) -> None:
    class Away:
        def get(self, table: str, keys: list[str]) -> list[bytes | None]:
            raise BusUnavailable("away")

        def put(self, table: str, values: dict[str, bytes], *, keep_seconds: float) -> None:
            raise BusUnavailable("away")

    opens = [T0 + 100 * DAY + n * MINUTE for n in range(10)]
    book = QuietBook(Away(), threads)  # type: ignore[arg-type]
    job = HistoryJob("A/B", 60, T0, opens[-1] + MINUTE)
    _, got = await run(Traded(opens=opens, max_candles=1_000), job, opens[-1] + 10 * DAY, book=book)
    assert got == opens


async def test_a_year_before_the_listing_is_requested_once(fresh_bus: Bus, threads: BusThreads) -> None:
    """This used to take 1,040 requests: each of 52 pieces requested each of its ten pages twice."""
    listed = open_containing(utc_ms("2020-08-11T06:00:00") * 1_000_000, 60)
    start = listed - 365 * DAY
    async with (
        Sandbox(seed=3, clock="2024-03-05T12:00", speed=0, rate_limit=False) as exchange,
        client_of("BINANCE", exchange.url) as client,
    ):
        await client.load_markets(HastyProgress())
        slots = asyncio.Semaphore(4)
        rows: list[int] = []

        async def emit(candles: Any, origin: str) -> None:
            rows.extend(candles.open_time.tolist())

        async def piece(book: QuietBook, start: int, end: int) -> HistorySummary:
            job = HistoryJob("SOL/USDT", 60, start, end)
            source, progress = source_of(client), HastyProgress()
            async with slots:
                return await HistoryFetch(
                    client, source, job, progress=progress, emit=emit, older=None, quiet=book, ticker="SOL/USDT.BINANCE"
                ).run()

        async def year(book: QuietBook) -> int:
            before = _klines(exchange)
            done = await asyncio.gather(
                *(piece(book, *part) for part in split(start, listed, 60, candles_per_piece=10_000))
            )
            assert sum(summary.expected for summary in done) == 365 * 1_440
            assert all((summary.rows, len(summary.holes)) == (0, 1) for summary in done)
            return _klines(exchange) - before

        assert await year(QuietBook(fresh_bus, threads)) <= 12
        assert await year(QuietBook(fresh_bus, threads)) == 0
        assert rows == []
        summary = await piece(QuietBook(fresh_bus, threads), listed - 2_000 * MINUTE, listed + 5_000 * MINUTE)
        assert summary.first_open == listed
        assert rows == list(range(listed, listed + 5_000 * MINUTE, MINUTE))


def _klines(exchange: Sandbox) -> int:
    return sum(count for path, count in exchange.state.requests.items() if path.endswith("/klines"))
