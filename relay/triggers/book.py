"""The registered triggers, as in their table, and where their events go. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.doors.ownership import is_own
from relay.triggers.suspensions import Suspensions

#: The fields of a list that are not in a trigger's entry.
_LISTED_BYTES = 200


@dataclass(slots=True)
class Registered:
    """`change`: the number of the newest change. `in_joint`: the joint partition may run the trigger, in its current or
    previous form.
    """

    entry: rec.TriggerEntry
    is_joint: bool
    in_joint: bool
    change: int
    #: The size of the entry in bytes.
    size: int
    #: Whether every partition has passed its newest change.
    is_passed: bool = False

    @property
    def name(self) -> str:
        return self.entry.registration.trigger_id

    @property
    def is_leaving(self) -> bool:
        return self.entry.is_leaving

    @property
    def is_starting(self) -> bool:
        """Whether it is stored but not registered yet, because some partition has not passed it."""
        return not self.is_passed and not self.entry.suspended_reason

    @property
    def is_gone(self) -> bool:
        return self.is_leaving and self.is_passed

    @property
    def state(self) -> str:
        if self.entry.suspended_reason:
            return "suspended"
        return "starting" if self.is_starting else "active"


class TriggerBook:
    def __init__(self) -> None:
        self._by_name: dict[str, Registered] = {}
        self._by_change: dict[int, Registered] = {}
        #: The size of all entries in bytes.
        self.size_bytes = 0
        #: The topics that events go to besides their own; read by the thread that publishes them.
        self.callbacks: dict[str, str] = {}
        self.suspensions = Suspensions()
        #: Name of a view in lower case -> ids of the triggers that read it.
        self._by_view: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Registered | None:
        return self._by_name.get(name)

    def newest(self, number: int) -> Registered:
        """The trigger whose newest change has this number."""
        return self._by_change[number]

    def of_change(self, number: int) -> Registered | None:
        """The trigger whose newest change has this number; None if a later change followed."""
        return self._by_change.get(number)

    def put(self, trigger: Registered) -> None:
        """Add or replace a trigger."""
        name = trigger.name
        known = self._by_name.get(name)
        self.size_bytes += trigger.size
        if known is not None:
            self.size_bytes -= known.size
            self._by_change.pop(known.change, None)
            self._forget_views(known)
        for view in trigger.entry.registration.views:
            self._by_view.setdefault(view.lower(), set()).add(name)
        self._by_name[name] = self._by_change[trigger.change] = trigger
        self.suspensions.put(trigger.entry)
        # Events from before a removal still go to the callback.
        if trigger.entry.registration.callback_id:
            self.callbacks[name] = trigger.entry.registration.callback_id
        else:
            self.callbacks.pop(name, None)

    def drop(self, change: int) -> str | None:
        """Remove the trigger whose newest change has this number; returns its id, or None if there is none."""
        trigger = self._by_change.pop(change, None)
        if trigger is None:
            return None
        del self._by_name[trigger.name]
        self._forget_views(trigger)
        self.size_bytes -= trigger.size
        self.callbacks.pop(trigger.name, None)
        self.suspensions.remove(trigger.name)
        return trigger.name

    def clear(self) -> None:
        """Forget all triggers before the table is read again. Callbacks stay until `drop_callbacks`, since events are
        published meanwhile.
        """
        self._by_name, self._by_change, self.size_bytes, self._by_view = {}, {}, 0, {}
        self.suspensions.clear()

    def circle(self, trigger_id: str, sources: Iterable[str]) -> list[str]:
        """The ids through which the trigger would read its own events if it read those of `sources`; empty if it would
        not.
        """
        ways = [[trigger_id, name] for name in sources]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            if way[-1] == trigger_id:
                return way
            if way[-1] not in seen and (known := self._by_name.get(way[-1])) is not None and not known.is_leaving:
                ways += [[*way, name] for name in known.entry.sources]
            seen.add(way[-1])
        return []

    def readers_of(self, view: str) -> list[Registered]:
        """Triggers that read this view, by id."""
        return [self._by_name[name] for name in sorted(self._by_view.get(view.lower(), ()))]

    def _forget_views(self, trigger: Registered) -> None:
        for view in trigger.entry.registration.views:
            readers = self._by_view.get(view.lower(), set())
            readers.discard(trigger.name)
            if not readers:
                self._by_view.pop(view.lower(), None)

    def drop_callbacks(self) -> None:
        """Drop the callbacks of triggers that are not registered."""
        for name in [name for name in self.callbacks if name not in self._by_name]:
            del self.callbacks[name]

    def counts(self) -> dict[str, int]:
        """The number of triggers by state, without those being removed."""
        found = Counter({"active": 0, "starting": 0, "suspended": 0})
        found.update(trigger.state for trigger in self._by_name.values() if not trigger.is_leaving)
        return dict(found)

    def page(self, query: cw.TriggerQuery, owner: str, max_bytes: int) -> cw.TriggerList:
        """The answer to `query` over the triggers of `owner`, ordered by id, as far as it fits `max_bytes`."""
        if query.trigger_id:
            names: Iterable[str] = [query.trigger_id]
        else:
            names = sorted(name for name in self._by_name if name > query.after_trigger_id)
        found = cw.TriggerList()
        size = 0
        for name in names:
            trigger = self._by_name.get(name)
            if trigger is None or trigger.is_leaving or (trigger.is_starting and not query.include_starting):
                continue
            if not is_own(owner, name):
                continue
            size += trigger.size + _LISTED_BYTES
            if found.triggers and size > max_bytes:
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
                parameters=registration.parameters,
                views=sorted(registration.views),
            )
        return found
