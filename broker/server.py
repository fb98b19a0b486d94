"""The broker's loop: turns frames and records into events for the state, and carries out its commands on the bus and
the sockets.
"""

import contextlib
import gc
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import zmq

from broker import door
from broker.commands import AskHolder, Command, Note, Refuse, SendHeartbeats
from broker.events import (
    JOB_ID_LENGTH,
    ClockTicked,
    Connection,
    ConnectionLost,
    Event,
    HolderAsked,
    OutcomesWritten,
)
from broker.guard import Guard
from broker.journal.batch import Gatherer, Leases, Outgoing, Results
from broker.journal.feed import HELD_SECONDS, RECHECK_SECONDS, Feed, Release
from broker.journal.journal import Mark, replay
from broker.journal.lane import SOON_SECONDS, Lane
from broker.journal.records import progress_value
from broker.journal.retention import Retention, Trimmer
from broker.journal.writer import BusWriter, OutcomeLog
from broker.metrics import ENDED, NOTES, PROVEN_CANDLES, REFUSED, SIZES, UNASKED
from broker.state import BrokerState
from bus import dead_letters, topics
from bus.api import Bus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire.errors import BadFrame, BusError, ConfigurationError, RecordsLost
from core.http import Status
from core.log import get_logger
from core.settings import BrokerSettings

#: The most frames read in one round, so that a flood does not delay the bus and the clock.
MAX_FRAMES_PER_ROUND = 1_000
#: The most while Redis answers soon. Their decisions take about as long as a call, so the loop, Redis and ingestors
#: work in parallel, each on other jobs. If the disk is slow, few large calls are better.
FEW_FRAMES_PER_ROUND = 50
#: The most bytes of these frames, which are in memory together; a single message may exceed it.
MAX_BYTES_PER_ROUND = 16 << 20
#: Commands that may wait for the bus; beyond this, no frame is read, which slows ingestors down.
MAX_WAITING_COMMANDS = 50_000
#: A batch of about 70 jobs' results is written without waiting for more.
ENOUGH_RESULTS = 200
#: Unfinished requests held in memory; the rest stays on the bus.
MAX_REQUESTS = 200_000
#: After this many new requests, existing ones are excluded from garbage collection again.
MANY_REQUESTS = 5_000
#: The approximate size of an outcome on the bus, and the share of `history_outcomes` that may hold outcomes needed only
#: after a restart.
OUTCOME_BYTES = 256
PINNED_PART = 8
#: Time (s) between ticks of the state's clock, and, while it is quiet, at most.
TICK_SECONDS, QUIET_TICK_SECONDS = 0.1, 0.5
HOLD_SECONDS = 1.0
#: Time (s) between updates of the holds while pages wait for room.
SHORT_HOLD_SECONDS = 0.2
CLOSE_SECONDS = 5.0
_JOB_IDS_AT_ONCE = 1_024
#: Plain integers, which pyzmq accepts twice as fast as its enumerations.
_NOW = int(zmq.NOBLOCK)
_NOW_MORE = int(zmq.NOBLOCK | zmq.SNDMORE)

log = get_logger()


def _later(one: Mapping[int, int], other: Mapping[int, int]) -> dict[int, int]:
    return {partition: max(offset, other.get(partition, 0)) for partition, offset in one.items()}


class Waker:
    """Wakes the loop's poll from any thread."""

    def __init__(self) -> None:
        self.inlet, self._outlet = socket.socketpair()
        self.inlet.setblocking(False)
        self._outlet.setblocking(False)

    def __call__(self) -> None:
        # The buffer is full, or the loop has closed; either way, no further call is needed.
        with contextlib.suppress(BlockingIOError, OSError):
            self._outlet.send(b"w")

    @property
    def descriptor(self) -> int:
        """The descriptor that a poll for `inlet` returns."""
        return self.inlet.fileno()

    def drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self.inlet.recv(4_096)

    def wait(self, seconds: float) -> None:
        select.select([self.inlet], [], [], seconds)

    def close(self) -> None:
        self.inlet.close()
        self._outlet.close()


