"""Writes batches to the bus, one after the other, in a separate thread, so that the loop never waits."""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import tenacity
from google.protobuf.message import DecodeError

from broker.events import Event, MarksRefused, PagesPublished, PublishRefused, SnapshotPublished, VenueLearned
from broker.journal import records
from broker.journal.batch import Leases, Results
from broker.metrics import BUS_RETRIES, REFUSED_PUBLISHES, WRITE_SECONDS
from bus import Log, topics
from bus.api import Bus, Pending, PendingPublish, Record, SequenceStamp
from bus.dead_letters import put_aside
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import streams
from candlewright.wire.errors import BusFull, BusUnavailable, LeaseLost
from core.background import start_thread
from core.log import get_logger
from protobuf import records_pb2 as rec

#: The part named in dead letters.
PART = "broker"
TABLE_REALTIME = topics.TABLE_REALTIME
#: The needs that the pipeline was last given for each ticker: ticker -> Wanted. A ticker is listed from before its
#: first mark until after the mark that ends its needs.
TABLE_WANTED = topics.TABLE_WANTED
#: How long (s) the record of a venue known only to foreign ingestors lasts unless it is renewed.
VENUE_KEEP_SECONDS = 90.0
#: A write that takes longer (s) is shown on the status page.
SLOW_SECONDS = 2.0
_STATE_SECONDS = 7 * 86_400.0

log = get_logger()

Batch = TypeVar("Batch", Leases, Results)


class OutcomeLog:
    """Writes the topic `history_outcomes`, which has no other writer.

    Calls are numbered, so a call repeated after its answer was lost appends nothing twice.
    """

    def __init__(self, bus: Log, ends: dict[int, int]) -> None:
        self._bus = bus
        self.ends = ends
        self._writer = f"broker:{secrets.token_hex(8)}"
        self._number = 1

    def publish(self, outcomes: Sequence[Record]) -> None:
        """Append outcomes. A call that raised must be repeated with the same outcomes before any others."""
        positions = self._bus.publish_as(topics.HISTORY_OUTCOMES, outcomes, writer=self._writer, number=self._number)
        self._wrote({position.partition: position.offset + 1 for position in positions})

    def begin(self, outcomes: Sequence[Record]) -> "PendingOutcomes | None":
        """`publish` without waiting; None if that is not possible. If it fails, repeat it with `publish`."""
        pending = self._bus.begin_publish_as(
            topics.HISTORY_OUTCOMES, outcomes, writer=self._writer, number=self._number
        )
        return None if pending is None else PendingOutcomes(pending, self._wrote)

    def _wrote(self, ends: Mapping[int, int]) -> None:
        self.ends.update(ends)
        self._number += 1


class PendingOutcomes:
    """Outcomes being written; once they are, the log's ends are updated."""

    def __init__(self, pending: PendingPublish, wrote: Callable[[Mapping[int, int]], None]) -> None:
        self._pending = pending
        self._wrote = wrote

    def fileno(self) -> int:
        return self._pending.fileno()

    def is_done(self) -> bool:
        is_done = self._pending.is_done()
        if is_done:
            self._wrote(self._pending.ends)
        return is_done


