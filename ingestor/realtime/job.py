"""One realtime job: a ticker's stream between its socket, REST and the bus."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass

from core.errors import ExchangeError, Unavailable, UnknownTicker
from core.log import get_logger
from ingestor.client import VenueClient
from ingestor.events import Job
from ingestor.progress import Progress
from ingestor.realtime import metrics
from ingestor.realtime.aggregates import seed_of
from ingestor.realtime.feed import Feed, Subscription
from ingestor.realtime.handover import TAIL_SECONDS, Tail, Tails
from ingestor.realtime.lanes import Lane, LanePublisher
from ingestor.realtime.loose_stream import LooseStream
from ingestor.realtime.rest_trades import LAG_PAUSES, Anchor, Found, RestTrades, rest_trades_of
from ingestor.realtime.sampling import BarSampler
from ingestor.realtime.seeds import Seeds
from ingestor.realtime.stream import MAX_WAITING, Command, DenseStream, Lost, Release, Repair, Repaired, TradeStream
from ingestor.realtime.trade import ORDER, TIME, TRADE_ID, Trade
from ingestor.threads import BusThreads
from protobuf import records_pb2 as records
from venues.grid import SECOND, open_containing

log = get_logger()

CLOCK_SECONDS = 1.0
#: What still has to leave when a job ends in order is waited for so long.
FLUSH_SECONDS = 0.5
#: A ticker whose last trade on the bus is older starts afresh.
HANDOVER_NS = TAIL_SECONDS * SECOND
#: A job that begins so soon after a minute's start begins with the minute before: it was asked for in that one.
START_NS = 10 * SECOND
#: A trade that REST shows and that is so much older than the exchange's clock should have come by the socket.
DEAF_NS = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the jobs of one ingestor share. `sample`: the share of one-minute bars that are compared."""

    tails: Tails
    threads: BusThreads
    publisher: LanePublisher
    heartbeat: float
    sample: float


