"""Checks which texts can run on a stream, and derives what is known about them before any row has arrived."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from candlewright_cep.binding.expressions import Column
from candlewright_cep.engine import CompiledQuery
from candlewright_cep.planning.bars import Bars
from candlewright_cep.planning.joins import turned
from candlewright_cep.planning.over import Over, takes_frame
from candlewright_cep.planning.periods import STATELESS, is_written
from candlewright_cep.planning.plans import (
    AsofJoin,
    Distinct,
    Group,
    Join,
    Limited,
    Match,
    Plan,
    Project,
    Renamed,
    Scan,
    Sort,
    Union,
    Values,
)
from candlewright_cep.planning.windows import WindowTable
from candlewright_cep.streaming.inputs import Branch, KnownColumns, StreamInput, equates
from candlewright_cep.streaming.patterns.columns import columns_read
from candlewright_cep.streaming.patterns.left_behind import rising_columns
from candlewright_cep.streaming.slots import Lifted, has_numbers, lift, written_key
from candlewright_cep.streaming.stages.stages import branches_of, is_lookup
from candlewright_cep.syntax.tokens import BEGIN, Position
from candlewright_cep.types import SqlType


@dataclass(kw_only=True, frozen=True, slots=True)
class StreamQuery:
    """A text that can run on a stream. `needs_merge`: the rows of all tickers must come in one order of time.
    `needs_ties`: rows of a ticker with equal time must come together.

    `is_in_order`: the rows of a ticker come in order of event time; corrected bars do not. `partitions_close`: a quiet
    ticker ends, and may begin again with older rows.
    """

    compiled: CompiledQuery
    input_name: str
    source: StreamInput
    nodes: tuple[Plan, ...]
    needs_merge: bool
    needs_ties: bool = False
    is_in_order: bool = True
    partitions_close: bool = False
    slot_types: tuple[SqlType, ...] = ()
    #: The sources of the rows, for a text that joins inputs or rows of different times.
    joined: Branch | None = None

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]:
        return self.compiled.columns

    @property
    def views(self) -> tuple[int, ...]:
        """Of each registered view that the chain reads and that computes something, the number of nodes that compute
        it, innermost first.
        """
        found = [0]
        for place, node in enumerate(self.nodes if self.joined is None else ()):
            is_new = any(not isinstance(part, Scan | Renamed) for part in self.nodes[found[-1] : place])
            if isinstance(node, Renamed) and node.registered and is_new:
                found.append(place)
        return tuple(found[1:])

    @property
    def shared(self) -> tuple[int, ...]:
        """`views`, followed by the number of nodes up to the last operator with memory that texts share which differ
        only in numbers: `lifted` takes none out of these nodes. A pattern is not such an operator, because whether rows
        matter to it is decided from the input.
        """
        views = self.views
        first = found = views[-1] if views else 0
        if self.joined is not None or isinstance(self.nodes[0], Join | AsofJoin | Union):
            return views
        for place, node in enumerate(self.nodes[first:], first):
            if has_numbers(node) or isinstance(node, Match | Join | AsofJoin):
                break
            if isinstance(node, Group | Over | Bars):
                found = place + 1
        return views if found == first else (*views, found)

    def key_of(self, count: int) -> str | None:
        """Equal for queries whose first `count` nodes give the same rows over the same input; None if unknown."""
        written = written_key(self.nodes[:count])
        flags = self.input_name, self.needs_merge, self.needs_ties, self.is_in_order, self.partitions_close
        return None if written is None else f"{written} {flags}"

    def lifted(self, since: int = 0) -> Lifted | None:
        """The part that this query can share with others; None if its tickers do not run independently. `since`: the
        numbers in the nodes before this one stay as they are.
        """
        return None if self.needs_merge or self.joined is not None else lift(self.nodes, since)

    def with_slots(self, lifted: Lifted) -> "StreamQuery":
        """The query with slots in place of its numbers."""
        return replace(self, nodes=lifted.nodes(), slot_types=lifted.types)

    @property
    def columns_read(self) -> frozenset[str] | None:
        """The columns of the input that it reads besides times and ticker; None for all."""
        return None if self.joined is not None else columns_read(self.nodes)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.compiled.warnings


def stream_query(
    compiled: CompiledQuery,
    inputs: Mapping[str, StreamInput],
    nodes: Sequence[Plan],
    *,
    partitions_close: bool,
    is_in_order: bool = True,
) -> StreamQuery:
    """`nodes`: the chain of the plan. Raises TriggerRejected for operations that need a finished table. Windows and
    their GROUP BY are checked when their operators are made.
    """
    name = _scanned(nodes[0])
    source = inputs[name]
    check_anchors(compiled, source, partitions_close=partitions_close, is_in_order=is_in_order)
    return StreamQuery(
        compiled=compiled,
        input_name=name,
        source=source,
        nodes=tuple(nodes),
        needs_merge=_needs_merge(nodes, source),
        needs_ties=needs_ties(nodes),
        is_in_order=is_in_order,
        partitions_close=partitions_close,
    )


def check_anchors(compiled: CompiledQuery, source: StreamInput, *, partitions_close: bool, is_in_order: bool) -> None:
    """Raises TriggerRejected for a `$` that can never be true."""
    for match in compiled.matches:
        plan = match.recognize
        if not plan.has_end_anchor or partitions_close:
            continue
        if not (is_in_order and rising_columns(match, source.time_columns)):
            raise plan.at.reject(
                "$ is never true here: no partition ever ends",
                "set triggers.idle_seconds, or name a column of the day in PARTITION BY",
            )


def chain_of(plan: Plan) -> list[Plan]:
    """The plan's nodes from the input to the result; a join with VALUES continues the chain of its other side. RIGHT
    joins are turned into LEFT joins.
    """
    found: list[Plan] = []
    current: Any = plan
    while True:
        if isinstance(current, Join) and (current.kind == "RIGHT" or _begins_written(current)):
            current = turned(current)
        found.append(current)
        if is_lookup(current):
            current = current.left
            continue
        if isinstance(current, Scan | Join | AsofJoin | Union | Values):
            return found[::-1]
        if isinstance(current, Sort):
            raise current.at.reject("ORDER BY is not possible on a stream", "events come in the order of time")
        if isinstance(current, Limited):
            what = "LIMIT" if current.limit is not None else "OFFSET"
            raise current.at.reject(
                f"{what} is not possible on a stream", "cooldown_seconds limits the number of events"
            )
        if isinstance(current, Distinct) and isinstance(current.inner, Union):
            raise current.at.reject("UNION on a stream would keep every row to find repetitions", "write UNION ALL")
        if isinstance(current, Distinct):
            raise current.at.reject(
                "DISTINCT is not possible on a stream", "cooldown_seconds limits the number of events"
            )
        current = current.inner


def _begins_written(join: Join) -> bool:
    return join.kind in ("INNER", "CROSS") and is_written(join.left) and not is_written(join.right)


def _scanned(node: Plan) -> str:
    """The single input below a node that a chain starts with."""
    names = set()
    if isinstance(node, Union):
        branches_of(node)
    pending: list[Any] = [node]
    while pending:
        current = pending.pop()
        if isinstance(current, Values):
            raise _place(node).reject("VALUES is not an input", "join it: FROM ticks t JOIN (VALUES ...) AS v ON ...")
        if isinstance(current, Scan):
            names.add(current.name)
        elif isinstance(current, Join):
            pending += [current.left, current.right]
        elif isinstance(current, Union):
            pending += current.branches
        elif isinstance(current, STATELESS):
            pending.append(current.inner)
        else:
            raise _place(node).reject("a join on a stream takes filtered inputs", "join first, then aggregate or match")
    if len(names) > 1 and isinstance(node, Union):
        raise node.at.reject(
            "UNION ALL of two inputs is not possible in a running trigger", "register a trigger for each of them"
        )
    if len(names) > 1:
        raise _place(node).reject(
            "a join of two inputs is not possible in a running trigger", "join one input with itself"
        )
    return str(names.pop())


def _place(node: Plan) -> Position:
    return node.at if isinstance(node, Join) else BEGIN


def known_at_start(node: Plan, source: StreamInput) -> KnownColumns:
    """What is known about the columns of a scan, of filters and projections over it, and of joins on time."""
    if isinstance(node, Scan):
        names = source.schema.names
        times = {names.index(name) for name in source.time_columns if name in names}
        return KnownColumns(times, {names.index(source.ticker_column)} if source.ticker_column in names else set())
    if isinstance(node, Join):
        left, right = known_at_start(node.left, source), known_at_start(node.right, source)
        width = len(node.left.fields)
        if node.kind not in ("INNER", "LEFT") or not equates(node.keys, left.times, right.times):
            raise node.at.reject(
                "a join on a stream must be INNER or LEFT and on equal event times", "ON a.ts = b.ts AND ..."
            )
        return KnownColumns(left.times | {index + width for index in right.times if node.kind == "INNER"}, set())
    if isinstance(node, Union):
        return KnownColumns(set(), set())
    if isinstance(node, Project):
        return known_at_start(node.inner, source).behind(node.expressions)
    inner_plan: Any = node
    return known_at_start(inner_plan.inner, source)


def over_whole_windows(nodes: Sequence[Plan]) -> frozenset[int]:
    """The indexes of OVER whose partitions are each within one time window (but not a session, which ends separately
    for each of its keys). The groups of such a window come together, once it has ended, so the partitions are
    complete.
    """
    fixing: set[int] = set()
    found: set[int] = set()
    for place, node in enumerate(nodes):
        if isinstance(node, Project | Group):
            parts = node.expressions if isinstance(node, Project) else node.common_keys
            fixing = {i for i, part in enumerate(parts) if isinstance(part, Column) and part.index in fixing}
        elif isinstance(node, WindowTable):
            width = len(node.fields)
            whole = {"TUMBLE": (3, 2, 1), "HOP": (3, 2, 1), "CUMULATE": (2, 1)}.get(node.function, ())
            fixing = {width - back for back in whole}
        elif isinstance(node, Match | Bars):
            fixing = set()
        elif isinstance(node, Over) and fixing & set(node.window.partition):
            found.add(place)
    return frozenset(found)


def _needs_merge(nodes: Sequence[Plan], source: StreamInput) -> bool:
    """True if some operator combines several tickers. Raises TriggerRejected for orders other than time."""
    known = known_at_start(nodes[0], source)
    for node in nodes[1:]:
        if isinstance(nodes[0], Union) and not isinstance(node, STATELESS):
            raise nodes[0].at.reject(
                "after UNION ALL a stream can only filter and compute",
                "write the branches as one SELECT with CASE and OR before windows and patterns",
            )
    return walked(nodes, known, source)[1] or isinstance(nodes[0], Join)


def walked(nodes: Sequence[Plan], known: KnownColumns, source: StreamInput) -> tuple[KnownColumns, bool]:
    """What is known after a chain, given what is known at its bottom, and whether one of its operators combines several
    tickers. Raises TriggerRejected for orders other than time.
    """
    merge = False
    whole = over_whole_windows(nodes)
    for place, node in enumerate(nodes[1:], 1):
        if isinstance(node, Project):
            known = known.behind(node.expressions)
        elif isinstance(node, Over) and place in whole:
            merge = merge or not known.tickers & set(node.window.partition)
        elif isinstance(node, Over):
            order = node.window.order
            first = order[0].expression if order else None
            if not isinstance(first, Column) or first.index not in known.times or order[0].descending:
                hint = _by(source)
                if any(isinstance(each, WindowTable) and each.function != "SESSION" for each in nodes[:place]):
                    hint += ", or PARTITION BY window_start (or TUMBLE_START(...)) to compare the rows of each window"
                raise node.at.reject("a window on a stream needs ORDER BY the event time, ascending", hint)
            merge = merge or not known.tickers & set(node.window.partition)
        elif isinstance(node, WindowTable):
            if node.time_column not in known.times:
                raise node.at.reject("windows on a stream must use the event time", f"here {source.time_columns[0]}")
            width = len(node.fields)
            known.times |= {width - 3, width - 2, width - 1}
            merge = merge or (node.function == "SESSION" and not known.tickers & set(node.partition))
        elif isinstance(node, Group):
            known = known.behind(node.common_keys)
            merge = merge or not known.tickers
        elif isinstance(node, Bars):
            if node.time not in known.times:
                raise node.at.reject("bars on a stream must use the event time", f"here {source.time_columns[0]} AS ts")
            merge = merge or not known.tickers & set(node.partition)
            tickers = {place for place, index in enumerate(node.partition) if index in known.tickers}
            known = KnownColumns({node.opened, node.opened + 1}, tickers)
        elif isinstance(node, Match):
            known, spans = _check_match(node, known, source)
            merge = merge or spans
    return known, merge


def needs_ties(nodes: Sequence[Plan]) -> bool:
    """Whether an operator over rows of the input processes rows of equal time together: in a join, as peers in a RANGE
    frame, or in an order by more than time. After patterns and windows, rows come in time order anyway.
    """
    return isinstance(nodes[0], Join) or ties_in(nodes[1:])


def ties_in(nodes: Sequence[Plan]) -> bool:
    """`needs_ties` for the part of a chain after its bottom."""
    for node in nodes:
        if isinstance(node, WindowTable | Group):
            return False
        if isinstance(node, Match):
            return len(node.recognize.order) > 1
        if isinstance(node, Over):
            frame = node.window.frame
            by_peers = frame.unit != "ROWS" or frame.exclude in ("GROUP", "TIES")
            if len(node.window.order) > 1 or (by_peers and any(map(takes_frame, node.functions))):
                return True
    return False


def _check_match(node: Match, known: KnownColumns, source: StreamInput) -> tuple[KnownColumns, bool]:
    plan = node.recognize
    if plan.order:
        first = plan.order[0]
        if not isinstance(first.expression, Column) or first.expression.index not in known.times or first.descending:
            raise plan.at.reject("MATCH_RECOGNIZE on a stream needs ORDER BY the event time, ascending", _by(source))
    spans = not known.tickers & set(plan.partition)
    places = list(plan.columns)
    outputs = [*places[: plan.measures_at], *([-1] * len(plan.measures)), *places[plan.measures_at :]]
    row_times = {plan.measures_at + place for place in plan.row_times}
    return (
        KnownColumns(
            {i for i, column in enumerate(outputs) if column in known.times} | row_times,
            {i for i, column in enumerate(outputs) if column in known.tickers},
        ),
        spans,
    )


def _by(source: StreamInput) -> str:
    return f"here ORDER BY {source.time_columns[0]}"
