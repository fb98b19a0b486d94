"""Rows as the points and batches that a function expects from its daemon, and points as values again."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from protobuf.udf_superset_pb2 import Point, Request

__all__ = ["TICKER", "Value", "batch_requests", "field_values", "group_id", "plain", "point_request", "put_field"]

Value = bool | int | float | str
#: The tag by which rows of a trigger are grouped.
TICKER = "ticker"
_INT64 = 1 << 63


def group_id(name: str, dimensions: Sequence[str], tags: Mapping[str, str], *, by_name: bool = False) -> str:
    """The id of a group as the daemon writes it: its tags in order, after the name if the group is by name too."""
    told = ",".join(f"{dimension}={tags.get(dimension, '')}" for dimension in dimensions)
    return f"{name}\n{told}" if by_name else told


def point_request(
    time_ns: int,
    name: str,
    dimensions: Sequence[str],
    *,
    tags: Mapping[str, str],
    fields: Mapping[str, Value | None],
    by_name: bool = False,
) -> Request:
    """A point of a stream. Fields that are NULL or NaN are left out, because the protocol cannot represent them."""
    request = Request()
    point = request.point
    point.time, point.name, point.byName = time_ns, name, by_name
    point.group = group_id(name, dimensions, tags, by_name=by_name)
    point.dimensions.extend(dimensions)
    point.tags.update(tags)
    for field, value in fields.items():
        put_field(point, field, value)
    return request


def batch_requests(points: Sequence[Point], end_ns: int) -> list[Request]:
    """Points of a stream with the same name, as a closed batch: begin, points and end. Its group is that of the tags
    that all of them share.
    """
    if not points:
        return []
    name, by_name = points[0].name, points[0].byName
    tags = dict(set.intersection(*(set(point.tags.items()) for point in points)))
    group = group_id(name, sorted(tags), tags, by_name=by_name)
    begin, end = Request(), Request()
    begin.begin.name, begin.begin.group, begin.begin.byName, begin.begin.size = name, group, by_name, len(points)
    begin.begin.tags.update(tags)
    end.end.name, end.end.group, end.end.byName, end.end.tmax = name, group, by_name, end_ns
    end.end.tags.update(tags)
    found = [begin]
    for point in points:
        inner = Request(point=point)
        # Already in begin and end.
        for said in ("name", "database", "retentionPolicy", "dimensions", "byName"):
            inner.point.ClearField(said)
        inner.point.group = group
        found.append(inner)
    return [*found, end]


def put_field(point: Point, name: str, value: Any) -> bool:
    """Put `value` into the map of its type; returns False if a field cannot hold it."""
    if isinstance(value, bool):
        point.fieldsBool[name] = value
    elif isinstance(value, int) and -_INT64 <= value < _INT64:
        point.fieldsInt[name] = value
    elif isinstance(value, float) and math.isfinite(value):
        point.fieldsDouble[name] = value
    elif isinstance(value, str):
        point.fieldsString[name] = value
    else:
        return False
    return True


def field_values(point: Point) -> dict[str, Value]:
    """If a name is in two maps, the value is the one that the daemon would take."""
    values: dict[str, Value] = dict(point.fieldsString)
    return values | dict(point.fieldsInt) | dict(point.fieldsDouble) | dict(point.fieldsBool)


def plain(column: pa.ChunkedArray) -> list[Any]:
    """Values that fields can hold: times and intervals as nanoseconds, dates as text."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("ns", kind.tz)).cast(pa.int64())
    elif pa.types.is_duration(kind):
        column = column.cast(pa.duration("ns")).cast(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values
