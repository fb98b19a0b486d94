"""`quality` over candles and trades that Kraken sent."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from core.settings import Settings
from iceberg import OHLC, TICKS, append, create_tables, load_table, open_catalog

TICKER = "BTC/USDT.KRAKEN"
#: Candles of one reply whose trades are in the other.
COMPARED = 126


def replies(folder: Path) -> tuple[list[list[Any]], list[list[Any]]]:
    """The recorded closed candles, and the trades."""
    found = []
    for name in ("ohlc_1m", "trades"):
        result = json.loads((folder / "kraken" / f"xbtusdt_{name}_rest.json").read_text())["result"]
        last = int(result.pop("last"))
        (rows,) = result.values()
        found.append([row for row in rows if name == "trades" or row[0] <= last])
    return found[0], found[1]


def moment(seconds: float) -> pa.TimestampScalar:
    return pa.scalar(round(seconds * 1_000_000), pa.timestamp("us", "UTC"))


def stored(folder: Path, candles: list[list[Any]], trades: list[list[Any]]) -> None:
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog)
    names = ("open", "high", "low", "close", "vwap", "volume")
    rows = [
        dict(zip(names, map(float, row[1:7]), strict=True))
        | {"ticker": TICKER, "period_seconds": 60, "open_time": moment(row[0]), "trade_count": row[7]}
        | {"source": "exchange", "complete": True, "updated_at": moment(row[0] + 61)}
        for row in candles
    ]
    append(load_table(catalog, OHLC), pa.Table.from_pylist(rows, OHLC.arrow_schema), {})
    ticks = [
        {"ticker": TICKER, "trade_id": str(row[6]), "ts": moment(row[2]), "ts_ns": round(row[2] * 1_000_000) * 1_000}
        | {"price": float(row[0]), "size": float(row[1]), "side": {"b": "buy", "s": "sell"}[row[3]]}
        for row in trades
    ]
    append(load_table(catalog, TICKS), pa.Table.from_pylist(ticks, TICKS.arrow_schema), {})


def test_recorded_candles_equal_their_trades(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    candles, trades = replies(shared_data)
    stored(tmp_path / "sound", candles, trades)
    sound = CliRunner().invoke(app, ["quality", TICKER, "--data-dir", str(tmp_path / "sound")])
    assert f"{COMPARED} of {COMPARED}" in sound.stdout
    assert sound.stderr.strip().startswith(f"{TICKER} 1m: no problems, 20")
    nothing = CliRunner().invoke(
        app, ["quality", TICKER, "--data-dir", str(tmp_path / "sound"), "--end", "2001-01-01", "--start", "2000-01-01"]
    )
    assert nothing.stderr.strip() == f"{TICKER} 1m: no candles are stored in this range"
    # One of the busiest minute, whose neighbours have trades, too.
    minutes = [row[2] // 60 for row in trades]
    lost = minutes.index(max(minutes, key=minutes.count)) + 1
    stored(tmp_path / "faulty", candles[:300] + candles[302:], trades[:lost] + trades[lost + 1 :])
    faulty = CliRunner().invoke(app, ["quality", TICKER, "--data-dir", str(tmp_path / "faulty")])
    assert f"{COMPARED - 1} of {COMPARED}" in faulty.stdout
    assert "candles missing inside the range: 2" in faulty.stderr
    assert "candles whose volume differs from the received trades: 1" in faulty.stderr
