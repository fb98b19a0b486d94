"""`candlewright tables`: its output can be used to read the tables."""

import contextlib
import io
import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright_platform.cli.stored.table_list import readers
from core.settings import Settings
from iceberg import OHLC, append, create_tables, load_table, open_catalog
from tests.iceberg.rows import candles

TICKER = "BTC/USDT.BINANCE"


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a lake's folder")
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog)
    append(load_table(catalog, OHLC), candles([1, 2, 3], TICKER), {})
    return folder


def test_tables_are_listed_with_commands_that_read_one(data_dir: Path) -> None:
    found = CliRunner().invoke(app, ["tables", "--data-dir", str(data_dir)])
    assert found.exit_code == 0, found.output
    assert any(line.split()[1:4:2] == ["market.ohlc", "3"] for line in found.stdout.splitlines() if line[:3] == "| m")
    commands = [line for line in found.stdout.splitlines() if line.startswith("python -c ")]
    assert ["duckdb" in line for line in commands] == [True, False]
    listed = CliRunner().invoke(app, ["tables", "--data-dir", str(data_dir), "--output", "json"]).stdout.splitlines()
    rows = {row["table"]: row for row in map(json.loads, listed)}
    assert rows["market.ohlc"]["rows"] == 3 and rows["market.ticks"]["rows"] == 0
    assert [rows["market.ohlc"][name] for name in ("duckdb", "polars")] == commands


@pytest.mark.parametrize("program", ["duckdb", "polars"])
def test_duckdb_and_polars_read_the_rows(data_dir: Path, program: str) -> None:
    python, option, code = shlex.split(readers(Settings(data_dir=data_dir), "market.ohlc")[program])
    assert (python, option) == ("python", "-c")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, {})
    assert "3 rows" in printed.getvalue() if program == "duckdb" else "shape: (3, " in printed.getvalue()


def test_secrets_are_left_out_and_named(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_ICEBERG__PROPERTIES", '{"s3.secret-access-key": "hush", "s3.region": "eu"}')
    found = CliRunner().invoke(app, ["tables", "trigger_events", "--data-dir", str(data_dir)])
    assert found.exit_code == 0, found.output
    assert (
        "hush" not in found.output and '"s3.region": "eu"' in found.stdout and "market.trigger_events" in found.stdout
    )
    assert "PYICEBERG_CATALOG__LAKE__S3__SECRET_ACCESS_KEY" in " ".join(found.stderr.split())


@pytest.mark.parametrize(("arguments", "said"), [(["none"], "unknown table none"), ([], "found no tables in")])
def test_missing_tables_are_reported(data_dir: Path, tmp_path: Path, arguments: list[str], said: str) -> None:
    folder = data_dir if arguments else tmp_path
    found = CliRunner().invoke(app, ["tables", *arguments, "--data-dir", str(folder)])
    assert found.exit_code == 1 and said in str(found.exception)
