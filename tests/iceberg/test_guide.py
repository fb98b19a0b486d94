"""The operations guide's instructions for reading the tables from other programs."""

from pathlib import Path
from textwrap import dedent

import pyarrow as pa
import pytest

from core.settings import Settings
from iceberg import OHLC, append, create_tables, load_table, open_catalog

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def test_pyiceberg_reads_the_data_directory_as_the_guide_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = open_catalog(Settings(data_dir=tmp_path / "data"))
    create_tables(catalog)
    row = {"ticker": "BTC/USDT.BINANCE", "period_seconds": 60, "open_time": 0, "source": "exchange", "complete": True}
    row |= dict.fromkeys(("open", "high", "low", "close", "volume"), 4321.5) | {"updated_at": 0}
    rows = [row, row | {"ticker": "ETH/USDT.BINANCE", "close": 1234.5}]
    append(load_table(catalog, OHLC), pa.Table.from_pylist(rows, schema=OHLC.arrow_schema), {"a": "b"})
    after = GUIDE.read_text().partition("    from pyiceberg.catalog import load_catalog\n")
    code = dedent(after[1] + after[2].partition("\n\nTable rows")[0])
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(GUIDE), "exec"), {})
    shown = capsys.readouterr().out
    assert "4321.5" in shown
    assert "1234.5" not in shown
