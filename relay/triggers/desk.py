"""The thread that registers and removes triggers; it owns their state, and is the only one that writes them.

In each round it takes the queued events, has the state decide, and writes the results together: tables, controls,
offsets. Then it reads the pipeline's progress.
"""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from google.protobuf.message import Message

from bus.api import Bus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import BusError, BusFull, RoleLost
from core.log import get_logger
from relay import metrics
from relay.asked import Peer
from relay.doors.notifier import Batch
from relay.events import UNAVAILABLE
from relay.settings import RelayConfig
from relay.store import RelayStore
from relay.triggers.asked import Ack, RegisterAsked, ViewAsked
from relay.triggers.checks import TriggerChecks
from relay.triggers.commands import (
    Answer,
    AnswerList,
    AnswerView,
    AwaitEvents,
    Change,
    Check,
    CheckView,
    Command,
    Delete,
    DropView,
    Follow,
    LeaveJoint,
    Save,
    SaveViews,
    Tell,
)
from relay.triggers.events import (
    Event,
    EventsDelivered,
    ListAsked,
    ProgressMade,
    RemoveAsked,
    Subscribed,
    TimePassed,
    ViewRemoveAsked,
    ViewsAsked,
    WriteFailed,
    Written,
)
from relay.triggers.state import TriggerState
from relay.triggers.store import TriggerStore
from relay.triggers.suspensions import Notice
from relay.venues.ticker_judge import TickerJudge

#: How often (s) the delivery of events and notices is checked, and how often there is a round otherwise.
_WATCH_SECONDS = 0.02
_IDLE_SECONDS = 0.5
#: The longest wait (s) for progress of the pipeline.
_LISTEN_SECONDS = 1.0
#: How long (s) progress that has been carried out may stay unnoted, so that many registrations share the writes.
_NOTE_SECONDS = 0.25
_COUNT_SECONDS = 1.0
_RETRY_SECONDS = 0.5
#: Suspensions are published together, so that many simultaneous subscribers of a topic cause one notice.
_TELL_SECONDS = 0.1
#: Events handled in one round.
_PER_ROUND = 1_000
_FULL = "The platform has more work than it can store; try again later."
log = get_logger()

#: Given ends by partition, returns whether all events before them have been handed to the notifications socket.
HavePassed = Callable[[dict[int, int]], bool]


class FollowTopic(Protocol):
    """Starts or stops the live data of a topic that triggers read."""

    def __call__(self, topic: str, *, is_wanted: bool) -> None: ...