class TickJob:
    """`run` until cancelled; raises LeaseLost, ExchangeError, BusError."""

    def __init__(self, around: Surroundings, client: VenueClient, feed: Feed, job: Job, progress: Progress) -> None:
        self._around = around
        self._client = client
        self._feed = feed
        self._job = job
        self._progress = progress
        self._stream: TradeStream = DenseStream() if feed.venue.is_dense else LooseStream()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lane = Lane(job.ticker, job.job_id, job.venue, self.failed)
        self._subscription: Subscription | None = None
        self._rest: RestTrades | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock_at = 0.0
        self._counted = (0,) * 8
        self._sampler = BarSampler(client, job.symbol, around.sample)

    async def run(self) -> None:
        market = await self._client.market(self._job.symbol, self._progress)
        self._rest = rest_trades_of(self._client, market)
        tail = await self._tail()
        self._subscription = self._feed.hold(self._job.symbol, market.market_id, self)
        try:
            self._spawn(self._open(tail))
            await self._ended
            await self._flush()
        except asyncio.CancelledError:
            await self._flush()
            raise
        finally:
            self._feed.drop(self._subscription)
            for task in list(self._tasks):
                task.cancel()
            self._around.publisher.close_lane(self._lane)
            self._count()

    async def _flush(self) -> None:
        """What was released is complete: it may still leave."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._around.publisher.drained(self._lane)
        except TimeoutError:
            log.info("job_ends_unflushed", job_id=self._job.job_id, trades=self._lane.unpublished)

    # ---- the start

    async def _tail(self) -> Tail | None:
        ticker, tails = self._job.ticker, self._around.tails
        with tails.reading():
            tail = await self._around.threads.run(lambda: tails.read(ticker), self._progress)
        self._lane.sequence = tail.sequence
        return tail if tail.trades else None

    async def _open(self, tail: Tail | None) -> None:
        assert self._rest is not None
        now = await self._client.clock(self._progress, newer_than=1.0)
        if tail is not None and now - tail.last[TIME] <= HANDOVER_NS:
            log.info("stream_goes_on", ticker=self._job.ticker, trade_id=tail.last[TRADE_ID])
            self._carry_out(self._stream.open(tail.last, tail.trades), is_live=False)
            return
        start = open_containing(now - START_NS, 60)
        try:
            found = await self._rest.after(Anchor(start), self._progress)
        except UnknownTicker:
            raise
        except ExchangeError as error:
            # The stream is worth having without its past: what is covered says since when.
            log.warning("start_without_history", ticker=self._job.ticker, error=str(error))
            found = Found((), proven=False, reason=str(error))
        covered_from = start if found.is_whole else _complete_from(found.trades, now)
        trades = (
            [trade for trade in found.trades if trade[TIME] >= covered_from] if not found.is_whole else found.trades
        )
        self._mark(records.TickMark(covered=records.Covered(job_id=self._job.job_id, from_time=covered_from)))
        if found.is_whole and found.aggregates:
            self._mark(records.TickMark(seed=seed_of(found.aggregates)))
        base = _newest(found, covered_from)
        if trades:
            self._carry_out([Release(trades)], is_live=False)
        self._carry_out(self._stream.open(base, [*found.trades]), is_live=False)
        log.info("stream_starts", ticker=self._job.ticker, covered_from=covered_from, trades=len(trades))
        seeds = Seeds(self._client, self._job.symbol)
        for seed in await seeds.before(covered_from, Progress()):
            self._mark(records.TickMark(seed=seed))

    # ---- what the feed says

    @property
    def is_full(self) -> bool:
        return self._lane.is_full or self._stream.waiting > MAX_WAITING

    @property
    def waiting(self) -> int:
        return self._stream.waiting

    @property
    def unpublished(self) -> int:
        return self._lane.unpublished

    def connected(self, at: float) -> None:
        self._carry_out(self._stream.connected(at))

    def closed(self, at: float) -> None:
        self._carry_out(self._stream.closed(at))

    def trades_came(self, trades: Sequence[Trade], at: float) -> None:
        is_live = not self._stream.waiting
        self._carry_out(self._stream.came(trades, at), is_live=is_live)

    def failed(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def ticked(self, at: float) -> None:
        self._carry_out(self._stream.ticked(at))
        assert self._subscription is not None
        silence = self._feed.silence(self._subscription)
        if silence is not None and silence < self._feed.frozen_seconds:
            # Only a socket that lives lets the next heartbeat go out.
            self._progress.expect(self._around.heartbeat + 1.0)
        if at - self._clock_at >= CLOCK_SECONDS:
            self._clock_at = at
            self._tell_clock()
            self._count()

    def _tell_clock(self) -> None:
        assert self._subscription is not None
        if not self._stream.is_sound or self._subscription.batch:
            return
        exchange_time = self._feed.exchange_time(self._subscription)
        if exchange_time is not None:
            self._mark(records.TickMark(clock=records.Clock(exchange_time=exchange_time)))
            if self._sampler.is_due(exchange_time):
                self._spawn(self._sampler.compare(exchange_time))

    # ---- commands

    def _carry_out(self, commands: Sequence[Command], *, is_live: bool = True) -> None:
        """`is_live`: released trades came as they happened. Others may be older than a trigger that is there now."""
        for command in commands:
            match command:
                case Release(trades):
                    self._around.publisher.publish(self._lane, trades, None if is_live else self._client.clock_ahead)
                    self._sampler.add(trades)
                case Repair():
                    self._spawn(self._repair(command))
                case Lost():
                    self._tell_gap(command)

    def _tell_gap(self, lost: Lost) -> None:
        gap = records.Gap(
            gap_id=f"{self._job.ticker}:{lost.from_id}-{lost.to_id or lost.to_time}",
            from_trade_id=lost.from_id,
            to_trade_id=lost.to_id,
            from_time=lost.from_time,
            to_time=lost.to_time,
            is_repaired=lost.is_repaired,
            reason=lost.reason,
            detected_at=time.time_ns(),
        )
        if lost.missing is not None:
            gap.missing = lost.missing
        self._mark(records.TickMark(gap=gap))
        self._sampler.forget(lost.from_time, lost.to_time)
        log.warning("trades_missing", ticker=self._job.ticker, first=lost.from_id, last=lost.to_id, reason=lost.reason)

    async def _repair(self, repair: Repair) -> None:
        assert self._rest is not None
        anchor = Anchor(
            repair.after[TIME],
            repair.after[ORDER] or None,
            repair.until,
            self._stream.known(),
            has_trade=bool(repair.after[TRADE_ID]),
        )
        quiet = Progress()
        try:
            found = await self._rest.after(anchor, quiet)
            for pause in LAG_PAUSES:
                if _reaches(repair, found):
                    break
                await asyncio.sleep(pause)
                found = await self._rest.after(anchor, quiet)
        except ExchangeError as error:
            found = Found((), proven=False, reason=f"the exchange did not help: {error}")
        proven = found.proven and _reaches(repair, found)
        if found.aggregates:
            self._mark(records.TickMark(seed=seed_of(found.aggregates)))
        reason = found.reason or "the exchange's newest trades do not reach this far"
        answer = Repaired(found.trades, proven, reason)
        known = self._stream.counts.repaired
        self._carry_out(self._stream.repaired(answer, time.monotonic()), is_live=False)
        if repair.is_recheck and self._stream.counts.repaired > known and self._is_deaf(found):
            # Whoever gets the job next subscribes anew, and goes on after these.
            self.failed(Unavailable(f"{self._client.venue} does not tell of the trades of {self._job.symbol}"))

    def _is_deaf(self, found: Found) -> bool:
        """Whether the socket had the time to tell of what REST shows."""
        assert self._subscription is not None
        exchange_time = self._feed.exchange_time(self._subscription)
        return exchange_time is not None and any(trade[TIME] < exchange_time - DEAF_NS for trade in found.trades)

    def _mark(self, mark: records.TickMark) -> None:
        mark.ticker = self._job.ticker
        self._around.publisher.mark(self._lane, mark)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            self.failed(error if isinstance(error, Exception) else RuntimeError(repr(error)))

    def _count(self) -> None:
        counts = self._stream.counts
        now = (
            counts.duplicates,
            counts.late,
            counts.gaps,
            counts.missing,
            counts.repairs,
            counts.repaired,
            counts.absent,
        )
        for counter, new, old in zip(_COUNTERS, now, self._counted, strict=False):
            if new > old:
                counter.labels(self._client.venue).inc(new - old)
        self._counted = (*now, 0)


_COUNTERS = (
    metrics.DUPLICATES,
    metrics.LATE,
    metrics.GAPS,
    metrics.MISSING,
    metrics.REPAIRS,
    metrics.REPAIRED,
    metrics.ABSENT,
)


def _reaches(repair: Repair, found: Found) -> bool:
    newest = found.trades[-1] if found.trades else None
    return repair.is_reached_by(newest, {trade[TRADE_ID] for trade in found.trades})


def _complete_from(trades: Sequence[Trade], now: int) -> int:
    """Trades of the first one's own time may be missing; none that is later."""
    return trades[0][TIME] + 1 if trades else now


def _newest(found: Found, since: int) -> Trade:
    """The trade after which the stream goes on, or when there was none yet."""
    if found.trades:
        return found.trades[-1]
    if found.previous is not None:
        return found.previous
    return (0, since - 1, 0.0, 0.0, 0, "", 0)
