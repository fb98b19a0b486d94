"""Encodes rows of tables as JSON, CSV or an Arrow stream, part by part."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from candlewright.wire.errors import InvalidRequest
from console.times import iso_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CHUNKED", "MEDIA", "Form", "check_times", "encoded", "plain"]


class Form(StrEnum):
    json = "json"
    csv = "csv"
    arrow = "arrow"


MEDIA = {
    Form.json: "application/json",
    Form.csv: "text/csv; charset=utf-8",
    Form.arrow: "application/vnd.apache.arrow.stream",
}
#: Formats as the document names them.
CHUNKED = ("text/csv", "application/vnd.apache.arrow.stream")
#: Up to this many rows are encoded without polars, which takes 30 MB in a process that reads only charts.
_FEW_ROWS = 2_000
_PLAIN = (
    pa.types.is_integer,
    pa.types.is_float64,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_timestamp,
    pa.types.is_null,
)
#: What the text of a time in each unit lacks: digits up to nine, and the zone.
_REST = {"s": ".000000000Z", "ms": "000000Z", "us": "000Z", "ns": "Z"}
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
#: The years 1 to 9999, in days since the epoch.
_FIRST_DAY = (date.min - date(1970, 1, 1)).days
_END_DAY = (date.max - date(1970, 1, 1)).days + 1
_FORMAT = "%Y-%m-%dT%H:%M:%S%.9fZ"


def encoded(parts: Iterator[pa.Table], form: Form, more: Callable[[], Mapping[str, Any]] = dict) -> Iterator[bytes]:
    """Needs at least one part. `more`: returns further members of the JSON object, called after the last row."""
    match form:
        case Form.json:
            return _json(parts, more)
        case Form.csv:
            return _csv(parts)
        case Form.arrow:
            return _arrow(parts)


def plain(table: pa.Table) -> list[dict[str, Any]]:
    """Rows whose times are ISO text."""
    found: list[dict[str, Any]] = _rows(table) if _is_plain(table) else _frame(table).to_dicts()
    return found


def _is_plain(table: pa.Table) -> bool:
    return all(any(is_one(kind) for is_one in _PLAIN) for kind in table.schema.types)


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    """Of a table with only `_PLAIN` columns."""
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*map(_values, table.columns), strict=True)]


def _values(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind):
        whole = pc.strftime(column.cast(pa.timestamp(kind.unit)), "%Y-%m-%dT%H:%M:%S")
        found: list[Any] = pc.binary_join_element_wise(whole, _REST[kind.unit], "").to_pylist()
    elif column.null_count or not (pa.types.is_float64(kind) or pa.types.is_integer(kind)):
        found = column.to_pylist()
    else:
        found = column.to_numpy().tolist()
    return found


def _frame(table: pa.Table) -> "pl.DataFrame":
    import polars as pl

    frame = pl.DataFrame(table)
    times = {name: kind for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)}
    zoned = [name for name, kind in times.items() if kind.time_zone not in (None, "UTC")]
    if zoned:
        frame = frame.with_columns(pl.col(zoned).dt.convert_time_zone("UTC"))
    return frame.with_columns(pl.col([*times]).dt.to_string(_FORMAT)) if times else frame


def _json(parts: Iterator[pa.Table], more: Callable[[], Mapping[str, Any]]) -> Iterator[bytes]:
    yield b'{"rows":['
    is_first = True
    for part in parts:
        if part.num_rows:
            yield (b"" if is_first else b",") + _objects(part)
            is_first = False
    rest = orjson.dumps(more())
    yield b"]" + (b"}" if rest == b"{}" else b"," + rest[1:])


def _objects(part: pa.Table) -> bytes:
    """Objects separated by commas."""
    if part.num_rows <= _FEW_ROWS and _is_plain(part):
        return orjson.dumps(_rows(part))[1:-1]
    frame = _frame(part)
    if any(kind.is_nested() or kind.is_temporal() or kind.is_decimal() for kind in frame.dtypes):
        return orjson.dumps(frame.to_dicts(), default=_default, option=orjson.OPT_PASSTHROUGH_DATETIME)[1:-1]
    return frame.write_json().encode()[1:-1]


def _default(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso_of(value if value.tzinfo is not None else value.replace(tzinfo=UTC))
    if isinstance(value, Decimal):
        return orjson.Fragment(f"{value:f}")
    return value.hex() if isinstance(value, bytes) else str(value)


def _csv(parts: Iterator[pa.Table]) -> Iterator[bytes]:
    for number, part in enumerate(parts):
        yield _flat(_frame(part)).write_csv(include_header=number == 0).encode()


def _flat(frame: "pl.DataFrame") -> "pl.DataFrame":
    """With nested values as JSON text."""
    import polars as pl

    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    return frame.with_columns(pl.Series(name, [*map(_text, frame[name].to_list())], pl.String) for name in nested)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return orjson.dumps(value, default=_default, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()


def check_times(table: pa.Table) -> None:
    """Raises InvalidRequest for a time, also a nested one, whose year does not have four digits."""
    for column in table.columns:
        for array in _leaves(column.combine_chunks()):
            if pa.types.is_timestamp(array.type):
                per_day = 86_400 * _PER_SECOND[array.type.unit]
            elif pa.types.is_date(array.type):
                array, per_day = array.cast(pa.date32()), 1
            else:
                continue
            found = pc.min_max(array.view(pa.int64() if per_day > 1 else pa.int32())).as_py()
            if (
                found["min"] is not None
                and not _FIRST_DAY * per_day <= found["min"] <= found["max"] < _END_DAY * per_day
            ):
                raise InvalidRequest("a time outside the years 1 to 9999 cannot be written: cast it to VARCHAR")


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(array.type):
        inner = array.flatten()
    elif pa.types.is_map(array.type):
        inner = [array.keys, array.items]
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type):
        inner = [array.flatten()]
    else:
        yield array
        return
    for each in inner:
        yield from _leaves(each)


class _Sink:
    """Collects the writer's output until it is taken."""

    def __init__(self) -> None:
        self.closed = False
        self._parts: list[bytes] = []

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def flush(self) -> None:
        """Does nothing: nothing is buffered."""

    def taken(self) -> bytes:
        taken, self._parts = b"".join(self._parts), []
        return taken


def _arrow(parts: Iterator[pa.Table]) -> Iterator[bytes]:
    sink = _Sink()
    first = next(parts)
    with pa.ipc.new_stream(sink, first.schema) as writer:
        writer.write_table(first)
        yield sink.taken()
        for part in parts:
            writer.write_table(part)
            yield sink.taken()
    yield sink.taken()