class BusWriter:
    """Writes batches. Every step may be repeated."""

    def __init__(self, bus: Bus, outcomes: OutcomeLog) -> None:
        self._bus = bus
        self.outcomes = outcomes

    def begin_leases(self, batch: Leases) -> Pending | None:
        """`write_leases` without waiting, for a batch without marks; None if that is not possible."""
        if batch.marks:
            return None
        return self._bus.begin_grant(batch.grant, revoking=[*batch.revoke, *batch.finished])

    def begin_results(self, batch: Results) -> Pending | None:
        """`write_results` without waiting, for a batch with outcomes only; None if that is not possible."""
        return self.outcomes.begin(batch.outcomes) if batch.has_outcomes_alone else None

    def write_leases(self, batch: Leases) -> None:
        """Write the batch. Raises BusUnavailable; as with `write_results`, another call continues where this one
        stopped.
        """
        if batch.marks:
            self._publish_marks(batch)
        if batch.grant or batch.revoke or batch.finished:
            self._bus.grant(batch.grant, revoking=[*batch.revoke, *batch.finished])
            batch.grant, batch.revoke, batch.finished = {}, {}, []

    def _publish_marks(self, batch: Leases) -> None:
        """Publish marks. A repeated mark has no effect, and a full topic must not delay the leases of other jobs."""
        self._bus.put(TABLE_WANTED, {ticker: wanted for ticker, wanted in batch.marks.items() if wanted})
        last = self._bus.last_sequences([streams.ticks(ticker) for ticker in batch.marks])
        marks = [
            _after(records.mark_record(ticker, wanted), sequence)
            for (ticker, wanted), sequence in zip(batch.marks.items(), last, strict=True)
        ]
        try:
            self._bus.publish(topics.TICK_MARKS, marks)
        except BusFull as error:
            REFUSED_PUBLISHES.inc()
            log.warning("marks_refused", tickers=len(marks), error=str(error))
            batch.events.append(MarksRefused(tuple(batch.marks)))
        else:
            self._bus.delete(TABLE_WANTED, [ticker for ticker, wanted in batch.marks.items() if not wanted])
        batch.marks = {}

    def write_results(self, batch: Results) -> None:
        """Write the batch. Raises BusUnavailable and BusFull."""
        bus = self._bus
        while batch.pages:
            self._publish_pages(batch)
        while batch.snapshots:
            self._publish_snapshot(batch)
        while batch.ticks:
            self._publish_ticks(batch)
        put_aside(bus, PART, batch.aside)
        batch.aside = []
        if batch.clocks:
            self._publish_clocks(batch)
        if batch.questions:
            self._publish_questions(batch)
        if batch.outcomes:
            self.outcomes.publish(batch.outcomes)
            batch.outcomes = []
        self._write_tables(batch)
        for topic, positions in batch.holds.items():
            bus.hold(topic, topics.READER_BROKER, positions)
        batch.holds = {}

    def _write_tables(self, batch: Results) -> None:
        bus = self._bus
        # A request must be recorded as done before it is forgotten, or a restart would begin it again.
        if batch.put_states:
            bus.put(topics.TABLE_REQUEST_STATES, batch.put_states, keep_seconds=_STATE_SECONDS)
            batch.put_states = {}
        if batch.drop_states:
            bus.delete(topics.TABLE_REQUEST_STATES, list(batch.drop_states))
            batch.drop_states = {}
        if batch.save_realtime:
            bus.put(TABLE_REALTIME, batch.save_realtime)
            batch.save_realtime = {}
        if batch.forget_realtime:
            bus.delete(TABLE_REALTIME, list(batch.forget_realtime))
            batch.forget_realtime = {}
        if batch.venues:
            names = list(batch.venues)
            for name, value in zip(names, bus.get(topics.TABLE_VENUES, names), strict=True):
                batch.events.append(_venue_learned(name, value))
            batch.venues = {}
        if batch.put_venues:
            now = time.time_ns()
            bare = {name: cw.Venue(venue=name, is_live=True, updated_at=now) for name in batch.put_venues}
            values = {name: venue.SerializeToString() for name, venue in bare.items()}
            bus.put(topics.TABLE_VENUES, values, keep_seconds=VENUE_KEEP_SECONDS)
            batch.put_venues = {}
        if batch.served is not None:
            bus.put(topics.TABLE_SERVED, {topics.SERVED_KEY: batch.served}, keep_seconds=VENUE_KEEP_SECONDS)
            batch.served = None

    def _publish_questions(self, batch: Results) -> None:
        """Publish questions. One that finds no room is dropped, and its range is fetched."""
        try:
            self._bus.publish(topics.PROOF_QUESTIONS, batch.questions)
        except BusFull as error:
            REFUSED_PUBLISHES.inc()
            log.warning("questions_refused", questions=len(batch.questions), error=str(error))
        batch.questions = []

    def _publish_pages(self, batch: Results) -> None:
        pages = batch.pages[0]
        event: Event
        try:
            positions = self._bus.publish(topics.HISTORY, list(records.page_records(pages)), lease=pages.job_id)
        except (LeaseLost, BusFull) as error:
            event = _refused(pages.job_id, error)
        else:
            spans = records.spans_of(positions)
            event = PagesPublished(pages.job_id, positions[0].partition, spans)
        batch.events.append(event)
        del batch.pages[0]

    def _publish_snapshot(self, batch: Results) -> None:
        command = batch.snapshots[0]
        snapshot = command.snapshot
        key = snapshot.ticker.encode()
        stamp = SequenceStamp(streams.snapshot(snapshot.ticker), tag=streams.SNAPSHOTS.tag)
        record = Record(snapshot.SerializeToString(), key=key, partition_key=key, sequence=stamp)
        try:
            self._bus.publish(topics.SNAPSHOTS, [record], lease=command.job_id)
        except (LeaseLost, BusFull) as error:
            batch.events.append(_refused(command.job_id, error))
        else:
            batch.events.append(SnapshotPublished(command.job_id))
        del batch.snapshots[0]

    def _publish_ticks(self, batch: Results) -> None:
        """Publish all batches of the first job in one call, in order."""
        job_id = batch.ticks[0].job_id
        mine = [command.batch for command in batch.ticks if command.job_id == job_id]
        try:
            self._bus.publish(topics.TICKS, [_ticks_record(ticks) for ticks in mine], lease=job_id)
        except (LeaseLost, BusFull) as error:
            batch.events.append(_refused(job_id, error))
        batch.ticks = [command for command in batch.ticks if command.job_id != job_id]

    def _publish_clocks(self, batch: Results) -> None:
        """Publish clock marks after the trades, so that each names the last one. A lost mark is replaced a second
        later.
        """
        last = self._bus.last_sequences([streams.ticks(ticker) for ticker in batch.clocks])
        marks = [
            records.clock_record(ticker, exchange_time, sequence)
            for (ticker, exchange_time), sequence in zip(batch.clocks.items(), last, strict=True)
        ]
        try:
            self._bus.publish(topics.TICK_MARKS, marks)
        except BusFull as error:
            REFUSED_PUBLISHES.inc()
            log.warning("clocks_refused", tickers=len(marks), error=str(error))
        batch.clocks = {}


