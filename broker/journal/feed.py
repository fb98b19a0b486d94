"""Reads `requests`, `notifications` and `proofs` in a separate thread, and hands them to the loop."""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import tenacity

from broker.events import Event, FinalSeen, HistoryMeasured, ProofFound
from broker.journal import journal
from broker.metrics import BUS_RETRIES, DEAD_LETTERS, MISSED_FINALS
from bus import dead_letters, lost, topics
from bus.api import Bus
from candlewright.wire.errors import BusError, BusUnavailable, OffsetOutOfRange
from core.background import start_thread
from core.log import get_logger

#: Portions that may wait for the loop; at this number, the thread blocks.
_MAX_WAITING = 16
#: How long to wait for records; longer while the loop is quiet.
_IDLE_SECONDS, _QUIET_SECONDS = 0.2, 0.5
_CLOSE_SECONDS = 5.0
#: Longer than any request runs.
_PROGRESS_SECONDS = 30 * 86_400.0
#: Decided requests are looked up in the registry of finals this often, in case a notification was trimmed unread.
RECHECK_SECONDS = 60.0
#: How often (s) to check whether the store accepts writes.
CHECK_SECONDS = 1.0
#: How often (s) an unmoved hold is written again, since the bus may have lost it.
HELD_SECONDS = 30.0
#: How often (s) to count the records that parts have put aside.
LETTERS_SECONDS = 5.0

log = get_logger()


@dataclass(frozen=True, slots=True)
class Portion:
    """Events in the order of the log."""

    events: list[Event]
    next_offset: int
    measured: HistoryMeasured


@dataclass(frozen=True, slots=True)
class Release:
    """Holds to release, after the rows of `progress` have been added to the broker's progress table and those of
    `ended` removed from it. `trims`: whether to trim the topics at once.
    """

    holds: dict[str, dict[int, int]]
    progress: dict[str, bytes]
    ended: list[str]
    trims: bool


