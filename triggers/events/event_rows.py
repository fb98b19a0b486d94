"""Serialised events of triggers as rows, whole columns at a time: for their table, and for triggers over them."""

import base64
import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, FieldValue

__all__ = ["event_rows"]

_LATEST = 2**63 - 1
#: The tags of a FieldValue's members on the wire.
_INT, _DOUBLE, _TIME = 0x10, 0x19, 0x30
_DOUBLE_BYTES = 9
#: Longer varints are negative or do not fit in 63 bits.
_VARINT_BYTES = 9


def event_rows(values: Sequence[bytes], schema: pa.Schema) -> pa.Table:
    """One row per event, with the columns of `market.trigger_events` that `schema` names; values that are not a
    CEPTriggerEvent are left out.

    `columns`: the event's row as a JSON object, or an array of objects unless it has exactly one. Times are ISO text,
    bytes base64. `fired_at`: event time of its last row.
    """
    events = [event for value in values if (event := _event(value)) is not None]
    texts = _texts(events)
    kept = [place for place, text in enumerate(texts) if text is not None]
    contexts = [{key: context[key] for key in context} for context in (events[place].context for place in kept)]
    columns: dict[str, Iterable[Any]] = {
        "trigger_id": [events[place].trigger_id for place in kept],
        "event_id": [context.get("event_id", "") for context in contexts],
        "fired_at": [min(events[place].timestamp, _LATEST) for place in kept],
        "ticker": [context.get("ticker", "") for context in contexts],
        "columns": [texts[place] for place in kept],
    }

    def column(field: pa.Field) -> pa.Array:
        if field.name == "context":
            return _maps(contexts, field.type)
        if field.name == "fired_at":
            return pa.array(columns["fired_at"], pa.timestamp("ns", "UTC")).cast(field.type, safe=False)
        return pa.array(columns[field.name], field.type)

    return pa.Table.from_arrays([column(field) for field in schema], schema=schema)


def _event(value: bytes) -> CEPTriggerEvent | None:
    try:
        return CEPTriggerEvent.FromString(value)
    except DecodeError:
        return None


def _maps(found: Sequence[dict[str, str]], kind: pa.MapType) -> pa.Array:
    ends = np.cumsum([len(entries) for entries in found], dtype=np.int32)
    keys = pa.array([key for entries in found for key in entries], kind.key_type)
    items = pa.array([text for entries in found for text in entries.values()], kind.item_type)
    offsets = pa.array(np.concatenate([np.zeros(1, np.int32), ends]))
    return pa.MapArray.from_arrays(offsets, keys, items).cast(kind)


def _texts(events: Sequence[CEPTriggerEvent]) -> list[str | None]:
    """`columns` of each event; None where a value cannot be read. Events with equal columns are read together."""
    found: list[str | None] = [None] * len(events)
    alike: dict[tuple[bytes, int], list[tuple[int, Sequence[bytes]]]] = defaultdict(list)
    for place, event in enumerate(events):
        rows = event.rows
        if len(rows) == 1:
            cells = rows[0].values
            alike[event.schema.SerializeToString(), len(cells)].append((place, cells))
        else:
            found[place] = _text_of(event)
    for (_, width), own in alike.items():
        places = [place for place, _ in own]
        schema = events[places[0]].schema
        names = list(schema.column_names)[:width]
        is_whole = len(names) == width <= len(schema.column_types)
        if not is_whole or len(set(names)) < len(names) or len(own) == 1:
            texts = [_text_of(events[place]) for place in places]
        else:
            try:
                texts = list(_objects(names, _are_times(schema.column_types), [cells for _, cells in own]))
            except DecodeError:
                texts = [_text_of(events[place]) for place in places]
        for place, text in zip(places, texts, strict=True):
            found[place] = text
    return found


def _objects(names: Sequence[str], are_times: Sequence[bool], rows: Iterable[Sequence[bytes]]) -> Iterable[str]:
    """Each row as a JSON object. Raises DecodeError."""
    columns = [
        _column(cells, is_time=is_time) for cells, is_time in zip(zip(*rows, strict=True), are_times, strict=False)
    ]
    if not columns:
        return ["{}" for _ in rows]
    shape = "{" + ", ".join(f"{json.dumps(name).replace('%', '%%')}: %s" for name in names) + "}"
    return (shape % row for row in zip(*columns, strict=True))


def _column(cells: Sequence[bytes], *, is_time: bool) -> list[str]:
    """Serialised FieldValues as JSON. Numbers are read together; other columns have few distinct values."""
    matrix = _matrix(cells)
    if matrix is not None:
        tags, width = matrix[:, 0], matrix.shape[1]
        if width == _DOUBLE_BYTES and not is_time and (tags == _DOUBLE).all():
            numbers = np.ascontiguousarray(matrix[:, 1:]).view("<f8").ravel()
            if np.isfinite(numbers).all():
                return list(map(repr, numbers.tolist()))
        if 1 < width <= 1 + _VARINT_BYTES and ((tags == _INT) | (tags == _TIME)).all() and _are_varints(matrix):
            whole = _varints(matrix)
            if is_time:
                return [f'"{text}Z"' for text in np.datetime_as_string(whole.view("datetime64[ns]")).tolist()]
            return list(map(str, whole.tolist()))
    known = {cell: json.dumps(_plain(FieldValue.FromString(cell), is_time=is_time)) for cell in set(cells)}
    return [known[cell] for cell in cells]


def _matrix(cells: Sequence[bytes]) -> NDArray[np.uint8] | None:
    """One row per cell; None if the cells differ in length."""
    width = len(cells[0])
    if not width or any(len(cell) != width for cell in cells):
        return None
    return np.frombuffer(b"".join(cells), np.uint8).reshape(len(cells), width)


def _are_varints(matrix: NDArray[np.uint8]) -> bool:
    """Whether each tag is followed by one varint that ends with the row."""
    return bool((matrix[:, 1:-1] > 0x7F).all() and (matrix[:, -1] < 0x80).all())


def _varints(matrix: NDArray[np.uint8]) -> NDArray[np.int64]:
    found = np.zeros(len(matrix), np.int64)
    for place in range(1, matrix.shape[1]):
        found |= (matrix[:, place] & np.uint8(0x7F)).astype(np.int64) << np.int64(7 * (place - 1))
    return found


def _text_of(event: CEPTriggerEvent) -> str | None:
    try:
        rows = _rows(event)
    except DecodeError:
        return None
    return json.dumps(rows[0] if len(rows) == 1 else rows)


def _rows(event: CEPTriggerEvent) -> list[dict[str, Any]]:
    names, are_times = event.schema.column_names, _are_times(event.schema.column_types)
    return [
        {
            name: _plain(FieldValue.FromString(value), is_time=is_time)
            for name, is_time, value in zip(names, are_times, row.values, strict=False)
        }
        for row in event.rows
    ]


def _are_times(types: Iterable[str]) -> list[bool]:
    return [kind.startswith("TIMESTAMP") for kind in types]


def _plain(value: FieldValue, *, is_time: bool) -> Any:
    member = value.WhichOneof("value")
    if member is None:
        return None
    found = getattr(value, member)
    if is_time:
        return f"{np.datetime64(min(found, _LATEST), 'ns')}Z"
    if member == "bytes_val":
        return base64.b64encode(found).decode()
    if member == "double_val" and not math.isfinite(found):
        return str(found)
    return found
