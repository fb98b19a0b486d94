"""Publishes all tickers' trades and marks to the bus, with a few threads."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tenacity import RetryCallState, Retrying, retry_if_exception_type
from tenacity.wait import wait_random_exponential

from bus import Bus, Record, SequenceStamp
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
#: A durable publish waits for the disk; concurrent publishes of several tickers share that wait.
THREADS = 12
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


@dataclass(kw_only=True, slots=True)
class Lane:
    """One job's queue to the bus: items are published in the order in which they were handed over, or the lane breaks.

    `sequence`: the number of the last trade on the bus; `calls`: the number of publishes so far. `on_broken` is called
    once, in the event loop.
    """

    ticker: str
    job_id: str
    venue: str
    on_broken: Callable[[CandlewrightError], None]
    sequence: int = 0
    calls: int = 0
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
        self._threads = [start_thread("ticks", self._run) for _ in range(THREADS)]

    def publish(
        self, lane: Lane, trades: Sequence[Trade], clock_ahead: int | None = None, *, exchange_ahead: int | None = None
    ) -> None:
        """Queue trades. `clock_ahead`: only for trades that had to be requested, how far (ns) the exchange's clock is
        ahead of this machine's; `exchange_ahead`: the most that it is ahead, for any trades.
        """
        with self._lock:
            lane.items.append(_Trades(list(trades), clock_ahead, exchange_ahead))
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
            self._queue.append(lane)
            self._lock.notify()

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
        with self._lock:
            self._is_over = True
            self._lock.notify_all()
        for thread in self._threads:
            thread.join(10)

    # ---- the threads: each lane is handled by one at a time

    def _run(self) -> None:
        while True:
            with self._lock:
                while not self._queue and not self._is_over:
                    self._lock.wait()
                if self._is_over:
                    return
                lane = self._queue.popleft()
                batch = self._next(lane)
            try:
                if batch is not None:
                    self._send(lane, batch)
            except CandlewrightError as error:
                self._broke(lane, error)
            except Exception as error:
                # An internal error ends only this job, which goes to another ingestor; the thread keeps serving the
                # others.
                log.exception("publish_crashed", job_id=lane.job_id)
                self._broke(lane, BusError(repr(error)[:200]))
            self._done(lane)

    @staticmethod
    def _next(lane: Lane) -> "_Trades | _Aside | list[records.TickMark] | None":
        """The next run of queued items of one kind, up to MAX_BATCH trades."""
        if lane.items and isinstance(lane.items[0], _Aside):
            return lane.items.popleft()  # type: ignore[return-value]
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
                self._queue.append(lane)
                self._lock.notify()
                return
            lane.is_queued = False
            if lane.idle is not None:
                self._call(lane.idle.set)
                lane.idle = None

    def _send(self, lane: Lane, batch: "_Trades | _Aside | list[records.TickMark]") -> None:
        key = lane.ticker.encode()
        if isinstance(batch, _Aside):
            self._send_aside(lane, batch, key)
            return
        if isinstance(batch, _Trades):
            for start in range(0, len(batch.rows), MAX_BATCH):
                part = _Trades(batch.rows[start : start + MAX_BATCH], batch.clock_ahead, batch.exchange_ahead)
                self._send_trades(lane, part, key)
            return
        for mark in batch:
            _stamp(mark, lane.sequence)
        marks = [Record(mark.SerializeToString(), key=key, partition_key=key) for mark in batch]
        self._publish(lane, TICK_MARKS, marks)

    def _send_aside(self, lane: Lane, aside: _Aside, key: bytes) -> None:
        letter = Letter(TICKS, tick_batch(lane.ticker, aside.rows), aside.reason, key)
        self._retrying(lane)(partial(put_aside, self._bus, PART, [letter]))
        metrics.PUT_ASIDE.labels(lane.venue).inc(len(aside.rows))

    def _send_trades(self, lane: Lane, batch: _Trades, key: bytes) -> None:
        trades = batch.rows
        value = tick_batch(lane.ticker, trades, batch.clock_ahead, exchange_ahead=batch.exchange_ahead)
        stamp = SequenceStamp(streams.ticks(lane.ticker), len(trades), tag=streams.TICKS.tag)
        record = Record(value, key=key, partition_key=key, sequence=stamp)
        started = time.perf_counter()
        self._publish(lane, TICKS, [record])
        metrics.PUBLISH_SECONDS.observe(time.perf_counter() - started)
        metrics.TRADES.labels(lane.venue).inc(len(trades))
        with self._lock:
            lane.sequence += len(trades)
            lane.unpublished = max(0, lane.unpublished - len(trades))

    def _publish(self, lane: Lane, topic: str, found: Sequence[Record]) -> None:
        """Publish exactly once, even if an earlier attempt was carried out but its answer was lost.

        Raises CallsLost if the store has lost earlier publishes; the next holder of the job starts from what is left
        and requests the trades since.
        """
        lane.calls += 1
        named: dict[str, Any] = {"writer": lane.job_id, "number": lane.calls, "lease": lane.job_id}
        self._retrying(lane)(partial(self._bus.publish_as, topic, found, **named, is_contiguous=True))

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
