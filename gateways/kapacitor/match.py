"""A trigger's text over the points of each group: a condition, windows or MATCH_RECOGNIZE, with one point for each
event.
"""

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeGuard

import pyarrow as pa

from bus.api import Bus
from candlewright.wire.errors import BusError, ConfigurationError
from candlewright_cep import (
    Events,
    ReleaseBuffer,
    StreamInput,
    StreamQuery,
    TriggerRejected,
    TriggerStream,
    compile_stream,
)
from candlewright_cep.planning.plans import Filter, Match, Narrowed, Project, Renamed, Scan
from candlewright_cep.streaming.rows.release import SEQUENCE
from candlewright_cep.table_bytes import bytes_of, table_of
from gateways.kapacitor.function import Batch, Options, OptionsRefused, Value, field_of, header_of, number_of
from gateways.kapacitor.ohlc import batch_of
from gateways.kapacitor.rules import registered_rule
from protobuf.udf_superset_pb2 import Point, Response
from triggers.texts.check import INPUTS
from triggers.udf.points import plain, put_field

__all__ = ["Matcher", "Table", "make"]

_KINDS = {"double": pa.float64(), "int": pa.int64(), "string": pa.string(), "bool": pa.bool_()}
_OF_ONE_ROW = Scan | Filter | Project | Renamed | Narrowed
_SIZES = struct.Struct("<I")


def make(open_bus: Callable[[], Bus], options: Options, *, is_batch: bool) -> "Matcher":
    """`open_bus`: for the text of a registered trigger. Raises OptionsRefused, with line and column for an invalid
    text.
    """
    sql, parameters = _text_of(options, open_bus)
    table = Table.of(options, "ohlc" if "period_seconds" in parameters else "ticks")
    lateness = options.number("lateness")
    if lateness < 0:
        raise OptionsRefused("the option lateness is negative")
    try:
        query = compile_stream(
            sql, {table.name: table.source}, parameters, default_table=table.name, partitions_close=is_batch
        )
    except TriggerRejected as error:
        raise OptionsRefused(str(error)) from error
    return Matcher(
        query=query,
        table=table,
        lateness_ns=lateness,
        name=options.text("as"),
        fingerprint=[sql, sorted(parameters.items()), lateness],
    )


def _text_of(options: Options, open_bus: Callable[[], Bus]) -> tuple[str, dict[str, str]]:
    own = {str(name): str(value) for name, value in options.every("parameter")}
    sql, rule = options.text("sql"), options.text("rule")
    if bool(sql.strip()) == bool(rule):
        raise OptionsRefused("one of the options sql (a condition, a SELECT, MATCH_RECOGNIZE) and rule is needed")
    if not rule:
        return sql, own
    try:
        bus = open_bus()
        try:
            text, parameters = registered_rule(bus, rule)
        finally:
            bus.close()
    except (BusError, ConfigurationError) as error:
        raise OptionsRefused(f"the bus cannot be reached: {error}") from error
    return text, parameters | own


@dataclass(frozen=True, slots=True)
class Table:
    """How a text sees points: as the columns of `ticks` or `ohlc`, and those that the task declares.

    `fields`: the field from which a column is read, or the tag of that name if there is no such field.
    """

    name: str
    source: StreamInput
    fields: Mapping[str, str]

    @classmethod
    def of(cls, options: Options, default: str) -> "Table":
        name = options.text("table", default)
        if name not in INPUTS:
            raise OptionsRefused(f"the option table is one of {', '.join(INPUTS)}")
        known = INPUTS[name]
        schema = known.schema
        for kind, arrow in _KINDS.items():
            for (column,) in options.every(kind):
                if not str(column) or str(column) in schema.names:
                    raise OptionsRefused(f"the column {column!r} already exists, or has no name")
                schema = schema.append(pa.field(str(column), arrow))
        fields = {column: column for column in schema.names if column not in (*known.time_columns, known.ticker_column)}
        for column, source in options.every("column"):
            if column not in fields:
                raise OptionsRefused(f"there is no column {column!r} to be read from a field")
            fields[str(column)] = str(source)
        return cls(name, replace(known, schema=schema), fields)

    def rows(self, points: Sequence[Point], tickers: Sequence[str], wanted: frozenset[str] | None) -> pa.Table:
        """One row per point; columns that are not `wanted`, and values of another type, are NULL."""
        times = pa.array([point.time for point in points], pa.int64())
        arrays = []
        for part in self.source.schema:
            if part.name == self.source.ticker_column:
                arrays.append(pa.array(tickers, part.type))
            elif part.name in self.source.time_columns:
                arrays.append(times.cast(part.type))
            elif wanted is not None and part.name not in wanted:
                arrays.append(pa.nulls(len(points), part.type))
            else:
                arrays.append(_column(points, self.fields[part.name], part.type))
        return pa.Table.from_arrays(arrays, schema=self.source.schema)