class Feed:
    def __init__(self, bus: Bus, replayed: journal.Replay, wake: Callable[[], None]) -> None:
        self._bus = bus
        self._wake = wake
        self._next_offset = replayed.next_offset
        self._notifications = dict(replayed.notifications)
        self._written = dict(replayed.measured.written)
        self._proofs = replayed.proofs
        self._has_prover = replayed.measured.has_prover
        self._prover_at = 0.0
        self._portions: queue.Queue[Portion] = queue.Queue(_MAX_WAITING)
        self._lives = replayed.lives
        self._refusal_at = self._letters_at = self._measure_at = 0.0
        self._releases: deque[Release] = deque()
        #: By topic, the broker's hold on the bus, and when it was last written.
        self._held: dict[str, tuple[dict[int, int], float]] = {}
        self._to_check: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        #: Set while the loop holds as many requests as it may; the rest stays on the bus.
        self.is_full = False
        #: Set while the loop has no request but realtime ones, so progress of the writers is checked less often.
        self.is_idle = False
        self.problem = ""
        #: Records put aside by all parts, in total.
        self.put_aside: list[dead_letters.Tally] = []
        self.lost: list[str] = []
        self.failure: BaseException | None = None
        self._thread = start_thread("bus-reader", self._run, on_failure=self._ended)

    def take(self) -> Portion | None:
        if self.failure is not None:
            raise self.failure
        try:
            return self._portions.get_nowait()
        except queue.Empty:
            return None

    def release(self, what: Release) -> None:
        """Release holds in this thread, because the lane of results may be waiting for the room that this makes."""
        self._releases.append(what)

    def check_finals(self, request_ids: list[str]) -> None:
        self._to_check.put(request_ids)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._round()
        except (BusError, tenacity.RetryError):
            # A broker that stops closes the bus, which may be down.
            if not self._stopping.is_set():
                raise

    def _ended(self, error: BaseException) -> None:
        """Have the main loop raise `error`, which ends the process, because a broker that cannot read must not
        continue.
        """
        self.failure = error
        self._wake()

    def _round(self) -> None:
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(BusUnavailable),
            wait=tenacity.wait_random_exponential(multiplier=0.1, max=1.0),
            stop=tenacity.stop_when_event_set(self._stopping),
            sleep=tenacity.sleep_using_event(self._stopping),
            before_sleep=self._before_sleep,
        )
        portion = retrying(self._read)
        self._look_for_refusal()
        while portion is not None and not self._stopping.is_set():
            try:
                self._portions.put(portion, timeout=_IDLE_SECONDS)
                self._wake()
                return
            except queue.Full:
                continue

    def _look_for_refusal(self) -> None:
        """Check whether the bus refuses writes although it can be read; the broker checks this for all parts."""
        now = time.monotonic()
        if now < self._refusal_at:
            return
        self._refusal_at = now + CHECK_SECONDS
        with contextlib.suppress(BusUnavailable):
            refusal = self._bus.refusal()
            if refusal and refusal != self.problem:
                log.warning("bus_refuses", reason=refusal)
            self.problem = refusal
            if now >= self._letters_at:
                self._letters_at = now + LETTERS_SECONDS
                self.put_aside = dead_letters.tallies(self._bus)
                self.lost = lost.alarms(self._bus)
                for tally in self.put_aside:
                    DEAD_LETTERS.labels(tally.newest.part, tally.newest.topic, tally.newest.kind).set(tally.count)

    def _before_sleep(self, state: tenacity.RetryCallState) -> None:
        BUS_RETRIES.inc()
        error = state.outcome.exception() if state.outcome is not None else None
        text = f"the bus cannot be read: {error}"
        if text != self.problem:
            log.warning("bus_read_failed", error=str(error))
        self.problem = text

    def _read(self) -> Portion | None:
        """One portion, or None without news. Positions advance only with a portion, so a failed call changes nothing.

        Raises RecordsLost if the store has lost records that were already read, because the records that replace them
        would be skipped. A new process begins with what is there.
        """
        has_released = self._carry_out_releases()
        after = {(topics.NOTIFICATIONS, partition): offset for partition, offset in self._notifications.items()}
        after[topics.PROOFS, 0] = self._proofs
        if not self.is_full:
            after[topics.REQUESTS, 0] = self._next_offset
        ready = self._bus.wait(after, _QUIET_SECONDS if self.is_idle else _IDLE_SECONDS, lives=self._lives)
        is_quiet = self.is_idle and not (has_released or ready) and self._to_check.empty()
        if is_quiet and time.monotonic() < self._measure_at:
            return None
        events: list[Event] = []
        next_offset = self._next_offset
        if (topics.REQUESTS, 0) in ready:
            for record in self._bus.read(topics.REQUESTS, 0, next_offset, lives=self._lives):
                event = journal.decode(self._bus, record)
                if event is not None:
                    events.append(event)
                next_offset = record.offset + 1
        measured = self._measure()
        positions = dict(self._notifications)
        events.extend(self._read_finals(ready, positions))
        proofs, proofs_end = self._read_proofs() if (topics.PROOFS, 0) in ready else ([], self._proofs)
        events.extend(proofs)
        names: list[str] = []
        while not self._to_check.empty():
            names.extend(self._to_check.get())
        events.extend(journal.finals_known(self._bus, names))
        self._next_offset = next_offset
        self._notifications = positions
        self._proofs = proofs_end
        return Portion(events, next_offset, measured)

    def _measure(self) -> HistoryMeasured:
        at = time.monotonic()
        self._measure_at = at + CHECK_SECONDS
        states = self._bus.state(topics.HISTORY)
        ends = {partition: state.end for partition, state in enumerate(states)}
        written = self._written | journal.written_of(self._bus)
        if at >= self._prover_at:
            self._prover_at = at + CHECK_SECONDS
            self._has_prover = journal.has_prover(self._bus)
        return HistoryMeasured(sum(state.size_bytes for state in states), ends, written, at, self._has_prover)

    def _carry_out_releases(self) -> bool:
        """Carry out queued releases; returns whether there were any. Every step may be repeated."""
        had_any = bool(self._releases)
        while self._releases:
            what = self._releases[0]
            if what.progress:
                self._bus.put(topics.TABLE_BROKER_PROGRESS, what.progress, keep_seconds=_PROGRESS_SECONDS)
            self._bus.delete(topics.TABLE_BROKER_PROGRESS, what.ended)
            for topic, positions in what.holds.items():
                known, known_at = self._held.get(topic, ({}, 0.0))
                if positions != known or time.monotonic() >= known_at + HELD_SECONDS:
                    self._bus.hold(topic, topics.READER_BROKER, positions)
                    self._held[topic] = dict(positions), time.monotonic()
            if what.trims:
                for topic in what.holds:
                    self._bus.trim(topic, keep_seconds=0)
            self._releases.popleft()
        return had_any

    def _read_proofs(self) -> tuple[list[ProofFound], int]:
        """New proofs, and the position to continue from. Proofs trimmed before they were read were too late anyway."""
        try:
            stored = self._bus.read(topics.PROOFS, 0, self._proofs, lives=self._lives)
        except OffsetOutOfRange as error:
            return [], error.first
        found = [journal.proof_of(self._bus, record) for record in stored]
        return [proof for proof in found if proof is not None], stored[-1].offset + 1 if stored else self._proofs

    def _read_finals(self, ready: set[tuple[str, int]], positions: dict[int, int]) -> list[FinalSeen]:
        finals = []
        for topic, partition in ready:
            if topic != topics.NOTIFICATIONS:
                continue
            try:
                stored = self._bus.read(topic, partition, positions[partition], lives=self._lives)
            except OffsetOutOfRange as error:
                # Notifications were trimmed before they were read; the check against the registry finds the missed
                # ones.
                MISSED_FINALS.inc(max(0, error.first - positions[partition]))
                log.warning("notifications_missed", error=str(error))
                positions[partition] = error.first
                continue
            for record in stored:
                final = journal.final_of(record)
                if final is not None:
                    finals.append(final)
                positions[partition] = record.offset + 1
        return finals
