"""Running triggers that share a stream: those with the same text over different tickers, even if their numbers differ.
Together they cost about as much as one.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from candlewright.wire.grid import SECOND
from candlewright_cep import Clock, Events, JoinedStream, TriggerStream
from candlewright_cep.matching.glance import Glance, Resting
from candlewright_cep.planning.periods import STATELESS
from candlewright_cep.planning.plans import Join
from candlewright_cep.streaming.patterns.match_results import Reports
from candlewright_cep.streaming.rows.packing import as_json, unpacked
from candlewright_cep.streaming.slots import Number, written_key
from protobuf import records_pb2 as records
from triggers.events.chained import EVENTS_LABEL, TRIGGER_EVENTS, EventOrder, EventsBeside, seen
from triggers.events.firings import schema_of
from triggers.packing import squeezed, unsqueezed
from triggers.records.asked_for import Ages
from triggers.records.clocks import TICKS
from triggers.records.lookback import Lookback
from triggers.records.moved import Moved
from triggers.running.backlog import Backlog
from triggers.running.cooldowns import fed
from triggers.running.recent import Recent
from triggers.running.standings import Standings
from triggers.running.states import Parts, States, states_in
from triggers.running.thresholds import thresholds_of
from triggers.running.trigger import Common, Text, Trigger, glance_of, text_of
from triggers.running.views import View, clock_of
from triggers.texts.check import CompiledTrigger

__all__ = ["Saved", "Shard"]

_UNKNOWN = -(2**63)
_PENDING, _STANDINGS = "pending", "standings"


class Shard:
    """The stream of one or several triggers.

    `owners`: from ticker to trigger id; a trigger over all tickers, or one that combines the rows of several, does not
    share with triggers of other tickers. `key`: what its triggers have in common; `text`: the text of one of them.
    `numbers`: the numbers in which they differ, by ticker. `streams`: by input (0 = ticks, otherwise the period of the
    bars). `view`: the one that they read; None if they read the input.

    Triggers that are alike, in text, numbers, tickers and first row, have the same results: `owners` and `sole` name
    one of them, and the others get copies of its events.
    """

    def __init__(
        self, compiled: CompiledTrigger, key: str, text: Text, *, sole: str = "", view: View | None = None
    ) -> None:
        self.compiled = compiled
        self.key = key
        self.text = text
        self.sole = sole
        self.view = view
        self.owners: dict[str, str] = {}
        self._alike: dict[str, list[str]] = {}
        # By tickers and first row, the triggers that were added since the last rows.
        self._fresh: dict[tuple[frozenset[str], int], str] = {}
        self.numbers: dict[str, Sequence[Number]] = {}
        self.streams: dict[int, TriggerStream] = {}
        self._first: dict[str, int] = {}
        self._every: int | None = None
        self._states = States(self.streams)
        self._meta: bytes | None = None
        self._before: Parts = {}
        self._lookback: Lookback | None = None
        self._pending = b""
        # For a text that joins: the first row of each input.
        self._froms: dict[str, int] = {}
        # For a text over events: their order, and how far they were taken.
        is_merged, is_free = compiled.query.needs_merge, compiled.is_stateless
        self._order = EventOrder(is_merged, is_free) if compiled.is_on_events else None
        self._beside = EventsBeside(is_merged) if compiled.reads_events and not compiled.is_on_events else None
        self._thresholds = thresholds_of(compiled)
        # For a pattern that may miss rows that cannot matter to it.
        glance = self._glance()
        self._standings = None if glance is None else Standings(glance)
        self._recent_keys: dict[str, str] = {}
        self._backlog: Backlog | None = None
        #: Rows of the last `feed`.
        self.rows_fed = 0

    @property
    def takes_every_ticker(self) -> bool:
        return self._every is not None

    @property
    def backlog(self) -> Backlog | None:
        """Rows of a slow trigger, which shares neither its stream nor its view; None if it keeps pace."""
        return self._backlog

    @backlog.setter
    def backlog(self, backlog: Backlog | None) -> None:
        self._backlog = backlog
        for view in self.view.chain if self.view is not None else ():
            view.is_behind = backlog is not None

    @cached_property
    def schema(self) -> bytes:
        """The columns of its events."""
        return schema_of(self.compiled.query.columns)

    @property
    def leaders(self) -> tuple[str, ...]:
        """One of each group of triggers that are alike."""
        return (self.sole,) if self.sole else tuple(dict.fromkeys(self.owners.values()))

    @property
    def trigger_ids(self) -> tuple[str, ...]:
        return tuple(trigger_id for leader in self.leaders for trigger_id in self.group_of(leader))

    def group_of(self, leader: str) -> list[str]:
        """The triggers that are like this one, beginning with it."""
        return [leader, *self._alike.get(leader, ())]

    @property
    def has_alike(self) -> bool:
        return bool(self._alike)

    def take_alike(self, trigger: Trigger, numbers: Sequence[Number]) -> bool:
        """Take a trigger that is like another one here; false if there is none."""
        leader = self._fresh.get((frozenset(trigger.tickers), trigger.first_row(self.compiled)))
        # As texts, because -0.0 is equal to 0.0.
        if leader is None or any(repr(self.numbers[ticker]) != repr(numbers) for ticker in trigger.tickers):
            return False
        self._alike.setdefault(leader, []).append(trigger.trigger_id)
        self._meta = None
        return True

    def can_take(self, trigger: Trigger) -> bool:
        if self.sole or self.backlog is not None or any(ticker in self.owners for ticker in trigger.tickers):
            return False
        first = trigger.first_row(self.compiled)
        return self.view is None or all(view.can_take(trigger.tickers, first) for view in self.view.chain)

    def add(self, trigger: Trigger, numbers: Sequence[Number]) -> None:
        self._meta = None
        first = trigger.first_row(self.compiled)
        if not self.compiled.runs_alone:
            self._fresh[frozenset(trigger.tickers), first] = trigger.trigger_id
        for view in self.view.chain if self.view is not None else ():
            view.add(trigger.tickers, first)
        if self.compiled.labels:
            self._froms = {
                "ticks": trigger.ticks_from,
                "ohlc": trigger.bars_from,
                TRIGGER_EVENTS: trigger.events_from,
            }
        if not trigger.tickers:
            self._every = first
        if self.compiled.looks_back and trigger.tickers:
            self._lookback = Lookback(first)
            first = _UNKNOWN
        for ticker in trigger.tickers:
            self.owners[ticker] = trigger.trigger_id
            self._first[ticker] = first
            self.numbers[ticker] = numbers

    def can_join(self, other: "Shard") -> bool:
        """Whether `join` is possible with a stream of the same key: all their state is that of the view."""
        if self.view is None or self.view is not other.view:
            return False
        if any(shard.sole or shard.backlog is not None for shard in (self, other)):
            return False
        own = self.compiled.query.nodes[self.view.count :]
        return all(isinstance(node, STATELESS) for node in own) and self.owners.keys().isdisjoint(other.owners)

    def join(self, other: "Shard") -> None:
        """Take the triggers of another stream."""
        self._meta = None
        self.owners.update(other.owners)
        self._alike.update(other._alike)
        self.numbers.update(other.numbers)
        self._first.update(other._first)

    def drop(self, trigger: Trigger) -> bool:
        """Returns whether triggers that are like it remain."""
        self._meta = None
        self._fresh.clear()
        leader = self.sole or self.owners[trigger.tickers[0]]
        group = self.group_of(leader)
        group.remove(trigger.trigger_id)
        self._alike.pop(leader, None)
        if not group:
            self._remove(trigger.tickers)
            return False
        if self.sole:
            self.sole = group[0]
        self.owners.update(dict.fromkeys(trigger.tickers, group[0]))
        if group[1:]:
            self._alike[group[0]] = group[1:]
        return True

    def _remove(self, tickers: Iterable[str]) -> None:
        """The next trigger on these tickers must not see the state of the removed one."""
        self._meta = None
        gone = list(tickers)
        for ticker in gone:
            del self.owners[ticker]
            self._first.pop(ticker, None)
            self.numbers.pop(ticker, None)
            self._recent_keys.pop(ticker, None)
            if self._standings is not None:
                self._standings.remove(ticker)
        for label, stream in self.streams.items():
            stream.remove(*gone)
            self._states.changed(label)

    def forget(self, label: int) -> None:
        """Forget a period whose bars are no longer made."""
        self._states.forget(label)

    def takes(self, label: int) -> bool:
        period = self.compiled.options.period_seconds
        if self.compiled.labels:
            return label in self.compiled.labels
        if self.compiled.is_on_events:
            return label == EVENTS_LABEL
        if not self.compiled.is_on_bars:
            return label == 0
        return label != 0 and period in (0, label)

    def label_of(self, label: int) -> int:
        """The input that results belong to if rows of `label` cause them."""
        return self.compiled.labels[0] if self.compiled.labels else label

    def owner_of(self, ticker: str) -> str | None:
        """The leader of the triggers that get this ticker's rows."""
        return self.sole or self.owners.get(ticker)

    def is_concerned(self, moved: Moved) -> bool:
        """Whether `moved` matters: a trigger whose rows decide alone does nothing without rows."""
        if not self.compiled.is_stateless:
            return True
        if self._every is not None:
            return bool(moved.by_ticker)
        return bool(self._tickers(moved))

    def feed(
        self, label: int, moved: Moved, ages: Ages | None = None, *, stirred: Sequence[str] | None = None
    ) -> tuple[Events, Reports]:
        """Results, and what the stream had to give up. Raises any error of the trigger.

        `ages`: identifies rows from before a registration that arrived after it; None if there are none. `stirred`: the
        tickers to feed, if the stream `rests_on` this input; None for all.
        """
        stream = self._stream(label)
        self._fresh.clear()
        self._remember(label)
        before = stream.reports
        if not self.compiled.is_stateless:
            self._states.changed(self.label_of(label))
        if self.view is not None:
            return self._follow(self.view, stream, label, moved, ages=ages)
        own = None if stirred is None else [ticker for ticker in stirred if ticker in self.owners]
        rows, clock = self._rows(moved, own), self._clock(label, moved.clock)
        self.rows_fed = rows.num_rows
        old = ages(rows) if ages is not None else None
        is_own = self._every is None
        if self._lookback is None:
            is_whole = old is None or not old.any()
            rows = rows if is_whole else rows.filter(pa.array(old == 0))
            if own is not None:
                rows = self._caught_up(stream, moved, rows, tickers=own, is_whole=is_whole)
            if isinstance(stream, JoinedStream):
                events = stream.feed_input("ohlc" if label else "ticks", label, rows, clock=clock)
            else:
                options = self.compiled.options
                events = fed(stream, rows, clock, options=options, period_ns=label * SECOND, is_own=is_own)
        else:
            options = self.compiled.options
            if self._lookback.pending is not None or old is not None:
                self._meta = None
            if old is not None:
                rows = self._lookback.older(label, rows, old, most_ns=options.lookback_ns)
            rows = self._lookback.live(label, rows, clock, takes_revisions=options.revisions)
            is_joined = any(isinstance(node, Join) for node in self.compiled.query.nodes)
            events = self._lookback.sent(label, stream.feed(rows, clock, is_own=is_own), is_joined=is_joined)
        return events, stream.reports.since(before)

    def _follow(
        self, view: View, stream: TriggerStream, label: int, moved: Moved, *, ages: Ages | None
    ) -> tuple[Events, Reports]:
        """`feed` with the rows of a view."""
        rows = None
        if ages is not None and (old := ages(self._rows(moved))) is not None:
            rows = self._rows(moved).filter(pa.array(old == 0))
        passed = view.pull(label, moved, rows)
        if self._every is None and not self.compiled.query.needs_merge:
            passed = passed.of_tickers(self.owners)
            self.rows_fed = sum(moved.by_ticker.places[name][1] for name in self._tickers(moved))
        else:
            self.rows_fed = moved.rows.num_rows
        before = stream.reports
        events = stream.follow(passed, self.rows_fed)
        return events, view.given_up.plus(stream.reports.since(before))

    def old_rows(self, moved: Moved, ages: Ages) -> int:
        """How many of its rows are from before a registration."""
        old = ages(self._rows(moved))
        return 0 if old is None else int((old != 0).sum())

    def read(self, view: View) -> None:
        """Take the rows of another view, which has the same state."""
        states = {label: self._states.of(label) for label in self.streams}
        self.view, self._meta = view, None
        self.streams.clear()
        for label, state in states.items():
            self.restore(label, state)

    def _remember(self, label: int) -> None:
        """For `split`."""
        self._before = {}
        if len(self.leaders) > 1:
            self._before = self._states.of(label)
            if self._standings is not None:
                self._standings.remember()

    # -- rows that need not be fed -----------------------------------------------------------------------------------

    def _glance(self) -> Glance | None:
        return None if self.sole or self.view is not None else glance_of(self.compiled)

    @property
    def glance(self) -> Glance | None:
        """Tells whether new rows can matter; None for a stream that must be fed every row."""
        return None if self._standings is None else self._standings.glance

    @property
    def rests_on(self) -> int | None:
        """The one input of which the stream may miss rows; None if it must be fed every row."""
        compiled = self.compiled
        if self._standings is None or self.backlog is not None:
            return None
        return (compiled.options.period_seconds or None) if compiled.is_on_bars else 0

    def recent_key(self, ticker: str) -> str:
        """Equal for tickers of streams that need the same rows to be kept."""
        assert self._standings is not None
        found = self._recent_keys.get(ticker)
        if found is None:
            filters = self._standings.glance.filters_of(self.numbers[ticker])
            found = self._recent_keys[ticker] = f"-{written_key(filters)}" if filters else ""
        return found

    def rest(self, key: str, recent: Recent, tickers: Iterable[str]) -> None:
        """From now on the stream may miss rows of these tickers; `recent` keeps those that still matter. `key`: see
        `recent_key`.
        """
        assert self._standings is not None
        recent.filters = self._standings.glance.filters_of(self.numbers[next(iter(tickers))])
        self._standings.begin(key, recent, tickers)

    def rests(self, ticker: str) -> Resting:
        """What its pattern waits for; unknown if its rows differ from those kept for all streams."""
        label = self.rests_on
        if self._standings is None or label is None or not self._standings.is_alike(ticker):
            return Resting(is_idle=False, is_clean=False)
        return self._stream(label).rests(ticker)

    def next_row(self, ticker: str) -> int:
        """The number of the ticker's next row among those that are kept for all."""
        assert self._standings is not None
        return self._standings.place_of(ticker)

    def first_row(self, ticker: str) -> int:
        """The arrival number of the first row that the trigger may see."""
        return self._first[ticker]

    def _caught_up(
        self, stream: TriggerStream, moved: Moved, rows: pa.Table, *, tickers: Iterable[str], is_whole: bool
    ) -> pa.Table:
        assert self._standings is not None
        firsts = {ticker: self._first[ticker] for ticker in tickers}
        found = self._standings.catch_up(stream, moved, rows, firsts=firsts, is_whole=is_whole)
        self.rows_fed = found.num_rows
        return found

    # -- rows that are fed later -------------------------------------------------------------------------------------

    @property
    def can_wait(self) -> bool:
        """Rows that decide alone are too cheap to postpone, and events of triggers have their own order."""
        options = self.compiled.options
        return not (self.compiled.is_stateless or self.compiled.reads_events or options.function is not None)

    def put_off(self, label: int, moved: Moved, *, ages: Ages | None, is_whole: bool) -> None:
        """Postpone rows to the backlog instead of calling `feed`. `is_whole`: the rows must be fed together."""
        assert self.backlog is not None
        self._fresh.clear()
        self.backlog.put(label, moved, self._rows(moved), ages=ages, is_whole=is_whole)

    def fall_behind(self, spent_ns: int, rows: int, clocks: Mapping[int, Clock]) -> None:
        """From now on rows are postponed with `put_off`. `spent_ns`: processor time of the last `rows`; `clocks`: the
        current ones, by input.
        """
        own = None if self._every is not None else self.owners.keys()
        known = {label: clock.of_tickers(own) for label, clock in clocks.items() if self.takes(label)}
        missed = self._missed(known)
        self.backlog = Backlog(cost_ns=spent_ns / max(1, rows), turn_ns=spent_ns, clocks=known)
        for label, moved in missed.items():
            self.backlog.put(label, moved, moved.rows, ages=None, is_whole=False)

    def _missed(self, clocks: Mapping[int, Clock]) -> dict[int, Moved]:
        """The missed rows that still matter. From now on none is missed."""
        label, standings = self.rests_on, self._standings
        if standings is None or label is None:
            return {}
        found = {}
        if (rows := standings.none) is not None:
            clock = clocks.get(label, Clock())
            self._states.changed(label)
            nothing = Moved.of(rows, set(), clock)
            rows = self._caught_up(self._stream(label), nothing, rows, tickers=self.owners, is_whole=True)
            if rows.num_rows:
                found[label] = Moved.of(rows, set(), clock)
        standings.end()
        return found

    def feed_events(self, rows: pa.Table, now_ns: int, clocks: Mapping[int, Clock]) -> tuple[Events, Reports] | None:
        """`feed` with events of triggers, for a text that reads them; None if they change nothing. `clocks`: of the
        other inputs.
        """
        tickers = None if self._every is not None else self.owners
        rows = seen(rows, self.sole, named=self.compiled.sources, tickers=tickers)
        if self._beside is not None:
            taken = self._beside.take(rows, now_ns, partial(self._of_every_input, clocks))
        else:
            assert self._order is not None
            taken = self._order.take(rows, now_ns)
        if taken is None:
            return None
        self._meta = None
        self._states.changed(self.label_of(EVENTS_LABEL))
        stream = self._stream(EVENTS_LABEL)
        before = stream.reports
        if isinstance(stream, JoinedStream):
            events = stream.feed_input(TRIGGER_EVENTS, 0, taken[0], clock=taken[1])
        else:
            events = stream.feed(*taken, is_own=self._every is None)
        return events, stream.reports.since(before)

    def _of_every_input(self, clocks: Mapping[int, Clock]) -> Clock:
        """The clock of trades and bars together, just after their newest rows."""
        labels = sorted({TICKS, *self.compiled.labels} & clocks.keys())
        found = Clock()
        for clock in (self._clock(label, clocks[label]) for label in labels):
            for ticker, watermark in clock.watermarks.items():
                reached = watermark + (watermark > _UNKNOWN)
                found.watermarks[ticker] = max(reached, found.watermarks.get(ticker, reached))
            found.closed |= clock.closed
        live = {ticker for label in labels for ticker in clocks[label].watermarks.keys() - clocks[label].closed}
        found.closed -= live
        return found.of_tickers(None if self._every is not None else self.owners)

    def late_rows(self, label: int) -> Mapping[str, int]:
        """Rows of the last `feed`, by ticker, that came too late: after the release of other tickers' rows, or, for
        events, after the watermark.
        """
        if label == EVENTS_LABEL and self._beside is not None:
            return self._beside.late_rows
        return self._stream(label).late_rows if self.view is None else self.view.late_rows(label)

    def look_back(self, past: pa.Table, clocks: Mapping[int, Clock], delay_ns: int) -> None:
        """Take the rows from before the first live one, in event order; results are discarded. `clocks`: the current
        ones, by input. Raises any error of the trigger.
        """
        assert self._lookback is not None
        self._meta = None
        column = "open_time" if self.compiled.is_on_bars else "ts_ns"
        for label, rows in self._lookback.begin(past, column, clocks.get(0, Clock()), delay_ns=delay_ns).items():
            stream = self._stream(label)
            self._states.changed(label)
            stream.feed(rows, self._clock(label, clocks.get(label, Clock())))

    def split(self, label: int | None = None, error: Exception | None = None) -> list["Shard"]:
        """Two shards with half of the triggers each, except that those that are alike stay together. If `label` is
        given, their state is that before the last `feed`, which was for this input and raised `error`.
        """
        ids = self.leaders
        halves = set(ids[: len(ids) // 2]), set(ids[len(ids) // 2 :])
        return [self._copied(half, label, error) for half in halves]

    def part_alike(self) -> Iterator["Shard"]:
        """A shard with the same state for each trigger that is like another one, which stays here."""
        alike, self._alike, self._meta = self._alike, {}, None
        for leader, group in alike.items():
            for trigger_id in group:
                own = self._copied({leader})
                own.sole = self.sole and trigger_id
                own.owners = dict.fromkeys(own.owners, trigger_id)
                yield own

    def _copied(self, leaders: Set[str], label: int | None = None, error: Exception | None = None) -> "Shard":
        view = self.view
        if view is not None and error is not None and view.failed(error):
            view = view.copied({ticker for ticker, owner in self.owners.items() if owner in leaders}, error)
        own = Shard(self.compiled, self.key, self.text, sole=self.sole, view=view)
        own.owners, own._first, own.numbers = dict(self.owners), dict(self._first), dict(self.numbers)
        own._every = self._every
        own._alike = {leader: list(group) for leader, group in self._alike.items() if leader in leaders}
        for other in self.streams:
            own.restore(other, self._before if other == label else self._states.of(other))
        if self._standings is not None:
            own._standings = self._standings.copied(is_before=label is not None)
        own._remove([ticker for ticker, owner in self.owners.items() if owner not in leaders])
        return own

    def _rows(self, moved: Moved, tickers: Iterable[str] | None = None) -> pa.Table:
        """`tickers`: those of its own tickers that must be fed; None if that is unknown."""
        if self._every is not None:
            return moved.rows
        if tickers is not None:
            return moved.of_tickers([ticker for ticker in tickers if ticker in moved.by_ticker])
        return moved.of_tickers(self._tickers(moved))

    def _tickers(self, moved: Moved) -> list[str]:
        """Its own tickers whose rows may have an effect."""
        few, many = sorted((self.owners.keys(), moved.by_ticker.keys()), key=len)
        found = [ticker for ticker in few if ticker in many]
        for threshold in self._thresholds if self._lookback is None else ():
            ends, slot = moved.by_ticker.ends(threshold.column), threshold.slot
            if ends:
                found = [ticker for ticker in found if threshold.can_hold(*ends[ticker], self.numbers[ticker][slot])]
        return found

    def _clock(self, label: int, clock: Clock) -> Clock:
        if self._lookback is not None:
            clock = self._lookback.clock(label, clock, self.owners)
        return clock_of(self.compiled, clock, None if self._every is not None else self.owners)

    def _stream(self, label: int) -> TriggerStream:
        label = self.label_of(label)
        stream = self.streams.get(label)
        if stream is None and self.compiled.labels:
            is_every = self._every is not None
            firsts = {
                name: (first, None if is_every else dict.fromkeys(self.owners, first))
                for name, first in self._froms.items()
            }
            stream = self.streams[label] = JoinedStream(query=self.compiled.query, firsts=firsts)
        if stream is None:
            tickers = None if self._every is not None else self._first
            first = _UNKNOWN if self._lookback is not None else self._every or 0
            stream = self.streams[label] = TriggerStream(
                query=self.compiled.query,
                active_from=first,
                tickers=tickers,
                numbers=self.numbers,
                since=0 if self.view is None else self.view.count,
                before=None if self.view is None else self.view.stream(label),
            )
        return stream

    # -- state ----------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, bytes]:
        """`meta` and a part for each stream; unchanged parts are the same objects as before."""
        if self._meta is None:
            meta = {
                "text": self.text,
                "sole": self.sole,
                "key": self.key,
                "owners": self.owners,
                "alike": self._alike,
                "numbers": self.numbers,
                "first": self._first,
                "every": self._every,
                "froms": self._froms,
                "lookback": None if self._lookback is None else self._lookback.save(),
                "events": None if self._order is None else self._order.save(),
                "beside": None if self._beside is None else self._beside.save(),
                "view": None if self.view is None else self.view.number,
            }
            self._meta = squeezed(json.dumps(meta, default=as_json).encode())
            self._pending = b"" if self._lookback is None else self._lookback.packed()
        found = {"meta": self._meta}
        if self._pending:
            found[_PENDING] = self._pending
        if self._standings is not None and (standings := self._standings.save()):
            found[_STANDINGS] = standings
        found.update(self._states.written())
        return found | (self.backlog.save() if self.backlog is not None else {})

    def costs(self) -> Iterator[records.TriggerCost]:
        """The cost of each of its triggers as of the last `save`: triggers that share a stream have equal parts."""
        ids = self.trigger_ids
        streams = self.streams.values()
        whole = (
            sum(stream.partitions for stream in streams),
            self._states.size,
            sum(stream.steps for stream in streams),
        )
        of_view = (0, 0, 0) if self.view is None else self.view.cost_of_each
        partitions, state_bytes, steps = (-(-part // len(ids)) + own for part, own in zip(whole, of_view, strict=True))
        for trigger_id in ids:
            cost = records.TriggerCost(
                trigger_id=trigger_id, partitions=partitions, state_bytes=state_bytes, steps=steps
            )
            if self.backlog is not None:
                cost.waiting_rows, cost.behind_ns = self.backlog.rows, self.backlog.behind_ns
                cost.row_ns = round(self.backlog.cost_ns)
            yield cost

    @property
    def save_ns(self) -> int:
        """Processor time of the last `save`."""
        return self._states.save_ns + (0 if self.view is None else self.view.save_ns)

    @property
    def view_ns(self) -> int:
        """Its part of the processor time of the views whose rows the last `feed` took."""
        return 0 if self.view is None else self.view.share_ns

    def restore(self, label: int, state: Parts) -> None:
        self._stream(label).restore_parts(state)
        self._states.restored(label, state)

    @classmethod
    def load(cls, common: Common, saved: "Saved", common_of: Callable[[str], Common], *, view: View | None) -> "Shard":
        """`common`: for its text, compiled now; `common_of`: for the trigger with a given id; `view`: that it reads.

        Raises ValueError for a state of another version, and if this version no longer lets its triggers share a
        stream.
        """
        shard = cls(common.prepared(), common.key, common.text, sole=saved.sole, view=view)
        shard.owners = dict(saved.meta["owners"])
        # Missing in states of older versions.
        shard._alike = dict(saved.meta.get("alike", {}))
        if common.key == saved.meta["key"]:
            shard.numbers.update(saved.meta["numbers"])
        else:
            # Another version may have lifted the numbers differently.
            own = {trigger_id: common_of(trigger_id) for trigger_id in saved.trigger_ids}
            if any(other.key != common.key for other in own.values()):
                raise ValueError(
                    "this trigger shared its state with triggers that now run separately; register it again"
                )
            shard.numbers.update({ticker: own[owner].numbers for ticker, owner in shard.owners.items()})
            for leader, group in shard._alike.items():
                if any(own[other].numbers != own[leader].numbers for other in group):
                    raise ValueError("this trigger ran together with others that now differ from it; register it again")
        shard._first = dict(saved.meta["first"])
        shard._every = saved.meta["every"]
        shard._froms = dict(saved.meta.get("froms", {}))
        if lookback := saved.meta.get("lookback"):
            shard._lookback = Lookback.load(lookback, saved.pending)
        if events := saved.meta.get("events"):
            is_merged, is_free = shard.compiled.query.needs_merge, shard.compiled.is_stateless
            shard._order = EventOrder.load(events, is_merged=is_merged, is_free=is_free)
        if beside := saved.meta.get("beside"):
            shard._beside = EventsBeside.load(beside, is_merged=shard.compiled.query.needs_merge)
        for label, state in saved.states.items():
            shard.restore(label, state)
        shard.backlog = saved.backlog
        if saved.standings:
            if shard._standings is None:
                raise ValueError("the trigger missed rows that this version must have; register it again")
            shard._standings.restore(saved.standings)
            if any(key != shard.recent_key(ticker) for ticker, key in shard._standings.keys.items()):
                raise ValueError("the trigger missed rows that this version filters differently; register it again")
        return shard


@dataclass(frozen=True, slots=True)
class Saved:
    """The output of `Shard.save`. `states`: by label; `pending`: rows of a look-back; `standings`: of `Standings`."""

    meta: Mapping[str, Any]
    states: Mapping[int, Parts]
    pending: bytes = b""
    backlog: Backlog | None = None
    standings: bytes = b""

    @classmethod
    def of(cls, parts: Mapping[str, bytes]) -> "Saved":
        meta, pending = unpacked(unsqueezed(parts["meta"]).decode()), parts.get(_PENDING, b"")
        return cls(meta, states_in(parts), pending, Backlog.load(parts), parts.get(_STANDINGS, b""))

    @property
    def text(self) -> Text:
        return text_of(self.meta["text"])

    @property
    def sole(self) -> str:
        return str(self.meta["sole"])

    @property
    def view(self) -> int | None:
        """The number of the view that it reads."""
        # Missing in states of older versions.
        return self.meta.get("view")

    @property
    def trigger_ids(self) -> list[str]:
        leaders = {self.sole} if self.sole else set(self.meta["owners"].values())
        # Missing in states of older versions.
        return sorted(leaders.union(*self.meta.get("alike", {}).values()))