def _ticks_record(ticks: cw.TickBatch) -> Record:
    key = ticks.ticker.encode()
    stamp = SequenceStamp(streams.ticks(ticks.ticker), len(ticks.timestamp), tag=streams.TICKS.tag)
    return Record(ticks.SerializeToString(), key=key, partition_key=key, sequence=stamp)


def _refused(job_id: str, error: LeaseLost | BusFull) -> PublishRefused:
    REFUSED_PUBLISHES.inc()
    log.warning("publish_refused", job_id=job_id, error=str(error))
    return PublishRefused(job_id, str(error))


def _venue_learned(name: str, value: bytes | None) -> VenueLearned:
    venue = cw.Venue()
    try:
        venue.ParseFromString(value or b"")
    except DecodeError:
        log.warning("venue_record_unreadable", venue=name)
    is_bare = not (venue.max_candles_per_request or venue.period_seconds or venue.market_count)
    return VenueLearned(name, venue.max_candles_per_request or 1_000, venue.depth_candles, is_bare)


def slowness(since: float) -> str:
    """The problem of a write that has been running since `since`, or an empty string."""
    waited = time.monotonic() - since
    return f"the bus has not answered for {waited:.0f} seconds" if waited > SLOW_SECONDS else ""


class WriterThread(Generic[Batch]):
    """Handles one batch at a time: after `submit`, `done` returns it, and `wake` is called when it is ready.

    While the bus cannot be reached, the batch is retried until `close`, and `problem` says why.
    """

    def __init__(self, name: str, write: Callable[[Batch], None], wake: Callable[[], None]) -> None:
        self._write_batch: Callable[[Batch], None] = write
        self._wake = wake
        self._inbox: queue.SimpleQueue[Batch | None] = queue.SimpleQueue()
        self._finished: queue.SimpleQueue[Batch] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self.is_busy = False
        self.busy_since = 0.0
        self.problem = ""
        self.failure: BaseException | None = None
        self._thread = start_thread(name, self._run, on_failure=self._ended)

    def complaint(self) -> str:
        """The problem that keeps this thread from writing, or an empty string."""
        if self.problem:
            return self.problem
        return slowness(self.busy_since) if self.is_busy else ""

    def submit(self, batch: Batch) -> None:
        self.is_busy = True
        self.busy_since = time.monotonic()
        self._inbox.put(batch)

    def done(self) -> Batch | None:
        """The batch that was written, once."""
        if self.failure is not None:
            raise self.failure
        if not self.is_busy:
            return None
        try:
            batch = self._finished.get_nowait()
        except queue.Empty:
            return None
        self.is_busy = False
        return batch

    def close(self, patience_seconds: float) -> None:
        """Wait up to `patience_seconds` for the current batch to end."""
        self._inbox.put(None)
        self._thread.join(patience_seconds)
        self._stopping.set()
        self._thread.join(patience_seconds)

    def _run(self) -> None:
        try:
            while (batch := self._inbox.get()) is not None:
                started = time.perf_counter()
                self._write(batch)
                WRITE_SECONDS.observe(time.perf_counter() - started)
                self._finished.put(batch)
                self._wake()
        except tenacity.RetryError:
            log.warning("bus_write_abandoned", reason="the broker stops while the bus is unreachable")

    def _ended(self, error: BaseException) -> None:
        """Have the main loop raise `error`, which ends the process, because a broker that cannot write must not
        continue.
        """
        self.failure = error
        self._wake()

    def _write(self, batch: Batch) -> None:
        try:
            self._write_batch(batch)
            return
        except (BusUnavailable, BusFull) as error:
            self._tell(error)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type((BusUnavailable, BusFull)),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
            stop=tenacity.stop_when_event_set(self._stopping),
            sleep=tenacity.sleep_using_event(self._stopping),
            before_sleep=self._before_sleep,
        )
        retrying(self._write_batch, batch)
        self.problem = ""

    def _before_sleep(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        if error is not None:
            self._tell(error)

    def _tell(self, error: BaseException) -> None:
        BUS_RETRIES.inc()
        text = f"the bus does not take what the broker decided: {error}"
        if text != self.problem:
            log.warning("bus_write_failed", error=str(error))
        self.problem = text


def _after(mark: Record, sequence: int) -> Record:
    """A serialised TickMark that applies after this trade; earlier trades keep the previous needs."""
    value = mark.value + rec.TickMark(after_sequence=sequence).SerializeToString()
    return Record(value, key=mark.key, partition_key=mark.partition_key)
