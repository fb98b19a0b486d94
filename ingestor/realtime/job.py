"""One realtime job: a ticker's stream between its socket, REST and the bus."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace

from candlewright.wire.errors import ExchangeError, Unavailable, UnknownTicker
from candlewright.wire.grid import SECOND, open_containing
from core.background import awaited_task
from core.log import get_logger
from ingestor.events import Job
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.realtime import metrics
from ingestor.realtime.aggregates import seed_of
from ingestor.realtime.doubt import Doubt
from ingestor.realtime.feed import Feed, Subscription
from ingestor.realtime.handover import TAIL_SECONDS, Tail, Tails
from ingestor.realtime.lag import Lag
from ingestor.realtime.lanes import Lane, LanePublisher
from ingestor.realtime.loose_stream import LooseStream
from ingestor.realtime.owed import OwedGap, OwedGaps
from ingestor.realtime.rate import Rate
from ingestor.realtime.rest_trades import LAG_PAUSES, Anchor, Found, RestTrades, rest_trades_of
from ingestor.realtime.sampling import BarSampler
from ingestor.realtime.seeds import Seeds
from ingestor.realtime.stream import (
    MAX_WAITING,
    DenseStream,
    Lost,
    Outcome,
    Quiet,
    Release,
    Repair,
    Repaired,
    TradeStream,
)
from ingestor.threads import BusThreads
from ingestor.trade import ORDER, RECEIVED_AT, TIME, TRADE_ID, Trade, is_stand_in, put_aside
from ingestor.venues.description import MILLISECOND
from protobuf import far_ahead
from protobuf import records_pb2 as records

log = get_logger()

#: How long (s) an orderly end of a job waits for unpublished trades.
FLUSH_SECONDS = 0.5
#: A ticker whose last trade on the bus is older starts afresh.
HANDOVER_NS = TAIL_SECONDS * SECOND
#: A job that starts within this time of a minute's start covers the previous minute too, since it was requested then.
START_NS = 10 * SECOND
#: The shortest bars close on multiples of this; a silence is investigated before one passes.
MINUTE_NS = 60 * SECOND
MAX_UNPROVEN = 100
#: A trade that REST shows and that is this much older than the exchange's clock should have arrived by socket.
DEAF_NS = 10 * SECOND


@dataclass(kw_only=True, frozen=True, slots=True)
class Surroundings:
    """Resources and settings that the jobs of one ingestor share. `sample`: the share of one-minute bars that are
    compared; `max_ahead_ns`: how far ahead of its exchange's clock a trade may be; `silence_floor`: a silence of at
    most this many seconds is never unusual.
    """

    tails: Tails
    threads: BusThreads
    publisher: LanePublisher
    heartbeat: float
    sample: float
    max_ahead_ns: int
    silence_floor: float


class TickJob:
    """`run` until cancelled; raises LeaseLost, ExchangeError, BusError."""

    def __init__(self, around: Surroundings, client: VenueClient, feed: Feed, *, job: Job, progress: Progress) -> None:
        self._around = around
        self._client = client
        self._feed = feed
        self._job = job
        self._progress = progress
        quiet = Quiet(around.silence_floor)
        self._stream: TradeStream = DenseStream(quiet=quiet) if feed.stream.is_dense else LooseStream(quiet=quiet)
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lane = Lane(ticker=job.ticker, job_id=job.job_id, venue=job.venue, on_broken=self.failed)
        self._subscription: Subscription | None = None
        self._rest: RestTrades | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._clock_at = 0.0
        #: The exchange's time (ns) in the last mark.
        self._marked_ns = 0
        self._minute = 0
        #: At the last REST check: the time (ns) since which nothing had been heard, and the time of the check.
        self._unheard = (0, 0)
        #: Silences that could not be investigated, with the id of the last trade before each.
        self._unproven: list[tuple[Lost, int]] = []
        self._owed = OwedGaps()
        self._counted = (0,) * 8
        self._sampler = BarSampler(client, job.symbol, around.sample)
        self._doubt = Doubt(client, around.max_ahead_ns)
        self._lag = Lag(feed.stream.lag_ms * MILLISECOND)
        self._is_doubting = False
        self.rate = Rate(time.monotonic())

    async def run(self) -> None:
        market = await self._client.market(self._job.symbol, self._progress)
        self._rest = rest_trades_of(self._client, market, self._feed.stream)
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
        """Give released trades time to be published, since they are complete."""
        try:
            async with asyncio.timeout(FLUSH_SECONDS):
                await self._around.publisher.drained(self._lane)
        except TimeoutError:
            log.info("job_ended_unflushed", job_id=self._job.job_id, trades=self._lane.unpublished)

    # ---- the start

    async def _tail(self) -> Tail | None:
        ticker, tails = self._job.ticker, self._around.tails
        with tails.reading():
            tail = await self._around.threads.run(lambda: tails.read(ticker), self._progress)
        self._lane.sequence = tail.sequence
        return tail if tail.trades else None

    async def _open(self, tail: Tail | None) -> None:
        now = await self._client.clock(self._progress, newer_than=1.0)
        if tail is not None and now - tail.last[TIME] <= HANDOVER_NS:
            log.info("stream_continued", ticker=self._job.ticker, trade_id=tail.last[TRADE_ID])
            self._carry_out(self._stream.open(tail.last, tail.trades), is_live=False)
            return
        start = open_containing(now - START_NS, 60)
        try:
            found = await self._ask(Anchor(start), self._progress)
        except UnknownTicker:
            raise
        except ExchangeError as error:
            # The stream is useful without its past; `covered` says from when on it is complete.
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
        log.info("stream_started", ticker=self._job.ticker, covered_from=covered_from, trades=len(trades))
        seeds = Seeds(self._client, self._job.symbol)
        for seed in await seeds.before(covered_from, Progress()):
            self._mark(records.TickMark(seed=seed))

    # ---- calls from the feed

    @property
    def is_full(self) -> bool:
        return self._lane.is_full or self.waiting > MAX_WAITING

    @property
    def waiting(self) -> int:
        return self._stream.waiting + self._doubt.waiting

    @property
    def unpublished(self) -> int:
        return self._lane.unpublished

    def connected(self, at: float) -> None:
        self._doubt.follow(lambda: self._carry_out(self._stream.connected(at)))

    def closed(self, at: float) -> None:
        self._doubt.follow(lambda: self._carry_out(self._stream.closed(at)))

    def trades_came(self, trades: Sequence[Trade], at: float) -> None:
        self.rate.add(len(trades), at)
        if (ahead_ns := self._client.clock_ahead) is not None:
            self._lag.saw(trades[0][RECEIVED_AT] + ahead_ns - trades[0][TIME], at)
        if self._doubt.add(trades):
            self._take(trades, at)
        elif not self._is_doubting:
            self._is_doubting = True
            self._spawn(self._resolve_doubt())

    async def _resolve_doubt(self) -> None:
        await self._doubt.resolve(lambda trades: self._take(trades, time.monotonic()))
        self._is_doubting = False

    def _take(self, trades: Sequence[Trade], at: float) -> None:
        is_live = not self._stream.waiting
        self._carry_out(self._stream.came(trades, at), is_live=is_live)

    def failed(self, error: Exception) -> None:
        if not self._ended.done():
            self._ended.set_exception(error)

    def ticked(self, at: float) -> None:
        self._carry_out(self._stream.ticked(at))
        if (gap := self._owed.next_due(at)) is not None:
            self._spawn(self._ask_again(gap))
        assert self._subscription is not None
        silence = self._feed.silence(self._subscription)
        if silence is not None and silence < self._feed.frozen_seconds:
            # The next heartbeat is sent only while the socket is alive.
            self._progress.expect(self._around.heartbeat + 1.0)
        # Ticks arrive at about this interval, not exactly.
        if at - self._clock_at >= 0.9 * self._feed.mark_seconds(self._subscription):
            self._clock_at = at
            self._tell_clock(at)
            self._count()

    def _tell_clock(self, at: float) -> None:
        assert self._subscription is not None
        if self._subscription.batch or self._doubt.waiting:
            return
        exchange_time = self._feed.exchange_time(self._subscription)
        self._look_into_silence(time.time_ns() if exchange_time is None else exchange_time, at)
        if not self._stream.is_sound:
            return
        if exchange_time is None:
            return
        # Trades of the time after this may still be on their way.
        complete_ns = exchange_time - self._lag.ns(at)
        if complete_ns > self._marked_ns:
            self._marked_ns = complete_ns
            self._mark(records.TickMark(clock=records.Clock(exchange_time=complete_ns)))
            if self._sampler.is_due(complete_ns):
                self._spawn(self._sampler.compare(complete_ns))

    def _look_into_silence(self, now_ns: int, at: float) -> None:
        """After an unusual silence, ask REST before the clock passes the next minute, so that found trades are released
        first.
        """
        minute = now_ns // MINUTE_NS
        if minute == self._minute:
            return
        is_first, self._minute = not self._minute, minute
        silence_ns = int(self._stream.quiet.silence(at) * SECOND)
        if not is_first and (outcomes := self._stream.check(at)):
            self._unheard = now_ns - silence_ns, now_ns
            self._carry_out(outcomes)

    # ---- outcomes of the stream

    def _carry_out(self, outcomes: Sequence[Outcome], *, is_live: bool = True) -> None:
        """`is_live`: released trades arrived as they happened; others may be older than a newly registered trigger."""
        for outcome in outcomes:
            match outcome:
                case Release(trades):
                    self._release(trades, is_live=is_live)
                case Repair():
                    self._spawn(self._repair(outcome))
                case Lost():
                    self._tell_gap(outcome)

    def _release(self, trades: Sequence[Trade], *, is_live: bool) -> None:
        client = self._client
        if self._doubt.has_replaced and (aside := [trade for trade in trades if is_stand_in(trade)]):
            self._put_aside(put_aside(aside))
            trades = [trade for trade in trades if not is_stand_in(trade)]
        if trades:
            ahead = None if is_live else client.clock_ahead
            self._around.publisher.publish(self._lane, trades, ahead, exchange_ahead=self._doubt.ahead_ns)
            self._sampler.add(trades)
            if self._unproven and self._feed.stream.is_dense:
                self._prove(trades[-1][ORDER])

    def _prove(self, order: int) -> None:
        """Drop doubtful silences up to this id: if ids continued without a hole, nothing was missed, and every hole has
        its own gap.
        """
        for lost, last in self._unproven:
            if order > last:
                self._tell_gap(replace(lost, is_repaired=True))
        self._unproven = [entry for entry in self._unproven if order <= entry[1]]

    def _put_aside(self, trades: Sequence[Trade]) -> None:
        newest = max(trade[TIME] for trade in trades)
        reason = far_ahead.reason_of(
            self._job.ticker, newest, self._doubt.allowed_ns, max_ahead_ns=self._around.max_ahead_ns
        )
        self._around.publisher.put_aside(self._lane, trades, reason)
        log.warning("trades_put_aside", ticker=self._job.ticker, trades=len(trades), reason=reason)

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

    async def _ask(self, anchor: Anchor, progress: Progress) -> Found:
        """Ask REST for trades, and replace implausible times. Raises ExchangeError, BusError."""
        assert self._rest is not None
        found = await self._rest.after(anchor, progress)
        trades = await self._doubt.settled(found.trades)
        previous = await self._doubt.settled([found.previous]) if found.previous else [None]
        aggregates = [own for own in found.aggregates if own.time <= self._doubt.allowed_ns]
        is_covered = found.is_covered and len(aggregates) == len(found.aggregates)
        return replace(found, trades=trades, previous=previous[0], aggregates=aggregates, is_covered=is_covered)

    async def _repair(self, repair: Repair) -> None:
        anchor = self._anchor_of(repair)
        quiet = Progress()
        is_answered = True
        try:
            found = await self._ask(anchor, quiet)
            for pause in LAG_PAUSES:
                if _reaches(repair, found):
                    break
                await asyncio.sleep(pause)
                found = await self._ask(anchor, quiet)
        except ExchangeError as error:
            is_answered = False
            found = Found((), proven=False, reason=f"the exchange did not answer: {error}")
        proven = found.proven and _reaches(repair, found)
        if found.aggregates:
            self._mark(records.TickMark(seed=seed_of(found.aggregates)))
        reason = found.reason or "the exchange's newest trades do not reach this far"
        answer = Repaired(found.trades, proven, reason)
        known = self._stream.counts.repaired
        outcomes = self._stream.repaired(answer, time.monotonic())
        self._carry_out(outcomes, is_live=False)
        lost = tuple(outcome for outcome in outcomes if isinstance(outcome, Lost) and outcome.from_id)
        if lost and not is_answered:
            self._owed.add(repair, lost, time.monotonic())
        if not repair.is_recheck:
            return
        has_missed = self._stream.counts.repaired > known
        outcome = "missed" if has_missed else "nothing" if is_answered else "unanswered"
        metrics.SILENCES.labels(self._client.venue, outcome).inc()
        if not is_answered:
            self._doubt_silence(repair, found.reason)
        elif has_missed and self._is_deaf(found):
            # The next holder of the job subscribes again and continues after these.
            self.failed(Unavailable(f"{self._client.venue} does not send the trades of {self._job.symbol}"))

    def _anchor_of(self, repair: Repair) -> Anchor:
        after = repair.after
        return Anchor(
            after[TIME], after[ORDER] or None, repair.until, self._stream.known(), has_trade=bool(after[TRADE_ID])
        )

    async def _ask_again(self, gap: OwedGap) -> None:
        """Request a given-up gap again; trades found now are late, and their bars are revised."""
        try:
            found = await self._ask(self._anchor_of(gap.repair), Progress())
        except ExchangeError:
            self._owed.unanswered(time.monotonic())
            return
        self._owed.answered()
        if found.aggregates:
            self._mark(records.TickMark(seed=seed_of(found.aggregates)))
        proven = found.proven and _reaches(gap.repair, found)
        for lost in gap.lost:
            outcomes = self._stream.found_later(lost, Repaired(found.trades, proven, found.reason))
            self._carry_out(outcomes, is_live=False)
            if not any(isinstance(outcome, Lost) for outcome in outcomes):
                self._tell_gap(replace(lost, reason=f"requested again: {found.reason}"))

    def _doubt_silence(self, repair: Repair, reason: str) -> None:
        """Report a silence that could not be investigated, because bars that close now may lack its trades."""
        begin, end = self._unheard
        lost = Lost(
            from_id="",
            to_id="",
            from_time=begin,
            to_time=end,
            missing=None,
            reason=f"silent for longer than usual, and {reason}",
        )
        self._unproven = [*self._unproven, (lost, repair.after[ORDER])][-MAX_UNPROVEN:]
        self._tell_gap(lost)

    def _is_deaf(self, found: Found) -> bool:
        """Whether the socket failed to send what REST shows, although it had enough time."""
        assert self._subscription is not None
        exchange_time = self._feed.exchange_time(self._subscription)
        return exchange_time is not None and any(trade[TIME] < exchange_time - DEAF_NS for trade in found.trades)

    def _mark(self, mark: records.TickMark) -> None:
        mark.ticker = self._job.ticker
        mark.exchange_ahead = self._doubt.ahead_ns
        self._around.publisher.mark(self._lane, mark)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = awaited_task(work)
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
    newest = next((trade for trade in reversed(found.trades) if not is_stand_in(trade)), None)
    return repair.is_reached_by(newest, {trade[TRADE_ID] for trade in found.trades})


def _complete_from(trades: Sequence[Trade], now: int) -> int:
    """The time (ns) from which no trade is missing; trades at the first one's own time may be."""
    return trades[0][TIME] + 1 if trades else now


def _newest(found: Found, since: int) -> Trade:
    """The trade after which the stream continues; if there is none, a stand-in with the time up to which there was
    none.
    """
    if found.trades:
        return found.trades[-1]
    if found.previous is not None:
        return found.previous
    return (0, since - 1, 0.0, 0.0, 0, "", 0)
