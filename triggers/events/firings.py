"""Result rows of a trigger as CEPTriggerEvents, with ids that are the same when the work is repeated."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from candlewright.wire.ingestor_pb2 import ResultSchema
from candlewright_cep import Events
from candlewright_cep.streaming.patterns.match_results import Reports
from candlewright_cep.types import NANOSECONDS, Kind, SqlType, flink_name
from candlewright_cep.vector import Vector, from_column
from protobuf import value_columns
from triggers.events.chained import CHAINED

__all__ = [
    "CHAINED_ENTRY",
    "MAX_EVENT_BYTES",
    "Fired",
    "Firing",
    "Matches",
    "firings",
    "point_event",
    "schema_of",
    "silence",
]

#: The most bytes for the rows of one event; a larger event has only the first rows, and says `truncated`.
MAX_EVENT_BYTES = 1 << 20
_NOTHING = Reports()
#: Arrow takes longer to encode so few texts than Python does.
_FEW = 16
#: The fields of a CEPTriggerEvent as wire tags.
_TRIGGER_ID, _TIMESTAMP, _SCHEMA, _ROW, _CONTEXT = b"\x0a", b"\x10", 0x1A, 0x22, 0x2A


class Fired(NamedTuple):
    """An event of a trigger; `value`: the serialised CEPTriggerEvent."""

    trigger_id: str
    ticker: str
    value: bytes


@dataclass(kw_only=True, slots=True)
class Firing:
    """An event before it is assigned to a trigger: a match, or a row outside any match.

    `identity`: distinguishes it from the trigger's other events, and is the same whenever the same rows are evaluated
    again. `time_ns`: event time of its last row; `stamp`: the same as a field. `rows`: serialised ResultRows.
    `context`: serialised entries; `is_cut`: whether `truncated` is among them.
    """

    identity: str
    ticker: str
    time_ns: int
    stamp: bytes
    rows: Sequence[bytes]
    context: bytes
    is_cut: bool = False

    def event(self, trigger_id: str, version: int, schema: bytes) -> Fired:
        """`schema`: see `schema_of`."""
        written = f"({trigger_id!r}, {version}, {self.identity})"
        event_id = hashlib.blake2b(written.encode(), digest_size=16).hexdigest()
        rows, more = self.rows, b""
        size = sum(map(len, rows))
        if size > MAX_EVENT_BYTES:
            rows = _bounded(rows)
            more = _entry("rows", b"%d" % len(self.rows))
            if not self.is_cut:
                more += _TRUNCATED
        packed = b"".join([value_columns.entry(_ROW, row) for row in rows])
        value = b"".join(
            (
                _head(trigger_id), self.stamp, schema, packed,
                _EVENT_ID, event_id.encode(), _named(self.ticker), self.context, more,
            )
        )  # fmt: skip
        return Fired(trigger_id, self.ticker, value)


def _bounded(rows: Sequence[bytes]) -> Sequence[bytes]:
    size = 0
    for count, row in enumerate(rows):
        size += len(row)
        if size > MAX_EVENT_BYTES:
            return rows[:count]
    return rows


def _entry(key: str, value: bytes) -> bytes:
    """A serialised entry of the context."""
    return value_columns.entry(_CONTEXT, value_columns.entry(0x0A, key.encode()) + value_columns.entry(0x12, value))


@lru_cache(maxsize=16_384)
def _head(trigger_id: str) -> bytes:
    return value_columns.entry(_TRIGGER_ID[0], trigger_id.encode())


@lru_cache(maxsize=16_384)
def _named(ticker: str) -> bytes:
    return _entry("ticker", ticker.encode())


def _open_entries(key: str, longest: int = 24) -> list[bytes]:
    """The bytes that precede values of 0, 1, ... bytes."""
    return [_entry(key, bytes(length))[: -length or None] for length in range(longest + 1)]


_EVENT_ID = _open_entries("event_id", 32)[32]
_NUMBER, _FIRST_TIME, _LAST_TIME = (_open_entries(key) for key in ("match_number", "first_time", "last_time"))
#: For an event that was caused by events of other triggers.
CHAINED_ENTRY = _entry(CHAINED, b"true")
_TRUNCATED, _SKIP_DEGRADED, _TIMED_OUT, _PARTIAL = (
    _entry(key, b"true") for key in ("truncated", "skip_degraded", "timed_out", "partial")
)


def schema_of(columns: Sequence[tuple[str, SqlType]]) -> bytes:
    """The serialised field `schema`."""
    return _schema([name for name, _ in columns], [flink_name(kind) for _, kind in columns])


def _schema(names: Sequence[str], types: Sequence[str]) -> bytes:
    return value_columns.entry(_SCHEMA, ResultSchema(column_names=names, column_types=types).SerializeToString())


def firings(
    events: Events,
    columns: Sequence[tuple[str, SqlType]],
    label: int,
    *,
    numbers_hold: bool,
    given_up: Reports = _NOTHING,
) -> list[Firing]:
    """`label`: the input of the rows. `numbers_hold`: whether `Events.sequence` is the arrival number; otherwise rows
    are distinguished by time and content. `given_up`: by the stream, in this step.
    """
    count = len(events)
    if not count:
        return []
    encoded = [_encoded(column, kind) for column, (_, kind) in zip(events.columns, columns, strict=True)]
    rows = list(map(b"".join, zip(*encoded, strict=True))) if encoded else [b""] * count
    matches = Matches.of(events)
    stamps = value_columns.varints(np.maximum(matches.last_time, 0), _TIMESTAMP)
    contexts = matches.contexts(events)
    found: list[Firing] = []
    repeated: dict[str, int] = {}
    for start, end, sequence, number, first, last, stamp, context in zip(
        matches.starts.tolist(), matches.ends.tolist(), matches.first_sequence.tolist(), matches.number.tolist(),
        matches.first_time.tolist(), matches.last_time.tolist(), stamps, contexts, strict=True,
    ):  # fmt: skip
        ticker = events.ticker[start] or ""
        if numbers_hold:
            identity = f"{label}, {ticker!r}, {sequence}, {number}, {first}, {last}"
        else:
            own = tuple(tuple(value_columns.bare(column[row]) for column in encoded) for row in range(start, end))
            identity = f"{label}, {ticker!r}, {first}, {last}, {own!r}"
        # Only rows without distinguishing numbers can be equal, and those always arrive together.
        again = repeated[identity] = repeated.get(identity, -1) + 1
        identity = f"{identity}, {again}"
        if given_up.dropped_starts:
            context += _TRUNCATED
        if given_up.degraded_skips:
            context += _SKIP_DEGRADED
        found.append(
            Firing(
                identity=identity,
                ticker=ticker,
                time_ns=last,
                stamp=b"" if last <= 0 else stamp,
                rows=rows[start:end],
                context=context,
                is_cut=bool(given_up.dropped_starts),
            )
        )
    return found


def silence(
    label: int, ticker: str, last_row: int, *, last_ns: int | None, since_ns: int, now_ns: int
) -> tuple[Firing, bytes]:
    """The event of a dead-man trigger, and its schema: no row of this ticker has arrived since `since_ns` (wall clock).

    `last_row`, `last_ns` (event time): those of its newest row; -1 and None if no row has arrived since the
    registration.
    """
    cells = (
        *value_columns.texts([ticker]),
        value_columns.NULL if last_ns is None else value_columns.times(np.array([last_ns]))[0],
        *value_columns.doubles(np.array([(now_ns - since_ns) / 1e9])),
    )
    schema = _schema(["ticker", "last_time", "silent_seconds"], ["STRING", "TIMESTAMP_LTZ(9)", "DOUBLE"])
    # Row numbers restart if the state of a partition is lost; times do not.
    identity = f"{label}, {ticker!r}, 'silence', {last_row}, {since_ns}"
    time_ns = since_ns if last_ns is None else last_ns
    stamp = value_columns.varints(np.array([time_ns]), _TIMESTAMP)[0] if time_ns > 0 else b""
    return Firing(
        identity=identity,
        ticker=ticker,
        time_ns=time_ns,
        stamp=stamp,
        rows=(b"".join(cells),),
        context=_entry("deadman", b"true"),
    ), schema


def point_event(
    identity: str, ticker: str, time_ns: int, *, columns: Mapping[str, str], rows: Sequence[bytes]
) -> tuple[Firing, bytes]:
    """The event for a function's output, and its schema. `columns`: names, with the Flink SQL names of their types."""
    stamp = value_columns.varints(np.array([time_ns]), _TIMESTAMP)[0] if time_ns > 0 else b""
    schema = _schema(list(columns), list(columns.values()))
    return Firing(
        identity=f"'udf', {identity}",
        ticker=ticker,
        time_ns=time_ns,
        stamp=stamp,
        rows=rows,
        context=_entry("match_number", b"0"),
    ), schema


