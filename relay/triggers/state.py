"""All decisions about triggers: events in, commands out. No socket, clock, thread or bus.

A trigger goes from checked to stored (in the table), published (its control has an offset) and active (every partition
of the pipeline has passed that offset). A removal takes the same path, and then the entry leaves the table. The table
has everything that a restart needs: an entry without an offset is published again under its version, which partitions
ignore if they know it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay import topics
from relay.asked import Peer
from relay.events import UNAVAILABLE
from relay.settings import RelayLimits
from relay.triggers.asked import Ack, RegisterAsked, ViewAsked
from relay.triggers.book import Registered, TriggerBook
from relay.triggers.changes import Changes, Waiter
from relay.triggers.commands import (
    Answer,
    AnswerList,
    AwaitEvents,
    Change,
    Check,
    Command,
    Delete,
    LeaveJoint,
    Save,
    Tell,
)
from relay.triggers.events import (
    Checked,
    Event,
    EventsDelivered,
    ListAsked,
    Loaded,
    ProgressMade,
    Refused,
    RemoveAsked,
    Sound,
    Subscribed,
    TimePassed,
    ViewChecked,
    ViewRemoveAsked,
    ViewsAsked,
    WriteFailed,
    Written,
)
from relay.triggers.followed_topics import FollowedTopics
from relay.triggers.requests import content
from relay.triggers.suspensions import Suspensions
from relay.triggers.views import ViewState

BUSY = "Too many requests about triggers are waiting; try again later."
_NOT_YET_ACTIVE = (
    "The trigger is stored and starts once the pipeline is running again; send the same request again to learn when."
)
_NOT_YET_REMOVED = (
    "The trigger is stored as removed and stops once the pipeline is running again; "
    "send the removal again to learn when."
)

_REPLACED = "This replaces the trigger that was registered under this id; it starts afresh."
_INVALID = "INVALID_SQL "


class TriggerState:
    def __init__(self, limits: RelayLimits, max_triggers: int, timeout_seconds: float) -> None:
        self._limits = limits
        self._max_triggers = max_triggers
        self._book = TriggerBook()
        self._changes = Changes(timeout_seconds)
        self._followed = FollowedTopics()
        self._views = ViewState(limits, self._book, self._restart, circle=self._circle)
        #: Ids whose text is being checked, with the requests about them that arrived meanwhile.
        self._in_check: dict[str, deque[RegisterAsked | RemoveAsked]] = {}
        #: The number of requests that wait for a check, and their bytes.
        self.backlog = 0
        self.backlog_bytes = 0
        self._last_version = 0
        self.is_loaded = False
        self._on_event: dict[type, Callable[[Any], list[Command]]] = {
            RegisterAsked: self._on_asked,
            RemoveAsked: self._on_asked,
            ListAsked: self._on_list_asked,
            ViewAsked: self._views.asked,
            ViewRemoveAsked: self._views.asked,
            ViewsAsked: self._views.listed,
            ViewChecked: self._views.checked,
            Checked: self._on_checked,
            Written: self._on_written,
            WriteFailed: self._on_write_failed,
            Loaded: self._on_loaded,
            ProgressMade: self._on_progress_made,
            EventsDelivered: self._on_events_delivered,
            Subscribed: self._on_subscribed,
            TimePassed: self._on_time_passed,
        }

    def handle(self, event: Event) -> list[Command]:
        return self._on_event[type(event)](event)

    # ---- for other threads

    @property
    def waiting(self) -> int:
        """The number of requests that wait for the pipeline."""
        return self._changes.waiting

    @property
    def callbacks(self) -> Mapping[str, str]:
        """The topics that events go to besides their own; read by the thread that publishes them."""
        return self._book.callbacks

    @property
    def suspensions(self) -> Suspensions:
        return self._book.suspensions

    @property
    def is_settled(self) -> bool:
        """Whether the pipeline has carried out every change."""
        return not self._changes

    def counts(self) -> dict[str, int]:
        return self._book.counts()

    @property
    def oldest_needed(self) -> int:
        """The offset of the first control that a partition has not carried out yet."""
        return self._changes.oldest_needed

    # ---- requests of clients

    def _on_asked(self, event: RegisterAsked | RemoveAsked) -> list[Command]:
        if not self.is_loaded:
            return [_error(event.peer, event.trigger_id, UNAVAILABLE)]
        if event.trigger_id in self._in_check:
            self._in_check[event.trigger_id].append(event)
            self._count(event, 1)
            return []
        return self._register(event) if isinstance(event, RegisterAsked) else self._remove(event)

    def _register(self, event: RegisterAsked) -> list[Command]:
        trigger = self._book.get(event.trigger_id)
        if trigger is not None and self._is_same(trigger, event.request):
            registration = trigger.entry.registration
            if trigger.is_passed:
                return [Answer(event.peer, Ack(trigger_id=event.trigger_id, status=Ack.ALREADY_REGISTERED))]
            warnings = tuple(trigger.entry.warnings)
            return self._wait(trigger.change, Waiter(event.peer, event.trigger_id, registration.version, warnings))
        refusal = self._refusal(event)
        if refusal:
            return [_error(event.peer, event.trigger_id, refusal)]
        self._in_check[event.trigger_id] = deque()
        self._count(event, 1)
        return [self._check(event)]

    def _check(self, asked: RegisterAsked) -> Check:
        return Check(asked, self._views.texts(asked.peer.name))

    def _remove(self, event: RemoveAsked) -> list[Command]:
        trigger = self._book.get(event.trigger_id)
        if trigger is None or trigger.is_gone:
            text = f"No trigger {event.trigger_id[:100]!r} is registered."
            return [_error(event.peer, event.trigger_id, text)]
        waiter = Waiter(event.peer, event.trigger_id, 0)
        if trigger.is_leaving:
            return self._wait(trigger.change, waiter)
        entry = rec.TriggerEntry()
        entry.CopyFrom(trigger.entry)
        entry.is_leaving = True
        change = self._change(entry, is_joint=trigger.is_joint)
        return [change, *self._wait(change.number, waiter)]

    def _on_checked(self, event: Checked) -> list[Command]:
        asked, outcome = event.asked, event.outcome
        if self.is_loaded and isinstance(outcome, Sound) and not self._views.are_current(outcome.views):
            return [self._check(asked)]
        later = self._in_check.pop(asked.trigger_id, deque())
        self._count(asked, -1)
        if isinstance(outcome, Refused):
            ack = Ack(trigger_id=asked.trigger_id, status=outcome.status, error_message=outcome.text)
            commands: list[Command] = [Answer(asked.peer, ack)]
        elif not self.is_loaded:
            commands = [_error(asked.peer, asked.trigger_id, UNAVAILABLE)]
        elif refusal := self._refusal(asked) or self._circle(asked.trigger_id, outcome):
            commands = [_error(asked.peer, asked.trigger_id, refusal)]
        else:
            commands = self._store(asked, outcome)
        for next_event in later:
            self._count(next_event, -1)
            commands += self._on_asked(next_event)
        return commands

    def _store(self, asked: RegisterAsked, sound: Sound) -> list[Command]:
        request = asked.request
        registration = rec.TriggerRegistration(
            trigger_id=request.trigger_id,
            sql=request.sql_pattern,
            tickers=request.tickers,
            parameters=request.parameters,
        )
        if request.callback_id:
            registration.callback_id = request.callback_id
        known = self._book.get(asked.trigger_id)
        replaces = known is not None and not known.is_leaving and not known.entry.suspended_reason
        change = self._begin(registration, sound, asked.at_ns)
        warnings = (*sound.warnings, _REPLACED) if replaces else sound.warnings
        waiter = Waiter(asked.peer, asked.trigger_id, registration.version, warnings)
        return [change, *self._wait(change.number, waiter)]

    def _begin(self, registration: rec.TriggerRegistration, sound: Sound, at_ns: int) -> Change:
        """A registration that starts afresh, with its views as they were checked."""
        self._last_version = max(at_ns, self._last_version + 1)
        registration.registered_at, registration.version = at_ns, self._last_version
        registration.ClearField("views")
        registration.views.update(sound.views)
        entry = rec.TriggerEntry(
            registration=registration,
            warnings=sound.warnings,
            bar_seconds=sound.bar_seconds,
            joined_seconds=sound.joined_seconds,
            sources=sound.sources,
        )
        return self._change(entry, is_joint=sound.is_joint)

    def _restart(self, trigger: Registered, sound: Sound, at_ns: int) -> list[Command]:
        """Register a trigger again after a view that it reads has changed."""
        registration = rec.TriggerRegistration()
        registration.CopyFrom(trigger.entry.registration)
        return [self._begin(registration, sound, at_ns)]

    def _circle(self, trigger_id: str, sound: Sound) -> str:
        """The reason if the trigger would read its own events; else empty."""
        way = self._book.circle(trigger_id, sound.sources)
        return f"The trigger would read its own events: {' reads '.join(way)}." if way else ""

    def _refusal(self, event: RegisterAsked) -> str:
        """The reason if there is no room for this trigger; else empty."""
        known = self._book.get(event.trigger_id)
        registered = len(self._book) - (known is not None)
        if registered >= self._max_triggers:
            return f"{registered} triggers are registered, and {self._max_triggers} are allowed."
        size = self._book.size_bytes - (known.size if known else 0) + event.request.ByteSize()
        if size > self._limits.max_trigger_bytes:
            return f"The registered triggers would have {size} bytes; {self._limits.max_trigger_bytes} are allowed."
        return BUSY if self.waiting >= self._limits.max_waiting_triggers else ""

    def _is_same(self, trigger: Registered, request: ing.CEPTriggerRequest) -> bool:
        """Whether the request equals the registered trigger. A suspended trigger never does, so requesting it again
        starts it afresh.
        """
        entry = trigger.entry
        if entry.is_leaving or entry.suspended_reason:
            return False
        known = entry.registration
        same = ing.CEPTriggerRequest(
            sql_pattern=known.sql, tickers=known.tickers, parameters=known.parameters, callback_id=known.callback_id
        )
        return content(same) == content(request)

    def _on_list_asked(self, event: ListAsked) -> list[Command]:
        return [AnswerList(event.peer, self._book.page(event.query, event.peer.name, self._limits.max_list_bytes))]

    # ---- changes

    def _change(self, entry: rec.TriggerEntry, *, is_joint: bool, joins_anew: bool = False) -> Change:
        """The command that writes the next form of a trigger; `entry` gets its offset once that is done.

        A suspended trigger is removed from the pipeline; it failed in one partition, but must stop in all.
        """
        entry.ClearField("control_offset")
        registration = entry.registration
        if entry.is_leaving or entry.suspended_reason:
            control = rec.TriggerControl(remove=cw.TriggerRemove(trigger_id=registration.trigger_id))
        else:
            control = rec.TriggerControl(register=registration)
        known = self._book.get(registration.trigger_id)
        was_joint = known is not None and known.in_joint
        number = self._changes.begin(needs_joint=is_joint or was_joint)
        self._book.put(Registered(entry, is_joint, is_joint or was_joint, number, entry.ByteSize()))
        return Change(number, entry, control, joins=is_joint and (joins_anew or not was_joint))

    def _wait(self, number: int, waiter: Waiter) -> list[Command]:
        if self._changes.is_published(number) and self.waiting >= self._limits.max_waiting_triggers:
            return [_error(waiter.peer, waiter.trigger_id, BUSY)]
        self._changes.wait(number, waiter)
        return []

    def _on_written(self, event: Written) -> list[Command]:
        commands: list[Command] = []
        for number, offset in event.offsets.items():
            self._changes.publish(number, offset, event.at)
            trigger = self._book.of_change(number)
            if trigger is not None:
                trigger.entry.control_offset = offset
                commands += [Save(trigger.entry), *self._follow(trigger), *self._tell(trigger)]
        return commands + self._pass(event.offsets)

    def _on_write_failed(self, event: WriteFailed) -> list[Command]:
        self.is_loaded = self._views.is_loaded = False
        waiters = [waiter for change in event.changes for waiter in self._changes.end(change.number)]
        return [_error(waiter.peer, waiter.trigger_id, event.text) for waiter in waiters]

    def _on_loaded(self, event: Loaded) -> list[Command]:
        """Take over the loaded state. Clients that wait for published changes keep waiting, since the offsets are still
        valid.
        """
        self.is_loaded = True
        self._changes.load_progress(event.progress, event.partitions)
        self._book.clear()
        self._views.load(event)
        # An earlier run may have died between the two tables.
        commands: list[Command] = [LeaveJoint(name) for name in event.joint_ids if name not in event.entries]
        for name, entry in event.entries.items():
            is_joint = name in event.joint_ids
            self._last_version = max(self._last_version, entry.registration.version)
            is_published = entry.HasField("control_offset") and entry.control_offset < event.controls_end
            if self._renew(entry) or not is_published:
                change = self._change(entry, is_joint=is_joint, joins_anew=True)
                commands.append(change)
                number = change.number
            else:
                number = self._changes.begin(needs_joint=is_joint, offset=entry.control_offset)
                trigger = Registered(entry, is_joint, is_joint, number, entry.ByteSize())
                self._book.put(trigger)
                # An earlier run may have stored a suspension without reporting it.
                commands += self._tell(trigger)
            commands += self._follow(self._book.newest(number))
        commands += self._followed.drop_others(self._book)
        self._book.drop_callbacks()
        return commands + self._pass()

    def _renew(self, entry: rec.TriggerEntry) -> bool:
        """Whether an earlier run changed one of the trigger's views and died before it registered the trigger again."""
        registration = entry.registration
        if entry.is_leaving or entry.suspended_reason or self._views.are_current(registration.views):
            return False
        renewed = self._views.renewed(registration.views)
        registration.views.update(renewed)
        self._last_version = registration.version = self._last_version + 1
        return True

    # ---- results from the pipeline

    def _on_progress_made(self, event: ProgressMade) -> list[Command]:
        progress = event.progress
        commands: list[Command] = []
        for suspended in progress.suspended:
            trigger = self._book.get(suspended.trigger_id)
            if trigger is None or trigger.is_leaving or trigger.entry.suspended_reason:
                continue
            if trigger.entry.registration.version == suspended.version:
                commands += self._suspend(trigger, suspended.reason or "the pipeline stopped it")
        is_news = self._changes.note_progress(progress.partition, progress.controls_end)
        return commands + (self._pass() if is_news else [])

    def _suspend(self, trigger: Registered, reason: str) -> list[Command]:
        entry = rec.TriggerEntry()
        entry.CopyFrom(trigger.entry)
        entry.suspended_reason = reason
        return [*self._refuse_waiters(trigger, reason), self._change(entry, is_joint=trigger.is_joint)]

    def _tell(self, trigger: Registered) -> list[Command]:
        notices = self._book.suspensions.of(trigger.name)
        return [Tell(notices)] if notices else []

    def _on_subscribed(self, event: Subscribed) -> list[Command]:
        notices = self._book.suspensions.under(event.topic)
        return [Tell(notices)] if notices else []

    def _refuse_waiters(self, trigger: Registered, reason: str) -> list[Command]:
        """Refuse the clients that wait for a trigger that was stopped before it ran everywhere."""
        is_text = reason.startswith(_INVALID)
        ack = Ack(
            trigger_id=trigger.name,
            status=Ack.INVALID_SQL if is_text else Ack.ERROR,
            error_message=reason.removeprefix(_INVALID) if is_text else f"The trigger was suspended: {reason}",
        )
        return [Answer(waiter.peer, ack) for waiter in self._changes.dismiss(trigger.change)]

    def _pass(self, numbers: Iterable[int] | None = None) -> list[Command]:
        """Answer the clients of the changes in `numbers` (None: all) that every partition has passed."""
        commands: list[Command] = []
        for number, waiters in self._changes.end_passed(numbers):
            commands += [_done(waiter) for waiter in waiters]
            trigger = self._book.of_change(number)
            if trigger is not None:
                commands += self._make_effective(trigger)
        return commands

    def _make_effective(self, trigger: Registered) -> list[Command]:
        trigger.is_passed = True
        if trigger.is_leaving:
            return [AwaitEvents(trigger.change)]
        if trigger.in_joint and not trigger.is_joint:
            trigger.in_joint = False
            return [LeaveJoint(trigger.name)]
        return []

    def _on_events_delivered(self, event: EventsDelivered) -> list[Command]:
        dropped = map(self._book.drop, event.changes)
        return [Delete(name) for name in dropped if name is not None]

    def _on_time_passed(self, event: TimePassed) -> list[Command]:
        late = self._changes.end_late(event.at)
        return [_error(w.peer, w.trigger_id, _NOT_YET_ACTIVE if w.version else _NOT_YET_REMOVED) for w in late]

    # ---- live data

    def _follow(self, trigger: Registered) -> list[Command]:
        """Follow the topic of each ticker that an active trigger names, as for a subscriber."""
        registration, periods = trigger.entry.registration, (trigger.entry.bar_seconds, *trigger.entry.joined_seconds)
        wanted: tuple[str, ...] = ()
        if not trigger.is_leaving and not trigger.entry.suspended_reason:
            wanted = tuple(topics.live_name(ticker, period) for ticker in registration.tickers for period in periods)
        return list(self._followed.follow(trigger.name, wanted))

    # ---- small things

    def _count(self, event: RegisterAsked | RemoveAsked, step: int) -> None:
        self.backlog += step
        if isinstance(event, RegisterAsked):
            self.backlog_bytes += step * event.request.ByteSize()


def _error(peer: Peer, trigger_id: str, text: str) -> Answer:
    return Answer(peer, Ack(trigger_id=trigger_id, status=Ack.ERROR, error_message=text))


def _done(waiter: Waiter) -> Answer:
    ack = Ack(trigger_id=waiter.trigger_id, status=Ack.REGISTERED)
    if waiter.warnings:
        ack.error_message = "\n".join(waiter.warnings)
    return Answer(waiter.peer, ack)
