"""Files for other tools contain the stored candles, compared byte by byte for text layouts."""

from decimal import Decimal
from pathlib import Path
from zipfile import ZipFile

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


def test_lean_gets_a_zip_file_a_day_and_no_exponents(candles: Candles, tmp_path: Path) -> None:
    LAYOUTS["lean"].write(candles, tmp_path)
    folder = "crypto/binance/minute/btcusdt"
    assert files(tmp_path) == [f"{folder}/20240101_trade.zip", f"{folder}/20240102_trade.zip"]
    with ZipFile(tmp_path / folder / "20240101_trade.zip") as archive:
        assert archive.namelist() == ["20240101_btcusdt_minute_trade.csv"]
        lines = archive.read(archive.namelist()[0]).decode().splitlines()
    first = lines[0].split(",")
    assert first[0] == str((23 * 60 + 50) * 60_000)
    assert first[5] == "0.00001"
    row = candles.whole.slice(0, 1).to_pylist()[0]
    assert [float(text) for text in first[1:]] == [row[name] for name in PRICES]


def test_lean_gets_one_file_of_hours(settings: Settings, tmp_path: Path) -> None:
    candles = read_candles(settings, "BTC/USDT.BINANCE", 3_600)
    [file] = LAYOUTS["lean"].write(candles, tmp_path)
    with ZipFile(file) as archive:
        assert archive.read("btcusdt.csv").decode().startswith("20240101 23:50,")


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
