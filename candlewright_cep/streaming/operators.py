"""Makes the operators of a running trigger from its checked plan."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from candlewright_cep.binding.expressions import Column
from candlewright_cep.planning.bars import Bars
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.periods import STATELESS
from candlewright_cep.planning.plans import AsofJoin, Filter, Group, Join, Match, Plan, Project, Renamed, Scan, Union
from candlewright_cep.planning.relation import Relation
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.streaming.patterns.left_behind import rising_columns
from candlewright_cep.streaming.patterns.match_results import Context
from candlewright_cep.streaming.patterns.match_stream import MatchStream
from candlewright_cep.streaming.query import StreamQuery, known_at_start, over_whole_windows, walked
from candlewright_cep.streaming.rows.release import Clock, Rows
from candlewright_cep.streaming.slots import Slots
from candlewright_cep.streaming.stages.ahead import AheadStage, split
from candlewright_cep.streaming.stages.bar_stage import BarStage
from candlewright_cep.streaming.stages.group_stage import GroupStage
from candlewright_cep.streaming.stages.order_stage import LagStage, OrderStage, StartStage
from candlewright_cep.streaming.stages.stages import (
    JoinStage,
    LookupStage,
    OverStage,
    RowStage,
    Stage,
    UnionStage,
    WholeStage,
    is_lookup,
)
from candlewright_cep.streaming.stages.window_patterns import PatternStage
from candlewright_cep.types import SqlType
from candlewright_cep.vector import nulls


@dataclass(slots=True)
class MatchStage:
    """MATCH_RECOGNIZE within a chain; `context` belongs to the rows of the last feed."""

    stream: MatchStream
    types: list[SqlType]
    context: Context | None = None

    def feed(self, rows: Rows, clock: Clock) -> Rows:
        result = self.stream.feed(rows, clock)
        if result is None:
            self.context = None
            empty = Relation([nulls(kind, 0) for kind in self.types], 0)
            return rows.slice(0, 0).replaced(empty)
        self.context = result.context
        return result.rows

    @property
    def partitions(self) -> int:
        return len(self.stream.partitions)

    def drop(self, tickers: Set[str]) -> None:
        self.stream.drop(tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return self.stream.snapshot()

    def parts(self) -> tuple[str, Rows | None, dict[int, bytes]]:
        """See `OverStage.parts`."""
        return self.stream.parts()

    def restore(
        self, state: dict[str, Any], rows: Rows | None, chunks: Mapping[int, bytes] = MappingProxyType({})
    ) -> None:
        self.stream.restore(state, rows, chunks)


@dataclass(frozen=True, slots=True)
class Made:
    """The operators of the first nodes of a chain, and what the operators of later nodes need to know (see
    `_Chain`).
    """

    stages: tuple[Stage, ...] = ()
    matches: MatchStream | None = None
    groups: GroupStage | BarStage | None = None
    ahead: Over | None = None
    place: int = -1


def stages(query: StreamQuery, slots: Slots) -> list[Stage]:
    """Fresh operators. Raises TriggerRejected for windows whose state a stream cannot bound."""
    return list(made(query, slots).stages)


def made(query: StreamQuery, slots: Slots, *, since: int = 0, until: int | None = None, before: Made = Made()) -> Made:
    """`before` and fresh operators of the nodes from `since` to `until`."""
    chain = _Chain(query, slots, before)
    for place in range(since, len(query.nodes) if until is None else until):
        chain.add(place, query.nodes[place])
    return chain.finished()


class _Chain:
    """The operators so far, from the input on.

    `_waiting`: filters and projections that will become one operator. `_window`: one whose GROUP BY has not come yet.
    `_matches`, `_groups`: the last ones whose results have not been put in time order, the former of the node at
    `_place`. `_ahead`: the first operator that emits rows later than their time.
    """

    def __init__(self, query: StreamQuery, slots: Slots, before: Made) -> None:
        self._query = query
        self._slots = slots
        self._by_start, self._starts = _by_start_of_window(query.nodes, is_joint=query.needs_merge)
        self._by_end = _by_end_of_match(query.nodes)
        self._whole = over_whole_windows(query.nodes)
        self._found = list(before.stages)
        self._waiting: list[Plan] = []
        self._window: WindowTable | None = None
        self._matches, self._groups, self._ahead = before.matches, before.groups, before.ahead
        self._place = before.place

    def add(self, place: int, node: Plan) -> None:
        if isinstance(node, Scan | Renamed) or (place == 0 and self._query.joined is not None):
            return
        self._expect_nothing_ahead(node)
        self._put_in_order(place, node)
        if isinstance(node, Join | AsofJoin) and is_lookup(node):
            self._expect_no_window()
            self._flush()
            self._found.append(LookupStage(node))
        elif isinstance(node, Join):
            self._found.append(self._join(node))
        elif isinstance(node, Union):
            self._found.append(UnionStage(node, self._slots))
        elif isinstance(node, STATELESS):
            if not isinstance(node, Filter):
                self._expect_no_window()
            self._waiting.append(node)
        elif isinstance(node, Group):
            self._group(node)
        else:
            self._expect_no_window()
            self._flush()
            if isinstance(node, WindowTable):
                self._window = node
            elif isinstance(node, Bars):
                self._groups = BarStage(node)
                self._found.append(self._groups)
            elif isinstance(node, Over) and place in self._whole:
                self._found.append(WholeStage(node))
            elif isinstance(node, Over):
                self._over(place, node)
            elif isinstance(node, Match):
                query = self._query
                rising = rising_columns(node, query.source.time_columns) if query.is_in_order else ()
                self._matches = MatchStream(node.recognize, self._slots, rising, is_joint=query.needs_merge)
                self._place = place
                self._found.append(MatchStage(self._matches, [field.type for field in node.fields]))

    def _over(self, place: int, node: Over) -> None:
        # An operator that looks ahead emits rows later than their time.
        is_on_input = not any(isinstance(stage, GroupStage | MatchStage | AheadStage) for stage in self._found)
        ahead, others = split(node)
        if node.window.recognize is not None:
            ahead, others = tuple(range(len(node.functions))), ()
        elif others or not ahead:
            functions = tuple(node.functions[place] for place in others)
            own = replace(node, functions=functions)
            joint, by_ticker = self._query.needs_merge, self._is_by_ticker(place, node)
            stage = OverStage(own, is_joint=joint, is_by_ticker=by_ticker, is_on_input=is_on_input)
            self._found.append(stage)
        if ahead or node.window.recognize is not None:
            if self._query.joined is not None:
                raise node.at.reject("LEAD and frames that look ahead are not possible in a join by time on a stream")
            is_joint, keeps_ties = self._query.needs_merge, self._query.needs_ties
            if node.window.recognize is not None:
                self._found.append(PatternStage(node, is_joint=is_joint, keeps_ties=keeps_ties))
            else:
                self._found.append(AheadStage(node, is_joint=is_joint, is_on_input=is_on_input, keeps_ties=keeps_ties))
            self._ahead = self._ahead or node

    def _is_by_ticker(self, place: int, node: Over) -> bool:
        """Whether its partitions are the tickers."""
        query, columns = self._query, set(node.window.partition)
        if query.needs_merge or query.joined is not None:
            return False
        known = walked(query.nodes[:place], known_at_start(query.nodes[0], query.source), query.source)[0]
        return bool(columns) and columns <= known.tickers

    def _expect_nothing_ahead(self, node: Plan) -> None:
        """Raises TriggerRejected for operators that need time order after one that emits rows late."""
        before = self._ahead
        if before is None or isinstance(node, STATELESS):
            return
        if not isinstance(node, Over) or node.window.partition != before.window.partition:
            raise before.at.reject(
                "LEAD and frames that look ahead come last on a stream, with one PARTITION BY",
                "a pattern looks ahead with NEXT",
            )

    def finished(self) -> Made:
        self._expect_no_window()
        self._flush()
        return Made(tuple(self._found), self._matches, self._groups, self._ahead, self._place)

    def _flush(self) -> None:
        if self._waiting:
            self._found.append(RowStage(self._waiting, self._slots))
            self._waiting = []

    def _expect_no_window(self) -> None:
        if self._window is not None:
            raise self._window.at.reject(
                "window columns on a stream are for GROUP BY", "group by window_start and window_end"
            )

    def _put_in_order(self, place: int, node: Plan) -> None:
        """Put rows in the order that `node` needs, if matches or windows emit them in another order."""
        is_joint = self._query.needs_merge
        if isinstance(node, Over | WindowTable | Match | Bars) and self._matches is not None:
            self._flush()
            column, start = self._by_end.get(place), None
            if place in self._by_start or (column is not None and self._place in self._by_start):
                column, start = _time_of(node), self._starts.get(self._place)
            self._found.append(OrderStage(self._matches, is_joint=is_joint, column=column, start=start))
            self._matches = None
        if place in self._by_start and place not in self._whole and self._groups is not None:
            self._flush()
            column = self._by_start[place]
            groups = self._groups
            self._found.append(
                LagStage(groups, is_joint=is_joint)
                if column is None
                else StartStage(groups, is_joint=is_joint, start_column=column)
            )
            self._groups = None

    def _join(self, node: Join) -> JoinStage:
        source = self._query.source
        wanted = source.ticker_column.lower()
        places = [index for index, part in enumerate(node.fields) if part.name.lower() == wanted]
        time = min(known_at_start(node, source).times)
        return JoinStage(node, self._query.input_name, time, ticker_column=places[0] if places else None)

    def _group(self, node: Group) -> None:
        window = self._window
        if window is None:
            raise node.at.reject(
                "GROUP BY on a stream needs a time window, or EMIT CHANGES for a row whenever a group changes",
                "GROUP BY ..., TUMBLE(ts, INTERVAL '1' MINUTE)",
            )
        stage = GroupStage(node, self._waiting, window, slots=self._slots, is_in_order=self._query.is_in_order)
        if not self._query.needs_merge:
            stage.set_ticker_column(_ticker_index(self._query, window))
        self._found.append(stage)
        self._waiting, self._window, self._groups = [], None, stage


def _ticker_index(query: StreamQuery, window: WindowTable) -> int | None:
    wanted = query.source.ticker_column.lower()
    places = [index for index, part in enumerate(window.inner.fields) if part.name.lower() == wanted]
    return places[0] if len(places) == 1 else None


def _by_start_of_window(nodes: Sequence[Plan], *, is_joint: bool) -> tuple[dict[int, int | None], dict[int, int]]:
    """The indexes of operators that process rows by the start of windows or bars. Each is mapped to the column of the
    start if rows do not come in its order or have to wait for others with the same start, otherwise to None.
    Secondly, the patterns over windows or bars, with the column of the start. Of those by their end, only sessions and
    bars: the start of other windows is known from the end. `is_joint`: the rows of all tickers come in one order.
    """
    starts: set[int] = set()
    found: dict[int, int | None] = {}
    of_matches: dict[int, int] = {}
    function = ""
    for place, node in enumerate(nodes):
        if isinstance(node, Project | Group):
            parts = node.expressions if isinstance(node, Project) else node.common_keys
            starts = {i for i, part in enumerate(parts) if isinstance(part, Column) and part.index in starts}
        elif isinstance(node, WindowTable):
            if node.time_column in starts:
                found[place] = None
            starts.add(len(node.fields) - 3)
            function = node.function
        elif isinstance(node, Bars):
            if node.time in starts:
                found[place] = None
            starts = {node.opened}
            function = "BARS"
        elif isinstance(node, Over):
            first = node.window.order[0].expression if node.window.order else None
            shares = function == "CUMULATE" and node.window.frame.unit != "ROWS"
            alone = (
                function == "BARS" and not is_joint and node.window.frame.unit == "ROWS" and len(node.window.order) == 1
            )
            waits = shares or function == "SESSION" or (function == "BARS" and not alone)
            if isinstance(first, Column) and first.index in starts and waits:
                found[place] = first.index
        elif isinstance(node, Match):
            plan = node.recognize
            keys = [key.expression.index for key in plan.order[:1] if isinstance(key.expression, Column)]
            if starts & set(keys):
                waits = function == "SESSION" or (function == "BARS" and (is_joint or len(plan.order) > 1))
                found[place] = keys[0] if waits else None
                of_matches[place] = keys[0]
            elif starts and function in ("BARS", "SESSION"):
                of_matches[place] = min(starts)
            outputs = [
                *plan.columns[: plan.measures_at],
                *([-1] * len(plan.measures)),
                *plan.columns[plan.measures_at :],
            ]
            starts = {i for i, column in enumerate(outputs) if column in starts}
    return found, of_matches


def _time_of(node: Plan) -> int | None:
    """The column that an operator takes rows in the order of."""
    if isinstance(node, WindowTable | Bars):
        return node.time if isinstance(node, Bars) else node.time_column
    keys = node.window.order if isinstance(node, Over) else node.recognize.order if isinstance(node, Match) else ()
    first = keys[0].expression if keys else None
    return first.index if isinstance(first, Column) else None


def _by_end_of_match(nodes: Sequence[Plan]) -> dict[int, int]:
    """The indexes of operators that process rows by the time of a match's last row, with its column: matches come in
    the order of their first rows.
    """
    ends: set[int] = set()
    found: dict[int, int] = {}
    for place, node in enumerate(nodes):
        if isinstance(node, Project):
            columns = list(enumerate(node.expressions))
            ends = {i for i, part in columns if isinstance(part, Column) and part.index in ends}
            continue
        column = _time_of(node)
        if column is not None and column in ends:
            found[place] = column
        if isinstance(node, Match):
            plan = node.recognize
            ends = set() if plan.is_all_rows else {plan.measures_at + measure for measure in plan.row_times}
        elif isinstance(node, Group | Bars):
            ends = set()
    return found
