"""Registered views that running triggers read: each is computed once for all streams that read it.

A stream that reads a view takes its rows. They depend on the row at which a trigger begins (a moving average, an
open window), so triggers share a view from the start only if they begin with the same row. Other triggers get a view of
their own, and share it once its state is equal, byte by byte: from then on it gives the same rows.
"""

import json
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Protocol

import pyarrow as pa

from candlewright_cep import Clock, TriggerRejected, TriggerStream
from candlewright_cep.streaming.patterns.match_results import Reports
from candlewright_cep.streaming.stream import Passed
from triggers.packing import squeezed, unsqueezed
from triggers.records.moved import Moved
from triggers.running.states import Parts, States, states_in
from triggers.running.trigger import Common, Text, text_of
from triggers.texts.check import CompiledTrigger

__all__ = ["View", "Views", "clock_of"]

_UNKNOWN = -(2**63)
_NAME = "view-"
#: Stands for all tickers.
_EVERY = ""
#: After this many steps, states are compared only once in this many steps.
_RARELY = 4096
#: The most pairs of views that a step compares, and the most bytes of their states; a step compares at least one view.
_COMPARED, _COMPARED_BYTES = 16, 2**18


class View:
    """The rows of one view. `count`: the number of nodes of the plan that compute it; `before`: the view that it reads.

    `firsts`: for each ticker the first row that its readers may see. `scope`: views of other tickers do not match, if
    rows of several are combined. `readers`: the number of triggers; 0 if it is not known yet. `spent_ns`: processor
    time of the last rows.
    """

    def __init__(
        self, home: "Views", number: int, common: Common, *, level: int, scope: str, before: "View | None"
    ) -> None:
        self.home = home
        self.number = number
        self.common = common
        self.level = level
        self.count, self.key = common.views[level]
        self.scope = scope
        self.before = before
        self.firsts: dict[str, int] = {}
        self.streams: dict[int, TriggerStream] = {}
        self.states = States(self.streams)
        self.readers = 0
        self.spent_ns = 0
        #: What the view gave up in its last step.
        self.given_up = Reports()
        #: Its only reader is behind, so it must not get another one.
        self.is_behind = False
        # Tickers that have had no rows or time since they were added.
        self._fresh: set[str] = set()
        self._moved: Moved | None = None
        self._found: Passed | Exception | None = None
        self._label = 0
        self._old: Parts = {}
        self._steps = 0
        self._is_fed = False
        self._meta: bytes | None = None

    @property
    def compiled(self) -> CompiledTrigger:
        return self.common.compiled

    @property
    def chain(self) -> Iterator["View"]:
        """It and the views below it."""
        view: View | None = self
        while view is not None:
            yield view
            view = view.before

    @property
    def _tickers(self) -> dict[str, int] | None:
        """None for all tickers."""
        return None if _EVERY in self.firsts else self.firsts

    # ---- its readers
    def can_take(self, tickers: Collection[str], first: int) -> bool:
        """Whether triggers that begin with this row may share it."""
        names = tickers or (_EVERY,)
        return not self.is_behind and all(
            name not in self.firsts or (self.firsts[name] == first and name in self._fresh) for name in names
        )

    def add(self, tickers: Collection[str], first: int) -> None:
        self._meta = None
        for name in tickers or (_EVERY,):
            if name not in self.firsts:
                self.firsts[name] = first
                self._fresh.add(name)

    def keep(self, names: Container[str]) -> None:
        """Forget all other tickers."""
        gone = [name for name in self.firsts if name not in names]
        if not gone:
            return
        self._meta = None
        for label, stream in self.streams.items():
            stream.remove(*gone)
            self.states.changed(label)
        for name in gone:
            self.firsts.pop(name, None)
        self._fresh.difference_update(gone)

    # ---- rows
    def stream(self, label: int) -> TriggerStream:
        found = self.streams.get(label)
        if found is None:
            before = self.before
            found = self.streams[label] = TriggerStream(
                query=self.compiled.query,
                active_from=self.firsts.get(_EVERY, 0),
                tickers=self._tickers,
                since=0 if before is None else before.count,
                until=self.count,
                before=None if before is None else before.stream(label),
            )
        return found

    def pull(self, label: int, moved: Moved, rows: pa.Table | None = None) -> Passed:
        """Its rows for `moved`, computed for the first reader. `rows`: the rows to take, for a view with a single
        reader. Raises the same error for every reader.
        """
        if self._moved is not moved:
            given = None if self.before is None else self.before.pull(label, moved, rows)
            self._remember(label, moved)
            began = time.thread_time_ns()
            try:
                self._found = self._computed(label, moved, given, rows)
            except Exception as error:  # It is raised below, for each reader.
                self._found = error
            self.spent_ns = time.thread_time_ns() - began
            self.home.spent_ns += self.spent_ns
        if isinstance(self._found, Exception):
            raise self._found
        assert self._found is not None
        return self._found

    def _computed(self, label: int, moved: Moved, given: Passed | None, rows: pa.Table | None) -> Passed:
        stream = self.stream(label)
        self.states.changed(label)
        before = stream.reports
        tickers = self._tickers
        if rows is None:
            own = None if tickers is None else [name for name in tickers if name in moved.by_ticker]
            rows = moved.rows if own is None else moved.of_tickers(own)
        if given is None:
            found = stream.view(rows, clock_of(self.compiled, moved.clock, tickers), is_own=tickers is not None)
        else:
            is_apart = tickers is not None and not self.compiled.query.needs_merge
            found = stream.view_after(given.of_tickers(self.firsts) if is_apart else given, rows.num_rows)
        self.given_up = stream.reports.since(before)
        if self.before is not None:
            self.given_up = self.given_up.plus(self.before.given_up)
        return found

    def _remember(self, label: int, moved: Moved) -> None:
        """For `copied` after an error."""
        self._moved, self._found, self._label = moved, None, label
        is_shared = any(view.readers != 1 for view in self.chain)
        self._old = self.states.of(label) if is_shared and label in self.streams else {}
        self._fresh.clear()
        self._is_fed = True

    def failed(self, error: Exception) -> bool:
        """Whether the error is its own, or that of a view below it."""
        return any(view._found is error for view in self.chain)

    def overlooked(self, moved: Moved) -> Set[str]:
        """Tickers that have rows among the last ones although they have not moved."""
        is_new = self._moved is moved and isinstance(self._found, Passed) and self._tickers is not None
        return set(self._found.tickers) - moved.tickers if is_new and isinstance(self._found, Passed) else set()

    def late_rows(self, label: int) -> Mapping[str, int]:
        """See `Shard.late_rows`."""
        return [*self.chain][-1].stream(label).late_rows

    # ---- one for a single reader
    def copied(self, tickers: Collection[str], error: Exception | None = None) -> "View":
        """Another view with the same state, for some of its tickers. Given the `error` that it raised last, the copy
        has the state from before that.
        """
        failed = next((view for view in self.chain if error is not None and view._found is error), None)
        return self._copied(tickers or (_EVERY,), None if failed is None else failed._moved)

    def _copied(self, names: Collection[str], moved: Moved | None) -> "View":
        before = None if self.before is None else self.before._copied(names, moved)
        found = self.home.new(self.common, self.level, scope=self.scope, before=before)
        found.firsts = dict(self.firsts)
        is_undone = moved is not None and self._moved is moved
        for label in self.streams:
            state = self._old if is_undone and label == self._label else self.states.of(label)
            if state:
                found.restore(label, state)
        found.keep(names)
        return found

    def turn_to(self, before: "View") -> None:
        """Read another view, which has the same state."""
        states = {label: self.states.of(label) for label in self.streams}
        self.before, self._meta = before, None
        self.streams.clear()
        for label, state in states.items():
            self.restore(label, state)

    def is_like(self, other: "View") -> bool:
        """Whether it gives the tickers of another view the same rows from now on."""
        if self.streams.keys() != other.streams.keys():
            return False
        return all(
            self._state_of(label, other.firsts) == other._state_of(label, other.firsts) for label in self.streams
        )

    @property
    def size(self) -> int:
        """The bytes of its state."""
        return sum(len(part) for label in self.streams for part in self.states.of(label).values())

    def _state_of(self, label: int, names: Container[str]) -> bytes:
        stream = TriggerStream(
            query=self.compiled.query,
            tickers=None if self._tickers is None else dict(self.firsts),
            since=0 if self.before is None else self.before.count,
            until=self.count,
            before=None if self.before is None else self.before.stream(label),
        )
        stream.restore_parts(self.states.of(label))
        stream.remove(*(name for name in self.firsts if name not in names))
        stream.steps = 0
        return stream.snapshot()

    def end_step(self) -> bool:
        """Forget the rows. Returns whether to compare its state with other views."""
        self._moved, self._found, self._old = None, None, {}
        is_fed, self._is_fed = self._is_fed, False
        self._steps += is_fed
        return is_fed and (self._steps & (self._steps - 1) == 0 or not self._steps % _RARELY)

    # ---- cost and state
    @property
    def share_ns(self) -> int:
        """What each trigger pays for the last rows."""
        return sum(view.spent_ns // max(1, view.readers) for view in self.chain)

    @property
    def save_ns(self) -> int:
        return sum(view.states.save_ns // max(1, view.readers) for view in self.chain)

    @property
    def cost_of_each(self) -> tuple[int, int, int]:
        """The partitions, bytes and steps of each trigger."""
        found = [0, 0, 0]
        for view in self.chain:
            streams = view.streams.values()
            steps = sum(stream.steps for stream in streams)
            for place, whole in enumerate((sum(one.partitions for one in streams), view.states.size, steps)):
                found[place] += -(-whole // max(1, view.readers))
        return found[0], found[1], found[2]

    def restore(self, label: int, state: Parts) -> None:
        self.stream(label).restore_parts(state)
        self.states.restored(label, state)

    def save(self) -> Iterator[tuple[str, bytes]]:
        if self._meta is None:
            meta = {
                "text": self.common.text,
                "level": self.level,
                "scope": self.scope,
                "before": None if self.before is None else self.before.number,
                "firsts": self.firsts,
            }
            self._meta = squeezed(json.dumps(meta).encode())
        yield "meta", self._meta
        yield from self.states.written()


class Reader(Protocol):
    """A stream that may read a view. `owners`: its tickers, none for all."""

    @property
    def view(self) -> View | None: ...

    @property
    def owners(self) -> Collection[str]: ...

    @property
    def trigger_ids(self) -> Collection[str]: ...

    def read(self, view: View) -> None: ...


class Views:
    """By number. A view has a higher number than the one that it reads. `spent_ns`: processor time of all so far."""

    def __init__(self) -> None:
        self.spent_ns = 0
        self._views: dict[int, View] = {}
        self._next = 0
        self._version = -1
        self._lost: dict[int, str] = {}
        # The views to compare with others, in order.
        self._due: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._views)

    def new(self, common: Common, level: int, *, scope: str, before: View | None) -> View:
        found = self._views[self._next] = View(self, self._next, common, level=level, scope=scope, before=before)
        self._next += 1
        return found

    def of(self, common: Common, tickers: Sequence[str], first: int) -> View | None:
        """The view that a trigger which begins with this row reads; None if it reads none."""
        scope = _EVERY if tickers else "every ticker"
        if tickers and common.compiled.query.needs_merge:
            scope = json.dumps(sorted(tickers))
        found: View | None = None
        for level, (_, key) in enumerate(common.views):
            before = found
            known = (
                view
                for view in self._views.values()
                if (view.key, view.scope) == (key, scope) and view.before is before and view.can_take(tickers, first)
            )
            found = next(known, None) or self.new(common, level, scope=scope, before=before)
            found.add(tickers, first)
        return found

    def settle(self, readers: Collection[Reader], version: int) -> None:
        """Forget views and tickers without readers. `version`: changes with the streams."""
        if version == self._version or not self._views:
            return
        self._version = version
        used: dict[int, set[str]] = {}
        triggers: dict[int, int] = {}
        for reader in readers:
            for view in reader.view.chain if reader.view is not None else ():
                used.setdefault(view.number, set()).update(reader.owners or (_EVERY,))
                triggers[view.number] = triggers.get(view.number, 0) + len(reader.trigger_ids)
        self._views = {number: view for number, view in self._views.items() if number in used}
        for number, view in self._views.items():
            view.readers = triggers[number]
            view.keep(used[number])

    def unite(self, readers: Collection[Reader], first_held: int | None) -> bool:
        """At the end of a step: let streams share views whose states are equal; returns whether there were any.
        `first_held`: the lowest number of the trades that wait for their turn.
        """
        is_changed = False
        self._due |= dict.fromkeys(number for number, view in self._views.items() if view.end_step())
        left = _COMPARED_BYTES
        while self._due and left > 0:
            number = next(iter(self._due))
            del self._due[number]
            view = self._views.get(number)
            for main in () if view is None else self._older(view):
                assert view is not None
                left -= _COMPARED_BYTES // _COMPARED + main.size + view.size
                # One of them may still get rows that are from before the first one of the other.
                latest = max((max(first, main.firsts[name]) for name, first in view.firsts.items()), default=0)
                is_early = first_held is not None and first_held < latest and not view.compiled.is_on_bars
                if not is_early and main.is_like(view):
                    self._replace(view, main, readers)
                    is_changed = True
                    break
        return is_changed

    def _older(self, view: View) -> list[View]:
        """The oldest and the newest view before this one that may equal it; all would be too many to compare."""
        found = [
            other
            for number, other in self._views.items()
            if number < view.number
            and not other.is_behind
            and (other.key, other.scope) == (view.key, view.scope)
            and other.before is view.before
            and view.firsts.keys() <= other.firsts.keys()
        ]
        return [] if view.is_behind else [*found[:1], *found[1:][-1:]]

    def _replace(self, view: View, main: View, readers: Collection[Reader]) -> None:
        for reader in readers:
            if reader.view is view:
                reader.read(main)
        for number, other in self._views.items():
            if other.before is view:
                other.turn_to(main)
                self._due[number] = None
        del self._views[view.number]
        self._version = -1

    def overlooked(self, moved: Moved) -> dict[int, Set[str]]:
        """By view, the tickers with rows whose readers would not be fed by what has moved."""
        found = ((number, view.overlooked(moved)) for number, view in self._views.items())
        return {number: tickers for number, tickers in found if tickers}

    def forget(self, label: int) -> None:
        for view in self._views.values():
            view.states.forget(label)

    # ---- state
    def save(self) -> Iterator[tuple[str, bytes]]:
        for number, view in self._views.items():
            for name, written in view.save():
                yield f"{_NAME}{number}/{name}", written

    @staticmethod
    def taken(parts: dict[str, bytes]) -> dict[int, dict[str, bytes]]:
        """Remove from `parts` of a state what `save` returned."""
        found: dict[int, dict[str, bytes]] = {}
        for name in [name for name in parts if name.startswith(_NAME)]:
            number, _, part = name.removeprefix(_NAME).partition("/")
            found.setdefault(int(number), {})[part] = parts.pop(name)
        return found

    def restore(
        self,
        parts: Mapping[int, dict[str, bytes]],
        common_of: Callable[[Text], Common],
        readers: Iterable[tuple[int | None, Text]],
    ) -> None:
        """`parts`: the output of `taken`; `readers`: the texts of triggers, with the number of the view they read."""
        metas = {number: json.loads(unsqueezed(own.pop("meta"))) for number, own in sorted(parts.items())}
        texts = {number: {text_of(meta["text"]): None} for number, meta in metas.items()}
        for read, text in readers:
            while read in metas:
                texts[read][text] = None
                read = metas[read]["before"]
        for place, meta in metas.items():
            # This version may refuse the text of one reader, but not of another.
            for text in texts[place]:
                self._next = place
                try:
                    self._restore(meta, parts[place], common_of(text))
                except (TriggerRejected, ValueError, IndexError) as error:
                    self._lost.setdefault(place, str(error))
                else:
                    self._lost.pop(place, None)
                    break
        self._next = max(parts, default=-1) + 1

    def _restore(self, meta: Mapping[str, Any], parts: Mapping[str, bytes], common: Common) -> None:
        before = None if meta["before"] is None else self.get(meta["before"])
        view = self.new(common, meta["level"], scope=meta["scope"], before=before)
        view.firsts = dict(meta["firsts"])
        for label, state in states_in(parts).items():
            view.restore(label, state)

    def get(self, number: int) -> View:
        """Raises ValueError for one that could not be restored."""
        found = self._views.get(number)
        if found is None or number in self._lost:
            raise ValueError(self._lost.get(number) or "the view that the trigger reads is not in its state")
        return found


def clock_of(compiled: CompiledTrigger, clock: Clock, tickers: Collection[str] | None) -> Clock:
    """Merged rows wait only for their own tickers, including those without rows so far. `tickers`: None for all."""
    if not compiled.query.needs_merge or tickers is None:
        return clock
    known = set(tickers) & clock.watermarks.keys()
    # Once every ticker with rows has gone quiet, no ticker waits for one that never had any.
    closed = set(tickers) if known and known <= clock.closed else set(tickers) & clock.closed
    return Clock({ticker: clock.watermarks.get(ticker, _UNKNOWN) for ticker in tickers}, closed)
