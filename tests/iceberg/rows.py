"""Candles for tests of tables."""

from collections.abc import Sequence

import pyarrow as pa

from iceberg import OHLC

MINUTE = 60_000_000_000
TICKER = "BTC/USDT.BINANCE"


def candles(
    minutes: Sequence[int],
    ticker: str = TICKER,
    close: float = 1.0,
    *,
    source: str = "exchange",
    quote_volume: float | None = 2.0,
) -> pa.Table:
    count = len(minutes)
    times = pa.array([minute * MINUTE // 1_000 for minute in minutes]).cast(pa.timestamp("us", "UTC"))
    columns = {
        "ticker": [ticker] * count,
        "period_seconds": [60] * count,
        "open_time": times,
        "open": [1.0] * count,
        "high": [9.0] * count,
        "low": [0.5] * count,
        "close": [close] * count,
        "volume": [float(minute) for minute in minutes],
        "quote_volume": [quote_volume] * count,
        "trade_count": [7] * count,
        "source": [source] * count,
        "complete": [True] * count,
        "updated_at": times,
    }
    schema = OHLC.arrow_schema
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


def minutes_of(table: pa.Table) -> list[int]:
    return [time // (MINUTE // 1_000) for time in table["open_time"].cast(pa.int64()).to_pylist()]
