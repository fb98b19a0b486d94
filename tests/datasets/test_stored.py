"""What is stored, and which parts of a range are not."""

from pathlib import Path

import pyarrow as pa
import pytest

from core.settings import Settings
from datasets import stored
from datasets.stored import Series, read_candles, stored_series
from iceberg import OHLC, create_tables, open_catalog
from iceberg.filters import at_least
from tests.datasets.conftest import COUNT, HOLES, MINUTE_US, START_US, UNKNOWN, stored_candles

_GROUPED = stored._grouped
ROWS = COUNT - len(HOLES) - len(UNKNOWN)


def test_series_are_listed_with_their_rows_and_bounds(settings: Settings) -> None:
    found = stored_series(settings)
    assert [(each.ticker, each.period_seconds) for each in found] == [
        ("BTC/USDT.BINANCE", 60),
        ("BTC/USDT.BINANCE", 3_600),
        ("ETH/USD.KRAKEN", 60),
    ]
    last = START_US + (COUNT - 1) * MINUTE_US
    assert found[0] == Series("BTC/USDT.BINANCE", 60, ROWS, START_US * 1_000, last * 1_000)


def test_series_are_chosen_by_pattern_and_period(settings: Settings) -> None:
    assert [each.ticker for each in stored_series(settings, ["*.KRAKEN"])] == ["ETH/USD.KRAKEN"]
    assert [each.period_seconds for each in stored_series(settings, ["BTC/*"], [3_600])] == [3_600]
    assert stored_series(settings, ["btc/usdt.binance"]) == []


def test_each_file_is_read_for_its_series_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(data_dir=tmp_path)
    catalog = open_catalog(settings)
    create_tables(catalog)
    bars = stored_candles("SOL/USDT.BINANCE")
    rows = 0
    for begin in range(0, bars.num_rows, 10):
        catalog.load_table(OHLC.identifier).append(bars.slice(begin, 10))
        rows += bars.slice(begin, 10).num_rows
        assert [each.rows for each in stored_series(settings)] == [rows]
    with monkeypatch.context() as patch:
        patch.setattr(stored, "_grouped", _joined)
        assert [each.rows for each in stored_series(settings)] == [rows]
    catalog.load_table(OHLC.identifier).delete(at_least("open_time", "2024-01-02T00:00:00+00:00"))
    assert [each.rows for each in stored_series(settings)] == [8]


def _joined(table: pa.Table, first: str, last: str, rows: str | None) -> pa.Table:
    assert rows is not None, "a file was read again"
    return _GROUPED(table, first, last, rows)


def test_holes_of_the_venue_are_distinguished_from_ranges_not_stored(settings: Settings) -> None:
    candles = read_candles(settings, "BTC/USDT.BINANCE", 60)
    assert (candles.holes, candles.unknown, candles.incomplete) == (len(HOLES), len(UNKNOWN), 1)
    assert candles.whole.num_rows == candles.table.num_rows - 1 == ROWS - 1
    other = read_candles(settings, "ETH/USD.KRAKEN", 60)
    assert (other.holes, other.unknown) == (0, len(HOLES) + len(UNKNOWN))


def test_a_range_is_half_open(settings: Settings) -> None:
    start = START_US * 1_000
    candles = read_candles(settings, "BTC/USDT.BINANCE", 60, start=start, end=start + 3 * MINUTE_US * 1_000)
    assert candles.table.num_rows == 3
    assert candles.unknown == candles.holes == 0


def test_tables_that_are_not_made_yet_hold_nothing(tmp_path: Path) -> None:
    assert stored_series(Settings(data_dir=tmp_path)) == []