def job_ids() -> Iterator[str]:
    """Random ids of JOB_ID_LENGTH hexadecimal digits; the system's entropy is asked for many at once."""
    while True:
        digits = os.urandom(_JOB_IDS_AT_ONCE * JOB_ID_LENGTH // 2).hex()
        for at in range(0, len(digits), JOB_ID_LENGTH):
            yield digits[at : at + JOB_ID_LENGTH]


class BrokerServer:
    """Serves until `stop`. `address` is where ingestors connect, known once `start` has returned."""

    def __init__(
        self,
        settings: BrokerSettings,
        bus: Bus,
        retention: Retention | None = None,
        *,
        max_ahead_ns: int = door.MAX_AHEAD_NS,
        keys_in: Path | None = None,
    ) -> None:
        """`keys_in`: with keys on, the data directory that holds them."""
        self._settings = settings
        self._max_ahead_ns = max_ahead_ns
        self._bus = bus
        self._retention = retention or Retention()
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._waker = Waker()
        self._poller = zmq.Poller()
        self._guard = None if keys_in is None else Guard(self._context, keys_in)
        self._router = self._context.socket(zmq.ROUTER)
        #: The compiled `send` itself, without the convenience around it.
        self._send = super(zmq.Socket, self._router).send
        self._gathered = Gatherer()
        self._marks: deque[Mark] = deque()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._is_serving = False
        #: Often enough for any lease.
        self._quiet_seconds = min(QUIET_TICK_SECONDS, max(TICK_SECONDS, settings.lease_seconds / 10))
        self._held_at = self._rechecked_at = self._ticked_at = 0.0
        self._last_sizes: dict[str, int] = {}
        #: When events were last handled.
        self.moved_at = 0.0
        #: Where `requests` is held, and in which period of HELD_SECONDS that was written.
        self._held_first = -1, 0.0
        #: Requests that are excluded from garbage collection, and whether any object is.
        self._spared, self._is_sparing = 0, False
        #: Requests whose accepted pieces are in the progress table.
        self._saved: set[str] = set()
        self.address = ""

    # ---- start and stop

    def start(self) -> None:
        """Replay the journal, then bind the socket. Raises BusUnavailable, ConfigurationError."""
        at = time.monotonic()
        replayed = replay(self._bus, at)
        partitions = self._bus.partitions(topics.HISTORY)
        self.state = BrokerState(
            self._settings,
            job_ids().__next__,
            at,
            wall_ns=time.time_ns(),
            history_partitions=partitions,
            history_bytes=self._retention.max_bytes,
        )
        self.state.room.restore(replayed.unwritten, replayed.outcome_ends)
        self._next_offset = replayed.next_offset
        self._marks.append(replayed.mark)
        self._handle([replayed.measured, *replayed.events])
        outcomes = OutcomeLog(self._bus, replayed.outcome_ends)
        self._bind()
        self._outcomes = outcomes
        writer = BusWriter(self._bus, outcomes)
        wake, poller = self._waker, self._poller
        self._leases = Lane[Leases]("bus-leases", writer.begin_leases, writer.write_leases, wake=wake, poller=poller)
        self._results = Lane[Results](
            "bus-results", writer.begin_results, writer.write_results, wake=wake, poller=poller
        )
        self._feed = Feed(self._bus, replayed, self._waker)
        self._trimmer = Trimmer(self._bus, self._retention)
        self._is_serving = True
        log.info("broker_ready", address=self.address, requests=len(self.state.requests))

    def _bind(self) -> None:
        router = self._router
        router.setsockopt(zmq.ROUTER_MANDATORY, 1)
        router.setsockopt(zmq.ROUTER_HANDOVER, 1)
        router.setsockopt(zmq.MAXMSGSIZE, frames.MAX_FRAME_BYTES)
        router.setsockopt(zmq.LINGER, 0)
        router.setsockopt(zmq.RCVHWM, 10_000)
        router.setsockopt(zmq.SNDHWM, 10_000)
        interval = int(self._settings.heartbeat_seconds * 1_000)
        router.setsockopt(zmq.HEARTBEAT_IVL, interval)
        router.setsockopt(zmq.HEARTBEAT_TIMEOUT, 3 * interval)
        if self._guard is not None:
            self._guard.guard(router)
            self._guard.start()
        try:
            router.bind(self._settings.bind)
        except zmq.ZMQError as error:
            raise ConfigurationError(f"broker.bind {self._settings.bind}: {error}") from error
        self.address = router.getsockopt_string(zmq.LAST_ENDPOINT)

    def run(self) -> None:
        """Serve until `stop` is called, from any thread or a signal handler."""
        poller = self._poller
        poller.register(self._waker.inlet, zmq.POLLIN)
        poller.register(self._router, zmq.POLLIN)
        self._ticked_at = time.monotonic()
        was_open = True
        try:
            while not self._stopping.is_set():
                if self._failure is not None:
                    raise self._failure
                # Nothing can be dispatched until the leases are written, so frames may gather meanwhile; handling many
                # together takes less work and fewer wake-ups.
                is_due_soon = self._leases.is_due_soon
                has_room = self._gathered.size < MAX_WAITING_COMMANDS
                is_open = has_room and not is_due_soon
                if is_open != was_open:
                    poller.modify(self._router, zmq.POLLIN if is_open else 0)
                    was_open = is_open
                has_more = False
                if is_due_soon and has_room:
                    # Handle the frames that gathered meanwhile, since there is nothing else to do.
                    has_more = self._read_frames()
                is_quiet = self.state.is_quiet and not self._gathered.size
                due_at = self._ticked_at + (self._quiet_seconds if is_quiet else TICK_SECONDS)
                seconds = 0.0 if has_more else SOON_SECONDS if is_due_soon else due_at - time.monotonic()
                ready = [what for what, _ in poller.poll(max(0, int(seconds * 1_000)))]
                now = time.monotonic()
                is_due = now >= self._ticked_at + TICK_SECONDS
                is_woken = is_due or self._waker.descriptor in ready
                has_frames = self._router in ready
                if is_woken:
                    self._waker.drain()
                if is_woken or len(ready) > has_frames:
                    self._take_written(None if is_woken else ready)
                if is_due and is_quiet:
                    # What comes now finds the clock as it is, however long it stood.
                    self._tick(now)
                if is_woken:
                    self._take_portions()
                if has_frames or (is_due_soon and has_room and not self._leases.is_due_soon):
                    self._read_frames()
                if is_due and not is_quiet:
                    self._tick(now)
                self._submit(everything=is_due)
        except RecordsLost:
            self._forget_holds()
            raise
        finally:
            self._close()

    def _forget_holds(self) -> None:
        """Drop the holds on lost records, so that the next process reads the requests accepted since."""
        self._gathered = Gatherer()
        self._leases.close(CLOSE_SECONDS)
        self._results.close(CLOSE_SECONDS)
        with contextlib.suppress(BusError):
            for topic in (topics.REQUESTS, topics.HISTORY_OUTCOMES, topics.HISTORY):
                if partitions := self._bus.partitions(topic):
                    self._bus.hold(topic, topics.READER_BROKER, dict.fromkeys(range(partitions), 0))

    def stop(self) -> None:
        self._stopping.set()
        self._waker()

    def fail(self, error: BaseException) -> None:
        """Have `run` raise `error`, from any thread."""
        self._failure = error
        self._waker()

    def _close(self) -> None:
        self._is_serving = False
        deadline = time.monotonic() + CLOSE_SECONDS
        try:
            self._drain(deadline)
        finally:
            self._close_all(deadline)
        log.info("broker_stopped")

    def _drain(self, deadline: float) -> None:
        """Raises the error of a lane that has failed."""
        self._submit(everything=True)
        while (self._leases.is_busy or self._results.is_busy) and time.monotonic() < deadline:
            self._waker.wait(0.1)
            self._waker.drain()
            self._take_written()
            self._submit(everything=True)

    def _close_all(self, deadline: float) -> None:
        self._leases.close(max(0.0, deadline - time.monotonic()))
        self._results.close(max(0.0, deadline - time.monotonic()))
        self._feed.close()
        self._trimmer.close()
        self._router.close()
        if self._guard is not None:
            self._guard.close()
        self._context.destroy(linger=0)
        self._waker.close()

    # ---- input

    def _read_frames(self) -> bool:
        """Read the waiting frames, at most those of one round, and handle them; returns whether more may be waiting.

        They are all read before the first is handled, because each read releases the interpreter lock for a moment that
        is usually too short for a waiting writer, which wakes up without being able to continue.
        """
        wall_ns = time.time_ns()
        at = time.monotonic()
        events: list[Event] = []
        refused: list[tuple[Connection, BadFrame]] = []
        received, has_more = self._received()
        for connection, parts in received:
            try:
                events.append(door.event_of(connection, parts, at, wall_ns=wall_ns, max_ahead_ns=self._max_ahead_ns))
            except BadFrame as error:
                refused.append((connection, error))
        self._handle(events)
        for connection, refusal in refused:
            NOTES["bad_frame"].inc()
            log.warning("bad_frame", code=refusal.code, text=refusal.text)
            self._refuse(connection, refusal.code, refusal.text, refusal.request_id)
        return has_more

    def _received(self) -> tuple[list[tuple[Connection, list[bytes]]], bool]:
        receive, guard = self._router.recv, self._guard
        is_admitted = True
        messages: list[tuple[Connection, list[bytes]]] = []
        size = 0
        is_fast = self._leases.took_seconds < SOON_SECONDS
        for _ in range(FEW_FRAMES_PER_ROUND if is_fast else MAX_FRAMES_PER_ROUND):
            try:
                if guard is None:
                    connection = receive(_NOW)
                else:
                    head = receive(_NOW, False)
                    connection, is_admitted = head.bytes, guard.admits(head)
            except zmq.Again:
                return messages, False
            frame = receive(0, False)
            part = frame.bytes
            parts = [part]
            size += len(part)
            while frame.more:
                frame = receive(0, False)
                part = frame.bytes
                parts.append(part)
                size += len(part)
            if is_admitted:
                messages.append((connection, parts))
            if size > MAX_BYTES_PER_ROUND:
                break
        return messages, True

    def _take_portions(self) -> None:
        while (portion := self._feed.take()) is not None:
            if portion.events or self._marks[-1].outcomes != self._outcomes.ends:
                self._mark(Mark(self._next_offset, dict(self._outcomes.ends)))
            self._handle([portion.measured, *portion.events])
            self._next_offset = portion.next_offset
        self._feed.is_full = len(self.state.requests) >= MAX_REQUESTS
        self._feed.is_idle = self.state.is_quiet

    def _mark(self, mark: Mark) -> None:
        if self._marks and self._marks[-1].offset == mark.offset:
            self._marks[-1] = mark
        else:
            self._marks.append(mark)

    def _take_written(self, ready: Sequence[object] | None = None) -> None:
        leases = self._leases.done(ready)
        if leases is not None:
            self._send_all(leases.outgoing)
            self._handle(leases.events)
        results = self._results.done(ready)
        if results is not None:
            self._gathered.release(results.finished)
            if results.pieces:
                self._handle([OutcomesWritten(results.pieces, dict(self._outcomes.ends))])
            self._handle(results.events)

    def _tick(self, now: float) -> None:
        leases_wait = self._leases.busy_since <= self._ticked_at
        self._ticked_at = now
        self._handle([ClockTicked(now, time.time_ns(), leases_wait)])
        state = self.state
        if self._guard is not None:
            self._handle([ConnectionLost(connection) for connection in self._guard.revoked()])
        if now - self._held_at >= (SHORT_HOLD_SECONDS if state.room.trims else HOLD_SECONDS):
            self._held_at = now
            self._hold()
            if self._guard is not None:
                self._guard.forget(state.slots.peers)
            for status, count in self._gathered.ended.items():
                ENDED.labels(status.value).inc(count)
            self._gathered.ended.clear()
            lifecycle = state.lifecycle
            UNASKED.inc(lifecycle.unasked)
            PROVEN_CANDLES.inc(lifecycle.proven_candles)
            lifecycle.unasked = lifecycle.proven_candles = 0
            self._spare_requests()
            self._last_sizes = self.sizes()
            for what, size in self._last_sizes.items():
                SIZES.labels(what).set(size)
        if now - self._rechecked_at >= RECHECK_SECONDS:
            self._rechecked_at = now
            if state.decided:
                self._feed.check_finals(list(state.decided))

    def _spare_requests(self) -> None:
        """Exclude existing requests from garbage collection: a full collection visits every one, and with 190,000
        stopped the loop for seconds. Ended requests are freed by their reference counts, so the others stay excluded
        until few are left.
        """
        count = len(self.state.requests)
        self._spared = min(self._spared, count)
        if count > self._spared + MANY_REQUESTS:
            gc.freeze()
            self._spared, self._is_sparing = count, True
        elif self._is_sparing and count < MANY_REQUESTS // 2:
            gc.unfreeze()
            self._spared, self._is_sparing = 0, False

    # ---- output

    def _handle(self, events: Iterable[Event]) -> None:
        self.moved_at = time.monotonic()
        for command in self._gathered.add(self.state.handle_all(events)):
            self._act(command)

    def _act(self, command: Command) -> None:
        """Carry out a command that does not wait for the bus."""
        if isinstance(command, Note):
            NOTES[command.what].inc()
            log.info(command.what, **command.fields)
        elif isinstance(command, SendHeartbeats):
            self._send_all([(connection, door.HEARTBEAT_BODY, "") for connection in command.connections])
        elif isinstance(command, AskHolder):
            self._send_all([(command.holder, door.HEARTBEAT_BODY, "")])
            self._handle([HolderAsked(command.connection, command.job_id, command.at)])
        elif isinstance(command, Refuse):
            REFUSED.labels(command.code).inc()
            self._refuse(command.connection, command.code, command.text, command.request_id)

    def _submit(self, *, everything: bool = False) -> None:
        leases = self._gathered.leases
        if (leases.is_urgent or (everything and leases.size)) and not self._leases.is_busy:
            self._leases.submit(self._gathered.take_leases())
        # While leases are being written, small calls would only delay the next ones.
        enough = ENOUGH_RESULTS if self._leases.is_due_soon and not everything else 1
        if self._gathered.results_size >= enough and not self._results.is_busy:
            self._results.submit(self._gathered.take_results())

    def _refuse(self, connection: Connection, code: str, text: str, request_id: str) -> None:
        self._send_all([(connection, frames.encode_body(cw.Error(code=code, text=text, request_id=request_id)), "")])

    def _send_all(self, outgoing: Iterable[Outgoing]) -> None:
        send = self._send
        lost: list[Event] = []
        for connection, body, job_id in outgoing:
            try:
                send(connection, _NOW_MORE)
                send(frames.VERSION, _NOW_MORE)
                send(body, _NOW)
            except zmq.Again:
                NOTES["frame_dropped"].inc()
                lost.append(ConnectionLost(connection, job_id))
            except zmq.ZMQError as error:
                if error.errno != zmq.EHOSTUNREACH:
                    raise
                lost.append(ConnectionLost(connection, job_id))
        if lost:
            self._handle(lost)

    def _hold(self) -> None:
        """Release the records that no unfinished request needs any more."""
        oldest, oldest_historical = self.state.oldest_offsets()
        needed = self._next_offset if oldest_historical is None else oldest_historical
        while len(self._marks) > 1 and self._marks[1].offset <= needed:
            self._marks.popleft()
        mark = self._marks[0]
        first = self._next_offset if oldest is None else oldest
        if self._held_first != (first, self._held_at // HELD_SECONDS):
            self._held_first = first, self._held_at // HELD_SECONDS
            self._gathered.hold({topics.REQUESTS: {0: first}})
        self._release(mark)

    def _release(self, mark: Mark) -> None:
        """Move the holds to `mark`. Once there are many, this also releases outcomes that an unfinished request would
        need after a restart, after its pieces are saved. Outcomes that the history writer has not written yet are
        always kept.
        """
        state, progress = self.state, {}
        ends = state.room.outcome_ends
        pinned = sum(ends.values()) - sum(mark.outcomes.values())
        if pinned * OUTCOME_BYTES > self._retention.max_bytes // PINNED_PART:
            progress = {name: progress_value(pieces) for name, pieces in state.lifecycle.confirmed().items()}
            self._saved |= set(progress)
            self._marks = deque(Mark(each.offset, _later(each.outcomes, ends)) for each in self._marks)
            mark = self._marks[0]
        ended = [name for name in self._saved if name not in state.requests and name not in state.decided]
        self._saved.difference_update(ended)
        written = state.room.written
        outcomes = {p: min(offset, written.get(p, 0)) for p, offset in mark.outcomes.items()}
        holds = {topics.HISTORY_OUTCOMES: outcomes, topics.HISTORY: state.room.needed()}
        self._feed.release(Release(holds, progress, ended, state.room.trims))

    # ---- status

    def sizes(self) -> dict[str, int]:
        state = self.state
        return {
            "requests": len(state.requests),
            "decided": len(state.decided),
            "jobs": len(state.jobs),
            "slots": state.slots.total,
            "connections": len(state.slots.peers),
            "queued": state.matching.queued(),
            "parked": state.matching.parked(),
            "backlog": self._gathered.size,
            **state.room.sizes(),
        }

    def status(self) -> Status:
        """The status page's content; called from that page's thread."""
        if not self._is_serving:
            return Status(part="broker", is_ready=False)
        problems = tuple(filter(None, (self._leases.complaint(), self._results.complaint(), self._feed.problem)))
        aside = self._feed.put_aside
        details = {
            "address": self.address,
            **self._last_sizes,
            "dead_letters": [
                {
                    "part": tally.newest.part,
                    "topic": tally.newest.topic,
                    "kind": tally.newest.kind,
                    "count": tally.count,
                }
                | {"newest_at": tally.newest.at, "newest_reason": tally.newest.reason}
                for tally in aside
            ],
        }
        warnings = (*dead_letters.alarms(aside, time.time_ns()), *self._feed.lost)
        return Status(part="broker", is_ready=True, problems=problems, details=details, warnings=warnings)
