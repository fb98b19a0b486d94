"""Events as rows of their table: reading whole columns gives the same as reading one value after another."""

import base64
import json
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, FieldValue, ResultRow, ResultSchema
from iceberg import TRIGGER_EVENTS
from triggers.events import event_rows as rows_of_events

pytestmark = pytest.mark.timeout(60)


def event_rows(values: list[bytes]) -> pa.Table:
    return rows_of_events.event_rows(values, TRIGGER_EVENTS.arrow_schema)


MEMBERS: dict[str, tuple[str, st.SearchStrategy[Any]]] = {
    "string_val": ("STRING", st.text(max_size=5)),
    "int_val": ("BIGINT", st.integers(-(2**63), 2**63 - 1)),
    "double_val": ("DOUBLE", st.floats()),
    "bool_val": ("BOOLEAN", st.booleans()),
    "bytes_val": ("BYTES", st.binary(max_size=5)),
    "timestamp_val": ("TIMESTAMP_LTZ(9)", st.integers(0, 2**64 - 1)),
}


def event(names: list[str], types: list[str], rows: list[list[bytes]], *, number: int = 0) -> bytes:
    return CEPTriggerEvent(
        trigger_id="t",
        timestamp=1_000 * number,
        schema=ResultSchema(column_names=names, column_types=types),
        rows=[ResultRow(values=cells) for cells in rows],
        context={"event_id": f"e{number}", "ticker": "A/B.C"},
    ).SerializeToString()


def cell(member: str, value: Any) -> bytes:
    return FieldValue(**{member: value}).SerializeToString()


def plain(member: str, value: Any) -> Any:
    if member == "timestamp_val":
        return f"{np.datetime64(min(value, 2**63 - 1), 'ns')}Z"
    if member == "bytes_val":
        return base64.b64encode(value).decode()
    if member == "double_val" and not math.isfinite(value):
        return str(value)
    return value


@given(st.data())
def test_columns_agree_with_single_values(data: st.DataObject) -> None:
    members = data.draw(st.lists(st.sampled_from(sorted(MEMBERS)), min_size=1, max_size=4))
    names = [f'c{place} %"é' for place in range(len(members))]
    types = [MEMBERS[member][0] for member in members]
    values = data.draw(
        st.lists(st.tuples(*(st.none() | MEMBERS[member][1] for member in members)), min_size=1, max_size=6)
    )
    events = [
        event(
            names, types, [[b"" if v is None else cell(m, v) for m, v in zip(members, row, strict=True)]], number=number
        )
        for number, row in enumerate(values)
    ]
    found = event_rows(events)
    assert found.schema == TRIGGER_EVENTS.arrow_schema
    assert found["event_id"].to_pylist() == [f"e{number}" for number in range(len(values))]
    assert [json.loads(text) for text in found["columns"].to_pylist()] == [
        {n: None if v is None else plain(m, v) for n, m, v in zip(names, members, row, strict=True)} for row in values
    ]


def test_an_event_of_several_rows_is_an_array_among_others() -> None:
    cells = [cell("int_val", number) for number in range(4)]
    one, two = event(["a"], ["BIGINT"], [[cells[0]]]), event(["a"], ["BIGINT"], [[cells[1]], [cells[2]]], number=1)
    none = event(["a"], ["BIGINT"], [], number=2)
    found = event_rows([one, two, one, none])["columns"].to_pylist()
    assert [json.loads(text) for text in found] == [{"a": 0}, [{"a": 1}, {"a": 2}], {"a": 0}, []]


def test_values_without_a_name_and_names_without_a_value_are_left_out() -> None:
    cells = [cell("int_val", number) for number in range(3)]
    more = event(["a", "b"], ["BIGINT"] * 2, [cells])
    fewer = event(["a", "b"], ["BIGINT"] * 2, [cells[:1]])
    found = event_rows([more, more, fewer, fewer])["columns"].to_pylist()
    assert [json.loads(text) for text in found] == [{"a": 0, "b": 1}] * 2 + [{"a": 0}] * 2


def test_columns_without_a_type_are_left_out_of_neighbouring_events() -> None:
    cells = [cell("int_val", 1), cell("int_val", 2)]
    table = event_rows([event(["a", "b"], ["BIGINT"], [cells], number=number) for number in (0, 1)])
    assert [json.loads(text) for text in table["columns"].to_pylist()] == [{"a": 1}, {"a": 1}]


def test_only_invalid_events_are_left_out() -> None:
    sound = event(["a"], ["BIGINT"], [[cell("int_val", 300)]])
    broken_cell = event(["a"], ["BIGINT"], [[b"\x10\xff"]])
    padded = event(["a"], ["BIGINT"], [[b"\x10\x81\x00"]])  # a varint of two bytes that needs one
    found = event_rows([sound, b"\xff", broken_cell, sound, padded])["columns"].to_pylist()
    assert found == ['{"a": 300}', '{"a": 300}', '{"a": 1}']


def test_no_events_give_no_rows() -> None:
    assert event_rows([]).num_rows == 0
    assert event_rows([]).schema == TRIGGER_EVENTS.arrow_schema
