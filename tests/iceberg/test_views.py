"""Parts of a range, for answers over the network."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from core.settings import Settings
from iceberg import create_tables, open_catalog, views
from iceberg.tables import OHLC
from iceberg.views import PART_ROWS, bars_in_parts, newest_bars
from tests.datasets.conftest import START_US, stored_candles

TICKER = "BTC/USDT.BINANCE"
YEAR_NS = 366 * 86_400 * 1_000_000_000


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = open_catalog(Settings(data_dir=tmp_path))
    create_tables(catalog)
    return catalog.load_table(OHLC.identifier)


@pytest.mark.parametrize("start_ns", [0, (START_US - PART_ROWS * 61_000_000) * 1_000, START_US * 1_000])
def test_an_empty_beginning_and_an_empty_end_cost_few_reads(table: Table, start_ns: int) -> None:
    bars = stored_candles(TICKER)
    table.append(bars)
    parts = list(bars_in_parts(table, TICKER, 60, start_ns=start_ns, end_ns=START_US * 1_000 + 10 * YEAR_NS))
    assert [part.num_rows for part in parts] == [bars.num_rows, 0]
    assert parts[0]["open_time"].to_pylist() == bars["open_time"].to_pylist()
    assert [part.num_rows for part in bars_in_parts(table, "ETH/USD.KRAKEN", 60, start_ns=0, end_ns=YEAR_NS)] == [0]


def test_the_newest_bars_are_looked_for_where_the_files_end(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    bars = stored_candles(TICKER)
    for begin in range(0, bars.num_rows, 10):
        table.append(bars.slice(begin, 10))
    scans: list[tuple[int, int]] = []
    scan_range = views.scan_range

    def count(*what: Any, start_ns: int, end_ns: int) -> pa.Table:
        scans.append((start_ns, end_ns))
        return scan_range(*what, start_ns=start_ns, end_ns=end_ns)

    monkeypatch.setattr(views, "scan_range", count)
    everything = {"start_ns": 0, "end_ns": (1 << 63) - 1}
    found = newest_bars(table, TICKER, 60, limit=5, **everything)
    assert found.equals(bars.slice(bars.num_rows - 5))
    assert len(scans) == 1
    assert newest_bars(table, TICKER, 60, limit=10 * bars.num_rows, **everything).equals(bars)
    before = bars["open_time"][20].cast(pa.int64()).as_py() * 1_000
    assert newest_bars(table, TICKER, 60, start_ns=0, end_ns=before, limit=8).equals(bars.slice(12, 8))
    assert newest_bars(table, "ETH/USD.KRAKEN", 60, limit=100, **everything).num_rows == 0
    assert newest_bars(table, TICKER, 60, start_ns=0, end_ns=1, limit=100).num_rows == 0
