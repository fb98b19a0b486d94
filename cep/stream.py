"""A trigger on a stream: checked text, state, and events batch by batch.

`StreamQuery` is compiled once per text; `TriggerStream` is one running trigger: it takes released rows of its tickers
(see `cep.release`) and gives the rows that batch evaluation would give, each as soon as it can no longer change.
"""

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from cep.engine import compile_query
from cep.limits import DEFAULT, Limits
from cep.match_stream import Context, Reports
from cep.order_stage import LagStage, OrderStage, StartStage
from cep.relation import from_table
from cep.release import FOREVER, SEQUENCE, Clock, Rows, compact, joined, rows_of
from cep.slots import Slots
from cep.stream_operators import MatchStage, stages
from cep.stream_query import StreamInput, StreamQuery, stream_query
from cep.stream_stages import RowStage, Stage, chained
from cep.types import Kind, to_arrow
from cep.vector import Index, Vector

__all__ = ["Events", "StreamInput", "StreamQuery", "TriggerStream", "compile_stream"]

_MAGIC = b"cep1"


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
    query = stream_query(compiled, inputs, partitions_close=partitions_close)
    stages(query, Slots((), {}))
    return query


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
            self.stages = stages(self.query, self._slots)
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
            context = stage.context if isinstance(stage, MatchStage) else None
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
            if isinstance(stage, MatchStage):
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