class TriggerDesk:
    def __init__(
        self,
        store: TriggerStore,
        relay_store: RelayStore,
        config: RelayConfig,
        *,
        reply: Callable[[Peer, Message], None],
        follow: FollowTopic,
        have_passed: HavePassed,
        publish: Callable[[Batch, float], bool],
    ) -> None:
        self._limits = config.limits
        self._store = store
        self._reply = reply
        self._follow = follow
        self._have_passed = have_passed
        self._publish = publish
        settings = config.triggers
        self._state = TriggerState(config.limits, settings.max_triggers, settings.activation_timeout_seconds)
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        judge = TickerJudge(relay_store, config.limits.venue_refresh_seconds)
        self.checks = TriggerChecks(
            settings, self.ask, config.functions, warnings=judge.warnings, destinations=config.destinations
        )
        #: Removals that wait for their triggers' last events, with the ends of these events.
        self._awaited: dict[int, dict[int, int] | None] = {}
        self._to_tell: dict[Notice, None] = {}
        self._tell_at = 0.0
        self._note_at = 0.0
        self._lists = ThreadPoolExecutor(1, thread_name_prefix="relay-trigger-lists")
        self._running_lists = threading.BoundedSemaphore(config.limits.max_running_lists)
        self._count_at = 0.0
        self.counts: dict[str, int] = {}
        self.problem = "the triggers have not been read yet"
        self.seen_at = time.monotonic()
        #: Set once the callbacks of all triggers are known.
        self.is_loaded = threading.Event()

    def ask(self, event: Event) -> bool:
        """Queue an event, from any thread. False for a client's request if too many wait."""
        if isinstance(event, RegisterAsked | RemoveAsked | ListAsked | ViewAsked | ViewRemoveAsked | ViewsAsked):
            waiting = self._inbox.qsize() + self._state.backlog
            if waiting >= self._limits.max_trigger_backlog:
                return False
            if self._state.backlog_bytes >= self._limits.max_backlog_bytes:
                return False
        self._inbox.put(event)
        return True

    def subscribed(self, topic: bytes) -> None:
        """Handle a new subscription; called by the notifications thread. A notice goes to all subscribers of the topic.

        A client that subscribes while nothing is suspended gets the notices sent later.
        """
        if not self._state.suspensions:
            return
        if self._inbox.qsize() < self._limits.max_trigger_backlog:
            self._inbox.put(Subscribed(topic))
        else:
            metrics.DROPPED_REPLAYS.inc()

    def callback_of(self, trigger_id: str) -> str:
        """The trigger's callback; empty if it has none."""
        return self._state.callbacks.get(trigger_id, "")

    def wake(self) -> None:
        """Let `run` look at its stop event."""
        self._inbox.put(None)
        self.checks.wake()

    def close(self) -> None:
        self._lists.shutdown(wait=True, cancel_futures=True)

    # ---- the loop

    def write_over(self, bus: Bus) -> None:
        """Write with this connection, which carries the registry's term; call before `run`."""
        self._store.write_over(bus)

    def run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.seen_at = time.monotonic()
            try:
                if not self._state.is_loaded:
                    self._load()
                self._round()
                self.problem = ""
            except RoleLost:
                raise
            except BusError as error:
                if not self.problem:
                    log.warning("bus_unavailable", error=str(error))
                self.problem = f"the triggers cannot be read or written: {error}"
                metrics.BUS_FAILURES.labels("triggers").inc()
                self._store.forget()
                # It is unknown how far this came; the table shows it.
                self._state.handle(WriteFailed((), UNAVAILABLE))
                self._refuse_what_waits()
                stop.wait(_RETRY_SECONDS)

    def watch(self, stop: threading.Event) -> None:
        """Have `run` read the pipeline's progress as it is made; for a thread of its own."""
        end = 0
        while not stop.is_set():
            try:
                known, end = end, self._store.end_of_progress(end, _LISTEN_SECONDS)
            except BusError:
                # `run` reports it.
                stop.wait(_RETRY_SECONDS)
            else:
                if end > known:
                    self._inbox.put(None)

    def _load(self) -> None:
        loaded = self._store.load()
        self.checks.set_partitions(loaded.partitions)
        self._carry_out([loaded, *self._progress()])
        self.is_loaded.set()
        self.problem = ""
        log.info("triggers_loaded", **self._state.counts())

    def _round(self) -> None:
        events = self._take()
        self._carry_out([TimePassed(time.monotonic()), *events])
        self._carry_out(self._progress())
        if time.monotonic() >= self._note_at:
            self._note_at = time.monotonic() + _NOTE_SECONDS
            self._store.commit_progress(self._state.oldest_needed)
        self._delete_delivered()
        if self._to_tell and time.monotonic() >= self._tell_at:
            self._tell_of_suspensions()
        if time.monotonic() >= self._count_at:
            self._count_at = time.monotonic() + _COUNT_SECONDS
            self._count()

    def _progress(self) -> list[Event]:
        return [ProgressMade(each) for each in self._store.read_progress()]

    def _delete_delivered(self) -> None:
        if None in self._awaited.values():
            ends = self._store.ends_of_events()
            self._awaited = {change: known or ends for change, known in self._awaited.items()}
        delivered = frozenset(change for change, ends in self._awaited.items() if ends and self._have_passed(ends))
        if delivered:
            self._carry_out([EventsDelivered(delivered)])
            for change in delivered:
                del self._awaited[change]

    def _tell_of_suspensions(self) -> None:
        self._tell_at = time.monotonic() + _TELL_SECONDS
        notices = list(self._to_tell)
        numbers = self._store.newest_numbers([notice.trigger_id for notice in notices])
        bodies = map(self._state.suspensions.body, notices, numbers)
        batch = [(notice.topic, body) for notice, body in zip(notices, bodies, strict=True) if body is not None]
        if not batch or self._publish(batch, _WATCH_SECONDS):
            self._to_tell.clear()
            metrics.PUBLISHED.labels("suspensions").inc(len(batch))

    def _take(self, timeout_seconds: float | None = None) -> list[Event]:
        if timeout_seconds is None:
            timeout_seconds = _WATCH_SECONDS if self._awaited or self._to_tell else _IDLE_SECONDS
        events: list[Event] = []
        try:
            first = self._inbox.get(timeout=timeout_seconds)
            events += [] if first is None else [first]
            while len(events) < _PER_ROUND:
                event = self._inbox.get_nowait()
                events += [] if event is None else [event]
        except queue.Empty:
            pass
        return events

    def _refuse_what_waits(self) -> None:
        """Refuse waiting requests, since the state cannot answer without its table. Clients that wait for the pipeline
        keep waiting until their time limit.
        """
        for event in [TimePassed(time.monotonic()), *self._take(0.0)]:
            for command in self._state.handle(event):
                self._carry_out_one(command)

    def _carry_out(self, events: Sequence[Event]) -> None:
        """Carry out events: after all decisions, write together, then carry out what follows."""
        todo = [command for event in events for command in self._state.handle(event)]
        while todo:
            for command in todo:
                self._carry_out_one(command)
            todo = self._write(todo)

    def _write(self, commands: Sequence[Command]) -> list[Command]:
        changes = [command for command in commands if isinstance(command, Change)]
        updates = [command for command in commands if isinstance(command, Save | LeaveJoint | Delete)]
        views = [command for command in commands if isinstance(command, SaveViews | DropView)]
        try:
            if updates:
                self._store.update(updates)
            for view in views:
                self._store.change_views(view)
                self._reply(view.answer.peer, view.answer.message)
            if not changes:
                return []
            offsets = self._store.write(changes)
        except BusError as error:
            text = _FULL if isinstance(error, BusFull) else UNAVAILABLE
            for command in self._state.handle(WriteFailed(tuple(changes), text)):
                self._carry_out_one(command)
            raise
        return self._state.handle(Written(offsets, time.monotonic()))

    def _carry_out_one(self, command: Command) -> None:
        match command:
            case Answer():
                self._acknowledge(command.peer, command.ack)
            case AnswerList():
                self._make_list(command)
            case AnswerView():
                self._reply(command.peer, command.message)
            case Check() | CheckView():
                self.checks.submit(command)
            case AwaitEvents():
                self._awaited[command.change] = None
            case Tell():
                self._to_tell.update(dict.fromkeys(command.notices))
            case Follow():
                self._follow(command.topic, is_wanted=command.is_wanted)

    def _acknowledge(self, peer: Peer, ack: Ack) -> None:
        metrics.TRIGGER_ACKS.labels(Ack.TriggerStatus.Name(ack.status)).inc()
        self._reply(peer, ack)

    # ---- lists

    def _make_list(self, command: AnswerList) -> None:
        if not self._running_lists.acquire(blocking=False):
            text = "Too many lists of triggers are being made; try again later."
            self._reply(command.peer, cw.Error(code="BUSY", text=text))
            return
        self._lists.submit(self._fill_in_and_send, command)

    def _fill_in_and_send(self, command: AnswerList) -> None:
        try:
            self._store.count_events(command.found)
            if len(command.found.triggers) == 1:
                self._store.add_costs(command.found.triggers[0])
            self._reply(command.peer, command.found)
        except BusError:
            metrics.BUS_FAILURES.labels("trigger_lists").inc()
            self._reply(command.peer, cw.Error(code="UNAVAILABLE", text=UNAVAILABLE))
        except Exception as error:  # The outermost call of its thread: no caller sees how it ends.
            log.exception("trigger_list_failed")
            metrics.FAILURES.labels("trigger_lists").inc()
            text = f"The triggers cannot be listed now ({type(error).__name__}); try again later."
            self._reply(command.peer, cw.Error(code="FAILED", text=text))
        finally:
            self._running_lists.release()

    def _count(self) -> None:
        counts = self._state.counts()
        for state, number in counts.items():
            metrics.TRIGGERS.labels(state).set(number)
        metrics.TRIGGER_BACKLOG.set(self._state.backlog)
        metrics.TRIGGERS_WAITING.set(self._state.waiting)
        self.counts = counts
