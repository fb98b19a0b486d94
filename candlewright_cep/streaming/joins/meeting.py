"""Where two branches of a running text meet, and what they keep.

A left row is decided when the right side's watermark has passed the latest time at which it can find a partner. It is
then joined with the right rows in its range, as over finished tables. Right rows are kept while a future left row may
need them. In a FULL join, those that no left row has met are then emitted on their own.
"""

import json
from collections.abc import Callable, Set
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from candlewright_cep.binding.expressions import Column, Expression, walk
from candlewright_cep.planning.bands import shifted
from candlewright_cep.planning.periods import STATELESS
from candlewright_cep.planning.plans import AsofJoin, Filter, Join, side_by_side
from candlewright_cep.planning.relation import Relation, Source, partition_codes
from candlewright_cep.streaming.inputs import Branch, Leaf, Pair
from candlewright_cep.streaming.joins.waiting import Waiting
from candlewright_cep.streaming.operators import stages
from candlewright_cep.streaming.query import StreamQuery, ties_in
from candlewright_cep.streaming.rows.release import FOREVER, Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import without
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.streaming.stages.stages import Stage, Stateless, is_lookup
from candlewright_cep.types import BOOLEAN
from candlewright_cep.vector import Bools, Index, Vector, distinct, nulls

_NEVER = -(2**63)


