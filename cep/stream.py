"""A trigger on a stream: checked text, state, and events batch by batch.

`StreamQuery` is compiled once per text; `TriggerStream` is one running trigger: it takes released rows of its tickers
(see `cep.release`) and gives the rows that batch evaluation would give, each as soon as it can no longer change.
"""

import json
import struct
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from cep.columns import columns_read
from cep.engine import CompiledQuery, compile_query
from cep.expressions import Column, Expression
from cep.limits import DEFAULT, Limits
from cep.match_stream import Context, MatchStream, Reports
from cep.order_stage import LagStage, OrderStage, StartStage
from cep.over import Over
from cep.plans import Distinct, Filter, Group, Join, Limited, Match, Plan, Project, Renamed, Scan, Sort, Union
from cep.relation import Relation, from_table
from cep.release import FOREVER, SEQUENCE, Clock, Rows, compact, joined, rows_of
from cep.slots import Lifted, Slots, lift
from cep.stream_stages import (
    STATELESS,
    GroupStage,
    JoinStage,
    OverStage,
    RowStage,
    Stage,
    UnionStage,
    branches_of,
    chained,
)
from cep.tokens import BEGIN, Position
from cep.types import Kind, SqlType, to_arrow
from cep.vector import Index, Vector, nulls
from cep.windows import WindowTable

_MAGIC = b"cep1"


@dataclass(frozen=True, slots=True)
class StreamInput:
    """One input of a stream: its schema, the columns that hold the event time (the first is used), its ticker."""

    schema: pa.Schema
    time_columns: tuple[str, ...]
    ticker_column: str = "ticker"


@dataclass(frozen=True, slots=True)
class Events:
    """Result rows in order. `table` has the trigger's columns; the arrays have one entry a row (times in ns).

    `context` is None for triggers without MATCH_RECOGNIZE.
    """

    table: pa.Table
    ticker: list[str]
    time: Index
    sequence: Index
    context: Context | None


@dataclass(frozen=True, slots=True)
class StreamQuery:
    """A text that can run on a stream. `needs_merge`: rows of all tickers must come in one order of time."""

    compiled: CompiledQuery
    input_name: str
    source: StreamInput
    nodes: tuple[Plan, ...]
    needs_merge: bool
    slot_types: tuple[SqlType, ...] = ()

    @property
    def columns(self) -> tuple[tuple[str, SqlType], ...]:
        return self.compiled.columns

    def lifted(self) -> Lifted | None:
        """What this query has in common with others; None where its tickers do not run apart from each other."""
        return None if self.needs_merge else lift(self.nodes)

    def with_slots(self, lifted: Lifted) -> "StreamQuery":
        """The query with slots in place of its numbers."""
        return replace(self, nodes=lifted.nodes(), slot_types=lifted.types)

    @property
    def columns_read(self) -> frozenset[str] | None:
        """Columns of the input besides its times and ticker; None for all."""
        return columns_read(self.nodes)

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.compiled.warnings


def compile_stream(
    sql: str,
    inputs: Mapping[str, StreamInput],
    parameters: Mapping[str, str] | None = None,
    default_table: str = "ticks",
    limits: Limits = DEFAULT,
    partitions_close: bool = False,
) -> StreamQuery:
    """Check that a text can run on a stream.

    `partitions_close`: a quiet ticker's partition is closed after some time, so that `$` can come true.
    Raises TriggerRejected.
    """
    schemas = {name: source.schema for name, source in inputs.items()}
    compiled = compile_query(sql, schemas, parameters, default_table, limits)
    nodes = _chain(compiled.plan)
    name = _scanned(nodes[0])
    source = inputs[name]
    for match in compiled.matches:
        plan = match.recognize
        if plan.has_end_anchor and plan.search.within_ns is None and not partitions_close:
            raise plan.at.reject("$ never comes true on a stream that does not end", "add WITHIN or an idle timeout")
    query = StreamQuery(compiled, name, source, tuple(nodes), _check(nodes, source))
    _stages(query, Slots((), {}))
    return query


