"""Rows as the points and batches that a function expects from its daemon."""

import math
from collections.abc import Mapping, Sequence

from protobuf.udf_superset_pb2 import Point, Request

__all__ = ["batch_requests", "group_id", "point_request"]

Value = bool | int | float | str
_INT64 = 1 << 63


def group_id(name: str, dimensions: Sequence[str], tags: Mapping[str, str], by_name: bool = False) -> str:
    """The id of a group as the daemon writes it: the tags that it is made by, in their order, after the name where it
    is made by that as well.
    """
    told = ",".join(f"{dimension}={tags.get(dimension, '')}" for dimension in dimensions)
    return f"{name}\n{told}" if by_name else told


def point_request(
    time_ns: int,
    name: str,
    dimensions: Sequence[str],
    tags: Mapping[str, str],
    fields: Mapping[str, Value | None],
    by_name: bool = False,
) -> Request:
    """A point of a stream. Fields that are NULL or no number are left out: the protocol has no place for them."""
    request = Request()
    point = request.point
    point.time, point.name, point.byName = time_ns, name, by_name
    point.group = group_id(name, dimensions, tags, by_name)
    point.dimensions.extend(dimensions)
    point.tags.update(tags)
    _put(point, fields)
    return request


def batch_requests(
    name: str,
    tags: Mapping[str, str],
    rows: Sequence[tuple[int, Mapping[str, Value | None]]],
    end_ns: int,
    by_name: bool = False,
) -> list[Request]:
    """A closed window of the group that `tags` make, as begin, points and end. `rows`: time and fields."""
    group = group_id(name, sorted(tags), tags, by_name)
    begin, end = Request(), Request()
    begin.begin.name, begin.begin.group, begin.begin.byName, begin.begin.size = name, group, by_name, len(rows)
    begin.begin.tags.update(tags)
    end.end.name, end.end.group, end.end.byName, end.end.tmax = name, group, by_name, end_ns
    end.end.tags.update(tags)
    points = []
    for time_ns, fields in rows:
        request = Request()
        request.point.time, request.point.group = time_ns, group
        request.point.tags.update(tags)
        _put(request.point, fields)
        points.append(request)
    return [begin, *points, end]


def _put(point: Point, fields: Mapping[str, Value | None]) -> None:
    for name, value in fields.items():
        if isinstance(value, bool):
            point.fieldsBool[name] = value
        elif isinstance(value, int) and -_INT64 <= value < _INT64:
            point.fieldsInt[name] = value
        elif isinstance(value, float) and math.isfinite(value):
            point.fieldsDouble[name] = value
        elif isinstance(value, str):
            point.fieldsString[name] = value
