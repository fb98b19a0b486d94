"""The other operators of a stream: filters and projections, OVER, and time windows with GROUP BY."""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.evaluation import RowValues
from candlewright_cep.binding.expressions import Column, WindowFunction, walk
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.planning.hops import HopGroup
from candlewright_cep.planning.over import RANKING, Over, peer_groups, takes_frame
from candlewright_cep.planning.periods import STATELESS, is_written
from candlewright_cep.planning.plans import (
    AsofJoin,
    Filter,
    Group,
    Join,
    Narrowed,
    Plan,
    Project,
    Scan,
    Union,
    side_by_side,
)
from candlewright_cep.planning.relation import Relation, arranged, concatenated
from candlewright_cep.planning.unnest import Unnest
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.streaming.rows.packing import as_json
from candlewright_cep.streaming.rows.release import Clock, Rows, compact, joined
from candlewright_cep.streaming.rows.row_log import RowLog, without
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.streaming.stages.indicator_states import IndicatorStates
from candlewright_cep.streaming.stages.running_over import RunningTotals, running_functions
from candlewright_cep.vector import Index, is_every


class Stage(Protocol):
    """An operator of a stream. `partitions`: the number of PARTITION BY values for which it keeps state outside its
    rows.
    """

    @property
    def partitions(self) -> int: ...

    def feed(self, rows: Rows, clock: Clock) -> Rows: ...

    def drop(self, tickers: Set[str]) -> None: ...

    def snapshot(self) -> tuple[str, Rows | None]: ...

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None: ...


@dataclass(slots=True)
class Given:
    """Stands for rows that are already computed, as the inner plan of one node."""

    fields: tuple[Any, ...]
    relation: Relation

    def run(self, _inputs: Any) -> Relation:
        return self.relation


def chained(nodes: list[Plan], rows: Rows, slots: Slots) -> tuple[Rows, Index]:
    """The rows after filters and projections (innermost first), and the index of each in the given rows."""
    kept = np.arange(rows.length, dtype=np.int64)
    for node in nodes:
        if isinstance(node, Filter):
            found = np.flatnonzero(_values(rows, slots).value(node.condition).true())
            if len(found) != rows.length:
                rows, kept = rows.take(found), kept[found]
        elif isinstance(node, Project):
            values = _values(rows, slots)
            rows = rows.replaced(Relation([values.value(part) for part in node.expressions], rows.length))
        elif isinstance(node, Unnest):
            made, found = node.expanded(rows.relation)
            rows, kept = rows.take(found).replaced(made), kept[found]
        elif isinstance(node, Narrowed):
            rows = rows.replaced(rows.relation.select(range(node.width)))
    return rows, kept


def _values(rows: Rows, slots: Slots) -> RowValues:
    return RowValues(slots.reader(rows.relation.column, rows.ticker), rows.length)


class Stateless:
    """The state methods of a stage that keeps nothing from feed to feed."""

    __slots__ = ()

    @property
    def partitions(self) -> int:
        return 0

    def drop(self, tickers: Set[str]) -> None:
        return

    def snapshot(self) -> tuple[str, Rows | None]:
        return "{}", None

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        return


@dataclass(slots=True)
class RowStage(Stateless):
    """Filters and projections: no state."""

    nodes: list[Plan]
    slots: Slots

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        return chained(self.nodes, rows, self.slots)[0]


def is_lookup(node: Plan) -> bool:
    """Whether it is a join with a table of constants. Raises TriggerRejected for one that keeps rows of that table."""
    if not isinstance(node, Join | AsofJoin) or not is_written(node.right):
        return False
    if node.kind in ("RIGHT", "FULL"):
        raise node.at.reject(
            f"{node.kind} JOIN with VALUES is not possible on a stream: it waits for rows that never come",
            "write JOIN or LEFT JOIN",
        )
    return True


class LookupStage(Stateless):
    """A join with a table of constants: each row finds its partners independently."""

    def __init__(self, node: Join | AsofJoin) -> None:
        self.node = node
        self._table = node.right.run({})

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        one, other = self.node.matched(rows.relation, self._table)
        found = rows.take(one)
        return found.replaced(side_by_side(found.relation, self._table.take(other)))


