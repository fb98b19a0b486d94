"""The mapping of types to Arrow and to the names that events carry."""

import pyarrow as pa
import pytest

from candlewright_cep.types import flink_name, from_arrow, to_arrow


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.string(), "STRING"),
        (pa.large_string(), "STRING"),
        (pa.int64(), "BIGINT"),
        (pa.int16(), "INT"),
        (pa.float32(), "DOUBLE"),
        (pa.bool_(), "BOOLEAN"),
        (pa.timestamp("ns", "UTC"), "TIMESTAMP_LTZ(9)"),
        (pa.timestamp("ms"), "TIMESTAMP_LTZ(3)"),
        (pa.date32(), "DATE"),
        (pa.binary(), "BYTES"),
    ],
)
def test_arrow_types_have_flink_names(arrow: pa.DataType, name: str) -> None:
    assert flink_name(from_arrow(arrow)) == name


@pytest.mark.parametrize("arrow", [pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.list_(pa.int8())])
def test_types_come_back_as_they_were(arrow: pa.DataType) -> None:
    assert to_arrow(from_arrow(arrow)) == arrow
