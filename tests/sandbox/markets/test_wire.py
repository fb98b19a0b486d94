from __future__ import annotations

from decimal import Decimal

import numpy as np
import orjson
from hypothesis import given
from hypothesis import strategies as st

from sandbox.markets.candles import Candles
from sandbox.markets.wire import amount, encode_candles, page

amounts = st.integers(0, 10**17)


@given(st.integers(-(10**17), 10**17), st.integers(0, 8))
def test_amount_has_eight_decimals_and_the_exact_value(value: int, decimals: int) -> None:
    text = amount(value, decimals)
    assert len(text.partition(".")[2]) == 8
    assert Decimal(text) == Decimal(value).scaleb(-decimals)


def test_amount_with_more_decimals_is_cut_off() -> None:
    assert amount(123_456_789_019, 10) == "12.34567890"


@given(st.lists(st.tuples(*[amounts] * 8, st.integers(0, 10**9)), min_size=1, max_size=4), st.integers(0, 4))
def test_encoded_rows_are_the_texts_of_each_amount(rows: list[tuple[int, ...]], decimals: int) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    opens = np.arange(len(rows), dtype=np.int64) * 60_000
    o, h, low, c, volume, quote, taker, taker_quote, count = columns
    candles = Candles(
        open_time=opens,
        close_time=opens + 59_999,
        open=o,
        high=h,
        low=low,
        close=c,
        volume=volume,
        quote=quote,
        count=count,
        taker_volume=taker,
        taker_quote=taker_quote,
    )
    blob, offsets = encode_candles(candles, decimals, decimals)
    expected = [
        [
            int(opens[i]),
            *(amount(int(column[i]), decimals) for column in (o, h, low, c, volume)),
            int(opens[i]) + 59_999,
            amount(int(quote[i]), 2 * decimals),
            int(count[i]),
            amount(int(taker[i]), decimals),
            amount(int(taker_quote[i]), 2 * decimals),
            "0",
        ]
        for i in range(len(rows))
    ]
    assert orjson.loads(page(blob)) == expected
    for i in range(len(rows)):
        assert orjson.loads(blob[offsets[i] : offsets[i + 1]][:-1]) == expected[i]


def test_page_without_rows_is_an_empty_list() -> None:
    assert page(b"") == b"[]"
