"""The paging loop against exchanges that consist of a set of candles and a behaviour."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candlewright.wire.errors import BadReply, DepthExceeded, NotOffered
from candlewright.wire.grid import SECOND, WEEK_SECONDS, expected_candles, first_open_from
from ingestor.candles import EMPTY, Candles, joined
from ingestor.history.fetch import PAUSES, SETTLE_NS, HistoryFetch, HistoryJob, HistorySummary
from ingestor.progress import Progress
from ingestor.venues.description import Fill, Market, Page, Query
from tests.ingestor.venues_on_loopback import HastyProgress
from tests.rounds import rounds

MINUTE = 60 * SECOND
BASE = 28_333_334 * MINUTE


def candles_at(opens: list[int], shift: float = 0.0) -> Candles:
    if not opens:
        return EMPTY
    times = np.array(sorted(opens), np.int64)
    price = (times // SECOND % 100_000).astype(np.float64) + shift
    return Candles(open_time=times, open=price, high=price + 2, low=price - 1, close=price + 1, volume=price / 3)


class FakeClient:
    """The part of VenueClient that a fetch uses; a failing page fails the job at once."""

    def __init__(self, now: int, symbol: str = "BTC/USDT") -> None:
        self.venue = "TEST"
        self.now = now
        self._market = Market(symbol, "BTCUSDT", True, "BTC", "USDT")

    def timeframe(self, period_seconds: int) -> str:
        return f"{period_seconds}s"

    async def market(self, symbol: str, progress: Progress) -> Market:
        return self._market

    async def clock(self, progress: Progress, *, newer_than: float = 5.0) -> int:
        return self.now

    async def call(self, ask: Callable[[], Awaitable[Any]], progress: Progress) -> Any:
        return await ask()


@dataclass(kw_only=True)
class FakeSource:
    """Has candles at `opens`; a page has at most `page` rows, or `sizes[n]` for the n-th page."""

    opens: list[int]
    fill: Fill = Fill.OLDEST_FIRST
    max_candles: int = 10
    is_wide: bool = True
    depth: int = 0
    sizes: list[int] = field(default_factory=list)
    lies_empty: set[int] = field(default_factory=set)
    spill: bool = False
    asked: list[Query] = field(default_factory=list)

    def window(self, query: Query) -> int:
        if self.is_wide:
            return query.end
        return min(query.end, query.start + self.max_candles * query.period)

    async def page(self, query: Query, progress: Progress) -> Page:
        number = len(self.asked)
        self.asked.append(query)
        if number in self.lies_empty:
            return Page(EMPTY)
        size = min(self.max_candles, self.sizes[number]) if number < len(self.sizes) else self.max_candles
        end = query.end if not self.spill else query.end + 3 * query.period
        inside = sorted(time for time in self.opens if query.start <= time < end)
        return Page(candles_at(inside[:size] if self.fill is Fill.OLDEST_FIRST else inside[-size:]))


async def _run(
    source: FakeSource, job: HistoryJob, now: int, progress: Progress | None = None
) -> tuple[HistorySummary, list[int], list[Candles]]:
    parts: list[Candles] = []

    async def emit(candles: Candles, origin: str) -> None:
        parts.append(candles)

    fetch = HistoryFetch(FakeClient(now), source, job, progress=progress or HastyProgress(), emit=emit)  # type: ignore[arg-type]
    summary = await fetch.run()
    return summary, [time for part in parts for time in part.open_time.tolist()], parts


offsets = st.sets(st.integers(0, 120), max_size=90)


@settings(max_examples=rounds(300), deadline=None)
@given(
    opens=offsets,
    fill=st.sampled_from(Fill),
    is_wide=st.booleans(),
    max_candles=st.integers(1, 40),
    sizes=st.lists(st.integers(1, 40), max_size=12),
    spill=st.booleans(),
    start=st.integers(-30, 130),
    length=st.integers(1, 160),
    unaligned=st.sampled_from([0, 1, 30 * SECOND, MINUTE - 1]),
    limit=st.none() | st.integers(1, 100),
    clock=st.integers(60, 200),
    period_seconds=st.sampled_from([60, WEEK_SECONDS]),
)
def test_any_paging_of_any_candles_with_holes_gives_exactly_those(
    opens: set[int],
    fill: Fill,
    is_wide: bool,
    max_candles: int,
    sizes: list[int],
    spill: bool,
    start: int,
    length: int,
    unaligned: int,
    limit: int | None,
    clock: int,
    period_seconds: int,
) -> None:
    period = period_seconds * SECOND
    base = first_open_from(BASE, period_seconds)
    # Wide windows are requested only from exchanges that answer with the oldest candles of a window.
    is_wide = is_wide and fill is Fill.OLDEST_FIRST
    spill = spill and fill is Fill.OLDEST_FIRST
    held = [base + offset * period for offset in opens]
    now = base + clock * period + SETTLE_NS
    begin = base + start * period - unaligned
    job = HistoryJob("BTC/USDT", period_seconds, begin, begin + length * period, limit)
    source = FakeSource(
        opens=held,
        fill=fill,
        max_candles=max_candles,
        is_wide=is_wide,
        depth=0,
        sizes=sizes,
        lies_empty=set(),
        spill=spill,
    )
    summary, got, _ = asyncio.run(_run(source, job, now))

    wanted = sorted(time for time in held if job.start <= time < job.end and time + period <= now)
    assert got == wanted[:limit]
    assert summary.rows == len(got)
    covered = sum((end - begin) // period for begin, end in summary.holes)
    assert summary.expected == summary.rows + covered
    if limit is None or len(wanted) < limit:
        assert summary.expected == expected_candles(job.start, job.end, period_seconds, exchange_time=now)
        missing = {
            base + offset * period
            for offset in range(-40, 300)
            if job.start <= base + offset * period < job.end and base + (offset + 1) * period <= now
        } - set(wanted)
        assert {time for begin, end in summary.holes for time in range(begin, end, period)} == missing
    else:
        assert all(end <= got[-1] for _, end in summary.holes)


@given(lie=st.integers(0, 12), fill=st.sampled_from(Fill))
@settings(deadline=None)
def test_one_page_that_is_empty_by_mistake_costs_no_candle(lie: int, fill: Fill) -> None:
    held = [BASE + n * MINUTE for n in range(60)]
    source = FakeSource(opens=held, fill=fill, max_candles=10, is_wide=fill is Fill.OLDEST_FIRST, lies_empty={lie})
    summary, got, _ = asyncio.run(
        _run(source, HistoryJob("BTC/USDT", 60, held[0], held[-1] + 1), held[-1] + 9 * MINUTE)
    )
    assert got == held
    assert summary.holes == ()


async def test_a_page_that_repeats_is_not_progress() -> None:
    class Stuck(FakeSource):
        async def page(self, query: Query, progress: Progress) -> Page:
            self.asked.append(query)
            return Page(candles_at(self.opens[:10]))

    held = [BASE + n * MINUTE for n in range(50)]
    source = Stuck(opens=held)
    with pytest.raises(BadReply, match="no progress"):
        await _run(source, HistoryJob("BTC/USDT", 60, held[0], held[-1]), held[-1] + MINUTE)
    assert len(source.asked) == 2


async def test_an_unknown_exchange_that_answers_an_old_window_with_its_newest_is_refused() -> None:
    held = [BASE + n * MINUTE for n in range(100)]

    class Newest(FakeSource):
        async def page(self, query: Query, progress: Progress) -> Page:
            return Page(candles_at(held[-10:]))

    source = Newest(opens=held, fill=Fill.UNKNOWN, is_wide=False)
    with pytest.raises(DepthExceeded, match="keeps none"):
        await _run(source, HistoryJob("BTC/USDT", 60, held[0], held[50]), held[-1] + 2 * MINUTE)


@pytest.mark.parametrize(("shifts", "error"), [((30, 30), NotOffered), ((0, 30), BadReply)])
async def test_candles_off_the_grid_are_refused_not_shifted(shifts: tuple[int, int], error: type[Exception]) -> None:
    held = [BASE + n * MINUTE + shift * SECOND for n, shift in enumerate(shifts)]
    with pytest.raises(error, match="do not open on"):
        await _run(FakeSource(opens=held), HistoryJob("BTC/USDT", 60, BASE, BASE + 10 * MINUTE), BASE + 60 * MINUTE)


async def test_an_open_candle_is_left_out_and_not_expected() -> None:
    held = [BASE + n * MINUTE for n in range(10)]
    summary, got, _ = await _run(
        FakeSource(opens=held), HistoryJob("BTC/USDT", 60, BASE, BASE + 100 * MINUTE), held[-1] + MINUTE - 1
    )
    assert got == held[:-1]
    assert (summary.expected, summary.holes) == (9, ())


async def test_a_candle_that_the_exchange_marks_as_unfinished_is_left_out_whatever_its_clock() -> None:
    held = [BASE + n * MINUTE for n in range(10)]

    class Marked(FakeSource):
        async def page(self, query: Query, progress: Progress) -> Page:
            page = await super().page(query, progress)
            return Page(page.candles.between(0, held[-1]), held[-1])

    now = held[-1] + 60 * MINUTE
    summary, got, _ = await _run(Marked(opens=held, max_candles=20), HistoryJob("BTC/USDT", 60, BASE, now), now)
    assert got == held[:-1]
    assert (summary.expected, summary.holes) == (9, ())
    assert summary.exchange_time < held[-1] + MINUTE


async def test_the_newest_candle_is_requested_after_the_time_for_late_trades() -> None:
    held = [BASE + n * MINUTE for n in range(11)]
    progress = HastyProgress()
    source = FakeSource(opens=held, max_candles=20)
    job = HistoryJob("BTC/USDT", 60, BASE, held[-1])
    _, got, _ = await _run(source, job, held[-1] + SECOND, progress)
    assert got == held[:-1]
    assert progress.slept == [2.0]
    # The candle after the range, which shows that those before it are complete.
    assert [(query.start, query.end) for query in source.asked] == [(BASE, held[-1] + MINUTE)]


@dataclass
class Replicas(FakeSource):
    """The n-th request is answered by a replica that lags by `lags[n]` seconds; later replicas are up to date."""

    now: int = 0
    lags: list[int] = field(default_factory=list)

    async def page(self, query: Query, progress: Progress) -> Page:
        number = len(self.asked)
        self.asked.append(query)
        seen = self.now - (self.lags[number] if number < len(self.lags) else 0) * SECOND
        inside = [time for time in self.opens if query.start <= time < query.end and time <= seen]
        rows = inside[: self.max_candles] if self.fill is Fill.OLDEST_FIRST else inside[-self.max_candles :]
        candles = candles_at(rows)
        # The replica lacks later trades of its newest candle.
        known = np.minimum(seen - candles.open_time, MINUTE) / MINUTE
        return Page(replace(candles, volume=candles.volume * known)) if rows else Page(EMPTY)


@pytest.mark.parametrize("fill", Fill)
@pytest.mark.parametrize("lags", [[300], [300, 240], [300, 3_000, 280], [70], [10]])
@pytest.mark.parametrize("is_quiet", [False, True])
async def test_a_replica_that_lags_costs_no_candle_and_no_part_of_one(
    fill: Fill, lags: list[int], is_quiet: bool
) -> None:
    opens = [BASE + n * MINUTE for n in range(300)]
    now = opens[-1] + MINUTE + SETTLE_NS
    # In a quiet market no later candle shows that the answer is up to date.
    source = Replicas(
        opens=opens if is_quiet else [*opens, opens[-1] + MINUTE],
        fill=fill,
        max_candles=300,
        is_wide=False,
        now=now,
        lags=lags,
    )
    summary, got, parts = await _run(source, HistoryJob("BTC/USDT", 60, BASE, opens[-1] + MINUTE), now)
    assert got == opens
    assert (summary.rows, summary.expected, summary.holes) == (300, 300, ())
    assert joined(parts).volume.tolist() == candles_at(opens).volume.tolist()


async def test_a_hole_at_the_newest_end_is_believed_after_some_time_or_a_later_candle() -> None:
    held = [BASE + n * MINUTE for n in range(10)]
    job = HistoryJob("BTC/USDT", 60, BASE, BASE + 15 * MINUTE)
    progress = HastyProgress()
    silent = FakeSource(opens=held, max_candles=20)
    summary, got, _ = await _run(silent, job, BASE + 16 * MINUTE, progress)
    assert (got, summary.holes) == (held, ((BASE + 10 * MINUTE, BASE + 15 * MINUTE),))
    assert progress.slept == list(PAUSES)
    progress = HastyProgress()
    trading = FakeSource(opens=[*held, BASE + 15 * MINUTE], max_candles=20)
    summary, got, _ = await _run(trading, job, BASE + 16 * MINUTE, progress)
    assert (got, summary.holes) == (held, ((BASE + 10 * MINUTE, BASE + 15 * MINUTE),))
    assert (progress.slept, len(trading.asked)) == ([], 1)


@pytest.mark.parametrize("fill", Fill)
async def test_a_limit_that_is_reached_early_does_not_wait_for_the_newest_candle(fill: Fill) -> None:
    held = [BASE + n * MINUTE for n in range(10)]
    progress = HastyProgress()
    job = HistoryJob("BTC/USDT", 60, BASE, BASE + 15 * MINUTE, 9)
    summary, got, _ = await _run(
        FakeSource(opens=held, fill=fill, max_candles=20, is_wide=False), job, BASE + 16 * MINUTE, progress
    )
    assert (got, summary.holes, summary.closed_until, progress.slept) == (held[:9], (), 0, [])


@pytest.mark.parametrize(
    ("end", "closed_until"),
    [(100 * MINUTE, 9 * MINUTE), (9 * MINUTE + 1, 9 * MINUTE), (9 * MINUTE, 0), (8 * MINUTE + 1, 0)],
)
async def test_the_summary_names_the_border_of_a_range_beyond_closed_candles(end: int, closed_until: int) -> None:
    held = [BASE + n * MINUTE for n in range(10)]
    summary, _, _ = await _run(
        FakeSource(opens=held), HistoryJob("BTC/USDT", 60, BASE, BASE + end), held[-1] + 30 * SECOND
    )
    assert summary.closed_until == (BASE + closed_until if closed_until else 0)


async def test_a_range_before_the_listing_names_the_first_candle() -> None:
    listed = BASE + 500 * MINUTE
    held = [listed + n * MINUTE for n in range(20)]
    summary, got, _ = await _run(
        FakeSource(opens=held), HistoryJob("BTC/USDT", 60, BASE, held[-1] + MINUTE), held[-1] + 60 * MINUTE
    )
    assert got == held
    assert summary.first_open == listed
    assert summary.holes == ((BASE, listed),)
    assert "no candle of BTC/USDT before 2023-" in summary.reason


async def test_a_range_in_the_future_is_empty_and_expects_nothing() -> None:
    summary, got, _ = await _run(
        FakeSource(opens=[]), HistoryJob("BTC/USDT", 60, BASE, BASE + 60 * MINUTE), BASE - MINUTE
    )
    assert (summary.rows, summary.expected, summary.holes, got) == (0, 0, (), [])
