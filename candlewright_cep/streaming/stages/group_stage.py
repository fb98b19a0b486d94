"""GROUP BY over time windows on a stream."""

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.expressions import Column, walk
from candlewright_cep.planning.hops import HopGroup
from candlewright_cep.planning.plans import Filter, Group, Plan
from candlewright_cep.planning.relation import Relation
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.streaming.rows.release import Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import without
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.streaming.stages.stages import Given, chained, of_a_ticker
from candlewright_cep.vector import Index, is_every


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
    """GROUP BY over time windows: a window's groups are emitted once, when the watermark reaches its end.

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
        self._kept: Rows | None = None
        self._seen: dict[str, int] = {}
        self._least: int | None = None
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
        return of_a_ticker(self._kept, most)

    def set_ticker_column(self, index: int | None) -> None:
        """Groups with a ticker among their keys need not wait for other tickers."""
        self._by_ticker = index is not None and any(
            isinstance(key, Column) and key.index == index for key in self.group.common_keys
        )

    def starts(self) -> Callable[[str, int], int]:
        """The earliest start of future windows of a ticker, given the ticker's watermark."""
        if self.window.function != "SESSION":
            longest = self.window.longest
            return lambda _ticker, time: time - longest
        kept = self._kept
        return since({} if kept is None else oldest(kept.ticker, kept.time))

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        together = joined([self._kept, rows]) if self._kept is not None and self._kept.length else rows
        if together.length == 0:
            return together.replaced(self.group.over(self._with_windows(together).relation)[0])
        if isinstance(self.group, HopGroup):
            found = self._feed_hops(self.group, together, clock)
        else:
            found = self._feed_expanded(together, clock)
        # In order, new rows never belong to a window that was emitted: only kept ones may.
        waiting = self._kept.ticker.unique().to_pylist() if self._kept is not None else []
        if not self._is_in_order:
            waiting = list({*self._seen, *together.ticker.unique().to_pylist()})
        reached = {name: clock.watermarks.get(name) for name in waiting if name not in clock.closed}
        kept = {name: value for name in waiting if (value := self._seen.get(name)) is not None}
        self._seen = kept | {name: value for name, value in reached.items() if value is not None}
        if not self._by_ticker and (least := clock.least) is not None:
            self._least = least
        return found

    def _feed_expanded(self, together: Rows, clock: Clock) -> Rows:
        expanded = self._with_windows(together)
        ends = expanded.relation.column(self._end).values
        watermark, before = self._reached(expanded, clock)
        # A row at the very end of a session still belongs to it, and rows at the watermark have not arrived yet.
        reached_at = ends + 1 if self.window.function == "SESSION" else ends
        due = (reached_at <= watermark) & (reached_at > before)
        ripe, _ = chained(self.filters, expanded.take(np.flatnonzero(due)), self._slots)
        result, last = self.group.over(ripe.relation)
        self._keep(together, expanded.sequence[reached_at > watermark])
        return self._described(result, ripe.relation.column(self._end).values[last], ripe, last)

    def _feed_hops(self, group: HopGroup, together: Rows, clock: Clock) -> Rows:
        rows, _ = chained(self.filters, together, self._slots)
        hops = group.hops(rows.relation)
        watermark, before = (reached[hops.order[hops.low]] for reached in self._reached(rows, clock))
        ends = hops.start + self.window.intervals[1]
        due = np.flatnonzero((ends <= watermark) & (ends > before))
        result, last, ends = group.over_hops(rows.relation, hops.take(due))
        self._keep(together, np.flatnonzero(group.last_ends(together.relation) > self._reached(together, clock)[0]))
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

    def _reached(self, rows: Rows, clock: Clock) -> tuple[Index, Index]:
        """For each row, its ticker's watermark now and before this feed."""
        if not self._by_ticker:
            now, before = (-(2**63) if least is None else least for least in (clock.least, self._least))
            return np.full(rows.length, now, np.int64), np.full(rows.length, before, np.int64)
        encoded = rows.ticker.dictionary_encode()
        names, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False)

        def of_rows(value_of: Callable[[str], int | None]) -> Index:
            known = [-(2**63) if value is None else value for value in map(value_of, names)]
            found: Index = np.array(known, np.int64).take(codes)
            return found

        return of_rows(clock.of), of_rows(self._seen.get)

    @staticmethod
    def _described(result: Relation, ends: Index, ripe: Rows, rows: Index) -> Rows:
        """The times and tickers of the groups, which are those of each one's last row (`rows`)."""
        if ripe.length == 0:
            return ripe.replaced(result)
        return Rows(result, ends - 1, ripe.sequence[rows], ripe.ticker.take(pa.array(rows, pa.int64())))

    def _keep(self, together: Rows, rows: Index) -> None:
        self._kept = compact(together.take(np.unique(rows)), self._columns)

    def drop(self, tickers: Set[str]) -> None:
        self._kept = without(self._kept, tickers)
        for ticker in tickers:
            self._seen.pop(ticker, None)

    def snapshot(self) -> tuple[str, Rows | None]:
        return json.dumps({"seen": self._seen, "least": self._least}), self._kept

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        self._seen = dict(state["seen"])
        self._least = state["least"]
        self._kept = rows