def _chain(plan: Plan) -> list[Plan]:
    """The plan's nodes from the input to the result."""
    found: list[Plan] = []
    current: Any = plan
    while True:
        found.append(current)
        if isinstance(current, Scan | Join | Union):
            return found[::-1]
        if isinstance(current, Sort):
            raise current.at.reject("ORDER BY is not possible on a stream", "events come in the order of time")
        if isinstance(current, Limited):
            raise current.at.reject("LIMIT is not possible on a stream", "cooldown_seconds makes events fewer")
        if isinstance(current, Distinct) and isinstance(current.inner, Union):
            raise current.at.reject("UNION on a stream would keep every row to find repetitions", "write UNION ALL")
        if isinstance(current, Distinct):
            raise current.at.reject("DISTINCT is not possible on a stream", "cooldown_seconds makes events fewer")
        current = current.inner


@dataclass(slots=True)
class _Known:
    """Which columns of a node hold the event time and the ticker."""

    times: set[int]
    tickers: set[int]


def _scanned(node: Plan) -> str:
    """The one input below a node that a chain starts with."""
    names = set()
    if isinstance(node, Union):
        branches_of(node)
    pending: list[Any] = [node]
    while pending:
        current = pending.pop()
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


def _start(node: Plan, source: StreamInput) -> _Known:
    """What is known of the columns of a scan, of filters and projections over it, and of joins on time."""
    if isinstance(node, Scan):
        names = source.schema.names
        times = {names.index(name) for name in source.time_columns if name in names}
        return _Known(times, {names.index(source.ticker_column)} if source.ticker_column in names else set())
    if isinstance(node, Join):
        left, right = _start(node.left, source), _start(node.right, source)
        width = len(node.left.fields)
        on_time = any(
            isinstance(one, Column)
            and isinstance(other, Column)
            and one.index in left.times
            and other.index in right.times
            for one, other in node.keys
        )
        if node.kind not in ("INNER", "LEFT") or not on_time:
            raise node.at.reject(
                "a join on a stream must be INNER or LEFT and on equal event times", "ON a.ts = b.ts AND ..."
            )
        return _Known(left.times | {index + width for index in right.times if node.kind == "INNER"}, set())
    if isinstance(node, Union):
        return _Known(set(), set())
    if isinstance(node, Project):
        inner = _start(node.inner, source)
        columns = list(enumerate(node.expressions))
        return _Known(
            {i for i, part in columns if isinstance(part, Column) and part.index in inner.times},
            {i for i, part in columns if isinstance(part, Column) and part.index in inner.tickers},
        )
    inner_plan: Any = node
    return _start(inner_plan.inner, source)


def _check(nodes: Sequence[Plan], source: StreamInput) -> bool:
    """Raises TriggerRejected for orders other than time; True when some operator spans several tickers."""
    known = _start(nodes[0], source)
    merge = isinstance(nodes[0], Join)
    for node in nodes[1:]:
        if isinstance(nodes[0], Union) and not isinstance(node, STATELESS):
            raise nodes[0].at.reject(
                "behind UNION ALL a stream can only filter and compute",
                "write the branches as one SELECT with CASE and OR before windows and patterns",
            )
        if isinstance(node, Project):
            known = _Known(
                {
                    i
                    for i, part in enumerate(node.expressions)
                    if isinstance(part, Column) and part.index in known.times
                },
                {
                    i
                    for i, part in enumerate(node.expressions)
                    if isinstance(part, Column) and part.index in known.tickers
                },
            )
        elif isinstance(node, Over):
            order = node.window.order
            first = order[0].expression if order else None
            if not isinstance(first, Column) or first.index not in known.times or order[0].descending:
                raise node.at.reject("a window on a stream needs ORDER BY the event time, ascending", _by(source))
            merge = merge or not known.tickers & set(node.window.partition)
        elif isinstance(node, WindowTable):
            if node.time_column not in known.times:
                raise node.at.reject("windows on a stream go by the event time", f"here {source.time_columns[0]}")
            width = len(node.fields)
            known.times |= {width - 3, width - 2, width - 1}
            merge = merge or (node.function == "SESSION" and not known.tickers & set(node.partition))
        elif isinstance(node, Group):
            known = _Known(
                {i for i, key in enumerate(node.keys) if isinstance(key, Column) and key.index in known.times},
                {i for i, key in enumerate(node.keys) if isinstance(key, Column) and key.index in known.tickers},
            )
            merge = merge or not known.tickers
        elif isinstance(node, Match):
            known, spans = _check_match(node, known, source)
            merge = merge or spans
    return merge


