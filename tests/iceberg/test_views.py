"""Parts of a range, for answers over the network."""

from pathlib import Path

import pytest

from core.settings import Settings
from iceberg import create_tables, open_catalog
from iceberg.tables import OHLC
from iceberg.views import PART_ROWS, bars_in_parts
from tests.datasets.conftest import START_US, stored_candles

TICKER = "BTC/USDT.BINANCE"
YEAR_NS = 366 * 86_400 * 1_000_000_000


@pytest.mark.parametrize("start_ns", [0, (START_US - PART_ROWS * 61_000_000) * 1_000, START_US * 1_000])
def test_an_empty_beginning_and_an_empty_end_cost_few_reads(tmp_path: Path, start_ns: int) -> None:
    catalog = open_catalog(Settings(data_dir=tmp_path))
    create_tables(catalog)
    table = catalog.load_table(OHLC.identifier)
    bars = stored_candles(TICKER)
    table.append(bars)
    parts = list(bars_in_parts(table, TICKER, 60, start_ns=start_ns, end_ns=START_US * 1_000 + 10 * YEAR_NS))
    assert [part.num_rows for part in parts] == [bars.num_rows, 0]
    assert parts[0]["open_time"].to_pylist() == bars["open_time"].to_pylist()
    assert [part.num_rows for part in bars_in_parts(table, "ETH/USD.KRAKEN", 60, start_ns=0, end_ns=YEAR_NS)] == [0]
