"""Cells of result rows, compared with the protobuf library."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.ingestor_pb2 import FieldValue, ResultRow
from protobuf import value_columns

pytestmark = pytest.mark.timeout(60)

INT64 = st.integers(-(2**63), 2**63 - 1)


def row(*values: FieldValue) -> bytes:
    return ResultRow(values=[value.SerializeToString() for value in values]).SerializeToString()


@given(st.lists(INT64))
def test_integers_and_times_equal_the_encoding_of_the_library(values: list[int]) -> None:
    column = np.array(values, np.int64)
    assert value_columns.integers(column) == [row(FieldValue(int_val=value)) for value in values]
    assert value_columns.times(column) == [
        row(FieldValue(timestamp_val=value) if value >= 0 else FieldValue(int_val=value)) for value in values
    ]


@given(st.lists(st.floats()))
def test_doubles_equal_the_encoding_of_the_library(values: list[float]) -> None:
    assert value_columns.doubles(np.array(values, float)) == [row(FieldValue(double_val=value)) for value in values]


@given(st.lists(st.text() | st.just("x" * 127) | st.just("y" * 40_000)), st.lists(st.binary(max_size=300)))
def test_texts_and_bytes_equal_the_encoding_of_the_library(texts: list[str], octets: list[bytes]) -> None:
    cells = [*value_columns.texts(texts), *value_columns.octets(octets)]
    values = [FieldValue(string_val=text) for text in texts] + [FieldValue(bytes_val=value) for value in octets]
    assert cells == [row(value) for value in values]
    assert [value_columns.bare(cell) for cell in cells] == [value.SerializeToString() for value in values]


def test_booleans_and_nulls_equal_the_encoding_of_the_library() -> None:
    cells = value_columns.booleans(np.array([True, False]))
    assert cells == [row(FieldValue(bool_val=True)), row(FieldValue(bool_val=False))]
    assert row(FieldValue()) == value_columns.NULL


@given(st.lists(st.integers(0, 2**63 - 1)))
def test_varints_follow_their_head(values: list[int]) -> None:
    assert value_columns.varints(np.array(values, np.int64), b"\x08") == [b"\x08" + _varint(value) for value in values]


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