def _column(points: Sequence[Point], name: str, kind: pa.DataType) -> pa.Array:
    types = pa.types
    values = [field_of(point, name) for point in points]
    cells: list[Any]
    if types.is_string(kind):
        cells = [
            point.tags.get(name) if value is None else value if isinstance(value, str) else None
            for point, value in zip(points, values, strict=True)
        ]
    elif types.is_boolean(kind):
        cells = [value if isinstance(value, bool) else None for value in values]
    elif types.is_floating(kind):
        cells = [number_of(value) for value in values]
    elif types.is_integer(kind):
        limit = 1 << (kind.bit_width - 1)
        cells = [value if _is_integer(value) and -limit <= value < limit else None for value in values]
    else:
        # Nanoseconds of a time.
        cells = [value if _is_integer(value) else None for value in values]
        return pa.array(cells, pa.int64()).cast(kind)
    return pa.array(cells, kind)


def _is_integer(value: Value | None) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _ticker_of(group: str, dimensions: Sequence[str], tags: Mapping[str, str], *, by_name: bool) -> str:
    """What distinguishes groups in a text: the value of the tag by which they are made, if that is a single tag;
    otherwise the group's id.
    """
    return tags[dimensions[0]] if len(dimensions) == 1 and not by_name and dimensions[0] in tags else group


