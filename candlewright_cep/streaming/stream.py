"""A trigger on a stream: checked text, state, and events batch by batch.

`StreamQuery` is compiled once per text; `TriggerStream` is one running trigger: it takes released rows of its tickers
(see `streaming.rows.release`) and returns the rows that batch evaluation would return, each as soon as it can no longer
change.
"""

import json
import struct
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np
import pyarrow as pa

from candlewright_cep import work
from candlewright_cep.engine import compile_query
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import DEFAULT, Limits
from candlewright_cep.matching.glance import Resting
from candlewright_cep.planning.periods import joins_by_time
from candlewright_cep.streaming.inputs import StreamInput
from candlewright_cep.streaming.joins.branches import joined_query
from candlewright_cep.streaming.joins.meeting import check_branch
from candlewright_cep.streaming.joins.waiting import Waiting
from candlewright_cep.streaming.operators import Made, MatchStage, made, stages
from candlewright_cep.streaming.patterns.match_results import Context, Reports
from candlewright_cep.streaming.query import StreamQuery, chain_of, stream_query
from candlewright_cep.streaming.rows.packing import packed_rows, unpacked, unpacked_rows
from candlewright_cep.streaming.rows.release import SEQUENCE, Clock, Rows, rows_of
from candlewright_cep.streaming.slots import Number, Slots
from candlewright_cep.streaming.stages.ahead import AheadStage
from candlewright_cep.streaming.stages.group_stage import GroupStage
from candlewright_cep.streaming.stages.order_stage import LagStage, OrderStage, StartStage
from candlewright_cep.streaming.stages.stages import OverStage, RowStage, Stage, chained
from candlewright_cep.types import SqlType, to_arrow
from candlewright_cep.vector import Index, Vector, distinct, from_column, nulls

__all__ = ["Events", "Passed", "StreamInput", "StreamQuery", "TriggerStream", "compile_stream"]

_MAGIC = b"cep1"
_Found = TypeVar("_Found")


@dataclass(frozen=True)
class Events:
    """Result rows in order. `columns` has one for each of the trigger's `fields`; the arrays have one entry per row
    (times in ns).

    `context` is None for triggers without MATCH_RECOGNIZE.
    """

    fields: Sequence[tuple[str, SqlType]]
    columns: Sequence[Vector]
    ticker: list[str]
    time: Index
    sequence: Index
    context: Context | None

    def __len__(self) -> int:
        return len(self.ticker)

    @cached_property
    def table(self) -> pa.Table:
        """The columns in Arrow."""
        names = [name for name, _ in self.fields]
        return pa.Table.from_arrays([column.to_arrow() for column in self.columns], names=names)

    def take(self, rows: Index) -> "Events":
        """The rows with these numbers."""
        return Events(
            self.fields,
            [column.take(rows) for column in self.columns],
            [self.ticker[row] for row in rows.tolist()],
            self.time[rows],
            self.sequence[rows],
            None if self.context is None else self.context.take(rows),
        )


def compile_stream(
    sql: str,
    inputs: Mapping[str, StreamInput],
    parameters: Mapping[str, str] | None = None,
    *,
    default_table: str = "ticks",
    limits: Limits = DEFAULT,
    partitions_close: bool = False,
    is_in_order: bool = True,
    period_seconds: int = 0,
    views: Mapping[str, str] | None = None,
    is_checked: bool = False,
) -> StreamQuery:
    """Check that a text can run on a stream.

    `partitions_close`: a quiet ticker's partition is closed after some time, so that `$` can become true.
    `is_in_order`: the rows of a ticker come in order of event time. `period_seconds`: which rows a join uses of an
    input that has periods, if the text does not say. `views`: texts of views by name. `is_checked`: the text has been
    accepted before, so that operators are made only by the stream. A query with `joined` runs as a `JoinedStream`.

    Raises TriggerRejected.
    """
    fields = {name: source.fields for name, source in inputs.items()}
    compiled = compile_query(sql, fields, parameters, default_table=default_table, limits=limits, views=views)
    nodes = chain_of(compiled.plan)
    if joins_by_time(nodes[0]):
        query = joined_query(compiled, inputs, nodes, partitions_close=partitions_close, period_seconds=period_seconds)
        if not is_checked:
            check_branch(query)
        return query
    query = stream_query(compiled, inputs, nodes, partitions_close=partitions_close, is_in_order=is_in_order)
    if not is_checked:
        stages(query, Slots((), {}))
    return query


