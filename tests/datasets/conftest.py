"""A data directory with stored candles: two venues, a hole of the venue, one incomplete candle."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from core.settings import Settings
from iceberg import create_tables, open_catalog
from iceberg.tables import COVERAGE, OHLC

MINUTE_US = 60_000_000
#: 2024-01-01 23:50 UTC, so that the minutes cross midnight.
START_US = 1_704_153_000_000_000
COUNT = 30
#: Minutes without a candle: the venue has none for the first two, the others are not stored.
HOLES, UNKNOWN, INCOMPLETE = (5, 6), (20,), 25


def stored_candles(ticker: str, period_seconds: int = 60) -> pa.Table:
    """Prices of two digits, volumes of five, one of them below 0.0001."""
    kept = np.setdiff1d(np.arange(COUNT), [*HOLES, *UNKNOWN])
    random = np.random.default_rng(7)
    close = np.round(40_000 + random.normal(0, 20, COUNT).cumsum(), 2)[kept]
    volume = np.round(random.gamma(2, 3, COUNT), 5)[kept]
    volume[0] = 0.00001
    times = pa.array(START_US + kept * period_seconds * 1_000_000).cast(pa.timestamp("us", "UTC"))
    columns = {
        "ticker": [ticker] * len(kept),
        "period_seconds": [period_seconds] * len(kept),
        "open_time": times,
        "open": close,
        "high": np.round(close + 1.5, 2),
        "low": np.round(close - 0.25, 2),
        "close": close,
        "volume": volume,
        "quote_volume": [None] * len(kept),
        "trade_count": [3] * len(kept),
        "source": ["exchange"] * len(kept),
        "complete": kept != INCOMPLETE,
        "updated_at": times,
    }
    schema = OHLC.arrow_schema
    return pa.table([pa.array(columns[name], schema.field(name).type) for name in schema.names], schema=schema)


@pytest.fixture(scope="session")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    settings = Settings(data_dir=tmp_path_factory.mktemp("stored"))
    catalog = open_catalog(settings)
    create_tables(catalog)
    ohlc = catalog.load_table(OHLC.identifier)
    for ticker, period in (("BTC/USDT.BINANCE", 60), ("BTC/USDT.BINANCE", 3_600), ("ETH/USD.KRAKEN", 60)):
        ohlc.append(stored_candles(ticker, period))
    first, last = (datetime.fromtimestamp(START_US / 1e6 + minute * 60, UTC) for minute in (HOLES[0], HOLES[-1] + 1))
    row = {
        "request_id": "r1",
        "ticker": "BTC/USDT.BINANCE",
        "period_seconds": 60,
        "start": first,
        "end": last,
        "expected": 2,
        "got": 0,
        "holes": [{"start": first, "end": last}],
        "status": "OK",
        "closed_until": None,
    }
    catalog.load_table(COVERAGE.identifier).append(pa.Table.from_pylist([row], schema=COVERAGE.arrow_schema))
    return settings
