"""Publishes all tickers' trades and marks to the bus.

The event loop sends each publish itself and polls for its answer: waking a thread for it would take longer than the
publish does without the disk. A few threads do what may have to wait, such as repetitions.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tenacity import RetryCallState, Retrying, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from bus import Bus, Record, SequenceStamp
from bus.api import PendingPublish
from bus.dead_letters import Letter, put_aside
from bus.topics import TICK_MARKS, TICKS
from candlewright.wire import streams
from candlewright.wire.errors import BusError, BusFull, BusUnavailable, CandlewrightError
from core.background import start_thread
from core.log import get_logger
from ingestor.realtime import metrics
from ingestor.trade import Trade, tick_batch
from protobuf import records_pb2 as records

log = get_logger()

#: The most trades in one record.
MAX_BATCH = 4_000
#: Trades of one ticker that may wait for the bus; beyond this, its socket is not read.
MAX_UNPUBLISHED = 20_000
#: The event loop does not encode more trades at a time.
_FEW_TRADES = 200
#: Publishes that wait.
THREADS = 12
#: How often (s) a publish without an answer is checked for its time limit.
_LOOK_SECONDS = 1.0
#: The part named in dead letters.
PART = "ingestor"


@dataclass(slots=True)
class _Trades:
    """`clock_ahead`, `exchange_ahead`: as in TickBatch."""

    rows: list[Trade]
    clock_ahead: int | None = None
    exchange_ahead: int | None = None

    def may_join(self, other: "_Trades") -> bool:
        return (self.clock_ahead, self.exchange_ahead) == (other.clock_ahead, other.exchange_ahead)


@dataclass(slots=True)
class _Aside:
    """Trades for `dead_letters`."""

    rows: list[Trade]
    reason: str


_Item = _Trades | _Aside | records.TickMark


@dataclass(frozen=True, slots=True)
class _Call:
    """One publish: the arguments of `publish_as`. `trades`: how many it has; `began`: when it was made."""

    topic: str
    records: Sequence[Record]
    number: int
    trades: int
    began: float = field(default_factory=time.perf_counter)


@dataclass(kw_only=True, slots=True)
class Lane:
    """One job's queue to the bus: items are published in the order in which they were handed over, or the lane breaks.

    `sequence`: the number of the last trade on the bus; `calls`: the number of publishes so far; `call`: the one that
    may not be on the bus yet. `on_broken` is called once, in the event loop.
    """

    ticker: str
    job_id: str
    venue: str
    on_broken: Callable[[CandlewrightError], None]
    sequence: int = 0
    calls: int = 0
    call: _Call | None = None
    unpublished: int = 0
    is_closed: bool = False
    is_queued: bool = False
    items: "deque[_Item]" = field(default_factory=deque)
    idle: "asyncio.Event | None" = None

    @property
    def is_full(self) -> bool:
        return self.unpublished > MAX_UNPUBLISHED


class LanePublisher:
    """`publish` and `mark` are called from the event loop and never wait."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Condition()
        self._queue: deque[Lane] = deque()
        self._is_over = False
        #: Publishes that the event loop polls for.
        self._pending: dict[PendingPublish, asyncio.TimerHandle] = {}
        self._threads = [start_thread("ticks", self._run) for _ in range(THREADS)]

    def publish(
        self, lane: Lane, trades: Sequence[Trade], clock_ahead: int | None = None, *, exchange_ahead: int | None = None
    ) -> None:
        """Queue trades. `clock_ahead`: only for trades that had to be requested, how far (ns) the exchange's clock is
        ahead of this machine's; `exchange_ahead`: the most that it is ahead, for any trades.
        """
        with self._lock:
            for start in range(0, len(trades), MAX_BATCH):
                part = list(trades[start : start + MAX_BATCH])
                lane.items.append(_Trades(part, clock_ahead, exchange_ahead))
            lane.unpublished += len(trades)
            self._enqueue(lane)

    def put_aside(self, lane: Lane, trades: Sequence[Trade], reason: str) -> None:
        """Queue trades as dead letters instead of publishing them."""
        with self._lock:
            lane.items.append(_Aside(list(trades), reason))
            self._enqueue(lane)

    def mark(self, lane: Lane, mark: records.TickMark) -> None:
        with self._lock:
            if mark.HasField("clock"):
                # Only the newest time counts, so a waiting clock mark moves up, and the trades around it can be
                # published together.
                kept = [
                    item for item in lane.items if not isinstance(item, records.TickMark) or not item.HasField("clock")
                ]
                if len(kept) < len(lane.items):
                    lane.items = deque(kept)
            lane.items.append(mark)
            self._enqueue(lane)

    def _enqueue(self, lane: Lane) -> None:
        if lane.is_closed:
            lane.items.clear()
            lane.unpublished = 0
        elif not lane.is_queued:
            lane.is_queued = True
            self._begin(lane)

    async def drained(self, lane: Lane) -> None:
        """Wait until everything handed over is on the bus, or the lane is broken."""
        with self._lock:
            if lane.is_closed or (not lane.is_queued and not lane.items):
                return
            lane.idle = asyncio.Event()
        await lane.idle.wait()

    def close_lane(self, lane: Lane) -> None:
        """Drop everything that was handed over but not yet published."""
        with self._lock:
            lane.is_closed = True
            lane.items.clear()
            lane.unpublished = 0

    def close(self) -> None:
        for pending, timer in self._pending.items():
            self._loop.remove_reader(pending)
            timer.cancel()
        self._pending.clear()
        with self._lock:
            self._is_over = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(10)

    # ---- in the event loop

    def _begin(self, lane: Lane) -> None:
        """Publish the lane's next items, if possible without waiting."""
        try:
            pending = self._begun(lane)
        except Exception as error:
            self._failed(lane, error)
            self._done(lane)
            return
        if pending is None:
            self._leave_to_thread(lane)
        else:
            self._await(lane, pending)

    def _begun(self, lane: Lane) -> PendingPublish | None:
        if lane.unpublished > _FEW_TRADES or isinstance(lane.items[0], _Aside):
            return None
        if (call := self._next_call(lane)) is None:
            return None
        return self._bus.begin_publish_as(
            call.topic, call.records, writer=lane.job_id, number=call.number, lease=lane.job_id, is_contiguous=True
        )

    def _await(self, lane: Lane, pending: PendingPublish) -> None:
        self._loop.add_reader(pending, self._look, lane, pending)
        self._pending[pending] = self._loop.call_later(_LOOK_SECONDS, self._look, lane, pending)

    def _look(self, lane: Lane, pending: PendingPublish) -> None:
        # First, because the connection may get another call, or be closed.
        self._loop.remove_reader(pending)
        self._pending.pop(pending).cancel()
        try:
            if not pending.is_done():
                self._await(lane, pending)
                return
        except BusUnavailable:
            with self._lock:
                self._leave_to_thread(lane)
            return
        self._wrote(lane)
        with self._lock:
            if lane.items and not lane.is_closed:
                self._begin(lane)
            else:
                self._done(lane)

    def _leave_to_thread(self, lane: Lane) -> None:
        self._queue.append(lane)
        self._lock.notify()

    # ---- the threads: each lane is handled by one at a time

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._is_over:
                    self._lock.wait()
                if self._is_over:
                    return
                lane = self._queue.popleft()
            try:
                self._send(lane)
            except Exception as error:
                self._failed(lane, error)
            self._done(lane)

    @staticmethod
    def _next(lane: Lane) -> _Trades | list[records.TickMark] | None:
        """The next run of queued trades or marks, up to MAX_BATCH trades."""
        trades = _Trades([])
        marks: list[records.TickMark] = []
        while lane.items:
            item = lane.items[0]
            if isinstance(item, _Trades):
                is_other = bool(trades.rows) and not item.may_join(trades)
                if marks or is_other or (trades.rows and len(trades.rows) + len(item.rows) > MAX_BATCH):
                    break
                trades.rows.extend(item.rows)
                trades.clock_ahead, trades.exchange_ahead = item.clock_ahead, item.exchange_ahead
            elif trades.rows or isinstance(item, _Aside):
                break
            else:
                marks.append(item)
            lane.items.popleft()
        return trades if trades.rows else marks or None

    def _done(self, lane: Lane) -> None:
        with self._lock:
            if lane.items and not lane.is_closed:
                self._leave_to_thread(lane)
                return
            lane.is_queued = False
            if lane.idle is not None:
                self._call(lane.idle.set)
                lane.idle = None

    def _send(self, lane: Lane) -> None:
        """Repeated until it succeeds, because the bus may be full or unreachable."""
        with self._lock:
            if lane.is_closed or (lane.call is None and not lane.items):
                return
            aside = lane.items.popleft() if lane.call is None and isinstance(lane.items[0], _Aside) else None
        if isinstance(aside, _Aside):
            self._send_aside(lane, aside)
            return
        if (call := lane.call or self._next_call(lane)) is not None:
            # Exactly once, even if an earlier attempt was carried out but its answer was lost. Raises CallsLost if the
            # store has lost earlier publishes; the next holder of the job starts from what is left and requests the
            # trades since.
            publish = partial(self._bus.publish_as, call.topic, call.records, writer=lane.job_id, number=call.number)
            self._retrying(lane)(partial(publish, lease=lane.job_id, is_contiguous=True))
            self._wrote(lane)

    def _send_aside(self, lane: Lane, aside: _Aside) -> None:
        letter = Letter(TICKS, tick_batch(lane.ticker, aside.rows), aside.reason, lane.ticker.encode())
        self._retrying(lane)(partial(put_aside, self._bus, PART, [letter]))
        metrics.PUT_ASIDE.labels(lane.venue).inc(len(aside.rows))

    def _next_call(self, lane: Lane) -> _Call | None:
        with self._lock:
            batch = self._next(lane)
        if batch is None:
            return None
        key = lane.ticker.encode()
        if isinstance(batch, _Trades):
            count = len(batch.rows)
            value = tick_batch(lane.ticker, batch.rows, batch.clock_ahead, exchange_ahead=batch.exchange_ahead)
            stamp = SequenceStamp(streams.ticks(lane.ticker), count, tag=streams.TICKS.tag)
            topic, found = TICKS, [Record(value, key=key, partition_key=key, sequence=stamp)]
        else:
            count, topic = 0, TICK_MARKS
            for mark in batch:
                _stamp(mark, lane.sequence)
            found = [Record(mark.SerializeToString(), key=key, partition_key=key) for mark in batch]
        lane.calls += 1
        lane.call = _Call(topic, found, lane.calls, count)
        return lane.call

    def _wrote(self, lane: Lane) -> None:
        """The lane's call is on the bus."""
        call, lane.call = lane.call, None
        if call is None or not call.trades:
            return
        metrics.PUBLISH_SECONDS.observe(time.perf_counter() - call.began)
        metrics.TRADES.labels(lane.venue).inc(call.trades)
        with self._lock:
            lane.sequence += call.trades
            lane.unpublished = max(0, lane.unpublished - call.trades)

    def _retrying(self, lane: Lane) -> Retrying:
        return Retrying(
            # Wait for a full or unreachable bus; the socket is not read meanwhile. The end of the job ends the wait.
            retry=retry_if_exception_type((BusFull, BusUnavailable)),
            wait=wait_random_exponential(multiplier=0.05, max=1),
            stop=lambda state: lane.is_closed or self._is_over,
            before_sleep=_count_wait,
            reraise=True,
        )

    def _broke(self, lane: Lane, error: CandlewrightError) -> None:
        with self._lock:
            if lane.is_closed:
                return
            lane.is_closed = True
            lane.items.clear()
            lane.unpublished = 0
        self._call(lambda: lane.on_broken(error))

    def _failed(self, lane: Lane, error: Exception) -> None:
        if not isinstance(error, CandlewrightError):
            # An internal error ends only this job, which goes to another ingestor; the others are still served.
            log.error("publish_crashed", job_id=lane.job_id, exc_info=error)
            error = BusError(repr(error)[:200])
        self._broke(lane, error)

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # The event loop has ended, and with it every listener.
            log.info("publisher_outlived_loop")


def _stamp(mark: records.TickMark, sequence: int) -> None:
    """Set the number of the last trade before the mark, counting earlier runs of the ticker; the mark holds after that
    trade and before every later one.
    """
    if mark.WhichOneof("body") == "clock":
        mark.clock.sequence = sequence
    else:
        mark.after_sequence = sequence


def _count_wait(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    metrics.BUS_WAITS.labels(type(error).__name__).inc()