@dataclass(kw_only=True, slots=True)
class Matcher:
    """Groups share a stream if the text treats tickers separately; otherwise each has its own.

    Without lateness, a point is decided immediately by a text that takes each row in the order of arrival (conditions,
    and MATCH_RECOGNIZE ordered by time alone). Otherwise rows of one time wait for a later row of their group. `late`:
    points earlier than their group's time, which are ignored.
    """

    query: StreamQuery
    table: Table
    lateness_ns: int = 0
    name: str = ""
    fingerprint: list[Any] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: {"points": 0, "events": 0, "late": 0, "not_sent": 0})
    _headers: dict[str, Point] = field(default_factory=dict)
    #: After a restore: by ticker, the time of the first point after the gap, and that of the first result.
    _resumed: dict[str, int] | None = None
    _first_results: dict[str, int] = field(default_factory=dict)
    _streams: dict[str, TriggerStream] = field(default_factory=dict)
    _buffer: ReleaseBuffer = field(init=False, repr=False)
    _wanted: frozenset[str] | None = field(init=False, repr=False)
    _is_immediate: bool = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._wanted = self.query.columns_read
        self._is_immediate = self.lateness_ns == 0 and _goes_by_arrival(self.query)
        self._reset()

    def _reset(self) -> None:
        source = self.table.source
        self._buffer = ReleaseBuffer(source.time_columns[0], source.ticker_column, self.lateness_ns)
        self._streams = {}

    def take(self, points: Sequence[Point]) -> list[Response]:
        tickers = []
        for point in points:
            ticker = _ticker_of(point.group, point.dimensions, point.tags, by_name=point.byName)
            tickers.append(ticker)
            if self._resumed is not None:
                self._resumed.setdefault(ticker, point.time)
            if ticker not in self._headers:
                self._headers[ticker] = header_of(point, self.name)
        return [Response(point=point) for point in self._events_of(points, tickers, is_end=False)]

    def take_batch(self, batch: Batch) -> list[Response]:
        """Each batch is a finished table."""
        self._reset()
        ticker = _ticker_of(batch.end.group, list(batch.end.tags), batch.end.tags, by_name=batch.end.byName)
        self._headers = {ticker: Point(group=batch.end.group, tags=batch.end.tags)}
        points = sorted(batch.points, key=lambda point: point.time)
        made = self._events_of(points, [ticker] * len(points), is_end=True)
        self._reset()
        return batch_of(batch, made, self.name)

    def pass_time(self, now_ns: int) -> list[Response]:
        return []

    def finish(self) -> list[Response]:
        """The partitions have ended, as at the end of a table."""
        return [Response(point=point) for point in self._events_of([], [], is_end=True)]

    def _events_of(self, points: Sequence[Point], tickers: Sequence[str], *, is_end: bool) -> list[Point]:
        self.counts["points"] += len(points)
        made: list[Point] = []
        if points:
            released = self._buffer.push(self.table.rows(points, tickers, self._wanted))
            self.counts["late"] += released.late.num_rows
            made += self._feed(released.fresh if self._is_immediate else released.rows)
        if is_end:
            held = self._buffer.close(set(self._headers))
            made += self._feed(self._nothing if self._is_immediate else held)
        if self._is_immediate:
            # Rows that were fed are not held as well.
            self._buffer.restore(self._buffer.snapshot()[0], None)
        return made

    @property
    def _nothing(self) -> pa.Table:
        return self.table.source.schema.empty_table().append_column(SEQUENCE, pa.array([], pa.int64()))

    def _feed(self, rows: pa.Table) -> list[Point]:
        clock = self._buffer.clock
        if not rows.num_columns:
            rows = self._nothing
        if not self.query.needs_merge:
            return self._points(self._stream("").feed(rows, clock))
        made = []
        column = rows.column(self.table.source.ticker_column)
        concerned = set(column.to_pylist()) | clock.closed
        for ticker in sorted(concerned):
            # A single ticker needs no merging.
            own = rows.filter(pa.compute.equal(column, ticker))
            made += self._points(self._stream(ticker).feed(own, _clock_of(clock, ticker)))
        return made

    def _stream(self, ticker: str) -> TriggerStream:
        stream = self._streams.get(ticker)
        if stream is None:
            query = replace(self.query, needs_merge=False) if self.query.needs_merge else self.query
            stream = self._streams[ticker] = TriggerStream(query=query)
        return stream

    def _points(self, events: Events) -> list[Point]:
        """One point per event, in its group. Values that no field can hold are left out, and counted in `not_sent`.
        `partial` is 1 in a result that might have been different without the gap that a restore leaves.
        """
        made = []
        columns = [(name, events.table.column(place)) for place, (name, _) in enumerate(self.query.columns)]
        cells = [(name, plain(column)) for name, column in columns]
        context = events.context
        numbers = [0] * len(events.ticker) if context is None else context.match_number.tolist()
        # As in the platform's own events: the last row of a match, unless each row is its own event.
        times = (events.time if context is None else context.last_time).tolist()
        begins = times if context is None else context.first_time.tolist()
        for row, (ticker, time) in enumerate(zip(events.ticker, times, strict=True)):
            point = Point()
            point.CopyFrom(self._headers[ticker])
            point.time = time
            for name, values in cells:
                if values[row] is not None and name not in point.tags and not put_field(point, name, values[row]):
                    self.counts["not_sent"] += 1
            point.fieldsInt["match_number"] = numbers[row]
            if self._resumed is not None and self._is_cut(ticker, numbers[row], begins[row]):
                point.fieldsInt["partial"] = 1
            made.append(point)
        self.counts["events"] += len(made)
        return made

    def _is_cut(self, ticker: str, number: int, begin: int) -> bool:
        """A match is cut if it has a row from before the gap, or the first row after it; a window, if it is the first
        one to end.
        """
        assert self._resumed is not None
        if number:
            return begin <= self._resumed.get(ticker, begin)
        return not _is_row_alone(self.query) and begin <= self._first_results.setdefault(ticker, begin)

    def close(self) -> None:
        """Nothing to close: it holds only memory."""

    # -- state

    def snapshot(self) -> bytes:
        if not self._headers:
            return b""
        state, held = self._buffer.snapshot()
        headers = {ticker: header.SerializeToString().hex() for ticker, header in self._headers.items()}
        blobs = [stream.snapshot() for stream in self._streams.values()]
        blobs.append(bytes_of(held.combine_chunks()) if held is not None and held.num_rows else b"")
        sizes = [len(blob) for blob in blobs]
        meta = json.dumps([self.fingerprint, self._schema_text, headers, state, list(self._streams), sizes]).encode()
        return b"".join([_SIZES.pack(len(meta)), meta, *blobs])

    @property
    def _schema_text(self) -> list[str]:
        return [f"{part.name} {part.type} {self.table.fields.get(part.name)}" for part in self.table.source.schema]

    def restore(self, state: bytes | None) -> None:
        self._reset()
        self._headers, self._resumed, self._first_results = {}, {}, {}
        if state is None:
            return
        (length,) = _SIZES.unpack_from(state)
        at = _SIZES.size + length
        fingerprint, schema, headers, buffered, names, sizes = json.loads(state[_SIZES.size : at])
        if [fingerprint, schema] != json.loads(json.dumps([self.fingerprint, self._schema_text])):
            raise ValueError("it was made with another text or other options")
        blobs = []
        for size in sizes:
            blobs.append(state[at : at + size])
            at += size
        held = blobs.pop()
        self._headers = {ticker: Point.FromString(bytes.fromhex(text)) for ticker, text in headers.items()}
        self._buffer.restore(buffered, table_of(held) if held else None)
        for name, blob in zip(names, blobs, strict=True):
            self._stream(name).restore(blob)


def _goes_by_arrival(query: StreamQuery) -> bool:
    """Whether rows of one time may be taken one by one, in the order in which they arrived."""
    matches = [node for node in query.nodes if isinstance(node, Match)]
    if len(matches) > 1 or any(len(node.recognize.order) > 1 for node in matches):
        return False
    return all(isinstance(node, _OF_ONE_ROW | Match) for node in query.nodes)


def _is_row_alone(query: StreamQuery) -> bool:
    return all(isinstance(node, _OF_ONE_ROW) for node in query.nodes)


def _clock_of(clock: Any, ticker: str) -> Any:
    watermarks = {ticker: clock.watermarks[ticker]} if ticker in clock.watermarks else {}
    return type(clock)(watermarks, {ticker} & clock.closed)