class Kept:
    """Rows of one side of a join."""

    def __init__(self) -> None:
        self.rows: Rows | None = None

    @property
    def partitions(self) -> int:
        return 0

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        """The kept rows and the new ones."""
        return rows if self.rows is None or not self.rows.length else joined([self.rows, rows])

    def keep(self, rows: Rows) -> None:
        self.rows = compact(rows) if rows.length else None

    def of_a_ticker(self, most: int) -> int:
        """The number of rows kept of the ticker with most of them, if more than `most` are kept in total; otherwise
        0.
        """
        if self.rows is None or self.rows.length <= most:
            return 0
        return int(np.bincount(distinct(self.rows.ticker)[1]).max())

    def drop(self, tickers: Set[str]) -> None:
        self.rows = without(self.rows, tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return "{}", self.rows

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        self.rows = rows


class Meeting:
    """A join of two branches: `left` waits for its partners, `right` for left rows that may need them. `merges`: the
    rows of all tickers come in one order of time.

    A FULL join marks the right rows that have met a left row, in one more column of `right`. `found` and `alone` hold
    its rows, with and without a left row, until none with an earlier time can follow.
    """

    def __init__(self, pair: Pair, *, merges: bool, shows_own_times: bool) -> None:
        self.pair = pair
        self._shows_own_times = shows_own_times
        self.merges = merges
        self.left, self.right = Kept(), Kept()
        self.found, self.alone = Kept(), Kept()
        self.is_full = pair.node.kind == "FULL"
        self._width = len(pair.node.right.fields)
        self._node = replace(pair.node, kind="LEFT") if self.is_full else pair.node

    def feed(self, left: Rows, at_left: Clock, right: Rows, *, at_right: Clock) -> tuple[Rows, Clock]:
        """Take the rows and watermarks of both sides; returns the rows that are decided, and their watermarks."""
        pair = self.pair
        if self.is_full:
            right = _marked(right, self._width, np.zeros(right.length, np.bool_))
        waiting, partners = self.left.feed(left, at_left), self.right.feed(right, at_right)
        limits = _of_rows(waiting, self._reached(at_right))
        due = (shifted(waiting.time, pair.upper) < limits) | (limits == FOREVER)
        decided = waiting.take(np.flatnonzero(due))
        one, other = self._node.matched(self._timed(decided, 0), self._timed(partners, 1))
        met = partners.relation.take(other).select(range(self._width))
        found = decided.take(one)
        found = found.replaced(side_by_side(found.relation, met))
        if left.length or decided.length:
            self.left.keep(waiting.take(np.flatnonzero(~due)))
        if self.is_full:
            return self._full(found, at_left, partners, met=other[other >= 0], at_right=at_right)
        reachable = self._reachable(partners, self._continued(at_left))
        if right.length or not reachable.all():
            self.right.keep(partners.take(np.flatnonzero(reachable)))
        return found, self._clock(at_left, at_right)

    def _timed(self, rows: Rows, side: int) -> Relation:
        """The columns, with the times at which late rows were taken in place of their own times."""
        relation, band = rows.relation, self._node.band
        read = None if band is None or not self._shows_own_times else (band.left, band.right)[side]
        if not isinstance(read, Column) or not read.type.is_time:
            return relation
        own = relation.column(read.index).expand()
        if not bool((own.values < rows.time).any()):
            return relation
        columns: list[Source] = [partial(relation.column, place) for place in range(relation.width)]
        columns[read.index] = Vector(own.type, np.maximum(own.values, rows.time), own.valid)
        return Relation(columns, relation.length)

    def _full(self, found: Rows, at_left: Clock, partners: Rows, *, met: Index, at_right: Clock) -> tuple[Rows, Clock]:
        """`feed` of a FULL join, given the decided left rows and the right rows that they met."""
        marks = partners.relation.column(self._width).expand().values.copy()
        marks[met] = True
        alone = ~marks & ~self._reachable(partners, self._reached(at_left))
        marks[alone] = True
        single = _single(partners.take(np.flatnonzero(alone)), self.pair.node)
        kept = np.flatnonzero(self._reachable(partners, self._continued(at_left)))
        self.right.keep(_marked(partners.take(kept), self._width, marks[kept]))
        clock = self._clock_of_both(at_left, at_right)
        parts = [self._ready(self.found, found, clock), self._ready(self.alone, single, clock)]
        together = joined(parts)
        return together.take(np.argsort(together.time, kind="stable")), clock

    def _ready(self, kept: Kept, rows: Rows, clock: Clock) -> Rows:
        """The rows whose time has passed; `kept` keeps the others."""
        together = kept.feed(rows, clock)
        limits = _of_rows(together, clock.of)
        due = (together.time < limits) | (limits == FOREVER)
        kept.keep(together.take(np.flatnonzero(~due)))
        return together.take(np.flatnonzero(due))

    def _reached(self, clock: Clock) -> Callable[[str], int | None]:
        least = clock.least
        return (lambda _: least) if self.merges else clock.of

    def _continued(self, clock: Clock) -> Callable[[str], int | None]:
        """`_reached`, except that a ticker that has ended may resume where it was."""
        least = min(clock.watermarks.values(), default=None)
        return (lambda _: least) if self.merges else clock.watermarks.get

    def _reachable(self, partners: Rows, known: Callable[[str], int | None]) -> Bools:
        """The right rows that a left row may still meet, given the time up to which left rows are known."""
        lows = _of_rows(partners, known)
        held = self.left.rows
        if held is not None and self.merges:
            lows = np.minimum(lows, int(held.time.min()))
        elif held is not None:
            names, codes = distinct(held.ticker)
            oldest = np.full(len(names), FOREVER, np.int64)
            np.minimum.at(oldest, codes, held.time)
            first = dict(zip(names, oldest.tolist(), strict=True))
            lows = np.minimum(lows, _of_rows(partners, lambda ticker: first.get(ticker, FOREVER)))
        if self.pair.lower is not None:
            within: Bools = partners.time >= shifted(lows, self.pair.lower)
            reachable: Bools = (lows == _NEVER) | (within & (lows != FOREVER))
            return reachable
        ends = np.where(lows == _NEVER, _NEVER, shifted(lows, self.pair.upper))
        return (partners.time > ends) | self._newest(partners, ends)

    def _newest(self, partners: Rows, ends: Index) -> Bools:
        """The last row of each key among those at or before these times."""
        found = np.zeros(partners.length, np.bool_)
        past = np.flatnonzero(partners.time <= ends)
        values = partners.relation.values()
        keys = [values.value(key) for _, key in self.pair.node.keys]
        codes = partition_codes(keys, partners.length)[past]
        order = np.lexsort((partners.time[past], codes))
        is_last = np.ones(len(order), np.bool_)
        is_last[:-1] = codes[order][1:] != codes[order][:-1]
        found[past[order[is_last]]] = True
        return found

    def _clock_of_both(self, at_left: Clock, at_right: Clock) -> Clock:
        """The clock of a FULL join's rows, which are decided later than their time by the interval."""
        assert self.pair.lower is not None
        found = Clock()
        of_left, of_right = self._reached(at_left), self._reached(at_right)
        for ticker in at_left.watermarks.keys() | at_right.watermarks.keys() | at_left.closed | at_right.closed:
            left, right = of_left(ticker), of_right(ticker)
            if left is None or right is None:
                continue
            if left == right == FOREVER:
                found.closed.add(ticker)
            decided = min(left, _later(right, -self.pair.upper))
            known = [at.watermarks[ticker] for at in (at_left, at_right) if ticker in at.watermarks]
            reached = min(right, decided, _later(decided, self.pair.lower), *known)
            if reached != FOREVER:
                found.watermarks[ticker] = reached
        return found

    def _clock(self, at_left: Clock, at_right: Clock) -> Clock:
        found = Clock()
        reached = self._reached(at_right)
        for ticker in at_left.watermarks.keys() | at_left.closed:
            right = reached(ticker)
            if right is None:
                continue
            decided = _later(right, -self.pair.upper)
            if decided == FOREVER and ticker in at_left.closed:
                found.closed.add(ticker)
            if (known := at_left.watermarks.get(ticker)) is not None:
                found.watermarks[ticker] = min(known, decided)
        return found


def _marked(rows: Rows, width: int, marks: Bools) -> Rows:
    """The rows of the right side of a FULL join, of `width` columns, with these marks."""
    plain = rows.relation.select(range(width))
    return rows.replaced(plain.with_columns([Vector(BOOLEAN, marks, None)]))


def _single(rows: Rows, node: Join | AsofJoin) -> Rows:
    """Right rows of a FULL join without a left row."""
    nothing = Relation([nulls(field.type, rows.length) for field in node.left.fields], rows.length)
    return rows.replaced(side_by_side(nothing, rows.relation.select(range(len(node.right.fields)))))


def _later(time: int, distance: int) -> int:
    return time if time == FOREVER else int(shifted(np.array([time]), distance)[0])


def _of_rows(rows: Rows, of: Callable[[str], int | None]) -> Index:
    """The value of `of` for each row's ticker; the smallest integer if it has none."""
    names, codes = distinct(rows.ticker)
    known = [_NEVER if (value := of(name)) is None else value for name in names]
    found: Index = np.array(known, np.int64).take(codes)
    return found


class Arriving(Stateless):
    """The rows of an input where they enter, and their watermarks. `ties`: rows of equal time are passed on together;
    `sorts`: the input is not in time order, and what follows needs that order.
    """

    def __init__(self, leaf: Leaf, *, merges: bool, ties: bool, sorts: bool = False) -> None:
        self.leaf = leaf
        self.merges = merges
        self.ties = ties
        self.sorts = sorts
        self.clock = Clock()
        self.waiting = Waiting()

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        """The rows in order; `self.clock` then has their watermarks."""
        self.clock = Clock(dict(clock.watermarks), set(clock.closed))
        if self.merges:
            rows, self.clock = self.waiting.all_together(rows, clock)
            if self.clock.closed and self.waiting.reached is not None:
                # The time from which tickers that begin again continue.
                self.clock.watermarks = dict.fromkeys(self.clock.closed, self.waiting.reached)
        elif self.ties or self.sorts:
            rows = self.waiting.tied(rows, clock)
        return rows.take(np.lexsort((rows.sequence, rows.time))) if self.sorts else rows

    def drop(self, tickers: Set[str]) -> None:
        for ticker in tickers:
            self.clock.watermarks.pop(ticker, None)
            self.clock.closed.discard(ticker)
        self.waiting.held = without(self.waiting.held, tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        clock = [self.clock.watermarks, sorted(self.clock.closed)]
        return json.dumps({"clock": clock, "reached": self.waiting.reached}), self.waiting.held

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        watermarks, closed = state["clock"]
        self.clock = Clock(dict(watermarks), set(closed))
        self.waiting.held, self.waiting.reached = rows, state["reached"]


class Running:
    """A branch with its operators: `arriving` or `meeting` at its bottom, then `stages`."""

    def __init__(self, query: StreamQuery, branch: Branch, slots: Slots) -> None:
        assert query.joined is not None
        self.stages = stages(replace(query, nodes=branch.nodes, joined=branch), slots)
        self.arriving: Arriving | None = None
        self.meeting: Meeting | None = None
        self.sides: tuple[Running, ...] = ()
        self.shows_own_times = _may_show_own_times(query.joined)
        if isinstance(branch.bottom, Pair):
            self.meeting = Meeting(branch.bottom, merges=query.needs_merge, shows_own_times=self.shows_own_times)
            self.sides = Running(query, branch.bottom.left, slots), Running(query, branch.bottom.right, slots)
            if ties_in(branch.nodes[1:]):
                self.sides[0].tie()
        else:
            decides_alone = all(isinstance(node, STATELESS) or is_lookup(node) for node in query.joined.operators())
            self.arriving = Arriving(
                branch.bottom,
                merges=query.needs_merge,
                ties=ties_in(branch.nodes[1:]),
                sorts=not (branch.bottom.source.is_in_order or decides_alone),
            )

    def tie(self) -> None:
        """Rows of equal time are passed on together."""
        if self.arriving is not None:
            self.arriving.ties = True
        else:
            self.sides[0].tie()

    def every_stage(self) -> list[Stage]:
        """Everything that has a state, in an order that is the same for every stream of the text."""
        own: list[Stage] = [] if self.arriving is None else [self.arriving]
        if self.meeting is not None:
            own = [self.meeting.left, self.meeting.right]
            if self.meeting.is_full:
                own += [self.meeting.found, self.meeting.alone]
        return [stage for side in self.sides for stage in side.every_stage()] + own + self.stages


def _may_show_own_times(whole: Branch) -> bool:
    """Whether late rows may keep their own times. They may if each join compares only two time columns, in which
    `_timed` puts the times at which rows were taken, and no other operator groups rows by time or compares times.
    """
    return all(_compares_two_times(node) for node in whole.joins()) and all(
        isinstance(node, STATELESS) and not (isinstance(node, Filter) and _reads_time(node.condition))
        for node in whole.operators()
    )


def _compares_two_times(node: Join | AsofJoin) -> bool:
    others = [part for key in node.keys for part in key]
    others += [part for part in (node.rest if isinstance(node, Join) else node.when,) if part is not None]
    return (
        node.band is not None
        and all(isinstance(read, Column) and read.type.is_time for read in (node.band.left, node.band.right))
        and not any(map(_reads_time, others))
    )


def _reads_time(condition: Expression) -> bool:
    return any(isinstance(part, Column) and part.type.is_time for part in walk(condition))


def check_branch(query: StreamQuery) -> None:
    """Raises TriggerRejected for operators whose state a stream cannot bound."""
    assert query.joined is not None
    Running(query, query.joined, Slots((), {}))
