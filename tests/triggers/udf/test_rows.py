"""What a trigger's function emits, as events."""

import numpy as np
import pytest

from candlewright.wire.ingestor_pb2 import CEPTriggerEvent
from candlewright_cep import Events
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Vector
from protobuf import udf_frames
from protobuf.records_pb2 import FunctionRows
from protobuf.udf_superset_pb2 import BeginBatch, EdgeType, EndBatch, Point, Request
from tests.triggers.trigger_records import rows
from triggers.udf import rows as udf_rows
from triggers.udf.points import point_request
from triggers.udf.rows import chunks_of, fired_by, frames_of
from triggers.udf.use import Output


def _events(*outputs: Output) -> list[CEPTriggerEvent]:
    return [CEPTriggerEvent.FromString(event.value) for event in fired_by(outputs, "t", 1, batch="q/7")]


def test_point_is_an_event_with_its_time_tags_and_fields() -> None:
    point = Point(time=5, tags={"ticker": "A", "side": "tag"}, fieldsString={"side": "field"}, fieldsBool={"ok": True})
    point.fieldsInt["n"] = -(1 << 63)
    point.fieldsDouble.update(x=1.5, bad=float("nan"), huge=float("inf"))
    (event,) = _events(Output([point]))
    assert rows(event) == [
        {"time": 5, "bad": None, "huge": None, "n": -(1 << 63), "ok": True, "side": "field", "ticker": "A", "x": 1.5}
    ]
    assert (event.timestamp, event.context["ticker"], event.context["match_number"]) == (5, "A", "0")


def test_events_of_a_batch_are_distinguished_and_are_the_same_again() -> None:
    outputs = [Output([Point(time=1)]), Output([Point(time=1)])]
    first, second = ([event.context["event_id"] for event in _events(*outputs)] for _ in range(2))
    assert first == second
    assert len(set(first)) == 2


def test_columns_of_several_types_are_texts_and_numbers_doubles() -> None:
    points = [
        Point(time=-1, fieldsInt={"a": 1, "b": 2}),
        Point(time=3, fieldsDouble={"a": 0.5}, fieldsString={"b": "x", "time": "field"}),
    ]
    (event,) = _events(
        Output(points, BeginBatch(), EndBatch(tags={"ticker": "A"})), Output([], BeginBatch(), EndBatch())
    )
    assert rows(event) == [
        {"a": 1.0, "b": "2", "ticker": "A", "time": "-1"},
        {"a": 0.5, "b": "x", "ticker": "A", "time": "field"},
    ]
    assert event.context["ticker"] == "A"


def test_no_rows_are_no_chunks() -> None:
    assert list(chunks_of([], EdgeType.BATCH)) == []


def test_rows_are_cut_into_records_between_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(udf_rows, "_RECORD_BYTES", 1)
    times = np.array([1, 2, 3])
    fields = [("x", BIGINT)]
    events = Events(fields, [Vector(BIGINT, times, None)], ["A"] * 3, times, times, context=None)
    pieces = list(frames_of(events, fields, "n"))
    inputs = [FunctionRows(trigger_id="t", frames=piece) for piece in pieces]
    assert len(pieces) == 3
    assert [[request.WhichOneof("message") for request in chunk] for chunk in chunks_of(inputs, EdgeType.BATCH)] == [
        ["begin", "point", "end"] * 3
    ]


def test_points_of_a_stream_go_in_by_their_times_and_those_of_one_time_as_they_came() -> None:
    inputs = []
    for tickers_times in ([("A", 3), ("A", 1)], [("B", 2), ("B", 3)]):
        requests = [
            point_request(time, "n", ["ticker"], tags={"ticker": one}, fields={}) for one, time in tickers_times
        ]
        inputs.append(FunctionRows(trigger_id="t", frames=b"".join(map(udf_frames.encode, requests))))
    (chunk,) = chunks_of(inputs, EdgeType.STREAM)
    found = [(request.point.tags["ticker"], request.point.time) for request in chunk]
    assert found == [("A", 1), ("B", 2), ("A", 3), ("B", 3)]
    assert [[request.point.time for request in chunk] for chunk in chunks_of(inputs, EdgeType.STREAM, 3)] == [
        [1, 2, 3],
        [3],
    ]


def test_events_stay_whole_where_batches_are_given_in_chunks() -> None:
    requests = []
    for time in range(1, 6):
        end = Request()
        end.end.tmax = time
        requests += [point_request(time, "n", [], tags={}, fields={}), end]
    one = FunctionRows(trigger_id="t", frames=b"".join(map(udf_frames.encode, requests)))
    kinds = [[request.WhichOneof("message") for request in chunk] for chunk in chunks_of([one], EdgeType.BATCH, 4)]
    assert kinds == [["begin", "point", "end"] * 2, ["begin", "point", "end"] * 2, ["begin", "point", "end"]]


def test_an_event_of_a_batch_has_the_end_time_that_the_function_sets() -> None:
    points = [Point(time=3), Point(time=5)]
    (said,) = _events(Output(points, BeginBatch(), EndBatch(tmax=60)))
    (unsaid,) = _events(Output(points, BeginBatch(), EndBatch()))
    assert (said.timestamp, unsaid.timestamp) == (60, 5)
