import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as hyp

from candlewright.wire.errors import BadFrame
from flink_replacement_spark.history.pages import candles, decode_page
from iceberg import OHLC
from protobuf import records_pb2 as records
from tests.flink_replacement_spark.harness import MINUTE, page

DOUBLES = hyp.floats(allow_nan=False, allow_infinity=False)
ROWS = hyp.lists(hyp.tuples(hyp.integers(0, 2**62), DOUBLES, hyp.integers(0, 2**62)), max_size=30)


@given(ROWS, hyp.booleans(), hyp.booleans())
def test_columns_are_the_messages_values_bit_for_bit(
    rows: list[tuple[int, float, int]], has_quote: bool, has_count: bool
) -> None:
    times, prices, counts = ([row[n] for row in rows] for n in range(3))
    message = records.HistoryPage(job_id="j", ticker="A/B.C", period_seconds=60, source="exchange", open_time=times)
    for name in ("open", "high", "low", "close", "volume"):
        getattr(message, name).extend(prices)
    message.quote_volume.extend(prices if has_quote else [])
    message.trade_count.extend(counts if has_count else [])
    found = decode_page(message.SerializeToString())
    assert found.columns["open_time"].tolist() == times
    assert np.array(prices).tobytes() == found.columns["close"].astype(float).tobytes()
    assert found.columns["trade_count"].tolist() == (counts if has_count else [])


def test_a_column_in_two_parts_is_read_whole() -> None:
    first, second = page("j", [1, 2]), page("j", [3])
    found = decode_page(first.SerializeToString() + second.SerializeToString())
    assert found.columns["open_time"].tolist() == [1 * MINUTE, 2 * MINUTE, 3 * MINUTE]


@given(hyp.binary(max_size=300))
def test_no_bytes_raise_anything_but_bad_frame(value: bytes) -> None:
    try:
        decode_page(value)
    except BadFrame as error:
        assert error.code == "BAD_RECORD"


@given(hyp.data())
def test_damage_to_a_page_raises_nothing_but_bad_frame(data: hyp.DataObject) -> None:
    value = bytearray(page("j", range(4)).SerializeToString())
    value[data.draw(hyp.integers(0, len(value) - 1))] = data.draw(hyp.integers(0, 255))
    try:
        decode_page(bytes(value))
    except BadFrame as error:
        assert error.code == "BAD_RECORD"


def test_columns_of_different_length_are_refused() -> None:
    message = page("j", range(4))
    del message.volume[2:]
    with pytest.raises(BadFrame, match="2 values of volume for 4 candles"):
        decode_page(message.SerializeToString())


def test_rows_are_those_of_the_range_once_in_order_the_last_page_winning() -> None:
    pages = [page("j", [5, 1, 2], close=1.0), page("j", [2, 3, 9], close=2.0)]
    found = candles([decode_page(p.SerializeToString()) for p in pages], 1 * MINUTE, 6 * MINUTE, updated_at_us=42)
    assert found.schema == OHLC.arrow_schema
    assert found["open_time"].cast(pa.int64()).to_pylist() == [n * MINUTE // 1_000 for n in (1, 2, 3, 5)]
    assert found["close"].to_pylist() == [1.0, 2.0, 2.0, 1.0]
    assert set(found["updated_at"].cast(pa.int64()).to_pylist()) == {42}


def test_columns_that_a_page_lacks_are_null_in_its_rows_only() -> None:
    knows, knows_not = page("j", [1]), page("j", [2])
    del knows_not.trade_count[:], knows_not.quote_volume[:]
    found = candles([decode_page(p.SerializeToString()) for p in (knows, knows_not)], 0, 9 * MINUTE, updated_at_us=0)
    assert found["trade_count"].to_pylist() == [7, None]
    assert found["quote_volume"].to_pylist() == [2.0, None]


def test_no_pages_give_no_rows() -> None:
    assert candles([], 0, MINUTE, updated_at_us=0).num_rows == 0
