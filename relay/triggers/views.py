"""Registered views: their texts, their readers, and the effect of a change on the readers. Pure.

Changes are checked one after another. A trigger is registered with the texts of its views, so a changed view registers
its readers again, and they start afresh.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import starmap

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.asked import Peer
from relay.doors.ownership import is_own
from relay.events import UNAVAILABLE
from relay.settings import RelayLimits
from relay.triggers.asked import ViewAsked
from relay.triggers.book import Registered, TriggerBook
from relay.triggers.commands import AnswerView, CheckView, Command, DropView, SaveViews
from relay.triggers.events import Loaded, RefusedView, Sound, SoundView, ViewChecked, ViewRemoveAsked, ViewsAsked
from triggers.texts.views import BUILT_IN_VIEWS, built_in_view

ViewAck = cw.ViewAck
#: The most readers of a view named in a message.
_NAMED = 5

#: Given a trigger, the result of its check, and the time (ns), returns the commands that register it again.
Restart = Callable[[Registered, Sound, int], list[Command]]


class ViewState:
    def __init__(
        self,
        limits: RelayLimits,
        triggers: TriggerBook,
        restart: Restart,
        *,
        circle: Callable[[str, Sound], str],
    ) -> None:
        """`circle` returns the reason if a trigger would read its own events, else an empty string."""
        self._limits = limits
        self._triggers = triggers
        self._restart = restart
        self._circle = circle
        self._entries: dict[str, rec.ViewEntry] = {}
        self._bytes = 0
        self._last_version = 0
        self._checking: ViewAsked | None = None
        self._later: deque[ViewAsked | ViewRemoveAsked] = deque()
        self.is_loaded = False

    def load(self, loaded: Loaded) -> None:
        self._entries = {name.lower(): entry for name, entry in loaded.views.items()}
        self._bytes = sum(entry.ByteSize() for entry in self._entries.values())
        self._last_version = max((entry.version for entry in self._entries.values()), default=0)
        self.is_loaded = True

    # ---- for triggers

    def texts(self, owner: str) -> dict[str, str]:
        """The texts of this client's views, by name."""
        return {entry.name: entry.sql for entry in self._entries.values() if is_own(owner, entry.name)}

    def are_current(self, views: Mapping[str, str]) -> bool:
        return all(
            (entry := self._entries.get(name.lower())) is not None and entry.sql == text for name, text in views.items()
        )

    def renewed(self, views: Iterable[str]) -> dict[str, str]:
        """The current texts of these views."""
        found = (self._entries.get(name.lower()) for name in views)
        return {entry.name: entry.sql for entry in found if entry is not None}

    # ---- requests of clients

    def asked(self, event: ViewAsked | ViewRemoveAsked) -> list[Command]:
        if not self.is_loaded:
            return [_refused(event, ViewAck.ERROR, UNAVAILABLE)]
        if self._checking is None:
            return self._register(event) if isinstance(event, ViewAsked) else self._remove(event)
        if len(self._later) >= self._limits.max_waiting_views:
            return [_refused(event, ViewAck.ERROR, "Too many changes of views are waiting; try again later.")]
        self._later.append(event)
        return []

    def listed(self, event: ViewsAsked) -> list[Command]:
        query = event.query
        if query.built_in:
            return [self._answer(event, [_built_in(name) for name in sorted(BUILT_IN_VIEWS)])]
        names = [query.name.lower()] if query.name else sorted(self._entries)
        entries = (self._entries.get(name) for name in names)
        own = [entry for entry in entries if entry is not None and is_own(event.peer.name, entry.name)]
        readers = self._all_readers()
        views = [self._info(entry, readers, with_triggers=bool(query.name)) for entry in own]
        if not views and query.name.lower() in BUILT_IN_VIEWS:
            views = [_built_in(query.name.lower())]
        return [self._answer(event, views)]

    @staticmethod
    def _answer(event: ViewsAsked, views: list[cw.ViewInfo]) -> AnswerView:
        return AnswerView(event.peer, cw.ViewList(request_id=event.query.request_id, views=views))

    def _info(self, entry: rec.ViewEntry, readers: Mapping[str, list[str]], *, with_triggers: bool) -> cw.ViewInfo:
        triggers = [trigger.name for trigger in self._read_by(entry.name)]
        return cw.ViewInfo(
            name=entry.name,
            sql=entry.sql,
            version=entry.version,
            registered_at=entry.registered_at,
            columns=entry.columns,
            column_types=entry.column_types,
            reads=entry.reads,
            read_by=readers.get(entry.name.lower(), ()),
            triggers=triggers[: self._limits.max_view_triggers] if with_triggers else (),
            trigger_count=len(triggers),
        )

    def _register(self, asked: ViewAsked) -> list[Command]:
        request = asked.request
        known = self._entries.get(request.name.lower())
        if known is not None and known.sql == request.sql:
            ack = ViewAck(
                request_id=request.request_id,
                name=known.name,
                status=ViewAck.ALREADY_REGISTERED,
                version=known.version,
            )
            return [AnswerView(asked.peer, ack)]
        refusal = self._refusal(request, known)
        if refusal:
            return [_refused(asked, ViewAck.ERROR, refusal)]
        self._checking = asked
        return [self._check(asked)]

    def _refusal(self, request: cw.ViewRequest, known: rec.ViewEntry | None) -> str:
        """The reason for refusing a view without a check; else empty."""
        limits = self._limits
        if known is None and (name := request.name.lower()) in BUILT_IN_VIEWS:
            return f"{name!r} is a built-in view, which other texts may read; choose another name."
        if known is not None and not request.replace:
            return f"Another view is registered as {known.name!r}; ask for it to be replaced."
        if known is None and len(self._entries) >= limits.max_views:
            return f"{len(self._entries)} views are registered, and {limits.max_views} are allowed."
        size = self._bytes - (known.ByteSize() if known is not None else 0) + len(request.sql.encode())
        if size > limits.max_view_bytes:
            return f"The registered views would have {size} bytes; {limits.max_view_bytes} are allowed."
        if (count := len(self._read_by(request.name))) > limits.max_view_triggers:
            return f"{count} triggers read the view; {limits.max_view_triggers} may start afresh at a time."
        return ""

    def _check(self, asked: ViewAsked) -> CheckView:
        name = asked.request.name
        texts = self.texts(asked.peer.name)
        known = self._entries.get(name.lower())
        if known is not None:
            texts.pop(known.name, None)
        triggers = tuple(trigger.entry.registration for trigger in self._running(name))
        return CheckView(asked, texts | {name: asked.request.sql}, tuple(self._readers(name)), triggers)

    def _remove(self, asked: ViewRemoveAsked) -> list[Command]:
        name = asked.request.name.lower()
        known = self._entries.get(name)
        if known is None and name in BUILT_IN_VIEWS:
            return [_refused(asked, ViewAck.ERROR, f"{name!r} is a built-in view, which cannot be removed.")]
        if known is None:
            return [_refused(asked, ViewAck.NOT_FOUND, f"No view {asked.request.name[:100]!r} is registered.")]
        views, triggers = self._readers(name), [trigger.name for trigger in self._read_by(name)]
        if views or triggers:
            users = " and ".join(filter(None, (_counted("view", views), _counted("trigger", triggers))))
            return [_refused(asked, ViewAck.IN_USE, f"The view {known.name!r} is in use by the {users}.")]
        self._bytes -= known.ByteSize()
        del self._entries[name]
        ack = ViewAck(request_id=asked.request.request_id, name=known.name, status=ViewAck.REMOVED)
        return [DropView(known.name, AnswerView(asked.peer, ack))]

    # ---- after a check

    def checked(self, event: ViewChecked) -> list[Command]:
        asked, outcome = event.check.asked, event.outcome
        if not self.is_loaded:
            commands: list[Command] = [_refused(asked, ViewAck.ERROR, UNAVAILABLE)]
        elif isinstance(outcome, RefusedView):
            commands = [_refused(asked, outcome.status, outcome.text)]
        elif (again := self._check(asked)) != event.check:
            # A view that it reads, or a reader of it, has changed meanwhile.
            return [again]
        elif circle := next(filter(None, starmap(self._circle, outcome.triggers.items())), ""):
            commands = [_refused(asked, ViewAck.ERROR, circle)]
        else:
            commands = self._store(asked, outcome)
        self._checking = None
        while self._later and self._checking is None:
            commands += self.asked(self._later.popleft())
        return commands

    def _store(self, asked: ViewAsked, sound: SoundView) -> list[Command]:
        running = self._running(asked.request.name)
        self._last_version = max(asked.at_ns, self._last_version + 1)
        entries = []
        for name, found in sound.views.items():
            known = self._entries.get(name.lower())
            is_new = name == asked.request.name
            entry = rec.ViewEntry(
                name=name,
                sql=asked.request.sql if is_new or known is None else known.sql,
                version=self._last_version if is_new or known is None else known.version,
                registered_at=asked.at_ns if is_new or known is None else known.registered_at,
                columns=[column for column, _ in found.columns],
                column_types=[kind for _, kind in found.columns],
                reads=found.reads,
            )
            self._bytes += entry.ByteSize() - (known.ByteSize() if known is not None else 0)
            self._entries[name.lower()] = entry
            entries.append(entry)
        ack = ViewAck(
            request_id=asked.request.request_id,
            name=asked.request.name,
            status=ViewAck.REGISTERED,
            version=self._last_version,
            warnings=sound.warnings,
            restarted=[trigger.name for trigger in running],
        )
        commands: list[Command] = [SaveViews(tuple(entries), AnswerView(asked.peer, ack))]
        for trigger in running:
            commands += self._restart(trigger, sound.triggers[trigger.name], asked.at_ns)
        return commands

    # ---- readers

    def _readers(self, name: str) -> list[str]:
        """The names of views that read this one, directly or through others."""
        return self._all_readers().get(name.lower(), [])

    def _all_readers(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for _, entry in sorted(self._entries.items()):
            for read in entry.reads:
                found.setdefault(read.lower(), []).append(entry.name)
        return found

    def _read_by(self, name: str) -> list[Registered]:
        """The triggers that read this view, including suspended ones, by id."""
        return [trigger for trigger in self._triggers.readers_of(name) if not trigger.is_leaving]

    def _running(self, name: str) -> list[Registered]:
        return [trigger for trigger in self._read_by(name) if not trigger.entry.suspended_reason]


def _built_in(name: str) -> cw.ViewInfo:
    text, checked = built_in_view(name)
    return cw.ViewInfo(
        name=name,
        sql=text,
        columns=[column for column, _ in checked.columns],
        column_types=[kind for _, kind in checked.columns],
    )


def _counted(what: str, names: list[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:_NAMED])
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{what}{'s' if len(names) > 1 else ''} {shown}{more}"


def _refused(asked: ViewAsked | ViewRemoveAsked, status: "ViewAck.ViewStatus", text: str) -> AnswerView:
    return refused_view(asked.peer, asked.request, status, text=text)


def refused_view(
    peer: Peer, request: cw.ViewRequest | cw.ViewRemove, status: "ViewAck.ViewStatus", *, text: str
) -> AnswerView:
    ack = ViewAck(request_id=request.request_id[:200], name=request.name[:200], status=status, text=text)
    return AnswerView(peer, ack)
