"""Which triggers are registered, as their table has them, and where their events go. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.doors.ownership import is_own
from relay.triggers.suspensions import Suspensions

#: What a list says of a trigger beside its entry.
_LISTED_BYTES = 200


@dataclass(slots=True)
class Registered:
    """`change`: number of the newest one. `in_joint`: the joint partition may run it, now or in its form before."""

    entry: rec.TriggerEntry
    is_joint: bool
    in_joint: bool
    change: int
    #: Of the entry, in bytes.
    size: int
    #: Every partition has passed its newest change.
    is_passed: bool = False

    @property
    def name(self) -> str:
        return self.entry.registration.trigger_id

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

    @property
    def state(self) -> str:
        if self.entry.suspended_reason:
            return "suspended"
        return "starting" if self.is_starting else "active"


class TriggerBook:
    def __init__(self) -> None:
        self._by_name: dict[str, Registered] = {}
        self._by_change: dict[int, Registered] = {}
        #: Of all entries.
        self.size_bytes = 0
        #: Where events go beside their own topic; read by the thread that publishes them.
        self.callbacks: dict[str, str] = {}
        self.suspensions = Suspensions()
        #: Name of a view, in small letters -> ids of those that read it.
        self._by_view: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def get(self, name: str) -> Registered | None:
        return self._by_name.get(name)

    def newest(self, number: int) -> Registered:
        """The trigger of its newest change."""
        return self._by_change[number]

    def of_change(self, number: int) -> Registered | None:
        """None for a change that another one has followed."""
        return self._by_change.get(number)

    def put(self, trigger: Registered) -> None:
        """The newest form of a trigger."""
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
        # What fired before a removal still goes to its callback.
        if trigger.entry.registration.callback_id:
            self.callbacks[name] = trigger.entry.registration.callback_id
        else:
            self.callbacks.pop(name, None)

    def drop(self, change: int) -> str | None:
        """Take away the trigger whose newest change this is; its name, None where there is none."""
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
        """Before it is read again. Callbacks stay until `drop_callbacks`: events are being published meanwhile."""
        self._by_name, self._by_change, self.size_bytes, self._by_view = {}, {}, 0, {}
        self.suspensions.clear()

    def circle(self, trigger_id: str, sources: Iterable[str]) -> list[str]:
        """How the events of this trigger come back to it where it reads those of `sources`; empty where they do not."""
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
        """Those of triggers that are not registered."""
        for name in [name for name in self.callbacks if name not in self._by_name]:
            del self.callbacks[name]

    def counts(self) -> dict[str, int]:
        """How many are in which state; those that leave are in none."""
        found = Counter({"active": 0, "starting": 0, "suspended": 0})
        found.update(trigger.state for trigger in self._by_name.values() if not trigger.is_leaving)
        return dict(found)

    def page(self, query: cw.TriggerQuery, owner: str, max_bytes: int) -> cw.TriggerList:
        """What `query` asks for of the triggers that are `owner`'s, by name, as far as it fits."""
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
