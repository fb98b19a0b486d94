from itertools import pairwise

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import bar_columns
from candlewright.wire.bar_columns import BarColumns
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from candlewright.wire.varint import varint

_TICKERS = ["BTC/USDT.BINANCE", "Ö/USDT.KRAKEN", "A" * 200]
_WHOLE = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
_EIGHT_BYTES = st.binary(min_size=8, max_size=8)
_DOUBLE = st.floats(allow_nan=False)


@st.composite
def _bars(draw: st.DrawFn) -> OHLCV:
    names = ("open", "high", "low", "close", "volume", "quote_volume")
    return OHLCV(
        ticker=draw(st.sampled_from(_TICKERS)),
        open_time=draw(_WHOLE),
        trade_count=draw(_WHOLE),
        complete=draw(st.booleans()),
        revision=draw(st.integers(0, 2**32 - 1)),
        source="ticks",
        **{name: draw(_DOUBLE) for name in names},
    )


@given(st.lists(_bars(), max_size=12), st.sampled_from([1, 60, 604_800]))
def test_encoded_bars_are_read_by_the_protobuf_library(bars: list[OHLCV], period_seconds: int) -> None:
    for bar in bars:
        bar.period_seconds = period_seconds
    encoded = bar_columns.encode(
        _TICKERS,
        np.array([_TICKERS.index(bar.ticker) for bar in bars], np.int64),
        period_seconds=period_seconds,
        open_time=np.array([bar.open_time for bar in bars], np.int64),
        prices=[np.array([getattr(bar, name) for bar in bars]) for name in ("open", "high", "low", "close")],
        volume=np.array([bar.volume for bar in bars]),
        quote_volume=np.array([bar.quote_volume for bar in bars]),
        trade_count=np.array([bar.trade_count for bar in bars], np.int64),
        complete=np.array([bar.complete for bar in bars], np.bool_),
        revision=np.array([bar.revision for bar in bars], np.int64),
        source="ticks",
    )
    assert [OHLCV.FromString(value) for value in encoded] == bars


#: What the library writes, with fields left out, repeated, unknown, or in another order; and arbitrary bytes.
_PARTS = st.one_of(
    st.builds(lambda number, value: varint(number << 3) + varint(value), st.integers(1, 17), _WHOLE),
    st.builds(
        lambda number, value: varint(number << 3 | 1) + value, st.integers(2, 8), st.binary(min_size=8, max_size=8)
    ),
    st.builds(
        lambda number, text: varint(number << 3 | 2) + varint(len(text)) + text,
        st.sampled_from([10, 14, 16]),
        st.one_of(st.sampled_from([name.encode() for name in _TICKERS]), st.binary(max_size=3)),
    ),
    st.binary(max_size=3),
)
_VALUES = st.one_of(_bars().map(OHLCV.SerializeToString), st.lists(_PARTS, max_size=6).map(b"".join))


def _as_read(columns: BarColumns, place: int) -> OHLCV:
    names = ("open", "high", "low", "close", "volume", "quote_volume")
    doubles = (*columns.prices[:, place].tolist(), *columns.volumes[:, place].tolist())
    bar = OHLCV(
        ticker=columns.texts[columns.ticker[place]],
        source=columns.texts[columns.source[place]],
        open_time=int(columns.open_time[place]),
        period_seconds=int(columns.period_seconds[place]),
        trade_count=int(columns.trade_count[place]),
        complete=bool(columns.complete[place]),
        revision=int(columns.revision[place]),
        from_client=bool(columns.from_client[place]),
        **dict(zip(names, doubles, strict=True)),
    )
    for name, is_there in (("quote_volume", columns.has_quote_volume), ("trade_count", columns.has_trade_count)):
        if not is_there[place]:
            bar.ClearField(name)
    return bar


@given(st.data(), st.lists(_VALUES, min_size=1, max_size=6))
def test_decoded_bars_are_those_of_the_protobuf_library(data: st.DataObject, kinds: list[bytes]) -> None:
    # Many of few kinds, so that they are read together; a changed byte may change the layout.
    values = data.draw(st.lists(st.sampled_from(kinds), max_size=60))
    for place in data.draw(st.lists(st.integers(0, 59), max_size=4)):
        if place < len(values) and values[place]:
            changed = bytearray(values[place])
            changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
            values[place] = bytes(changed)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(values)))) | {0, len(values)})
    joined = [b"".join(values[first:stop]) for first, stop in pairwise(cuts)]
    # Blocks may end anywhere between values.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bar_columns, "_BLOCK_BARS", data.draw(st.integers(1, 60)))
        try:
            wanted = [OHLCV.FromString(value) for value in values]
        except DecodeError:
            with pytest.raises(BadFrame):
                bar_columns.decode(joined, list(map(len, values)))
            return
        found = bar_columns.decode(joined, list(map(len, values)))
    for place, bar in enumerate(wanted):
        bar.ClearField("sequence")
        bar.DiscardUnknownFields()
        # As bytes, because NaN is not equal to itself.
        assert _as_read(found, place).SerializeToString(deterministic=True) == bar.SerializeToString(deterministic=True)


@given(st.lists(st.lists(_bars(), max_size=12), min_size=1, max_size=4))
def test_joined_columns_are_those_of_all_parts(parts: list[list[OHLCV]]) -> None:
    found = bar_columns.joined([bar_columns.decode([bar.SerializeToString() for bar in part]) for part in parts])
    wanted = [bar for part in parts for bar in part]
    assert len(found.ticker) == len(wanted)
    assert [_as_read(found, place) for place in range(len(wanted))] == wanted
