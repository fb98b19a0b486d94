"""Rows as JSON, CSV and Arrow."""

import json
from datetime import datetime

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import rows
from console.rows import Form, encoded, plain
from console.times import iso

TABLE = pa.table(
    {
        "price": [1.5, float("nan"), None],
        "at": pa.array([0, 1, None], pa.timestamp("us", "UTC")),
        "text": ['x,"y"', "é\n", None],
        "number": pa.array([1 << 62, -1, None], pa.int64()),
        "is_good": [True, None, False],
    }
)


def test_json_has_exact_numbers_and_iso_times_over_several_parts() -> None:
    text = b"".join(encoded(iter([TABLE, TABLE.slice(0, 0), TABLE.slice(0, 1)]), Form.json, lambda: {"holes": []}))
    body = json.loads(text)
    first = {
        "price": 1.5,
        "at": "1970-01-01T00:00:00.000000000Z",
        "text": 'x,"y"',
        "number": 1 << 62,
        "is_good": True,
    }
    assert body["rows"][0] == body["rows"][3] == first
    assert body["rows"][1]["price"] is None and body["rows"][1]["at"] == "1970-01-01T00:00:00.000001000Z"
    assert list(body["rows"][2].values()) == [None, None, None, None, False]
    assert body["holes"] == []


@pytest.mark.parametrize("form", list(Form))
def test_a_table_without_rows_still_has_its_form(form: Form) -> None:
    text = b"".join(encoded(iter([TABLE.slice(0, 0)]), form))
    if form is Form.json:
        assert text == b'{"rows":[]}'
    elif form is Form.csv:
        assert text == b"price,at,text,number,is_good\n"
    else:
        assert pa.ipc.open_stream(text).read_all().schema == TABLE.schema


def test_arrow_is_the_table_itself() -> None:
    text = b"".join(encoded(iter([TABLE, TABLE]), Form.arrow))
    found = pa.ipc.open_stream(text).read_all()
    assert found.slice(0, 1).equals(TABLE.slice(0, 1)) and found.num_rows == 6


def test_nested_rows_have_iso_times_inside() -> None:
    spans = [[{"start": 0, "end": 60_000_000}], []]
    kind = pa.list_(pa.struct([("start", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))]))
    table = pa.table({"holes": pa.array(spans, kind)})
    body = json.loads(b"".join(encoded(iter([table]), Form.json)))
    assert body["rows"][0]["holes"] == [
        {"start": "1970-01-01T00:00:00.000000000Z", "end": "1970-01-01T00:01:00.000000000Z"}
    ]


@given(st.data())
def test_few_rows_are_encoded_as_many_are(data: st.DataObject) -> None:
    year_1, year_9999 = datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)
    kinds = {
        pa.float64(): st.floats(),
        pa.int64(): st.integers(-(1 << 63), (1 << 63) - 1),
        pa.uint64(): st.integers(0, (1 << 64) - 1),
        pa.bool_(): st.booleans(),
        pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
        pa.null(): st.none(),
        pa.timestamp("ns", "UTC"): st.integers(-(1 << 62), 1 << 62),
        pa.timestamp("ms"): st.datetimes(year_1, year_9999),
    } | {pa.timestamp("us", zone): st.datetimes(year_1, year_9999) for zone in (None, "UTC", "Europe/Berlin")}
    columns = {
        str(kind): pa.array(data.draw(st.lists(st.none() | values, min_size=3, max_size=3)), kind)
        for kind, values in kinds.items()
    }
    table = pa.table(columns)
    few = json.loads(b"".join(encoded(iter([table]), Form.json)))
    assert few["rows"] == orjson.loads(orjson.dumps(plain(table)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "_FEW_ROWS", -1)
        assert json.loads(b"".join(encoded(iter([table]), Form.json))) == few


def test_times_have_nine_digits() -> None:
    assert iso(1_704_067_200_000_000_001) == "2024-01-01T00:00:00.000000001Z"
    assert iso(0) == "1970-01-01T00:00:00.000000000Z"