class JoinStage(Stateless):
    """A join on equal event time. The rows of all tickers come in one order of time, and all rows of one time are
    released together, so no row of an earlier batch can find a partner in a later one.
    """

    def __init__(self, node: Join, scan: str, time_column: int, *, ticker_column: int | None) -> None:
        self.node = node
        self.scan = scan
        self.time_column = time_column
        self.ticker_column = ticker_column

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        joined = self.node.run({self.scan: rows.relation})
        time: Index = joined.column(self.time_column).expand().values
        names = [""] * joined.length
        if self.ticker_column is not None:
            names = [name or "" for name in joined.column(self.ticker_column).to_list()]
        return Rows(joined, time, time, pa.array(names, pa.string()))


def branches_of(node: Union) -> list[list[Plan]]:
    """What each branch of UNION ALL does with the rows of its input, innermost first. Raises TriggerRejected for more
    than filters and expressions.
    """

    def below(plan: Any) -> list[list[Plan]]:
        if isinstance(plan, Scan):
            return [[]]
        if isinstance(plan, Union):
            return [chain for branch in plan.branches for chain in below(branch)]
        if isinstance(plan, STATELESS):
            return [[*chain, plan] for chain in below(plan.inner)]
        raise node.at.reject(
            "UNION ALL on a stream takes branches that filter and compute, no windows, patterns or joins",
            "register a trigger for each branch",
        )

    return below(node)


class UnionStage(Stateless):
    """UNION ALL of several chains of filters and projections over the same rows. The results of one row are adjacent,
    in the order of the branches.
    """

    def __init__(self, node: Union, slots: Slots) -> None:
        self._branches = branches_of(node)
        self._slots = slots

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        found = [chained(branch, rows, self._slots) for branch in self._branches]
        came_from = np.concatenate([picked for _, picked in found])
        order = np.argsort(came_from, kind="stable")
        relation = concatenated([made.relation for made, _ in found]).take(order)
        return rows.take(came_from[order]).replaced(relation)


