"""A misspelt ticker is reported with similar names, whatever the command."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright_platform.supervisor.ports import free_port
from core.settings import Settings
from iceberg import COVERAGE, OHLC, append, create_tables, load_table, open_catalog
from tests.iceberg.rows import TICKER, candles

Run = Callable[..., Result]
RANGE = ("--period", "1m", "--start", "2024-01-01", "--end", "2024-01-02")


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog)
    append(load_table(catalog, OHLC), candles([1]), {})
    covered = {"request_id": "r", "ticker": TICKER, "period_seconds": 60, "status": "OK", "holes": []}
    times = dict.fromkeys(("start", "end"), 0)
    row = covered | times | {"expected": 1, "got": 1}
    columns = [pa.array([row.get(part.name)], part.type) for part in COVERAGE.arrow_schema]
    append(load_table(catalog, COVERAGE), pa.table(columns, schema=COVERAGE.arrow_schema), {})
    return folder


@pytest.fixture
def run(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CANDLEWRIGHT_CONFIG", raising=False)
    return lambda *arguments: CliRunner().invoke(app, [*arguments, "--data-dir", str(data_dir)])


@pytest.mark.parametrize(
    "command",
    [
        ("gaps", "BTC/USDX.BINANCE"),
        ("load", "BTC/USDX.BINANCE", *RANGE),
        ("trigger", "try", "--sql", "price > 1", "--ticker", "BTC/USDX.BINANCE"),
        ("trigger", "try", "--sql", "close > 1", "--param", "period_seconds=60", "--ticker", "BTC/USDX.BINANCE"),
    ],
)
def test_a_misspelt_ticker_without_data_is_reported_with_near_ones(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command)
    assert f"did you mean {TICKER}?" in result.stderr + str(result.exception)


@pytest.mark.parametrize("ticker", [TICKER, "ETH/USDT.BINANCE", "BTC/USDT.KRAKEN"])
def test_another_market_is_not_proposed(run: Run, ticker: str) -> None:
    result = run("trigger", "try", "--sql", "price > 1", "--ticker", ticker)
    said = result.stderr + str(result.exception)
    assert f"no trades of {ticker} are stored" in said
    assert "did you mean" not in said


def test_a_stored_ticker_without_gaps_is_not_a_mistake(run: Run) -> None:
    assert run("gaps", TICKER).stderr.strip() == f"no gaps of {TICKER}"


@pytest.mark.parametrize(
    "command",
    [
        ("history", "btcusdt.binance", *RANGE),
        ("load", "btcusdt.binance", *RANGE),
        ("gaps", "btcusdt.binance"),
        ("trigger", "try", "--sql", "price > 1", "--ticker", "btcusdt.binance"),
    ],
)
def test_a_malformed_ticker_is_refused_with_the_closest_one(run: Run, command: tuple[str, ...]) -> None:
    result = run(*command)
    assert result.exit_code == 2
    assert "did you mean BTC/USDT.BINANCE?" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", [("watch",), ("snapshot",), ("trigger", "add", "--sql", "price > 1", "--ticker")])
def test_a_malformed_ticker_is_refused_before_the_platform_is_asked(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "btcusdt.binance"])
    assert result.exit_code == 2
    assert "did you mean BTC/USDT.BINANCE?" in " ".join(result.stderr.split())


@pytest.mark.parametrize("command", [("gaps", TICKER), ("load", TICKER, *RANGE)])
def test_in_another_folder_than_the_platforms_the_option_is_named(tmp_path: Path, command: tuple[str, ...]) -> None:
    environment = {
        "CANDLEWRIGHT_SPARK__CONNECT_BIND": f"127.0.0.1:{free_port()}",
        "CANDLEWRIGHT_RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{free_port()}",
    }
    result = CliRunner(env=environment).invoke(app, [*command, "--data-dir", str(tmp_path / "other")])
    assert result.exit_code == 1
    assert f"found no tables in {tmp_path / 'other'}: name the platform's folder with --data-dir" in str(
        result.exception
    )


def test_a_mistyped_venue_of_an_exchange_url_gets_near_ones() -> None:
    result = CliRunner().invoke(app, ["up", "--exchange-url", "BINANC=http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert "did you mean BINANCE" in " ".join(result.stderr.split())
