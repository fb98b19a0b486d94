"""OVER that looks ahead: a row is emitted once the rows that its frame or LEAD reads have arrived."""

from collections.abc import Set
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.planning.over import Over, Window, peer_groups, takes_frame
from candlewright_cep.planning.relation import Relation, arranged
from candlewright_cep.streaming.rows.release import FOREVER, Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import without
from candlewright_cep.streaming.stages.stages import Given, of_a_ticker
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Bools, Index, Vector, distinct

_AHEAD = ("FOLLOWING", "UNBOUNDED FOLLOWING")


def split(node: Over) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The indexes of the functions that look ahead, and of the others."""
    is_ahead = node.window.frame.upper.kind in _AHEAD
    found = tuple(
        place
        for place, function in enumerate(node.functions)
        if (takes_frame(function) and is_ahead) or (function.name == "LEAD" and function.offset)
    )
    return found, tuple(place for place in range(len(node.functions)) if place not in found)


class AheadStage:
    """Takes rows that already have the columns of the functions that do not look ahead.

    `is_joint`: partitions have rows of several tickers. `is_on_input`: see `OverStage`. `keeps_ties`: rows of equal
    time are emitted together. Rows are kept with a last column that says whether they were emitted; emitted rows are
    kept while the frame of a later row may contain them.
    """

    def __init__(self, node: Over, *, is_joint: bool, is_on_input: bool, keeps_ties: bool) -> None:
        ahead, others = split(node)
        self.node = node
        self._is_joint = is_joint
        self._keeps_ties = keeps_ties
        self._functions = tuple(node.functions[place] for place in ahead)
        self._has_frame = any(map(takes_frame, self._functions))
        self._check(is_on_input=is_on_input)
        self._lead = max([0, *(function.offset for function in self._functions if function.name == "LEAD")])
        base = len(node.fields) - len(node.functions)
        self._width = base + len(others)
        placed = {place: base + number for number, place in enumerate((*others, *ahead))}
        self._columns = [*range(base), *(placed[place] for place in range(len(node.functions)))]
        self._kept: Rows | None = None

    def _check(self, *, is_on_input: bool) -> None:
        frame, at = self.node.window.frame, self.node.at
        if self._has_frame and frame.upper.kind == "UNBOUNDED FOLLOWING":
            raise at.reject(
                "a frame without an end is not possible on a stream", "end it at CURRENT ROW or at n FOLLOWING"
            )
        if self._has_frame and frame.lower.kind == "UNBOUNDED PRECEDING":
            raise at.reject(
                "a frame from UNBOUNDED PRECEDING that looks ahead would keep every row of a stream",
                "write ROWS BETWEEN n PRECEDING AND n FOLLOWING",
            )
        if self._has_frame and frame.unit == "RANGE" and not is_on_input:
            raise at.reject(
                "a RANGE frame that looks ahead goes over the input of a stream",
                "write ROWS BETWEEN ... AND n FOLLOWING",
            )
        if any(function.name == "LEAD" and function.ignores_nulls for function in self._functions):
            raise at.reject(
                "LEAD with IGNORE NULLS on a stream waits for a value that may never come",
                "filter NULLs in a sub-query",
            )

    @property
    def partitions(self) -> int:
        return 0

    def kept_of_a_ticker(self, most: int) -> int:
        """See `OverStage.kept_of_a_ticker`."""
        return of_a_ticker(self._kept, most)

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        new = rows.replaced(rows.relation.with_columns([Vector(BIGINT, np.zeros(rows.length, np.int64), None)]))
        together = joined([self._kept, new]) if self._kept is not None and self._kept.length else new
        window = self.node.window
        plain = Given(self.node.inner.fields, together.relation.select(range(self._width)))
        computed = replace(self.node, inner=plain, functions=self._functions).run({})
        arrangement, bounds, order = arranged(together.relation, window.partition, window.order)
        sight = Sight(window, arrangement, bounds, has_frame=self._has_frame, keeps_ties=self._keeps_ties)
        put_out = arrangement.column(self._width).expand().values != 0
        reached = self._reached(together.ticker.take(pa.array(order)), clock)
        due = ~put_out & sight.decided(self._lead, reached)
        self._keep(together, order, sight.needed(~put_out & ~due), put_out | due)
        picked = np.sort(order[due])
        return together.take(picked).replaced(computed.take(picked).select(self._columns))

    def _reached(self, tickers: pa.Array, clock: Clock) -> Index:
        """The watermark for each of these rows, by its ticker."""
        names, codes = distinct(tickers)
        known = [clock.least if self._is_joint else clock.of(name) for name in names]
        found: Index = np.array([-FOREVER if value is None else value for value in known], np.int64)[codes]
        return found

    def _keep(self, together: Rows, order: Index, wanted: Bools, put_out: Bools) -> None:
        rows = np.flatnonzero(wanted)
        rows = rows[np.argsort(order[rows], kind="stable")]
        kept = together.take(order[rows])
        marked = Vector(BIGINT, put_out[rows].astype(np.int64), None)
        self._kept = compact(kept.replaced(kept.relation.select(range(self._width)).with_columns([marked])))

    def drop(self, tickers: Set[str]) -> None:
        self._kept = without(self._kept, tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return "{}", self._kept

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        self._kept = rows


class Sight:
    """Rows in the order of a window, and which of the rows around it each one reads."""

    def __init__(
        self, window: Window, relation: Relation, bounds: Bounds, *, has_frame: bool, keeps_ties: bool
    ) -> None:
        self._frame = window.frame
        self._unit = window.frame.unit if has_frame else "ROWS"
        self._ahead = int(window.frame.upper.amount) if has_frame and window.frame.upper.kind == "FOLLOWING" else 0
        self._back = int(window.frame.lower.amount) if has_frame and window.frame.lower.kind == "PRECEDING" else 0
        sizes = bounds.ends - bounds.starts
        self._rows = np.arange(relation.length, dtype=np.int64)
        self._firsts, self._lasts = np.repeat(bounds.starts, sizes), np.repeat(bounds.ends, sizes) - 1
        values = RowValues(relation.column, relation.length, bounds)
        #: The last row of the same time.
        self._last_ties: Index | None = None
        if keeps_ties:
            group, _, ends = peer_groups(window.order[:1], values, bounds, length=relation.length)
            self._last_ties = ends[group] - 1
        #: The unit of distances in the frame.
        self._scale: Index = self._rows
        if self._unit == "GROUPS":
            self._scale = peer_groups(window.order, values, bounds, length=relation.length)[0]
        elif self._unit == "RANGE":
            self._scale = values.value(window.order[0].expression).expand().values

    def decided(self, lead: int, reached: Index) -> Bools:
        """The rows that no later arrival can change, where `reached` is the watermark of each."""
        found: Bools = self._lasts - self._rows >= lead
        if self._unit == "RANGE":
            found &= self._scale + self._ahead < reached
        elif self._unit == "GROUPS":
            # The last group may still grow.
            found &= self._scale[self._lasts] - self._scale > self._ahead
        else:
            found &= self._lasts - self._rows >= self._ahead
        found |= reached == FOREVER
        return found if self._last_ties is None else found & found[self._last_ties]

    def needed(self, is_open: Bools) -> Bools:
        """The rows that are open, and those that the frame of an open or a future row may contain."""
        least = self._lasts + 1
        np.minimum.at(least, self._firsts[is_open], self._rows[is_open])
        begin = least[self._firsts] if len(least) else least
        if self._unit != "ROWS":
            begin = self._scale[np.minimum(begin, self._lasts)]
        found: Bools = self._scale >= begin - self._back
        return found