def _by(source: StreamInput) -> str:
    return f"here ORDER BY {source.time_columns[0]}"


def _check_match(node: Match, known: _Known, source: StreamInput) -> tuple[_Known, bool]:
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
        _Known(
            {i for i, column in enumerate(outputs) if column in known.times} | row_times,
            {i for i, column in enumerate(outputs) if column in known.tickers},
        ),
        spans,
    )


@dataclass(slots=True)
class _MatchStage:
    """MATCH_RECOGNIZE in the middle of a chain; `context` belongs to the rows of the last feed."""

    stream: MatchStream
    width: int
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

    def drop(self, tickers: Set[str]) -> None:
        self.stream.drop(tickers)

    def snapshot(self) -> tuple[str, Rows | None]:
        return self.stream.snapshot()

    def restore(self, state: dict[str, Any], rows: Rows | None) -> None:
        self.stream.restore(state, rows)


def _by_start_of_window(nodes: Sequence[Plan]) -> dict[int, int | None]:
    """The places of what goes by the start of windows, with the column of the start where windows do not come in its
    order, or have to wait for others of the same start."""
    starts: set[int] = set()
    found: dict[int, int | None] = {}
    function = ""
    for place, node in enumerate(nodes):
        if isinstance(node, Project | Group):
            parts = node.expressions if isinstance(node, Project) else node.keys
            starts = {i for i, part in enumerate(parts) if isinstance(part, Column) and part.index in starts}
        elif isinstance(node, WindowTable):
            if node.time_column in starts:
                found[place] = None
            starts.add(len(node.fields) - 3)
            function = node.function
        elif isinstance(node, Over):
            first = node.window.order[0].expression if node.window.order else None
            shares = function == "CUMULATE" and node.window.frame.unit != "ROWS"
            if isinstance(first, Column) and first.index in starts and (shares or function == "SESSION"):
                found[place] = first.index
        elif isinstance(node, Match):
            plan = node.recognize
            keys = [key.expression.index for key in plan.order[:1] if isinstance(key.expression, Column)]
            if starts & set(keys):
                found[place] = keys[0] if function == "SESSION" else None
            outputs = [
                *plan.columns[: plan.measures_at],
                *([-1] * len(plan.measures)),
                *plan.columns[plan.measures_at :],
            ]
            starts = {i for i, column in enumerate(outputs) if column in starts}
    return found


def _by_end_of_match(nodes: Sequence[Plan]) -> dict[int, int]:
    """The places of what goes by the time of a match's last row, with its column: matches come in order of their first
    row."""
    ends: set[int] = set()
    found: dict[int, int] = {}
    for place, node in enumerate(nodes):
        if isinstance(node, Project):
            columns = list(enumerate(node.expressions))
            ends = {i for i, part in columns if isinstance(part, Column) and part.index in ends}
            continue
        column: Expression | None = None
        if isinstance(node, Over | Match):
            keys = node.window.order if isinstance(node, Over) else node.recognize.order
            column = keys[0].expression if keys else None
        elif isinstance(node, WindowTable):
            column = Column(node.time_column, node.inner.fields[node.time_column].type)
        if isinstance(column, Column) and column.index in ends:
            found[place] = column.index
        if isinstance(node, Match):
            plan = node.recognize
            ends = set() if plan.is_all_rows else {plan.measures_at + measure for measure in plan.row_times}
        elif isinstance(node, Group):
            ends = set()
    return found


