import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire import bar_columns
from candlewright.wire.candlewright_pb2 import OHLCV

_TICKERS = ["BTC/USDT.BINANCE", "Ö/USDT.KRAKEN", "A" * 200]
_WHOLE = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
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
