"""Reads `requests` and `notifications` in a thread of its own and hands them to the loop."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import tenacity

from broker import journal
from broker.events import Event, FinalSeen
from broker.instruments import BUS_RETRIES, MISSED_FINALS
from bus import topics
from bus.api import Bus, TopicPartition
from core.errors import BusError, BusUnavailable, OffsetOutOfRange
from core.log import get_logger

#: Portions that wait for the loop; the thread blocks when there are so many.
_MAX_WAITING = 16
_IDLE_SECONDS = 0.2
_CLOSE_SECONDS = 5.0
#: Decided requests are looked up in the registry of finals this often, in case a notification was trimmed unread.
RECHECK_SECONDS = 60.0
#: While there is no request, it is looked whether the store still has those that were read.
CHECK_SECONDS = 1.0

log = get_logger()


class RecordsLost(BusError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the bus has lost records: {reason}")


@dataclass(frozen=True, slots=True)
class Portion:
    """Events in the order of the log, and the ends of `history` measured after they were read."""

    events: list[Event]
    next_offset: int
    history_ends: dict[int, int]


class Feed:
    def __init__(self, bus: Bus, replayed: journal.Replay, wake: Callable[[], None]) -> None:
        self._bus = bus
        self._wake = wake
        self._next_offset = replayed.next_offset
        self._notifications = dict(replayed.notifications)
        self._portions: queue.Queue[Portion] = queue.Queue(_MAX_WAITING)
        self._check_at = 0.0
        self._to_check: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._stopping = threading.Event()
        #: Set while the loop has as many requests as it wants to hold; the rest stays on the bus.
        self.is_full = False
        self.problem = ""
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="bus-reader", daemon=True)
        self._thread.start()

    def take(self) -> Portion | None:
        if self.failure is not None:
            raise self.failure
        try:
            return self._portions.get_nowait()
        except queue.Empty:
            return None

    def check_finals(self, request_ids: list[str]) -> None:
        self._to_check.put(request_ids)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(_CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._round()
        except tenacity.RetryError:
            pass
        except BaseException as error:
            # Told to the main loop, which ends the process: a broker that cannot read must not go on.
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
        self.problem = ""
        while not self._stopping.is_set():
            try:
                self._portions.put(portion, timeout=_IDLE_SECONDS)
                self._wake()
                return
            except queue.Full:
                continue

    def _before_sleep(self, state: tenacity.RetryCallState) -> None:
        BUS_RETRIES.inc()
        error = state.outcome.exception() if state.outcome is not None else None
        text = f"the bus cannot be read: {error}"
        if text != self.problem:
            log.warning("bus_read_failed", error=str(error))
        self.problem = text

    def _read(self) -> Portion:
        """One portion; positions move on only with it, so that a failed call changes nothing."""
        after = {(topics.NOTIFICATIONS, partition): offset for partition, offset in self._notifications.items()}
        if not self.is_full:
            after[topics.REQUESTS, 0] = self._next_offset
        ready = self._bus.wait(after, _IDLE_SECONDS)
        self._check_that_nothing_is_lost(ready)
        events: list[Event] = []
        next_offset = self._next_offset
        if (topics.REQUESTS, 0) in ready:
            for record in self._bus.read(topics.REQUESTS, 0, next_offset):
                event = journal.decode(record)
                if event is not None:
                    events.append(event)
                next_offset = record.offset + 1
        history_ends = {partition: state.end for partition, state in enumerate(self._bus.state(topics.HISTORY))}
        positions = dict(self._notifications)
        events.extend(self._read_finals(ready, positions))
        names: list[str] = []
        while not self._to_check.empty():
            names.extend(self._to_check.get())
        events.extend(journal.finals_known(self._bus, names))
        self._next_offset = next_offset
        self._notifications = positions
        return Portion(events, next_offset, history_ends)

    def _check_that_nothing_is_lost(self, ready: set[TopicPartition]) -> None:
        """Raises RecordsLost when the store ends before what was read of it: what is accepted now would wait until it
        has caught up. A new process begins at what there is.
        """
        if (topics.REQUESTS, 0) in ready:
            return
        now = time.monotonic()
        if now >= self._check_at:
            self._check_at = now + CHECK_SECONDS
            try:
                (state,) = self._bus.state(topics.REQUESTS)
            except BusUnavailable:
                raise
            except BusError as error:
                raise RecordsLost(str(error)) from error
            if state.end < self._next_offset:
                raise RecordsLost(f"requests end at {state.end} and were read to {self._next_offset}")

    def _read_finals(self, ready: set[tuple[str, int]], positions: dict[int, int]) -> list[FinalSeen]:
        finals = []
        for topic, partition in ready:
            if topic != topics.NOTIFICATIONS:
                continue
            try:
                stored = self._bus.read(topic, partition, positions[partition])
            except OffsetOutOfRange as error:
                # Trimmed unread: the recheck against the registry finds what was missed.
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
