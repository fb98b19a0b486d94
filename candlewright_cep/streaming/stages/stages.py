"""The other operators of a stream: filters and projections, and OVER."""

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.evaluation import RowValues
from candlewright_cep.binding.expressions import Column, WindowFunction
from candlewright_cep.functions.indicators.indicators import INDICATORS
from candlewright_cep.planning.over import RANKING, Over, peer_groups, takes_frame
from candlewright_cep.planning.periods import STATELESS, is_written
from candlewright_cep.planning.plans import (
    AsofJoin,
    Filter,
    Join,
    Narrowed,
    Plan,
    Project,
    Scan,
    Union,
    side_by_side,
)
from candlewright_cep.planning.reads import columns_called
from candlewright_cep.planning.relation import Relation, arranged, concatenated
from candlewright_cep.planning.unnest import Unnest
from candlewright_cep.streaming.rows.packing import as_json
from candlewright_cep.streaming.rows.release import Clock, Rows, compact
from candlewright_cep.streaming.rows.row_log import RowLog
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.streaming.stages.indicator_states import IndicatorStates
from candlewright_cep.streaming.stages.running_over import RunningTotals, running_functions
from candlewright_cep.vector import Index, distinct


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
            (found,) = _values(rows, slots).value(node.condition).true().nonzero()
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
    if not isinstance(node, Join | AsofJoin):
        return False
    if is_written(node.left) or (node.kind == "FULL" and is_written(node.right)):
        raise node.at.reject(
            "a join on a stream cannot keep the rows of VALUES: a partner may always follow",
            "write FROM ticks JOIN (VALUES ...) or LEFT JOIN (VALUES ...)",
        )
    return is_written(node.right)


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
        self._columns = columns_called(node.window, [functions[place] for place in self._bounded])
        self._log = RowLog(self._needed, is_joint=is_joint, columns=self._columns)
        self._totals = RunningTotals(node.window, [functions[place] for place in self._running], node.limits)
        self._states = IndicatorStates(node.window, [functions[place] for place in self._indicators], node.limits)
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
        found = replace(node, passed=passed).run({})
        width = rows.relation.width
        columns = [found.column(width + place).take(together.new) for place in range(len(functions))]
        return rows.relation.with_columns(columns)

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
        return compact(rows.take(np.sort(order[keep])), self._columns)

    def skip(self, tickers: Set[str], rows: Rows) -> None:
        """Keep these rows of the tickers instead of those that are kept."""
        self._log.drop(tickers)
        self._log.append(rows)

    def drop(self, tickers: Set[str]) -> None:
        self._log.drop(tickers)
        self._totals.drop(tickers)
        self._states.drop(tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return json.dumps(self._state(), default=as_json), self._log.whole()

    def parts(self) -> tuple[str, Rows | None, dict[int, bytes]]:
        """A snapshot whose older rows are in chunks that never change, by number."""
        log, newest, chunks = self._log.parts()
        return json.dumps(self._state(chunks) | {"log": log}, default=as_json), newest, chunks

    def _state(self, chunks: dict[int, bytes] | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {"totals": self._totals.snapshot(chunks)} if self._running else {}
        return found | ({"indicators": self._states.snapshot()} if self._indicators else {})

    def restore(
        self, state: dict[str, Any], rows: Rows | None, chunks: Mapping[int, bytes] = MappingProxyType({})
    ) -> None:
        self._log.restore(state.get("log", {}), rows, chunks)
        self._totals.restore(state.get("totals", {}), chunks)
        self._states.restore(state.get("indicators", {}))


def of_a_ticker(kept: Rows | None, most: int) -> int:
    if kept is None or kept.length <= most:
        return 0
    return int(np.bincount(distinct(kept.ticker)[1]).max())


@dataclass(slots=True)
class WholeStage(Stateless):
    """OVER whose partitions are complete within one feed: any function and any frame, as over a finished table."""

    node: Over

    def feed(self, rows: Rows, _clock: Clock) -> Rows:
        given = Given(self.node.inner.fields, rows.relation)
        return rows.replaced(replace(self.node, inner=given).run({}))


def _newest(times: Index, tickers: pa.Array) -> Index:
    """For each row, the latest time of its ticker."""
    names, codes = distinct(tickers)
    found = np.full(len(names), np.iinfo(np.int64).min, dtype=np.int64)
    np.maximum.at(found, codes, times)
    newest: Index = found[codes]
    return newest