class OverStage:
    """OVER with frames that end at the current row. It keeps the rows that a later frame can reach, running totals for
    frames without a start, or the states of indicators.

    `is_on_input`: the rows come in the order of their ticker's event time, not from windows or matches. `is_joint`:
    partitions have rows of several tickers. `is_by_ticker`: each has all rows of one.
    """

    def __init__(self, node: Over, *, is_joint: bool, is_by_ticker: bool = False, is_on_input: bool = False) -> None:
        self.node = node
        self._is_by_ticker = is_by_ticker
        self._is_on_input = is_on_input
        self._log = RowLog(self._needed, is_joint=is_joint)
        frame = node.window.frame
        aggregates = [function for function in node.functions if takes_frame(function)]
        ranked = [function.name for function in node.functions if function.name in RANKING]
        if any(name != "ROW_NUMBER" for name in ranked):
            raise node.at.reject(
                f"{ranked[0]} would keep every row of a stream", "ROW_NUMBER, COUNT, MIN and MAX are possible"
            )
        functions = node.functions
        self._indicators = [place for place, function in enumerate(functions) if function.name in INDICATORS]
        self._running = running_functions(node)
        apart = {*self._indicators, *self._running}
        self._bounded = [place for place in range(len(functions)) if place not in apart]
        self._totals = RunningTotals(node.window, [functions[place] for place in self._running])
        self._states = IndicatorStates(node.window, [functions[place] for place in self._indicators])
        lags = [function.offset for function in node.functions if function.name == "LAG"]
        self._rows = max([0, *lags])
        self._range: float | int = 0
        self._groups: int | None = None
        for bound in (frame.lower, frame.upper) if aggregates and frame.lower.kind != "UNBOUNDED PRECEDING" else ():
            if bound.kind == "PRECEDING" and frame.unit == "ROWS":
                self._rows = max(self._rows, int(bound.amount))
            elif frame.unit == "GROUPS":
                self._groups = max(self._groups or 0, int(bound.amount))
            elif bound.kind == "PRECEDING":
                self._range = max(self._range, bound.amount)
        key = node.window.order[0] if node.window.order else None
        if key is None or key.descending or not isinstance(key.expression, Column):
            raise node.at.reject("a window on a stream needs ORDER BY the event time, ascending")
        self._key = key.expression

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        if rows.length == 0:
            return rows.replaced(self._moved(rows.relation, self.node.functions).run({}))
        bounded = [self.node.functions[place] for place in self._bounded]
        if len(bounded) == len(self.node.functions):
            return rows.replaced(self._over_kept(rows, bounded))
        computed = self._over_kept(rows, bounded) if bounded else rows.relation
        width = rows.relation.width
        further = [computed.column(width + number) for number in range(len(bounded))]
        totals = self._totals.feed(rows) if self._running else []
        states = self._states.feed(rows) if self._indicators else []
        places = (*self._bounded, *self._running, *self._indicators)
        placed = dict(zip(places, (*further, *totals, *states), strict=True))
        return rows.replaced(rows.relation.with_columns([placed[place] for place in range(len(placed))]))

    @property
    def partitions(self) -> int:
        return max(self._totals.partitions, self._states.partitions)

    def kept_of_a_ticker(self, most: int) -> int:
        """The number of rows kept of the ticker with most of them, if more than `most` are kept in total; otherwise
        0.
        """
        return self._log.most_of_a_ticker(most)

    def _over_kept(self, rows: Rows, functions: Sequence[WindowFunction]) -> Relation:
        together = self._log.with_kept(rows)
        node = self._moved(together.relation, functions)
        self._log.append(rows)
        if self._is_by_ticker:
            columns = node.newest(together.relation, together.bounds, together.counts)
            if columns is not None:
                return rows.relation.with_columns([column.take(together.places) for column in columns])
        passed = np.ones(together.relation.length, np.bool_)
        passed[together.new] = False
        return replace(node, passed=passed).run({}).take(together.new)

    def _moved(self, relation: Relation, functions: Sequence[WindowFunction]) -> Over:
        node = self.node
        given = Given(node.inner.fields, relation)
        return Over(
            inner=given,
            window=node.window,
            functions=tuple(functions),
            measures=node.measures,
            fields=node.fields,
            limits=node.limits,
            at=node.at,
        )

    def _needed(self, rows: Rows) -> Rows:
        """The rows that a later frame can reach."""
        # In the order of the window: rows of equal time may have arrived in another one.
        arrangement, bounds, order = arranged(rows.relation, self.node.window.partition, self.node.window.order)
        last = np.repeat(bounds.ends, bounds.ends - bounds.starts) - 1
        keep = last - np.arange(rows.length) < self._rows
        if self._groups is not None:
            groups = peer_groups(self.node.window.order, arrangement.values(bounds), bounds, length=rows.length)[0]
            keep |= groups >= groups[last] - self._groups
        if self._range:
            times = rows.relation.column(self._key.index).expand().values[order]
            reached = times[last]
            if self._is_on_input:
                # Also drops the rows of partitions that get no more rows (a day, a session).
                reached = np.maximum(reached, _newest(times, rows.ticker.take(pa.array(order))))
            keep |= times >= reached - self._range
        return compact(rows.take(np.sort(order[keep])))

    def drop(self, tickers: Set[str]) -> None:
        self._log.drop(tickers)
        self._totals.drop(tickers)
        self._states.drop(tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return json.dumps(self._state(), default=as_json), self._log.whole()

    def parts(self) -> tuple[str, Rows | None, dict[int, bytes]]:
        """A snapshot whose older rows are in chunks that never change, by number."""
        log, newest, chunks = self._log.parts()
        return json.dumps(self._state() | {"log": log}, default=as_json), newest, chunks

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = {"totals": self._totals.snapshot()} if self._running else {}
        return found | ({"indicators": self._states.snapshot()} if self._indicators else {})

    def restore(
        self, state: dict[str, Any], rows: Rows | None, chunks: Mapping[int, bytes] = MappingProxyType({})
    ) -> None:
        self._log.restore(state.get("log", {}), rows, chunks)
        self._totals.restore(state.get("totals", {}))
        self._states.restore(state.get("indicators", {}))


def of_a_ticker(kept: Rows | None, most: int) -> int:
    if kept is None or kept.length <= most:
        return 0
    codes = kept.ticker.fill_null("").dictionary_encode().indices.to_numpy(zero_copy_only=False)
    return int(np.bincount(codes).max())


@dataclass(slots=True)
class WholeStage(Stateless):
    """OVER whose partitions are complete within one feed: any function and any frame, as over a finished table."""

    node: Over

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        given = Given(self.node.inner.fields, rows.relation)
        return rows.replaced(replace(self.node, inner=given).run({}))


def _newest(times: Index, tickers: pa.Array) -> Index:
    """For each row, the latest time of its ticker."""
    encoded = tickers.fill_null("").dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    found = np.full(len(encoded.dictionary), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(found, codes, times)
    newest: Index = found[codes]
    return newest


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
