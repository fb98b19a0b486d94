"""Rows as a function's points."""

import pytest

from protobuf.udf_superset_pb2 import EdgeType, InfoResponse, OptionInfo, ValueType
from triggers.udf.options import Duration, UdfRefused, checked_options
from triggers.udf.points import batch_requests, group_id, point_request


@pytest.mark.parametrize(
    ("dimensions", "by_name", "expected"),
    [
        ([], False, ""),
        (["b", "a"], False, "b=2,a=1"),
        (["a", "none"], False, "a=1,none="),
        (["a"], True, "cpu\na=1"),
        ([], True, "cpu\n"),
    ],
)
def test_group_id_is_the_daemons(dimensions: list[str], by_name: bool, expected: str) -> None:
    assert group_id("cpu", dimensions, {"a": "1", "b": "2"}, by_name=by_name) == expected


def test_point_has_fields_by_their_types_and_none_for_null() -> None:
    fields = {"d": 1.5, "i": 2, "s": "x", "b": True, "n": None, "nan": float("nan"), "big": 1 << 70}
    point = point_request(7, "cpu", ["a"], tags={"a": "1", "b": "2"}, fields=fields).point
    assert (point.time, point.name, point.group, list(point.dimensions)) == (7, "cpu", "a=1", ["a"])
    assert dict(point.tags) == {"a": "1", "b": "2"}
    assert [dict(m) for m in (point.fieldsDouble, point.fieldsInt, point.fieldsString, point.fieldsBool)] == [
        {"d": 1.5}, {"i": 2}, {"s": "x"}, {"b": True},
    ]  # fmt: skip


def test_a_batch_has_its_size_at_the_begin_and_its_time_at_the_end() -> None:
    points = [
        point_request(
            time, "cpu", ["a", "b"], tags={"b": "2", "a": "1", "c": str(time)}, fields={"x": 1}, by_name=True
        ).point
        for time in (5, 6)
    ]
    begin, point, _, end = batch_requests(points, end_ns=9)
    assert (begin.begin.size, begin.begin.byName, begin.begin.group) == (2, True, "cpu\na=1,b=2")
    assert (point.point.time, point.point.group, dict(point.point.tags)) == (5, "cpu\na=1,b=2", dict(points[0].tags))
    # The daemon sends no more for a point in a batch.
    assert (point.point.name, list(point.point.dimensions), point.point.byName) == ("", [], False)
    assert (end.end.tmax, dict(end.end.tags)) == (9, {"a": "1", "b": "2"})
    assert batch_requests([], end_ns=9) == []


def test_options_keep_the_order_of_the_calls() -> None:
    info = InfoResponse(wants=EdgeType.STREAM)
    info.options["field"].CopyFrom(OptionInfo(valueTypes=[ValueType.STRING]))
    info.options["every"].CopyFrom(OptionInfo(valueTypes=[ValueType.DURATION, ValueType.DOUBLE]))
    info.options["plain"].SetInParent()
    options = checked_options(info, [("field", ["a"]), ("every", [Duration(5), 1.0]), ("field", ["b"]), ("plain", [])])
    assert [option.name for option in options] == ["field", "every", "field", "plain"]
    assert options[1].values[0].durationValue == 5
    with pytest.raises(UdfRefused, match="INT, expected DOUBLE"):
        checked_options(info, [("every", [Duration(5), 1])])
