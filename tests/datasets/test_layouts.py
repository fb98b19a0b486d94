"""Files for other tools contain the stored candles, compared byte by byte for text layouts."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from pyarrow import feather

from candlewright.wire.errors import InvalidRequest
from core.settings import Settings
from datasets.layouts import LAYOUTS
from datasets.stored import Candles, read_candles
from tests.datasets.conftest import START_US, stored_candles
from tests.datasets.lean_reader import read_all, read_days

PRICES = ("open", "high", "low", "close", "volume")


@pytest.fixture
def candles(settings: Settings) -> Candles:
    return read_candles(settings, "BTC/USDT.BINANCE", 60)


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_second_export_replaces_the_first(name: str, candles: Candles, tmp_path: Path) -> None:
    written = LAYOUTS[name].write(candles, tmp_path)
    before = {path: path.read_bytes() for path in written}
    assert LAYOUTS[name].write(candles, tmp_path) == written
    assert {path: path.read_bytes() for path in written} == before
    assert files(tmp_path) == sorted(str(path.relative_to(tmp_path)) for path in written)


def test_parquet_and_csv_have_every_row_and_column(candles: Candles, tmp_path: Path) -> None:
    [file] = LAYOUTS["parquet"].write(candles, tmp_path)
    assert file == tmp_path / "BINANCE" / "BTC_USDT-1m.parquet"
    assert pq.read_table(file).equals(candles.table)
    [file] = LAYOUTS["csv"].write(candles, tmp_path)
    read = pa_csv.read_csv(file)
    assert read.column_names == candles.table.column_names
    assert read["close"].to_pylist() == candles.table["close"].to_pylist()


def test_freqtrade_gets_a_feather_file_without_incomplete_rows(candles: Candles, tmp_path: Path) -> None:
    [file] = LAYOUTS["freqtrade"].write(candles, tmp_path)
    assert file == tmp_path / "binance" / "BTC_USDT-1m.feather"
    table = feather.read_table(file)
    assert table.column_names == ["date", *PRICES]
    assert table["date"].type == pa.timestamp("ms", "UTC")
    assert table.select(PRICES).equals(candles.whole.select(PRICES))


def test_backtrader_gets_csv_with_times_in_utc(candles: Candles, tmp_path: Path) -> None:
    [file] = LAYOUTS["backtrader"].write(candles, tmp_path)
    lines = file.read_text().splitlines()
    assert lines[0] == '"datetime","open","high","low","close","volume","openinterest"'
    assert lines[1].startswith("2024-01-01 23:50:00,")
    assert len(lines) == 1 + candles.whole.num_rows


def as_read(candles: Candles) -> list[tuple[object, ...]]:
    """The whole candles as `lean_reader` gives them."""
    rows = candles.whole.to_pylist()
    return [(row["open_time"], *(Decimal(repr(row[name])) for name in PRICES)) for row in rows]


@pytest.mark.parametrize(("period", "resolution", "days"), [(1, "second", 1), (60, "minute", 2)])
def test_lean_finds_every_whole_candle_in_a_zip_file_a_day(
    period: int, resolution: str, days: int, tmp_path: Path
) -> None:
    candles = Candles("BTC/USDT.BINANCE", period, stored_candles("BTC/USDT.BINANCE", period), 0, 0, 0)
    LAYOUTS["lean"].write(candles, tmp_path)
    found = [date(2024, 1, 1), date(2024, 1, 2)][:days]
    assert list(read_days(tmp_path, "binance", "btcusdt", resolution=resolution, days=found)) == as_read(candles)
    assert len(files(tmp_path)) == days


@pytest.mark.parametrize(("period", "resolution"), [(3_600, "hour"), (86_400, "daily")])
def test_lean_finds_every_hour_and_day_in_one_file(period: int, resolution: str, tmp_path: Path) -> None:
    candles = Candles("ETH/USD.KRAKEN", period, stored_candles("ETH/USD.KRAKEN", period), 0, 0, 0)
    LAYOUTS["lean"].write(candles, tmp_path)
    assert list(read_all(tmp_path, "kraken", "ethusd", resolution=resolution)) == as_read(candles)
    assert len(files(tmp_path)) == 1


def candles_until(last_volume: float) -> Candles:
    """Candles of two days; the last one has this volume."""
    table = stored_candles("BTC/USDT.BINANCE", 60)
    at = table.schema.get_field_index("volume")
    volumes = [*table["volume"].to_pylist()[:-1], last_volume]
    return Candles("BTC/USDT.BINANCE", 60, table.set_column(at, table.schema.field(at), [volumes]), 0, 0, 0)


@pytest.mark.parametrize("value", [1e-05, 1e-15, 0.1 + 0.2, 123456.78901234567, 1e16, 1.8e19, 1.2345678901234567e-11])
def test_lean_reads_the_number_that_is_stored(value: float, tmp_path: Path) -> None:
    candles = candles_until(value)
    LAYOUTS["lean"].write(candles, tmp_path)
    *_, last = read_days(tmp_path, "binance", "btcusdt", resolution="minute", days=[date(2024, 1, 2)])
    assert last == as_read(candles)[-1]


@pytest.mark.parametrize("value", [2.0**64, 1.5e30, 1.2345678901234567e-13])
def test_a_number_that_lean_would_misread_is_refused(value: float, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="LEAN cannot read"):
        LAYOUTS["lean"].write(candles_until(value), tmp_path)
    assert files(tmp_path) == []


def test_nautilus_gets_fixed_point_numbers_and_closing_times(candles: Candles, tmp_path: Path) -> None:
    [file] = LAYOUTS["nautilus"].write(candles, tmp_path)
    assert file.parent == tmp_path / "data" / "bar" / "BTCUSDT.BINANCE-1-MINUTE-LAST-EXTERNAL"
    assert file.name.startswith("2024-01-01T23-51-00-000000000Z_")
    table = pq.read_table(file)
    assert table.schema.metadata[b"price_precision"] == b"2"
    assert table.schema.metadata[b"size_precision"] == b"5"
    for name in PRICES:
        units = [int.from_bytes(each, "little") for each in table[name].to_pylist()]
        exact = [int(Decimal(repr(each)).scaleb(16)) for each in candles.whole[name].to_pylist()]
        assert units == exact
    assert table["ts_event"].to_pylist()[0] == START_US * 1_000 + 60_000_000_000


@pytest.mark.parametrize(("name", "period"), [("lean", 300), ("nautilus", 420)])
def test_a_period_that_the_tool_lacks_is_refused(name: str, period: int, tmp_path: Path) -> None:
    candles = Candles("BTC/USDT.BINANCE", period, stored_candles("BTC/USDT.BINANCE", period), 0, 0, 0)
    with pytest.raises(InvalidRequest, match=r"has no (bars|candles) of"):
        LAYOUTS[name].write(candles, tmp_path)
    assert files(tmp_path) == []