@dataclass(frozen=True, slots=True)
class Matches:
    """One entry per match or single row: its result rows from `starts` to `ends`, and what identifies it."""

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    first_sequence: NDArray[np.int64]
    number: NDArray[np.int64]
    first_time: NDArray[np.int64]
    last_time: NDArray[np.int64]

    @classmethod
    def of(cls, events: Events) -> "Matches":
        count = len(events)
        context = events.context
        if context is None:
            rows = np.arange(count)
            return cls(rows, rows + 1, events.sequence, np.zeros(count, np.int64), events.time, events.time)
        told = (context.first_sequence, context.match_number, context.first_time, context.last_time)
        if count == 1:
            return cls(np.zeros(1, np.int64), np.ones(1, np.int64), *told)
        is_first = np.ones(count, np.bool_)
        # Rows outside any match have the number 0 and are separate.
        is_first[1:] = context.match_number[1:] == 0
        for column in told:
            is_first[1:] |= column[1:] != column[:-1]
        same = np.flatnonzero(~is_first).tolist()
        ticker = events.ticker
        is_first[[row for row in same if ticker[row] != ticker[row - 1]]] = True
        starts = np.flatnonzero(is_first)
        return cls(starts, np.append(starts[1:], count), *(column[starts] for column in told))

    def contexts(self, events: Events) -> list[bytes]:
        context = events.context
        if context is None:
            return [b""] * len(self.starts)
        found = []
        for numbers in zip(self.number.tolist(), self.first_time.tolist(), self.last_time.tolist(), strict=True):
            number, first, last = (b"%d %d %d" % numbers).split()
            found.append(
                b"".join((_FIRST_TIME[len(first)], first, _LAST_TIME[len(last)], last, _NUMBER[len(number)], number))
            )
        for column, said in ((context.timed_out, _TIMED_OUT), (context.partial, _PARTIAL)):
            for match in column[self.starts].nonzero()[0].tolist():
                found[match] += said
        return found


