"""Result rows of a trigger as CEPTriggerEvents, under ids that every repetition of the work gives again."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa

from cep import Events
from cep.types import Kind, SqlType, flink_name
from protobuf.ingestor_pb2 import CEPTriggerEvent, FieldValue, ResultRow, ResultSchema

__all__ = ["MAX_EVENT_BYTES", "Firing", "firings", "schema_of", "silence"]

_NULL = FieldValue().SerializeToString()
#: Of the rows of one event; an event with more says `truncated` and has the first ones.
MAX_EVENT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Firing:
    """One event before it belongs to a trigger: a match, or a row that is none.

    `identity`: what tells it from all others of its trigger, the same whenever the same rows are evaluated again.
    `time_ns`: event time of its last row. `rows`: per row the serialised values.
    """

    identity: tuple[object, ...]
    ticker: str
    time_ns: int
    rows: tuple[tuple[bytes, ...], ...]
    context: dict[str, str]

    def event(self, trigger_id: str, version: int, schema: ResultSchema) -> CEPTriggerEvent:
        digest = hashlib.blake2b(repr((trigger_id, version, *self.identity)).encode(), digest_size=16)
        context = self.context | {"event_id": digest.hexdigest(), "ticker": self.ticker}
        rows = _bounded(self.rows)
        if len(rows) < len(self.rows):
            context |= {"truncated": "true", "rows": str(len(self.rows))}
        return CEPTriggerEvent(
            trigger_id=trigger_id,
            timestamp=max(0, self.time_ns),
            schema=schema,
            rows=[ResultRow(values=row) for row in rows],
            context=context,
        )


def _bounded(rows: tuple[tuple[bytes, ...], ...]) -> tuple[tuple[bytes, ...], ...]:
    size = 0
    for count, row in enumerate(rows):
        # Each value and each row has a head of its own on the wire.
        size += sum(map(len, row)) + 6 * len(row) + 6
        if size > MAX_EVENT_BYTES:
            return rows[:count]
    return rows


def schema_of(columns: Sequence[tuple[str, SqlType]]) -> ResultSchema:
    return ResultSchema(
        column_names=[name for name, _ in columns], column_types=[flink_name(kind) for _, kind in columns]
    )


def firings(
    events: Events, columns: Sequence[tuple[str, SqlType]], label: int, numbers_hold: bool, is_truncated: bool
) -> list[Firing]:
    """`label`: which input the rows came from. `numbers_hold`: whether `Events.sequence` numbers arrivals; where it
    does not, rows are told apart by time and content.
    """
    count = events.table.num_rows
    if not count:
        return []
    encoded = [_encoded(events.table.column(place), kind) for place, (_, kind) in enumerate(columns)]
    rows = list(zip(*encoded, strict=True)) if encoded else [()] * count
    found: list[Firing] = []
    repeated: dict[tuple[object, ...], int] = {}
    for match, places in _matches(events):
        first = places[0]
        ticker = events.ticker[first] or ""
        own = tuple(rows[place] for place in places)
        identity: tuple[object, ...] = (label, ticker, *match)
        if not numbers_hold:
            identity = (label, ticker, match[2], match[3], own)
        # Only rows that no number tells apart repeat, and those always come together.
        again = repeated[identity] = repeated.get(identity, -1) + 1
        context = _context(events, first)
        if is_truncated:
            context["truncated"] = "true"
        found.append(Firing((*identity, again), ticker, match[3], own, context))
    return found


def silence(
    label: int, ticker: str, last_row: int, last_ns: int | None, since_ns: int, now_ns: int
) -> tuple[Firing, ResultSchema]:
    """The event of a dead-man trigger: nothing came for this ticker since `since_ns` (wall clock).

    `last_row`, `last_ns` (event time): of its newest row; -1 and None when there was none since the registration.
    """
    values = (
        FieldValue(string_val=ticker).SerializeToString(),
        _NULL if last_ns is None else FieldValue(timestamp_val=last_ns).SerializeToString(),
        FieldValue(double_val=(now_ns - since_ns) / 1e9).SerializeToString(),
    )
    schema = ResultSchema(
        column_names=["ticker", "last_time", "silent_seconds"],
        column_types=["STRING", "TIMESTAMP_LTZ(9)", "DOUBLE"],
    )
    # Numbers of rows begin anew where the state of a partition was lost; times do not.
    identity = (label, ticker, "silence", last_row, since_ns)
    time_ns = since_ns if last_ns is None else last_ns
    return Firing(identity, ticker, time_ns, (values,), {"deadman": "true"}), schema


def _matches(events: Events) -> list[tuple[tuple[int, int, int, int], list[int]]]:
    """(first arrival number, match number, first time, last time) and the rows of each match, or of each row alone."""
    count = events.table.num_rows
    sequence, time = events.sequence.tolist(), events.time.tolist()
    if events.context is None:
        return [((sequence[row], 0, time[row], time[row]), [row]) for row in range(count)]
    context = events.context
    numbers, firsts = context.match_number.tolist(), context.first_sequence.tolist()
    starts, ends = context.first_time.tolist(), context.last_time.tolist()
    found: list[tuple[tuple[int, int, int, int], list[int]]] = []
    keys = [(events.ticker[row], firsts[row], numbers[row], starts[row], ends[row]) for row in range(count)]
    for key, group in groupby(range(count), key=keys.__getitem__):
        _, first, number, start, end = key
        places = list(group)
        # Rows outside of any match have number 0 and stand alone.
        for part in [places] if number else [[place] for place in places]:
            found.append(((first, number, start, end), part))
    return found


def _context(events: Events, row: int) -> dict[str, str]:
    context = events.context
    if context is None:
        return {}
    number = int(context.match_number[row])
    found = {
        "match_number": str(number),
        "first_time": str(int(context.first_time[row])),
        "last_time": str(int(context.last_time[row])),
    }
    if context.timed_out[row]:
        found["timed_out"] = "true"
    if context.partial[row]:
        found["partial"] = "true"
    return found


def _encoded(column: pa.ChunkedArray, kind: SqlType) -> list[bytes]:
    """Each value as a serialised FieldValue; NULL has no member set."""
    if kind.kind is Kind.TIMESTAMP:
        column = column.cast(pa.timestamp("ns", kind.zone)).cast(pa.int64())
    elif kind.kind is Kind.INTERVAL:
        column = column.cast(pa.int64())
    make = _MAKERS.get(kind.kind, _text)
    return [_NULL if value is None else make(value).SerializeToString() for value in column.to_pylist()]


def _text(value: Any) -> FieldValue:
    return FieldValue(string_val=str(value))


def _bytes(value: Any) -> FieldValue:
    return FieldValue(bytes_val=value if isinstance(value, bytes) else str(value).encode())


def _time(value: int) -> FieldValue:
    # Times before 1970 do not fit the unsigned member.
    return FieldValue(timestamp_val=value) if value >= 0 else FieldValue(int_val=value)


_MAKERS: dict[Kind, Callable[[Any], FieldValue]] = {
    Kind.BOOLEAN: lambda value: FieldValue(bool_val=value),
    Kind.INT: lambda value: FieldValue(int_val=value),
    Kind.BIGINT: lambda value: FieldValue(int_val=value),
    Kind.INTERVAL: lambda value: FieldValue(int_val=value),
    Kind.DOUBLE: lambda value: FieldValue(double_val=value),
    Kind.TIMESTAMP: _time,
    Kind.OPAQUE: _bytes,
}
