"""GROUP BY over time windows on a stream."""

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.expressions import Column, walk
from candlewright_cep.planning.hops import HopGroup
from candlewright_cep.planning.plans import Filter, Group, Plan
from candlewright_cep.planning.relation import Relation
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.streaming.rows.release import FOREVER, Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import RowLog
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.streaming.stages.stages import Given, chained
from candlewright_cep.vector import Index, distinct, is_every

_NEVER = -(2**63)


def oldest(tickers: pa.Array, times: Index) -> dict[str, int]:
    """The earliest time of each ticker."""
    found: dict[str, int] = {}
    for ticker, time in zip(tickers.to_pylist(), times.tolist(), strict=True):
        found[ticker] = min(time, found.get(ticker, time))
    return found


def since(begun: Mapping[str, int]) -> Callable[[str, int], int]:
    """The watermark of a ticker, held back to the start of its oldest unfinished window or bar."""
    return lambda ticker, time: min(time, begun.get(ticker, time))


class GroupStage:
    """GROUP BY over time windows: a window's groups are emitted once, when the watermark reaches its end. The rows of
    open windows are in a log, and read again only when a window may have ended.

    `is_in_order`: see `StreamQuery`; if it is false, rows of a window that was already emitted are skipped.
    """

    def __init__(
        self, group: Group, filters: list[Plan], window: WindowTable, *, slots: Slots, is_in_order: bool = True
    ) -> None:
        self._slots = slots
        self._is_in_order = is_in_order
        self.group = group
        self.filters = filters
        self.window = window
        self._log = RowLog(self._needed, is_joint=True)
        #: Whether each ticker's rows are read separately. A session is made of the rows of all tickers.
        self._is_apart = False
        self._is_session = window.function == "SESSION"
        self._empty: Relation | None = None
        self._coded: tuple[pa.Array, list[str], Index] | None = None
        #: The tickers whose rows may be in the log.
        self._names: set[str] = set()
        #: The watermarks up to which windows have been emitted: by ticker, and for all tickers together.
        self._seen: dict[str, int] = {}
        self._least: int | None = None
        #: Per ticker with open windows, a watermark that reaches none of their ends, and the time of the first row.
        self._ends: dict[str, int] = {}
        self._begun: dict[str, int] = {}
        end = len(window.fields) - 2
        if not any(isinstance(key, Column) and key.index in (end - 1, end) for key in group.common_keys):
            raise window.at.reject("a stream needs window_start or window_end in GROUP BY")
        self._end = end
        self._by_ticker = False
        conditions = [node.condition for node in filters if isinstance(node, Filter)]
        read = [part for node in (*group.keys, *group.aggregates, *conditions) for part in walk(node)]
        self._columns = {part.index for part in read if isinstance(part, Column)} | {window.time_column}
        self._columns |= set(window.partition)

    @property
    def partitions(self) -> int:
        return 0

    def kept_of_a_ticker(self, most: int) -> int:
        """See `OverStage.kept_of_a_ticker`; counts the rows of open windows."""
        return self._log.most_of_a_ticker(most)

    def set_ticker_column(self, index: int | None) -> None:
        """Groups with a ticker among their keys need not wait for other tickers. Not called if later operators read
        the groups of all tickers in one order: those of one time then come in the order of their first rows.
        """
        self._by_ticker = index is not None and any(
            isinstance(key, Column) and key.index == index for key in self.group.common_keys
        )
        self._is_apart = self._by_ticker and not self._is_session
        self._log = RowLog(self._needed, is_joint=not self._is_apart)

    def starts(self) -> Callable[[str, int], int]:
        """The earliest start of future windows of a ticker, given the ticker's watermark."""
        if self.window.function != "SESSION":
            longest = self.window.longest
            return lambda _ticker, time: time - longest
        return since(self._begun)

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        least = clock.least
        if not self._by_ticker and self._least is not None and least is not None and least < self._least:
            # A closed ticker has rows again, which must not be read together with rows already emitted.
            self._log.repack()
            if self._least == FOREVER:
                # All tickers were closed and all their windows emitted; the windows of the new rows were not.
                self._least = None
        left = rows
        if rows.length:
            left = compact(rows, self._columns)
            self._open(left, np.full(rows.length, _NEVER))
        due = {name for name, end in self._ends.items() if end <= self._watermark(name, clock)}
        found = None
        if due:
            found, left = self._emitted(due, left, clock)
        if left.length:
            self._log.append(left)
        if due and self._is_in_order:
            self._names = self._log.tickers
        gone = self._names & clock.closed if self._by_ticker else set()
        if gone:
            self._log.drop(gone)
            self._names -= gone
        self._pass(clock)
        self._coded = None
        return self._nothing(rows) if found is None else found

    def _nothing(self, rows: Rows) -> Rows:
        if self._empty is None:
            self._empty = self.group.over(self._with_windows(rows.slice(0, 0)).relation)[0]
        return rows.slice(0, 0).replaced(self._empty)

    def _watermark(self, ticker: str, clock: Clock) -> int:
        found = clock.of(ticker) if self._by_ticker else clock.least
        return _NEVER if found is None else found

    def _open(self, rows: Rows, after: Index) -> None:
        """Note when the windows of these rows next end, after the given time for each row."""
        names, codes = self._codes(rows)
        ends, times = (np.full(len(names), FOREVER) for _ in range(2))
        np.minimum.at(ends, codes, self._ends_of(rows, after)[0])
        np.minimum.at(times, codes, rows.time)
        for name, end, time in zip(names, ends.tolist(), times.tolist(), strict=True):
            self._ends[name] = min(end, self._ends.get(name, FOREVER))
            self._begun[name] = min(time, self._begun.get(name, FOREVER))
        self._names.update(names)

    def _ends_of(self, rows: Rows, after: Index) -> tuple[Index, Index]:
        """For each row, the watermarks that emit its first window that ends after the given time, and its last
        window.
        """
        first, last = self.window.ends(rows.relation, after)
        # A row at the very end of a session still belongs to it, and rows at the watermark have not arrived yet.
        return (first + 1, last + 1) if self._is_session else (first, last)

    def _emitted(self, due: set[str], rows: Rows, clock: Clock) -> tuple[Rows | None, Rows]:
        """The groups of windows that have ended, and which of these new rows still wait; `due`: the tickers that may
        have such windows.
        """
        if not self._is_apart:
            due = set(self._ends)
        kept = self._log.of_tickers(due)
        new, others = self._divided(rows, due)
        for name in due:
            del self._ends[name], self._begun[name]
        parts = [part for part in (kept, new) if part is not None and part.length]
        if not parts:
            # None of their rows was in a window.
            return None, others
        together = joined(parts)
        if isinstance(self.group, HopGroup):
            found = self._of_hops(self.group, together, clock)
        else:
            found = self._expanded(together, clock)
        now = self._reached(together, clock)
        places = np.flatnonzero(self._ends_of(together, now)[1] > now)
        waiting = together.take(places)
        if waiting.length:
            self._open(waiting, now[places])
        if self._is_session:
            # A late row belongs to an open session near it, and must not continue one that was emitted.
            self._log.clear()
            return found, waiting
        own = waiting.take(np.flatnonzero(places >= together.length - new.length))
        return found, joined([compact(own), others]) if others.length else compact(own)

    def _divided(self, rows: Rows, tickers: set[str]) -> tuple[Rows, Rows]:
        """The rows of these tickers, and the others; all of them if tickers are not read separately."""
        if not self._is_apart or not rows.length:
            return rows, rows.slice(0, 0)
        names, codes = self._codes(rows)
        is_own = np.array([name in tickers for name in names], np.bool_).take(codes)
        if is_own.all():
            return rows, rows.slice(0, 0)
        return rows.take(np.flatnonzero(is_own)), rows.take(np.flatnonzero(~is_own))

    def _pass(self, clock: Clock) -> None:
        """Windows up to the watermarks have been emitted."""
        if not self._by_ticker:
            self._least = self._least if clock.least is None else clock.least
            return
        names = self._names if self._is_in_order else self._names | self._seen.keys()
        reached = {name: clock.watermarks.get(name, self._seen.get(name)) for name in names - clock.closed}
        kept = {} if self._is_in_order else self._seen
        self._seen = kept | {name: value for name, value in reached.items() if value is not None}

    def _needed(self, rows: Rows) -> Rows:
        """The rows with windows that were not emitted; `_emitted` drops those of sessions."""
        if self._is_session:
            return compact(rows)
        before = self._before(rows)
        return compact(rows.take(np.flatnonzero(self._ends_of(rows, before)[1] > before)))

    def _expanded(self, together: Rows, clock: Clock) -> Rows:
        expanded = self._with_windows(together)
        ends = expanded.relation.column(self._end).values
        reached_at = ends + 1 if self._is_session else ends
        due = (reached_at <= self._reached(expanded, clock)) & (reached_at > self._before(expanded))
        ripe, _ = chained(self.filters, expanded.take(np.flatnonzero(due)), self._slots)
        result, last = self.group.over(ripe.relation)
        return self._described(result, ripe.relation.column(self._end).values[last], ripe, last)

    def _of_hops(self, group: HopGroup, together: Rows, clock: Clock) -> Rows:
        rows, _ = chained(self.filters, together, self._slots)
        hops = group.hops(rows.relation)
        watermark, before = (
            of_rows[hops.order[hops.low]] for of_rows in (self._reached(rows, clock), self._before(rows))
        )
        ends = hops.start + self.window.intervals[1]
        due = np.flatnonzero((ends <= watermark) & (ends > before))
        result, last, ends = group.over_hops(rows.relation, hops.take(due))
        return self._described(result, ends, rows, last)

    def _with_windows(self, rows: Rows) -> Rows:
        """Each row once per window, with the number of the row that it comes from."""
        window = self.window
        given = Given(window.inner.fields, rows.relation)
        moved = replace(window, inner=given)
        picked, relation = moved.run_numbered({})
        if is_every(picked, rows.length):
            return Rows(relation, rows.time, picked, rows.ticker)
        return Rows(relation, rows.time[picked], picked, rows.ticker.take(pa.array(picked, pa.int64())))

    def _reached(self, rows: Rows, clock: Clock) -> Index:
        """The watermark of each row."""
        return self._of_tickers(rows, clock.of, clock.least)

    def _before(self, rows: Rows) -> Index:
        """For each row, the watermark up to which windows have been emitted."""
        return self._of_tickers(rows, self._seen.get, self._least)

    def _of_tickers(self, rows: Rows, of_one: Callable[[str], int | None], of_all: int | None) -> Index:
        if not self._by_ticker:
            return np.full(rows.length, _NEVER if of_all is None else of_all, np.int64)
        names, codes = self._codes(rows)
        known = [_NEVER if value is None else value for value in map(of_one, names)]
        found: Index = np.array(known, np.int64).take(codes)
        return found

    def _codes(self, rows: Rows) -> tuple[list[str], Index]:
        """As `distinct`, once for all calls with the same tickers."""
        if self._coded is None or self._coded[0] is not rows.ticker:
            self._coded = rows.ticker, *distinct(rows.ticker)
        return self._coded[1:]

    @staticmethod
    def _described(result: Relation, ends: Index, ripe: Rows, rows: Index) -> Rows:
        """The times and tickers of the groups: those of each group's last row (`rows`)."""
        if ripe.length == 0:
            return ripe.replaced(result)
        return Rows(result, ends - 1, ripe.sequence[rows], ripe.ticker.take(pa.array(rows, pa.int64())))

    def drop(self, tickers: Set[str]) -> None:
        self._log.drop(tickers)
        for ticker in tickers:
            for known in (self._seen, self._ends, self._begun):
                known.pop(ticker, None)
        self._names -= tickers

    def snapshot(self) -> tuple[str, Rows | None]:
        return json.dumps({"seen": self._seen, "least": self._least}), self._log.whole()

    def parts(self) -> tuple[str, Rows | None, dict[int, bytes]]:
        """See `OverStage.parts`."""
        log, newest, chunks = self._log.parts()
        return json.dumps({"seen": self._seen, "least": self._least, "log": log}), newest, chunks

    def restore(
        self, state: dict[str, Any], rows: Rows | None, chunks: Mapping[int, bytes] = MappingProxyType({})
    ) -> None:
        self._seen = dict(state["seen"])
        self._least = state["least"]
        if not self._by_ticker and self._least is None and self._seen:
            # Older versions kept tickers apart even if they share one clock.
            self._least, self._seen = min(self._seen.values()), {}
        self._log.restore(state.get("log", {}), rows, chunks)
        self._ends, self._begun, self._names = {}, {}, self._log.tickers
        if (whole := self._log.whole()) is not None and whole.length:
            self._open(whole, self._before(whole))