@dataclass(frozen=True)
class Passed:
    """Rows on their way through a chain of operators, with their watermarks and the attributes of matches."""

    rows: Rows
    clock: Clock
    context: Context | None = None

    @cached_property
    def _codes(self) -> tuple[list[str], Index]:
        return distinct(self.rows.ticker)

    @property
    def tickers(self) -> list[str]:
        return self._codes[0]

    def of_tickers(self, tickers: Container[str]) -> "Passed":
        names, codes = self._codes
        own = np.array([name in tickers for name in names], np.bool_)
        if own.all():
            return self
        picked = np.flatnonzero(own[codes])
        context = None if self.context is None else self.context.take(picked)
        return Passed(self.rows.take(picked), self.clock, context)


@dataclass(kw_only=True, slots=True)
class TriggerStream:
    """One running trigger, or several of the same text over different tickers.

    `active_from`: rows that arrived with a smaller sequence are ignored. `tickers`: the same for each ticker, and rows
    of all other tickers are ignored; None means every ticker. `numbers`: per ticker, the values of a lifted query's
    slots. Triggers that differ only in their tickers and numbers are cheapest in one stream: `Events.ticker` says to
    whom a row belongs, and partitions of different tickers are independent (unless `query.needs_merge`).

    A view that several texts read can have a stream of its own: `until` is the number of nodes that compute it, and
    `before` the stream whose rows another one takes, after `since` nodes.

    `steps`: the steps taken so far (see `candlewright_cep.work`).
    """

    query: StreamQuery
    active_from: int = 0
    tickers: dict[str, int] | None = None
    numbers: Mapping[str, Sequence[Number]] = field(default_factory=dict)
    stages: list[Stage] = field(default_factory=list)
    steps: int = 0
    since: int = 0
    until: int | None = None
    before: "TriggerStream | None" = None
    _made: Made = field(init=False, repr=False)
    _shown: list[int] = field(init=False, repr=False)
    _nothing: Events = field(init=False, repr=False)
    _slots: Slots = field(init=False, repr=False)
    _waiting: Waiting = field(default_factory=Waiting)

    def __post_init__(self) -> None:
        self._slots = Slots(self.query.slot_types, self.numbers)
        if not self.stages:
            self.stages = self._operators()
        fields = self.query.columns
        self._shown = [index for index, part in enumerate(self.query.compiled.plan.fields) if not part.hidden]
        none = [nulls(kind, 0) for _, kind in fields]
        self._nothing = Events(fields, none, [], np.zeros(0, np.int64), np.zeros(0, np.int64), None)

    def _operators(self) -> list[Stage]:
        before = Made() if self.before is None else self.before._made
        self._made = made(self.query, self._slots, since=self.since, until=self.until, before=before)
        return list(self._made.stages[len(before.stages) :])

    def feed(self, released: pa.Table, clock: Clock, *, is_own: bool = False) -> Events:
        """`released`: rows of the trigger's tickers as `ReleaseBuffer` returns them; `clock`: their watermarks.
        `is_own`: all of them belong to the trigger's tickers.

        Call it without rows too when watermarks have moved, because deadlines may have passed. Raises TriggerRejected
        if the work exceeds a limit.
        """
        return self._worked(
            released.num_rows, lambda: self._events(self._passed(self._taken(released, clock, is_own=is_own)))
        )

    def view(self, released: pa.Table, clock: Clock, *, is_own: bool = False) -> Passed:
        """`feed` for a view: returns what the streams that read it pass to `follow`."""
        return self._worked(released.num_rows, lambda: self._passed(self._taken(released, clock, is_own=is_own)))

    def view_after(self, passed: Passed, rows: int) -> Passed:
        """`view` for one that reads another view. `rows`: the number of rows of the input."""
        return self._worked(rows, lambda: self._passed(passed))

    def follow(self, passed: Passed, rows: int) -> Events:
        """`feed` after a view."""
        return self._worked(rows, lambda: self._events(self._passed(passed)))

    def _worked(self, rows: int, step: Callable[[], _Found]) -> _Found:
        """The result of a step over this many rows of the input. Raises TriggerRejected if it exceeds a limit."""
        try:
            with work.Work(self.query.compiled.limits, rows) as done:
                found = step()
                done.check()
            self._check_kept()
        except work.WorkLimit as error:
            raise TriggerRejected(str(error), hint=work.LESS) from None
        self.steps += done.steps
        return found

    def _taken(self, released: pa.Table, clock: Clock, *, is_own: bool) -> Passed:
        """The rows in the order in which the operators need them."""
        query = self.query
        schema = query.source.schema
        if released.num_rows == 0 and SEQUENCE not in released.column_names:
            released = schema.empty_table().append_column(SEQUENCE, pa.array([], pa.int64()))
        released = self._own(released, is_own=is_own)
        rows = rows_of(released, len(schema), query.source.time_columns[0], ticker_column=query.source.ticker_column)
        if query.needs_merge:
            rows, clock = self._waiting.all_together(rows, clock)
        elif query.needs_ties:
            rows = self._waiting.tied(rows, clock)
        return Passed(rows, clock)

    def _passed(self, given: Passed) -> Passed:
        return fed(self.stages, given, slots=self._slots)

    def _check_kept(self) -> None:
        """Raises TriggerRejected if too many rows wait for slower tickers, for open windows, or for later frames of
        OVER; patterns limit their own rows.
        """
        most = self.query.compiled.limits.retained_rows
        waiting = self._waiting.held
        if waiting is not None and waiting.length > most:
            raise TriggerRejected(
                f"more than {most} rows wait for a slower ticker",
                hint="name the tickers that trade, or set idle_seconds",
            )
        for stage in self.stages:
            if isinstance(stage, GroupStage) and (found := stage.kept_of_a_ticker(most)) > most:
                raise TriggerRejected(
                    f"the open windows keep {found} rows of a ticker; {most} are allowed",
                    hint="use shorter windows, or windows over bars",
                )
            if isinstance(stage, OverStage | AheadStage) and (found := stage.kept_of_a_ticker(most)) > most:
                raise TriggerRejected(
                    f"the frames of OVER keep {found} rows of a ticker; {most} are allowed",
                    hint="name columns with few values in PARTITION BY, or use a shorter frame",
                )

    def _events(self, found: Passed) -> Events:
        rows = found.rows
        if rows.length == 0:
            return self._nothing
        fields = self._nothing.fields
        columns = [rows.relation.column(index) for index in self._shown]
        for place, (column, (_, kind)) in enumerate(zip(columns, fields, strict=True)):
            if column.type is not kind and column.type != kind:
                columns[place] = from_column(column.to_arrow().cast(to_arrow(kind)))
        return Events(fields, columns, rows.ticker.to_pylist(), rows.time, rows.sequence, found.context)

    def _own(self, released: pa.Table, *, is_own: bool) -> pa.Table:
        """The rows that this stream does not ignore."""
        if not released.num_rows or (not self.active_from and self.tickers is None):
            return released
        sequence = released.column(SEQUENCE).to_numpy()
        if is_own and self.tickers and sequence.min() >= max(self.active_from, *self.tickers.values()):
            return released
        return own_rows(released, self.query.source.ticker_column, self.active_from, tickers=self.tickers)

    @property
    def _first_of_order(self) -> Stage:
        """Of a stream with a glance, the first stage for which the order of rows matters."""
        return self.stages[isinstance(self.stages[0], RowStage)]

    def rests(self, ticker: str) -> Resting:
        """For a stream with a glance (see `streaming.glances`): what it waits for."""
        first = self._first_of_order
        return first.stream.rests((ticker,)) if isinstance(first, MatchStage) else Resting(is_idle=True, is_clean=True)

    def skip(self, tickers: Sequence[str], rows: pa.Table) -> None:
        """For a stream with a glance, instead of `feed`: skip rows of these tickers that cannot matter. `rows`: the
        last of them, as many as the pattern looks back at."""
        source = self.query.source
        columns = len(source.schema)
        taken = rows_of(rows, columns, source.time_columns[0], ticker_column=source.ticker_column)
        first = self._first_of_order
        if isinstance(first, OverStage):
            first.skip(set(tickers), taken)
        elif isinstance(first, MatchStage):
            if first is not self.stages[0]:
                taken = self.stages[0].feed(taken, Clock())
            first.stream.skip([(ticker,) for ticker in tickers], taken)

    def remove(self, *tickers: str) -> None:
        """Discard the state of tickers that left the trigger."""
        if self.tickers is not None:
            for ticker in tickers:
                self.tickers.pop(ticker, None)
        self._waiting.drop(set(tickers))
        for stage in self.stages:
            stage.drop(set(tickers))

    # -- reports --------------------------------------------------------------------------------------------------

    @property
    def reports(self) -> Reports:
        """The counts of all MATCH_RECOGNIZE of the trigger together."""
        total = Reports()
        for stage in self.stages:
            if isinstance(stage, MatchStage):
                total.dropped_starts += stage.stream.reports.dropped_starts
                total.degraded_skips += stage.stream.reports.degraded_skips
        return total

    @property
    def late_rows(self) -> Mapping[str, int]:
        """Rows of the last feed, by ticker, that came too late because rows of other tickers had already been
        released.
        """
        return self._waiting.late

    @property
    def partitions(self) -> int:
        """The number of PARTITION BY values for which patterns and running totals keep state."""
        return sum(stage.partitions for stage in self.stages)

    @property
    def retained_rows(self) -> int:
        """The number of rows kept for future matches, windows and frames."""
        kept = [self._waiting.held, *(rows for _, rows in (stage.snapshot() for stage in self.stages))]
        return sum(rows.length for rows in kept if rows is not None)

    # -- state ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> bytes:
        """Everything that must survive a restart; `restore` of a stream of the same text reads it back."""
        return self._written([stage.snapshot() for stage in self.stages])

    def parts(self) -> dict[str, bytes]:
        """A snapshot in parts: "" changes with each feed; the others, whose names it lists, never change."""
        found: dict[str, bytes] = {}
        of_stages: list[tuple[str, Rows | None]] = []
        for place, stage in enumerate(self.stages):
            if isinstance(stage, OverStage | MatchStage | GroupStage):
                state, newest, chunks = stage.parts()
                of_stages.append((state, newest))
                found |= {f"{place}.{number}": written for number, written in chunks.items()}
            else:
                of_stages.append(stage.snapshot())
        return {"": self._written(of_stages)} | found

    def _written(self, of_stages: Sequence[tuple[str, Rows | None]]) -> bytes:
        merged = json.dumps({"reached": self._waiting.reached, "steps": self.steps})
        parts = [(merged, self._waiting.held), *of_stages]
        blobs = [b"" if rows is None else packed_rows(rows) for _, rows in parts]
        header = f"[{','.join(state for state, _ in parts)}]".encode()
        sizes = struct.pack(f"<{len(blobs) + 2}Q", len(blobs), len(header), *(len(blob) for blob in blobs))
        return _MAGIC + sizes + header + b"".join(blobs)

    def restore(self, state: bytes) -> None:
        """Raises ValueError for bytes that are not a snapshot of such a stream."""
        self.restore_parts({"": state})

    def restore_parts(self, parts: Mapping[str, bytes]) -> None:
        """Restores the output of `parts`. Raises ValueError for bytes that are not from such a stream."""
        state = parts.get("", b"")
        if state[:4] != _MAGIC:
            raise ValueError("not a trigger's state")
        count, header_size = struct.unpack_from("<2Q", state, 4)
        if count != len(self.stages) + 1:
            raise ValueError("the state belongs to another trigger")
        sizes = struct.unpack_from(f"<{count}Q", state, 20)
        place = 20 + 8 * count
        states = unpacked(state[place : place + header_size].decode())
        place += header_size
        rows: list[Rows | None] = []
        for size in sizes:
            rows.append(unpacked_rows(state[place : place + size]) if size else None)
            place += size
        # Missing in states of older versions.
        self._waiting.held, self._waiting.reached = rows[0], states[0].get("reached")
        self.steps = states[0].get("steps", 0)
        of_stages: list[dict[int, bytes]] = [{} for _ in self.stages]
        for name, chunk in parts.items():
            if name:
                of_stage, number = map(int, name.split("."))
                of_stages[of_stage][number] = chunk
        for stage, written, kept, own in zip(self.stages, states[1:], rows[1:], of_stages, strict=True):
            if isinstance(stage, OverStage | MatchStage | GroupStage):
                stage.restore(written, kept, own)
            else:
                stage.restore(written, kept)