def _stages(query: StreamQuery, slots: Slots) -> list[Stage]:
    """Fresh operators. Raises TriggerRejected for windows that a stream cannot bound."""
    found: list[Stage] = []
    waiting: list[Plan] = []
    window: WindowTable | None = None
    matches: MatchStream | None = None
    groups: GroupStage | None = None
    by_start = _by_start_of_window(query.nodes)
    by_end = _by_end_of_match(query.nodes)
    for place, node in enumerate(query.nodes):
        if isinstance(node, Scan | Renamed):
            continue
        if isinstance(node, Over | WindowTable | Match) and matches is not None:
            found += [RowStage(waiting, slots)] if waiting else []
            found.append(OrderStage(matches, query.needs_merge, by_end.get(place)))
            waiting, matches = [], None
        if place in by_start and groups is not None:
            found += [RowStage(waiting, slots)] if waiting else []
            column = by_start[place]
            joint = query.needs_merge
            found.append(LagStage(groups, joint) if column is None else StartStage(groups, joint, column))
            # What follows goes by what has been put in order.
            waiting, groups = [], None
        if isinstance(node, Join):
            time = min(_start(node, query.source).times)
            wanted = query.source.ticker_column.lower()
            places = [index for index, part in enumerate(node.fields) if part.name.lower() == wanted]
            found.append(JoinStage(node, query.input_name, time, places[0] if places else None))
            continue
        if isinstance(node, Union):
            found.append(UnionStage(node, slots))
            continue
        if isinstance(node, STATELESS):
            if window is not None and not isinstance(node, Filter):
                raise window.at.reject(
                    "window columns on a stream are for GROUP BY", "group by window_start and window_end"
                )
            waiting.append(node)
            continue
        if isinstance(node, Group):
            if window is None:
                raise node.at.reject(
                    "GROUP BY on a stream needs a time window", "GROUP BY ..., TUMBLE(ts, INTERVAL '1' MINUTE)"
                )
            stage = GroupStage(node, waiting, window, slots)
            stage.set_ticker_column(_ticker_index(query, window))
            found.append(stage)
            waiting, window, groups = [], None, stage
            continue
        if window is not None:
            raise window.at.reject(
                "window columns on a stream are for GROUP BY", "group by window_start and window_end"
            )
        if waiting:
            found.append(RowStage(waiting, slots))
            waiting = []
        if isinstance(node, WindowTable):
            window = node
        elif isinstance(node, Over):
            found.append(OverStage(node, not any(isinstance(stage, GroupStage | _MatchStage) for stage in found)))
        elif isinstance(node, Match):
            matches = MatchStream(node.recognize, slots)
            found.append(_MatchStage(matches, len(node.fields), [f.type for f in node.fields]))
    if window is not None:
        raise window.at.reject("window columns on a stream are for GROUP BY", "group by window_start and window_end")
    if waiting:
        found.append(RowStage(waiting, slots))
    return found


def _ticker_index(query: StreamQuery, window: WindowTable) -> int | None:
    wanted = query.source.ticker_column.lower()
    places = [index for index, part in enumerate(window.inner.fields) if part.name.lower() == wanted]
    return places[0] if len(places) == 1 else None


