"""Encodes rows of tables as JSON, CSV or an Arrow stream, part by part."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from console.times import iso_of

if TYPE_CHECKING:
    import polars as pl

__all__ = ["CHUNKED", "MEDIA", "Form", "encoded", "plain"]


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
    """Rows whose times are ISO text, at any depth."""
    found: list[dict[str, Any]] = _frame(table).to_dicts()
    return found


def _frame(table: pa.Table) -> "pl.DataFrame":
    import polars as pl

    frame = pl.DataFrame(table)
    times = [name for name, kind in frame.schema.items() if isinstance(kind, pl.Datetime)]
    return frame.with_columns(pl.col(times).dt.to_string(_FORMAT)) if times else frame


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
    frame = _frame(part)
    if any(kind.is_nested() or kind.is_temporal() or kind.is_decimal() for kind in frame.dtypes):
        return orjson.dumps(frame.to_dicts(), default=_default, option=orjson.OPT_PASSTHROUGH_DATETIME)[1:-1]
    return frame.write_json().encode()[1:-1]


def _default(value: Any) -> Any:
    if isinstance(value, datetime):
        return iso_of(value) if value.tzinfo is not None else value.isoformat()
    if isinstance(value, Decimal):
        return orjson.Fragment(f"{value:f}")
    return value.hex() if isinstance(value, bytes) else str(value)


def _csv(parts: Iterator[pa.Table]) -> Iterator[bytes]:
    for number, part in enumerate(parts):
        yield _frame(part).write_csv(include_header=number == 0).encode()


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