def own_rows(
    released: pa.Table, ticker_column: str, active_from: int, *, tickers: Mapping[str, int] | None
) -> pa.Table:
    """The rows that a stream does not ignore: see `TriggerStream`."""
    if not released.num_rows:
        return released
    sequence = released.column(SEQUENCE).to_numpy()
    wanted = sequence >= active_from
    if tickers is not None:
        encoded = released.column(ticker_column).combine_chunks().dictionary_encode()
        never = np.iinfo(np.int64).max
        first = np.array([tickers.get(name, never) for name in encoded.dictionary.to_pylist()], dtype=np.int64)
        wanted &= sequence >= first[encoded.indices.to_numpy(zero_copy_only=False)]
    return released if wanted.all() else released.filter(pa.array(wanted))


def fed(stages_of_chain: Sequence[Stage], given: Passed, *, slots: Slots) -> Passed:
    """The rows after a chain of operators."""
    rows, clock, context = given.rows, given.clock, given.context
    kept: Index | None = None
    for stage in stages_of_chain:
        if isinstance(stage, RowStage):
            rows, picked = chained(stage.nodes, rows, slots)
            kept = picked if kept is None else kept[picked]
            continue
        rows = stage.feed(rows, clock)
        if isinstance(stage, OrderStage | LagStage | StartStage):
            clock = stage.clock
        context = stage.context if isinstance(stage, MatchStage) else None
        kept = None
    if context is not None and kept is not None:
        context = context.take(kept)
    return Passed(rows, clock, context)