@dataclass(slots=True)
class _Merge:
    """Rows of all tickers in one order: they wait for the slowest."""

    held: Rows | None = None

    def feed(self, rows: Rows, least: int | None) -> Rows:
        together = rows if self.held is None or not self.held.length else joined([self.held, rows])
        due = (
            np.zeros(together.length, dtype=np.bool_) if least is None else (together.time < least) | (least == FOREVER)
        )
        picked = np.flatnonzero(due)
        order = np.lexsort((together.sequence[picked], together.time[picked]))
        self.held = compact(together.take(np.flatnonzero(~due))) if not due.all() else None
        return together.take(picked[order])


@dataclass(slots=True)
class TriggerStream:
    """One running trigger, or several of the same text over different tickers.

    `active_from`: rows that arrived with a smaller sequence do not exist for it. `tickers`: the same per ticker, rows
    of other tickers do not exist at all; None = every ticker. `numbers`: per ticker the values of a lifted query's
    slots. Triggers that differ only in their tickers and numbers cost least in one stream: `Events.ticker` tells whose
    a row is, and partitions of different tickers know nothing of each other (unless `query.needs_merge`).
    """

    query: StreamQuery
    active_from: int = 0
    tickers: dict[str, int] | None = None
    numbers: Mapping[str, Sequence[float | int]] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    _nothing: Events = field(init=False, repr=False)
    _slots: Slots = field(init=False, repr=False)
    _merge: _Merge = field(default_factory=_Merge)

    def __post_init__(self) -> None:
        self._slots = Slots(self.query.slot_types, self.numbers)
        if not self.stages:
            self.stages = _stages(self.query, self._slots)
        schema = pa.schema([(name, to_arrow(kind)) for name, kind in self.query.columns])
        self._nothing = Events(schema.empty_table(), [], np.zeros(0, np.int64), np.zeros(0, np.int64), None)

    def feed(self, released: pa.Table, clock: Clock, *, is_own: bool = False) -> Events:
        """`released`: rows of the trigger's tickers as `ReleaseBuffer` gives them; `clock`: their watermarks. `is_own`:
        there are none of other tickers among them.

        Call it with no rows too when watermarks have moved: deadlines may have passed.
        """
        query = self.query
        schema = query.source.schema
        if released.num_rows == 0 and SEQUENCE not in released.column_names:
            released = schema.empty_table().append_column(SEQUENCE, pa.array([], pa.int64()))
        released = self._own(released, is_own=is_own)
        rows = rows_of(released, len(schema), query.source.time_columns[0], query.source.ticker_column)
        if query.needs_merge:
            least = clock.least
            rows = self._merge.feed(rows, least)
            names = {*clock.watermarks, *clock.closed}
            clock = Clock(dict.fromkeys(names, least) if least is not None else {})
            if least == FOREVER:
                clock.closed = names
        context: Context | None = None
        kept: Index | None = None
        for stage in self.stages:
            if isinstance(stage, RowStage):
                rows, picked = chained(stage.nodes, rows, self._slots)
                kept = picked if kept is None else kept[picked]
                continue
            rows = stage.feed(rows, clock)
            if isinstance(stage, OrderStage | LagStage | StartStage):
                clock = stage.clock
            context = stage.context if isinstance(stage, _MatchStage) else None
            kept = None
        if context is not None and kept is not None:
            context = context.take(kept)
        return self._events(rows, context)

    def _events(self, rows: Rows, context: Context | None) -> Events:
        if rows.length == 0:
            return self._nothing
        shown = [index for index, part in enumerate(self.query.compiled.plan.fields) if not part.hidden]
        arrays: list[pa.Array] = []
        for index, (_, kind) in zip(shown, self.query.columns, strict=True):
            array = rows.relation.column(index).to_arrow()
            arrays.append(array if array.type == to_arrow(kind) else array.cast(to_arrow(kind)))
        table = pa.Table.from_arrays(arrays, names=[name for name, _ in self.query.columns])
        return Events(table, rows.ticker.to_pylist(), rows.time, rows.sequence, context)

    def _own(self, released: pa.Table, *, is_own: bool) -> pa.Table:
        """The rows that exist for this stream."""
        if not released.num_rows or (not self.active_from and self.tickers is None):
            return released
        sequence = released.column(SEQUENCE).to_numpy()
        if is_own and self.tickers and sequence.min() >= max(self.active_from, *self.tickers.values()):
            return released
        wanted = sequence >= self.active_from
        if self.tickers is not None:
            encoded = released.column(self.query.source.ticker_column).combine_chunks().dictionary_encode()
            never = np.iinfo(np.int64).max
            first = np.array([self.tickers.get(name, never) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
            wanted &= sequence >= first[encoded.indices.to_numpy(zero_copy_only=False)]
        return released if wanted.all() else released.filter(pa.array(wanted))

    def remove(self, *tickers: str) -> None:
        """These tickers are no longer wanted; all that was kept of them is forgotten."""
        if self.tickers is not None:
            for ticker in tickers:
                self.tickers.pop(ticker, None)
        for stage in self.stages:
            stage.drop(set(tickers))

    # -- reports --------------------------------------------------------------------------------------------------

    @property
    def reports(self) -> Reports:
        """What was given up so far, over all MATCH_RECOGNIZE of the trigger."""
        total = Reports()
        for stage in self.stages:
            if isinstance(stage, _MatchStage):
                total.dropped_starts += stage.stream.reports.dropped_starts
                total.degraded_skips += stage.stream.reports.degraded_skips
        return total

    @property
    def retained_rows(self) -> int:
        """Rows kept for matches, windows and frames to come."""
        kept = [self._merge.held, *(rows for _, rows in (stage.snapshot() for stage in self.stages))]
        return sum(rows.length for rows in kept if rows is not None)

    # -- state ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything that must survive a restart; `restore` of a stream of the same text takes it back."""
        parts: list[tuple[str, Rows | None]] = [("{}", self._merge.held)]
        parts += [stage.snapshot() for stage in self.stages]
        blobs = [b"" if rows is None else _packed(rows) for _, rows in parts]
        header = f"[{','.join(state for state, _ in parts)}]".encode()
        sizes = struct.pack(f"<{len(blobs) + 2}Q", len(blobs), len(header), *(len(blob) for blob in blobs))
        return _MAGIC + sizes + header + b"".join(blobs)

    def restore(self, state: bytes) -> None:
        """Raises ValueError for bytes that are no snapshot of such a stream."""
        if state[:4] != _MAGIC:
            raise ValueError("not a trigger's state")
        count, header_size = struct.unpack_from("<2Q", state, 4)
        if count != len(self.stages) + 1:
            raise ValueError("the state belongs to another trigger")
        sizes = struct.unpack_from(f"<{count}Q", state, 20)
        place = 20 + 8 * count
        states = json.loads(state[place : place + header_size])
        place += header_size
        rows: list[Rows | None] = []
        for size in sizes:
            rows.append(_unpacked(state[place : place + size]) if size else None)
            place += size
        self._merge.held = rows[0]
        for stage, written, kept in zip(self.stages, states[1:], rows[1:], strict=True):
            stage.restore(written, kept)


def _packed(rows: Rows) -> bytes:
    columns = {f"c{index}": _array(rows.relation.column(index)) for index in range(rows.relation.width)}
    columns |= {"time": pa.array(rows.time), "sequence": pa.array(rows.sequence), "ticker": rows.ticker}
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def _array(column: Vector) -> pa.Array:
    return pa.nulls(column.length) if column.type.kind is Kind.NULL else column.to_arrow()


def _unpacked(blob: bytes) -> Rows:
    table = pa.ipc.open_stream(blob).read_all()
    width = table.num_columns - 3
    columns = [table.column(width + index).combine_chunks() for index in range(3)]
    return Rows(
        from_table(table.select(range(width))),
        columns[0].to_numpy(zero_copy_only=False),
        columns[1].to_numpy(zero_copy_only=False),
        columns[2],
    )
