"""Puts the results of MATCH_RECOGNIZE or windows in order for the operators after it: windows, frames, another pattern.

A match is emitted when it is final, which is later than its rows, and matches that overlap or are in different
partitions come in any order. Here rows wait until no match can bring an earlier one, and the operators after it see a
watermark held back accordingly.
"""

from collections.abc import Set
from typing import Any

import numpy as np

from candlewright_cep.streaming.patterns.match_partition import Partition
from candlewright_cep.streaming.patterns.match_stream import MatchStream
from candlewright_cep.streaming.rows.release import FOREVER, Clock, Rows, compact, joined
from candlewright_cep.streaming.stages.bar_stage import BarStage
from candlewright_cep.streaming.stages.group_stage import GroupStage
from candlewright_cep.streaming.stages.stages import Stateless
from candlewright_cep.vector import Index


def _first_needed(part: Partition, column: int | None) -> int | None:
    """The time of the first row that a later result may contain, or the time in this column; None if there is none."""
    needed = min([part.search.oldest_needed, part.tested, *(match.start for match in part.pending)])
    if needed >= part.end:
        return None
    return part.time_of(max(needed, part.first_row), column)


class _Holding:
    """Holds rows that wait for their turn."""

    def __init__(self) -> None:
        self._held: Rows | None = None

    @property
    def partitions(self) -> int:
        return 0

    def _released(self, together: Rows, times: Index, clock: Clock) -> Rows:
        """The rows whose time has passed, in time order; the others are held."""
        encoded = together.ticker.dictionary_encode()
        bounds = [clock.of(name) if name is not None else clock.least for name in encoded.dictionary.to_pylist()]
        bounds = [-FOREVER if bound is None else bound for bound in bounds]
        limit = np.array(bounds, dtype=np.int64)[encoded.indices.to_numpy(zero_copy_only=False)]
        due = (times < limit) | (limit == FOREVER)
        picked = np.flatnonzero(due)
        self._held = compact(together.take(np.flatnonzero(~due))) if len(picked) < together.length else None
        return together.take(picked[np.argsort(times[picked], kind="stable")])

    def _with_held(self, rows: Rows) -> Rows:
        return rows if self._held is None or not self._held.length else joined([self._held, rows])

    def drop(self, tickers: Set[str]) -> None:
        if self._held is not None:
            kept = [row for row, ticker in enumerate(self._held.ticker.to_pylist()) if ticker not in tickers]
            self._held = compact(self._held.take(np.array(kept, dtype=np.int64)))

    def snapshot(self) -> tuple[str, Rows | None]:
        return "{}", self._held

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        self._held = rows


class OrderStage(_Holding):
    """`feed` returns rows in time order; `clock` then has their watermarks. `is_joint`: the rows of all tickers in
    one order. `column`: the time to sort by, if it is not the row's own (a match's is the time of its first row).
    `start`: the column of the rows that matches consist of with the time of `column`, if that is the start of a window
    or bar; the rows' own time is its end.
    """

    def __init__(
        self, matches: MatchStream, *, is_joint: bool, column: int | None = None, start: int | None = None
    ) -> None:
        super().__init__()
        self._matches = matches
        self._is_joint = is_joint
        self._column = column
        self._start = start
        self.clock = Clock()

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        self.clock = self._behind(clock)
        together = self._with_held(rows)
        column = self._column
        times = together.time if column is None else together.relation.column(column).expand().values
        return self._released(together, times, self.clock)

    def _behind(self, clock: Clock) -> Clock:
        """The clock, held back to the first row that an unfinished match may contain."""
        waiting: dict[str, int] = {}
        for part in self._matches.partitions.values():
            first = _first_needed(part, self._start)
            if first is not None:
                for ticker in part.tickers:
                    waiting[ticker] = min(first, waiting.get(ticker, FOREVER))
        names = {*clock.watermarks, *clock.closed}
        known = {name: value for name in names if (value := clock.of(name)) is not None}
        reached = {name: min(value, waiting.get(name, FOREVER)) for name, value in known.items()}
        if self._is_joint and reached:
            reached = dict.fromkeys(reached, min(reached.values()))
        return Clock(reached, {name for name, value in reached.items() if value == FOREVER})


class LagStage(Stateless):
    """After windows or bars, before operators that process rows by their start: a row is emitted at its window's end,
    so the watermark is held back to the starts that may still come.
    """

    def __init__(self, group: GroupStage | BarStage, *, is_joint: bool) -> None:
        self._group = group
        self._is_joint = is_joint
        self.clock = Clock()

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        start = self._group.starts()
        reached: dict[str, int] = {}
        for name in {*clock.watermarks, *clock.closed}:
            value = clock.of(name)
            if value is not None:
                reached[name] = value if value == FOREVER else start(name, value)
        if self._is_joint and reached:
            reached = dict.fromkeys(reached, min(reached.values()))
        self.clock = Clock(reached, {name for name, value in reached.items() if value == FOREVER})
        return rows


class StartStage(_Holding):
    """After windows that share a start or end in another order than they began: emits rows in the order of the start,
    those with the same start together.
    """

    def __init__(self, group: GroupStage | BarStage, *, is_joint: bool, start_column: int) -> None:
        super().__init__()
        self._lag = LagStage(group, is_joint=is_joint)
        # The last window with a given start comes with the watermark; a session or bar that begins there may still be
        # open.
        self._reach = 0 if isinstance(group, BarStage) or group.window.function == "SESSION" else 1
        self._start = start_column

    @property
    def clock(self) -> Clock:
        return self._lag.clock

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        self._lag.feed(rows, clock)
        together = self._with_held(rows)
        starts = together.relation.column(self._start).expand().values - self._reach
        return self._released(together, starts, self.clock)
