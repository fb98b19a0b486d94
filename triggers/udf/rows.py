"""Result rows of a trigger as the points that its function takes, and the returned points as its events."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from candlewright_cep import Events
from candlewright_cep.types import SqlType
from protobuf import udf_frames, value_columns
from protobuf.records_pb2 import FunctionRows
from protobuf.udf_frames import FrameReader
from protobuf.udf_superset_pb2 import EdgeType, Point, Request
from triggers.events.firings import Fired, Matches, point_event
from triggers.udf.points import TICKER, Value, batch_requests, field_values, plain, point_request
from triggers.udf.use import Output

__all__ = ["chunks_of", "fired_by", "frames_of"]

#: How many requests exist at a time: after an outage, a micro-batch may have a million rows.
CHUNK = 50_000
#: Frames (bytes) of one record, unless a single event has more.
_RECORD_BYTES = 1 << 20


def frames_of(events: Events, columns: Sequence[tuple[str, SqlType]], name: str) -> Iterator[bytes]:
    """A frame for each row, which is a point named `name` in the group of its ticker; the rows of each event are
    followed by an `end`. Yields whole events, in pieces for one record each.
    """
    cells = [(column, plain(events.table.column(place))) for place, (column, _) in enumerate(columns)]
    ends = set((Matches.of(events).ends - 1).tolist())
    found: list[bytes] = []
    size = 0
    for row, (ticker, time_ns) in enumerate(zip(events.ticker, events.time.tolist(), strict=True)):
        tags = {TICKER: ticker} if ticker else {}
        fields = {column: values[row] for column, values in cells if column not in tags}
        found.append(udf_frames.encode(point_request(time_ns, name, list(tags), tags=tags, fields=fields)))
        size += len(found[-1])
        if row in ends:
            end = Request()
            end.end.tmax = time_ns
            found.append(udf_frames.encode(end))
            if size >= _RECORD_BYTES:
                yield b"".join(found)
                found, size = [], 0
    if found:
        yield b"".join(found)


def chunks_of(inputs: Iterable[FunctionRows], wants: EdgeType, size: int = CHUNK) -> Iterator[list[Request]]:
    """About `size` requests at a time, as the function takes them: points of a stream, sorted by time within a chunk
    (including those of late trades and of several partitions), or each event as a batch.
    """
    requests = (request for one in inputs for request in _read(one.frames))
    if wants == EdgeType.STREAM:
        points = (request for request in requests if request.HasField("point"))
        while chunk := list(islice(points, size)):
            yield sorted(chunk, key=lambda request: request.point.time)
        return
    found: list[Request] = []
    batch: list[Point] = []
    for request in requests:
        if request.HasField("point"):
            batch.append(request.point)
            continue
        found += batch_requests(batch, request.end.tmax)
        batch = []
        if len(found) >= size:
            yield found
            found = []
    if found:
        yield found


def _read(frames: bytes) -> Iterable[Request]:
    pieces = iter((frames, b""))
    return iter(FrameReader(lambda _: next(pieces), Request, limit=len(frames)).next, None)


def fired_by(outputs: Iterable[Output], trigger_id: str, version: int, *, batch: str) -> list[Fired]:
    """One event for each point, or for each batch of points. `batch`: distinguishes these outputs from every other
    output of the trigger; the index among them distinguishes each event from the others.
    """
    found = []
    for place, output in enumerate(outputs):
        if not output.points:
            continue
        rows = [_row_of(point, output) for point in output.points]
        columns = _columns_of(rows)
        cells = [b"".join(_cell(row.get(name), kind) for name, kind in columns.items()) for row in rows]
        tags = output.points[-1].tags if output.end is None else output.end.tags
        # As for the daemon, a batch has the time of its end if the function sets it.
        said = output.end.tmax if output.end is not None else 0
        time_ns = said or max(point.time for point in output.points)
        told, schema = point_event(f"{batch}, {place}", tags.get(TICKER, ""), time_ns, columns=columns, rows=cells)
        found.append(told.event(trigger_id, version, schema))
    return found


def _row_of(point: Point, output: Output) -> dict[str, tuple[str, Value]]:
    """Kind and value of the time, tags and fields by name; a field hides a tag with the same name."""
    row: dict[str, tuple[str, Value]] = {"time": ("TIMESTAMP_LTZ(9)", point.time)}
    for tags in (output.end.tags if output.end is not None else {}, point.tags):
        row |= {name: ("STRING", value) for name, value in sorted(tags.items())}
    return row | {name: (_kind_of(value), value) for name, value in sorted(field_values(point).items())}


def _columns_of(rows: Sequence[Mapping[str, tuple[str, Value]]]) -> dict[str, str]:
    """Names and types; values of several types become text, integers among doubles become doubles."""
    kinds: dict[str, str] = {}
    for row in rows:
        for name, (kind, _) in row.items():
            known = kinds.setdefault(name, kind)
            if known != kind:
                kinds[name] = "DOUBLE" if {known, kind} == {"BIGINT", "DOUBLE"} else "STRING"
    return kinds


def _kind_of(value: Value) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    return "BIGINT" if isinstance(value, int) else "DOUBLE" if isinstance(value, float) else "STRING"


def _cell(told: tuple[str, Value] | None, kind: str) -> bytes:
    if told is None:
        return value_columns.NULL
    value = told[1]
    if isinstance(value, float) and not math.isfinite(value):
        # Neither JSON nor SQL has such a number.
        return value_columns.NULL
    if kind == "BOOLEAN":
        return value_columns.booleans(np.array([value]))[0]
    if kind == "BIGINT":
        return value_columns.integers(np.array([value]))[0]
    if kind == "DOUBLE":
        return value_columns.doubles(np.array([value], np.float64))[0]
    if kind == "STRING":
        return value_columns.texts([str(value)])[0]
    return value_columns.times(np.array([value]))[0]
