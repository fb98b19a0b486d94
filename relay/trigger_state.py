"""The decisions about triggers: events in, commands out. No socket, clock, thread or bus in here.

A trigger goes from checked to stored (in the table), published (its control has an offset) and active (every partition
of the pipeline has passed that offset); one that is taken away goes the same way, and then out of the table. What a
restart needs is in the table: an entry without offset is published again under its version, which partitions ignore
when they know it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from protobuf import candlewright_pb2 as cw
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from relay import topics
from relay.events import Peer
from relay.ownership import is_own
from relay.settings import RelayLimits
from relay.suspensions import Suspensions
from relay.trigger_events import (
    Ack,
    Answer,
    AnswerList,
    AwaitEvents,
    Change,
    Check,
    Checked,
    Command,
    Delete,
    Event,
    EventsDelivered,
    Follow,
    LeaveJoint,
    ListAsked,
    Loaded,
    ProgressMade,
    Refused,
    RegisterAsked,
    RemoveAsked,
    Save,
    Sound,
    Subscribed,
    Tell,
    TimePassed,
    WriteFailed,
    Written,
)
from relay.trigger_requests import content

UNAVAILABLE = "The platform's message bus cannot be reached; nothing was changed for sure, so try the same again."
BUSY = "Too many requests about triggers are waiting; try again later."
_NOT_YET_ACTIVE = (
    "The trigger is stored and starts once the pipeline is running again; send the same request again to learn when."
)
_NOT_YET_REMOVED = (
    "The trigger is stored as removed and stops once the pipeline is running again; "
    "send the removal again to learn when."
)

_INVALID = "INVALID_SQL "
#: Who waits too long is looked for so often.
_EXPIRY_SECONDS = 0.25


@dataclass(slots=True)
class _Trigger:
    """`change`: the newest one. `in_joint`: the joint partition may run it, now or in its form before."""

    entry: rec.TriggerEntry
    is_joint: bool
    in_joint: bool
    change: int
    size: int
    #: Every partition has passed its newest change.
    is_passed: bool = False

    @property
    def is_leaving(self) -> bool:
        return self.entry.is_leaving

    @property
    def is_starting(self) -> bool:
        """Stored, and not registered yet: some partition has not passed it."""
        return not self.is_passed and not self.entry.suspended_reason

    @property
    def is_gone(self) -> bool:
        return self.is_leaving and self.is_passed


@dataclass(frozen=True, slots=True)
class _Waiter:
    peer: Peer
    trigger_id: str
    #: Of the registration that it waits for; 0 = for a removal.
    version: int
    warnings: tuple[str, ...] = ()


@dataclass(slots=True)
class _Control:
    """A change on its way: `offset` None until it is published, then until all partitions have passed it.

    Those who wait do so until their time, which begins with the publish.
    """

    needs_joint: bool
    offset: int | None = None
    waiters: list[tuple[_Waiter, float]] = field(default_factory=list)


class TriggerState:
    def __init__(self, limits: RelayLimits, max_triggers: int, timeout_seconds: float) -> None:
        self._limits = limits
        self._max_triggers = max_triggers
        self._timeout_seconds = timeout_seconds
        self._triggers: dict[str, _Trigger] = {}
        self._by_change: dict[int, _Trigger] = {}
        #: Where events go beside their own topic; read by the thread that publishes them.
        self.callbacks: dict[str, str] = {}
        self.suspensions = Suspensions()
        #: Ids whose text is being checked, with what was asked about them meanwhile.
        self._in_check: dict[str, deque[RegisterAsked | RemoveAsked]] = {}
        #: Requests that wait for a check, and their bytes.
        self.backlog = 0
        self.backlog_bytes = 0
        #: By number of the change.
        self._controls: dict[int, _Control] = {}
        self._waiting = 0
        self._next_expiry = 0.0
        self._now = 0.0
        self._next_change = 1
        self._last_version = 0
        self._stored_bytes = 0
        self._followed: Counter[str] = Counter()
        self._followed_by: dict[str, tuple[str, ...]] = {}
        self._progress: dict[int, int] = {}
        self._partitions = 0
        self.is_loaded = False
        self._on_event: dict[type, Callable[[Any], list[Command]]] = {
            RegisterAsked: self._on_asked,
            RemoveAsked: self._on_asked,
            ListAsked: self._on_list_asked,
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

    # ---- what others look at

    @property
    def waiting(self) -> int:
        """Requests that wait for the pipeline."""
        return self._waiting

    @property
    def is_settled(self) -> bool:
        """The pipeline has carried out everything."""
        return not self._controls

    def counts(self) -> dict[str, int]:
        found = Counter({"active": 0, "starting": 0, "suspended": 0})
        found.update(self._state_of(trigger) for trigger in self._triggers.values() if not trigger.is_leaving)
        return dict(found)

    @property
    def oldest_needed(self) -> int:
        """The first control that a partition of the pipeline has not carried out yet."""
        ends = [self._progress.get(partition, 0) for partition in range(self._partitions)]
        joint = self._progress.get(self._partitions)
        return min([*ends, *([] if joint is None else [joint])], default=0)

    # ---- what clients ask

    def _on_asked(self, event: RegisterAsked | RemoveAsked) -> list[Command]:
        if not self.is_loaded:
            return [_error(event.peer, event.trigger_id, UNAVAILABLE)]
        if event.trigger_id in self._in_check:
            self._in_check[event.trigger_id].append(event)
            self._count(event, 1)
            return []
        return self._register(event) if isinstance(event, RegisterAsked) else self._remove(event)

    def _register(self, event: RegisterAsked) -> list[Command]:
        trigger = self._triggers.get(event.trigger_id)
        if trigger is not None and self._is_same(trigger, event.request):
            registration = trigger.entry.registration
            if trigger.is_passed:
                return [Answer(event.peer, Ack(trigger_id=event.trigger_id, status=Ack.ALREADY_REGISTERED))]
            warnings = tuple(trigger.entry.warnings)
            return self._wait(trigger, _Waiter(event.peer, event.trigger_id, registration.version, warnings))
        refusal = self._refusal(event)
        if refusal:
            return [_error(event.peer, event.trigger_id, refusal)]
        self._in_check[event.trigger_id] = deque()
        self._count(event, 1)
        return [Check(event)]

    def _remove(self, event: RemoveAsked) -> list[Command]:
        trigger = self._triggers.get(event.trigger_id)
        if trigger is None or trigger.is_gone:
            text = f"No trigger {event.trigger_id[:100]!r} is registered."
            return [_error(event.peer, event.trigger_id, text)]
        waiter = _Waiter(event.peer, event.trigger_id, 0)
        if trigger.is_leaving:
            return self._wait(trigger, waiter)
        entry = rec.TriggerEntry()
        entry.CopyFrom(trigger.entry)
        entry.is_leaving = True
        change = self._change(entry, trigger.is_joint)
        return [change, *self._wait(self._triggers[event.trigger_id], waiter)]

    def _on_checked(self, event: Checked) -> list[Command]:
        asked, outcome = event.asked, event.outcome
        later = self._in_check.pop(asked.trigger_id, deque())
        self._count(asked, -1)
        if isinstance(outcome, Refused):
            ack = Ack(trigger_id=asked.trigger_id, status=outcome.status, error_message=outcome.text)
            commands: list[Command] = [Answer(asked.peer, ack)]
        elif not self.is_loaded:
            commands = [_error(asked.peer, asked.trigger_id, UNAVAILABLE)]
        elif refusal := self._refusal(asked):
            commands = [_error(asked.peer, asked.trigger_id, refusal)]
        else:
            commands = self._store(asked, outcome)
        for next_event in later:
            self._count(next_event, -1)
            commands += self._on_asked(next_event)
        return commands

    def _store(self, asked: RegisterAsked, sound: Sound) -> list[Command]:
        request = asked.request
        self._last_version = max(asked.at_ns, self._last_version + 1)
        registration = rec.TriggerRegistration(
            trigger_id=request.trigger_id,
            sql=request.sql_pattern,
            tickers=request.tickers,
            parameters=request.parameters,
            registered_at=asked.at_ns,
            version=self._last_version,
        )
        if request.callback_id:
            registration.callback_id = request.callback_id
        entry = rec.TriggerEntry(registration=registration, warnings=sound.warnings, bar_seconds=sound.bar_seconds)
        change = self._change(entry, sound.is_joint)
        waiter = _Waiter(asked.peer, asked.trigger_id, registration.version, sound.warnings)
        return [change, *self._wait(self._triggers[asked.trigger_id], waiter)]

    def _refusal(self, event: RegisterAsked) -> str:
        """Why there is no room for this trigger; empty when there is."""
        known = self._triggers.get(event.trigger_id)
        registered = len(self._triggers) - (known is not None)
        if registered >= self._max_triggers:
            return f"{registered} triggers are registered, and {self._max_triggers} are allowed."
        size = self._stored_bytes - (known.size if known else 0) + event.request.ByteSize()
        if size > self._limits.max_trigger_bytes:
            return f"The registered triggers would have {size} bytes; {self._limits.max_trigger_bytes} are allowed."
        return BUSY if self._waiting >= self._limits.max_waiting_triggers else ""

    def _is_same(self, trigger: _Trigger, request: ing.CEPTriggerRequest) -> bool:
        """A suspended trigger is not: asked for again, it starts afresh."""
        entry = trigger.entry
        if entry.is_leaving or entry.suspended_reason:
            return False
        known = entry.registration
        same = ing.CEPTriggerRequest(
            sql_pattern=known.sql, tickers=known.tickers, parameters=known.parameters, callback_id=known.callback_id
        )
        return content(same) == content(request)

    def _on_list_asked(self, event: ListAsked) -> list[Command]:
        query = event.query
        if query.trigger_id:
            names: Iterable[str] = [query.trigger_id]
        else:
            names = sorted(name for name in self._triggers if name > query.after_trigger_id)
        found = cw.TriggerList()
        size = 0
        for name in names:
            trigger = self._triggers.get(name)
            if trigger is None or trigger.is_leaving or (trigger.is_starting and not query.include_starting):
                continue
            if not is_own(event.peer.name, name):
                continue
            size += trigger.size + 200
            if found.triggers and size > self._limits.max_list_bytes:
                found.has_more = True
                break
            registration = trigger.entry.registration
            found.triggers.add(
                trigger_id=name,
                sql_pattern=registration.sql,
                tickers=registration.tickers,
                state="suspended" if trigger.entry.suspended_reason else "active",
                reason=trigger.entry.suspended_reason,
                registered_at=registration.registered_at,
                is_starting=trigger.is_starting,
            )
        return [AnswerList(event.peer, found)]

    # ---- changes

    def _change(self, entry: rec.TriggerEntry, is_joint: bool, joins_anew: bool = False) -> Change:
        """The next form of a trigger, to be written; `entry` gets its offset when that is done.

        A suspended trigger is taken away from the pipeline: it fails in one partition, and runs in none.
        """
        entry.ClearField("control_offset")
        registration = entry.registration
        if entry.is_leaving or entry.suspended_reason:
            control = rec.TriggerControl(remove=cw.TriggerRemove(trigger_id=registration.trigger_id))
        else:
            control = rec.TriggerControl(register=registration)
        known = self._triggers.get(registration.trigger_id)
        was_joint = known is not None and known.in_joint
        number = self._next_change
        self._next_change += 1
        self._controls[number] = _Control(needs_joint=is_joint or was_joint)
        self._put(_Trigger(entry, is_joint, is_joint or was_joint, number, entry.ByteSize()))
        return Change(number, entry, control, joins=is_joint and (joins_anew or not was_joint))

    def _put(self, trigger: _Trigger) -> None:
        name = trigger.entry.registration.trigger_id
        known = self._triggers.get(name)
        self._stored_bytes += trigger.size
        if known is not None:
            self._stored_bytes -= known.size
            self._by_change.pop(known.change, None)
        self._triggers[name] = self._by_change[trigger.change] = trigger
        self.suspensions.put(trigger.entry)
        # What fired before a removal still goes to its callback.
        if trigger.entry.registration.callback_id:
            self.callbacks[name] = trigger.entry.registration.callback_id
        else:
            self.callbacks.pop(name, None)

    def _wait(self, trigger: _Trigger, waiter: _Waiter) -> list[Command]:
        control = self._controls[trigger.change]
        if control.offset is not None and self._waiting >= self._limits.max_waiting_triggers:
            return [_error(waiter.peer, waiter.trigger_id, BUSY)]
        control.waiters.append((waiter, self._now + self._timeout_seconds))
        self._waiting += 1
        return []

    def _on_written(self, event: Written) -> list[Command]:
        self._now = max(self._now, event.at)
        until = self._now + self._timeout_seconds
        commands: list[Command] = []
        for number, offset in event.offsets.items():
            control = self._controls[number]
            control.offset = offset
            control.waiters = [(waiter, until) for waiter, _ in control.waiters]
            trigger = self._by_change.get(number)
            if trigger is not None:
                trigger.entry.control_offset = offset
                commands += [Save(trigger.entry), *self._follow(trigger), *self._tell(trigger)]
        return commands + self._pass(event.offsets)

    def _on_write_failed(self, event: WriteFailed) -> list[Command]:
        self.is_loaded = False
        waiters = [waiter for change in event.changes for waiter in self._release(change.number)]
        return [_error(waiter.peer, waiter.trigger_id, event.text) for waiter in waiters]

    def _release(self, number: int) -> list[_Waiter]:
        control = self._controls.pop(number)
        self._waiting -= len(control.waiters)
        return [waiter for waiter, _ in control.waiters]

    def _on_loaded(self, event: Loaded) -> list[Command]:
        """Those who wait for what was published before go on waiting: their offsets stand."""
        self.is_loaded = True
        self._progress = dict(event.progress)
        self._partitions = event.partitions
        self._triggers, self._by_change, self._stored_bytes = {}, {}, 0
        self.suspensions.clear()
        # An earlier run may have died between the two tables.
        commands: list[Command] = [LeaveJoint(name) for name in event.joint_ids if name not in event.entries]
        for name, entry in event.entries.items():
            is_joint = name in event.joint_ids
            self._last_version = max(self._last_version, entry.registration.version)
            if entry.HasField("control_offset") and entry.control_offset < event.controls_end:
                number = self._next_change
                self._next_change += 1
                trigger = _Trigger(entry, is_joint, is_joint, number, entry.ByteSize())
                self._put(trigger)
                self._controls[number] = _Control(is_joint, entry.control_offset)
                # An earlier run may have stored a suspension and not told of it.
                commands += self._tell(trigger)
            else:
                commands.append(self._change(entry, is_joint, joins_anew=True))
                trigger = self._triggers[name]
            commands += self._follow(trigger)
        for name in [name for name in self._followed_by if name not in self._triggers]:
            commands += self._unfollow(name)
        for name in [name for name in self.callbacks if name not in self._triggers]:
            del self.callbacks[name]
        return commands + self._pass(self._controls)

    # ---- what the pipeline says

    def _on_progress_made(self, event: ProgressMade) -> list[Command]:
        progress = event.progress
        commands: list[Command] = []
        for suspended in progress.suspended:
            trigger = self._triggers.get(suspended.trigger_id)
            if trigger is None or trigger.is_leaving or trigger.entry.suspended_reason:
                continue
            if trigger.entry.registration.version == suspended.version:
                commands += self._suspend(trigger, suspended.reason or "the pipeline stopped it")
        is_news = self._progress.get(progress.partition) != progress.controls_end
        self._progress[progress.partition] = progress.controls_end
        return commands + (self._pass(self._controls) if is_news else [])

    def _suspend(self, trigger: _Trigger, reason: str) -> list[Command]:
        entry = rec.TriggerEntry()
        entry.CopyFrom(trigger.entry)
        entry.suspended_reason = reason
        return [*self._refuse_waiters(trigger, reason), self._change(entry, trigger.is_joint)]

    def _tell(self, trigger: _Trigger) -> list[Command]:
        notices = self.suspensions.of(trigger.entry.registration.trigger_id)
        return [Tell(notices)] if notices else []

    def _on_subscribed(self, event: Subscribed) -> list[Command]:
        notices = self.suspensions.under(event.topic)
        return [Tell(notices)] if notices else []

    def _refuse_waiters(self, trigger: _Trigger, reason: str) -> list[Command]:
        """A trigger that was stopped before it ran everywhere is no registered one."""
        control = self._controls.get(trigger.change)
        if control is None:
            return []
        is_text = reason.startswith(_INVALID)
        ack = Ack(
            trigger_id=trigger.entry.registration.trigger_id,
            status=Ack.INVALID_SQL if is_text else Ack.ERROR,
            error_message=reason.removeprefix(_INVALID) if is_text else f"The trigger was suspended: {reason}",
        )
        told, control.waiters = control.waiters, []
        self._waiting -= len(told)
        return [Answer(waiter.peer, ack) for waiter, _ in told]

    def _pass(self, numbers: Iterable[int]) -> list[Command]:
        """Answer for those of these changes that every partition has passed by now."""
        ordinary = min((self._progress.get(partition, 0) for partition in range(self._partitions)), default=0)
        joint = min(ordinary, self._progress.get(self._partitions, 0))
        commands: list[Command] = []
        for number in list(numbers):
            control = self._controls[number]
            if control.offset is None or control.offset >= (joint if control.needs_joint else ordinary):
                continue
            commands += [_done(waiter) for waiter in self._release(number)]
            trigger = self._by_change.get(number)
            if trigger is not None:
                commands += self._make_effective(trigger)
        return commands

    def _make_effective(self, trigger: _Trigger) -> list[Command]:
        trigger.is_passed = True
        if trigger.is_leaving:
            return [AwaitEvents(trigger.change)]
        if trigger.in_joint and not trigger.is_joint:
            trigger.in_joint = False
            return [LeaveJoint(trigger.entry.registration.trigger_id)]
        return []

    def _on_events_delivered(self, event: EventsDelivered) -> list[Command]:
        commands: list[Command] = []
        for change in event.changes:
            trigger = self._by_change.pop(change, None)
            if trigger is not None:
                name = trigger.entry.registration.trigger_id
                del self._triggers[name]
                self._stored_bytes -= trigger.size
                self.callbacks.pop(name, None)
                self.suspensions.remove(name)
                commands.append(Delete(name))
        return commands

    def _on_time_passed(self, event: TimePassed) -> list[Command]:
        self._now = event.at
        if event.at < self._next_expiry:
            return []
        self._next_expiry = event.at + _EXPIRY_SECONDS
        commands: list[Command] = []
        for control in self._controls.values():
            late = [waiter for waiter, until in control.waiters if until <= event.at]
            if late and control.offset is not None:
                control.waiters = [entry for entry in control.waiters if entry[1] > event.at]
                self._waiting -= len(late)
                commands += [
                    _error(w.peer, w.trigger_id, _NOT_YET_ACTIVE if w.version else _NOT_YET_REMOVED) for w in late
                ]
        return commands

    # ---- live data

    def _follow(self, trigger: _Trigger) -> list[Command]:
        """Each named ticker of a trigger that may run is like a subscriber of the topic that it reads."""
        registration, period = trigger.entry.registration, trigger.entry.bar_seconds
        wanted: tuple[str, ...] = ()
        if not trigger.is_leaving and not trigger.entry.suspended_reason:
            wanted = tuple(
                topics.bars(ticker, period) if period else topics.ticks(ticker) for ticker in registration.tickers
            )
        name = registration.trigger_id
        before = self._followed_by.get(name, ())
        if before == wanted:
            return []
        self._followed_by[name] = wanted
        started = [topic for topic in wanted if not self._followed[topic]]
        self._followed.update(wanted)
        commands: list[Command] = [Follow(topic, True) for topic in started]
        return commands + self._drop(before) + ([] if wanted else self._unfollow(name))

    def _unfollow(self, name: str) -> list[Command]:
        return self._drop(self._followed_by.pop(name, ()))

    def _drop(self, names: tuple[str, ...]) -> list[Command]:
        self._followed.subtract(names)
        ended = [topic for topic in names if self._followed[topic] <= 0]
        for topic in ended:
            del self._followed[topic]
        return [Follow(topic, False) for topic in ended]

    # ---- small things

    def _state_of(self, trigger: _Trigger) -> str:
        if trigger.entry.suspended_reason:
            return "suspended"
        return "starting" if trigger.is_starting else "active"

    def _count(self, event: RegisterAsked | RemoveAsked, step: int) -> None:
        self.backlog += step
        if isinstance(event, RegisterAsked):
            self.backlog_bytes += step * event.request.ByteSize()


def _error(peer: Peer, trigger_id: str, text: str) -> Answer:
    return Answer(peer, Ack(trigger_id=trigger_id, status=Ack.ERROR, error_message=text))


def _done(waiter: _Waiter) -> Answer:
    ack = Ack(trigger_id=waiter.trigger_id, status=Ack.REGISTERED)
    if waiter.warnings:
        ack.error_message = "\n".join(waiter.warnings)
    return Answer(waiter.peer, ack)