def _encoded(column: Vector, kind: SqlType) -> list[bytes]:
    """Each value as a cell of a result row (see `value_columns`)."""
    # Numbers are computed in 64 bits, and times in nanoseconds.
    column = column.expand() if kind.kind is not Kind.INT else from_column(column.to_arrow())
    if (cells := _ARRAYS.get(kind.kind)) is not None:
        values = column.values
        found = cells(values - values % NANOSECONDS[kind.unit] if kind.unit not in ("", "ns") else values)
        for row in () if column.valid is None else np.flatnonzero(~column.valid).tolist():
            found[row] = value_columns.NULL
        return found
    if kind.kind is Kind.STRING:
        return _repeated(column.text())
    items = column.to_arrow().to_pylist()
    if kind.kind is Kind.OPAQUE:
        return value_columns.octets([None if item is None else _octets(item) for item in items])
    form = "f" if kind.kind is Kind.DECIMAL else ""
    return value_columns.texts([None if item is None else format(item, form) for item in items])


def _repeated(column: pa.Array) -> list[bytes]:
    """Text columns with few distinct values: tickers, sides, names of variables."""
    if len(column) <= _FEW:
        return value_columns.texts(column.to_pylist())
    encoded = column.dictionary_encode()
    cells = [*value_columns.texts(encoded.dictionary.to_pylist()), value_columns.NULL]
    codes = encoded.indices if not encoded.null_count else encoded.indices.fill_null(len(cells) - 1)
    return [cells[code] for code in codes.to_pylist()]


def _octets(value: Any) -> bytes:
    """An array or a STRUCT as JSON."""
    if isinstance(value, dict | list):
        return json.dumps(_json(value), default=str, ensure_ascii=False).encode()
    return value if isinstance(value, bytes) else str(value).encode()


def _json(value: Any) -> Any:
    """With times in ISO 8601, and as texts the numbers that JSON does not have."""
    if isinstance(value, dict):
        return {name: _json(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_json(part) for part in value]
    if isinstance(value, datetime):
        return f"{pa.scalar(value, pa.timestamp('ns')).cast(pa.string()).as_py()}Z".replace(" ", "T")
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


_ARRAYS: dict[Kind, Callable[[Any], list[bytes]]] = {
    Kind.BOOLEAN: value_columns.booleans,
    Kind.INT: value_columns.integers,
    Kind.BIGINT: value_columns.integers,
    Kind.INTERVAL: value_columns.integers,
    Kind.DOUBLE: value_columns.doubles,
    Kind.TIMESTAMP: value_columns.times,
}
