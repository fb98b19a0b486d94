"""`candlewright import` over a real bus; the driver's side is in tests/flink_replacement_spark/history."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bus import topics
from candlewright.cli.app import app
from core.imports import Import, folder_of, rows_of
from core.settings import Settings
from flink_replacement_spark.history.importer import Importer
from flink_replacement_spark.tables.locks import TableLocks
from iceberg import create_tables, open_catalog
from tests.fresh_bus import FreshBus

HEADER = "open_time,open,high,low,close,volume\n"
ROWS = "1704067200,1,2,0.5,1.5,10\n1704067260,1,2,0.5,1.5,10\n"


@pytest.fixture
def bus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FreshBus]:
    bus = FreshBus()
    monkeypatch.setenv("CANDLEWRIGHT_BUS__URL", bus.url)
    monkeypatch.setenv("CANDLEWRIGHT_DATA_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield bus
    bus.close()


@pytest.fixture
def driver(bus: FreshBus, tmp_path: Path) -> Iterator[None]:
    """The driver, as far as imports need it."""
    catalog = open_catalog(Settings(data_dir=tmp_path))
    create_tables(catalog)
    stopping = threading.Event()
    importer = Importer(bus, catalog, TableLocks(), data_dir=tmp_path, stopping=stopping)
    thread = threading.Thread(target=importer.run)
    thread.start()
    yield
    stopping.set()
    thread.join(10)


def run(*arguments: str) -> Result:
    of_csv = ["--format", "csv", "--period", "1m", "--ticker", "BTC/USDT.BINANCE"]
    return CliRunner().invoke(app, ["import", *of_csv, *arguments])


@pytest.mark.usefixtures("driver")
def test_candles_are_stored_and_differences_written_to_a_file() -> None:
    Path("one.csv").write_text(HEADER + ROWS)
    # The driver logs to the same stdout here.
    first = json.loads(run("one.csv", "--output", "json").stdout.splitlines()[-1])
    assert (first["candles"], first["new"], first["different"]) == (2, 2, 0)
    Path("two.csv").write_text(HEADER + ROWS.replace("1.5,10", "1.75,10", 1))
    result = run("two.csv", "--differences", "other.csv")
    assert result.exit_code == 0 and "1 candle not written" in result.stderr
    header, *listed = Path("other.csv").read_text().splitlines()
    assert "stored_close" in header and len(listed) == 1
    assert not Path("import-differences.csv").exists()


def test_a_mapping_of_something_else_than_a_column_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("one.csv").write_text(HEADER + ROWS)
    result = run("one.csv", "--mapping", "time=when")
    assert result.exit_code == 2
    assert "'time' is not one of open_time, open, high" in " ".join(result.stderr.split()).replace("│ ", "")


@pytest.mark.usefixtures("driver")
def test_trades_are_stored_and_differences_written_to_a_file(tmp_path: Path) -> None:
    of_trades = ["--format", "binance-trades", "--ticker", "BTC/USDT.BINANCE"]
    rows = [f"{number},1.5,2,3,{1704067200000 + number},True,True" for number in range(20)]
    Path("BTCUSDT-trades-2024-01-01.csv").write_text("\n".join(rows[:12]))
    Path("BTCUSDT-trades-2024-01-02.csv").write_text("\n".join(rows[13:]))
    files = ["BTCUSDT-trades-2024-01-02.csv", "BTCUSDT-trades-2024-01-01.csv"]
    result = CliRunner().invoke(app, ["import", *files, *of_trades, "--output", "json"])
    assert "missing from the files, between their first and last trade: 1 ids" in result.stderr
    shown = json.loads(result.stdout.splitlines()[-1])
    assert (shown["trades"], shown["new"], shown["last"]) == (19, 19, "2024-01-01T00:00:00.019000Z")
    Path(files[1]).write_text("\n".join(rows[:12]).replace(",2,3,", ",7,3,"))
    again = CliRunner().invoke(app, ["import", *files, *of_trades])
    assert again.exit_code == 0 and "12 trades not written" in again.stderr
    assert len(Path("import-differences.csv").read_text().splitlines()) == 13
    assert [*folder_of(tmp_path).iterdir()] == []


def test_a_bad_file_orders_nothing(bus: FreshBus, tmp_path: Path) -> None:
    Path("good.csv").write_text(HEADER + ROWS)
    Path("bad.csv").write_text(HEADER + ROWS.replace("1.5", "nan"))
    result = run("good.csv", "bad.csv")
    assert result.exit_code == 1 and str(result.exception) == "bad.csv, line 2: close is not a number: 'nan'"
    assert bus.items(topics.TABLE_IMPORTS) == {} and [*folder_of(tmp_path).iterdir()] == []


def test_ctrl_c_withdraws_an_import_that_has_not_begun(
    bus: FreshBus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("one.csv").write_text(HEADER + ROWS)

    def interrupted(_: float) -> None:
        [(name, value)] = bus.items(topics.TABLE_IMPORTS).items()
        assert Import.from_bytes(value).state == "asked" and pq.read_table(rows_of(tmp_path, name)).num_rows == 2
        raise KeyboardInterrupt

    monkeypatch.setattr("candlewright_platform.cli.stored.importing.time.sleep", interrupted)
    assert "nothing was imported" in run("one.csv").stderr
    assert bus.items(topics.TABLE_IMPORTS) == {} and [*folder_of(tmp_path).iterdir()] == []


@pytest.mark.usefixtures("driver")
def test_old_files_of_killed_imports_are_deleted(tmp_path: Path) -> None:
    left = [rows_of(tmp_path, letter * 32) for letter in "ab"] + [folder_of(tmp_path) / ".x.parquet.7"]
    folder_of(tmp_path).mkdir()
    for file in left:
        file.write_bytes(b"")
    for file in left[1:]:
        os.utime(file, (1.0, 1.0))
    Path("one.csv").write_text(HEADER + ROWS)
    assert run("one.csv").exit_code == 0
    assert [*folder_of(tmp_path).iterdir()] == left[:1]


def test_a_venues_archive_is_not_mixed_with_the_sandbox(bus: FreshBus, tmp_path: Path) -> None:
    (tmp_path / "origin.json").write_text('{"origin": "sandbox"}')
    Path("BTCUSDT-1m-2024-01.csv").write_text("1")
    result = run("BTCUSDT-1m-2024-01.csv", "--format", "binance-klines")
    assert result.exit_code == 1 and "is of the sandbox" in str(result.exception)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("x.csv", "--format", "excel"), "not a format"),
        (("x.csv", "--mapping", "open"), "is not NAME=COLUMN"),
        (("x.csv", "--format", "kraken", "--mapping", "open=o"), "is for csv"),
        (("x.csv", "--ticker", "BTCUSDT"), "not a valid ticker"),
        (("x.csv", "--format", "kraken-trades"), "trades have no period"),
    ],
)
def test_wrong_usage(bus: FreshBus, arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 and said in " ".join(result.output.replace("│", " ").split())
