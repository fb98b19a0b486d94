"""`candlewright trigger try --ticker`: over real tables, the same rows as the batch, and what a person sees of it."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli import backtest
from candlewright.cli.app import app
from cep import evaluate
from core.settings import Settings
from iceberg import OHLC, TICKS, append, create_tables, load_table, open_catalog
from iceberg.read import tick_bounds

Run = Callable[..., Result]
TICKER = "BTC/USDT.BINANCE"
SECOND = 10**9
START = 1_704_067_200 * SECOND
BARS, TRADES = 400, 2_000
V_SHAPE = """
SELECT * FROM ticks MATCH_RECOGNIZE (
  PARTITION BY ticker ORDER BY ts_ns
  MEASURES FIRST(D.ts) AS falls, LAST(D.price) AS bottom, LAST(U.ts_ns) AS back, COUNT(*) AS trades
  PATTERN (S D+ U+)
  DEFINE D AS price < PREV(price), U AS price > PREV(price)
) AS v"""


def bars() -> pa.Table:
    draw = random.Random(5)
    rows, price = [], 100.0
    for number in range(BARS):
        close = price * draw.uniform(0.99, 1.01)
        rows.append(
            {
                "ticker": TICKER,
                "period_seconds": 60,
                "open_time": pa.scalar(START // 1_000 + number * 60_000_000, pa.timestamp("us", "UTC")),
                "open": price,
                "high": max(price, close),
                "low": min(price, close),
                "close": close,
                "volume": 1.0,
                "quote_volume": None,
                "trade_count": 3,
                "source": "exchange",
                "complete": True,
                "updated_at": pa.scalar(START // 1_000, pa.timestamp("us", "UTC")),
            }
        )
        price = close
    return pa.Table.from_pylist(rows, OHLC.arrow_schema)


def trades() -> pa.Table:
    """Several of one moment, with ids whose order as text is another one; two days."""
    draw = random.Random(6)
    rows, time = [], START
    for number in range(TRADES):
        time += draw.choice((0, 0, SECOND, 150 * SECOND))
        moment = pa.scalar(time // 1_000, pa.timestamp("us", "UTC"))
        rows.append(
            {
                "ticker": TICKER,
                "trade_id": str(number + 95),
                "ts": moment,
                "ts_ns": time,
                "price": draw.uniform(10, 20),
                "size": 1.0,
                "side": "buy",
                "received_at": moment,
            }
        )
    draw.shuffle(rows)
    return pa.Table.from_pylist(rows, TICKS.arrow_schema)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog)
    append(load_table(catalog, OHLC), bars(), {})
    append(load_table(catalog, TICKS), trades(), {})
    return folder


@pytest.fixture
def run(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CANDLEWRIGHT_CONFIG", raising=False)

    def invoke(sql: str, *arguments: object) -> Result:
        given = ["trigger", "try", "--sql", sql, "--ticker", TICKER, "--data-dir", data_dir, *arguments]
        return CliRunner().invoke(app, list(map(str, given)))

    return invoke


def rows_of(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


def expected(sql: str, table: pa.Table, name: str) -> list[dict[str, Any]]:
    times = "open_time" if name == "ohlc" else "ts_ns"
    found = evaluate(sql, table.sort_by(times) if name == "ohlc" else in_order(table), name)
    return found.to_pylist()


def in_order(table: pa.Table) -> pa.Table:
    return pa.Table.from_pylist(
        sorted(table.to_pylist(), key=lambda row: (row["ts_ns"], int(row["trade_id"]))), table.schema
    )


@pytest.mark.parametrize("chunk", [3, 50_000])
def test_a_pattern_over_stored_trades_gives_the_rows_of_the_batch(
    run: Run, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(backtest, "CHUNK_ROWS", chunk)
    rows = rows_of(run(V_SHAPE, "--since", "2024-01-01", "--output", "json"))
    whole = expected(V_SHAPE, trades(), "ticks")
    assert len(rows) > 100
    assert [(row["bottom"], row["back"], row["trades"]) for row in rows] == [
        (row["bottom"], row["back"], row["trades"]) for row in whole
    ]


def test_a_condition_over_bars_gives_the_bars_it_holds_for(run: Run) -> None:
    sql = "close > open * 1.005"
    rows = rows_of(run(sql, "--param", "period_seconds=60", "--output", "json"))
    assert [row["close"] for row in rows] == [row["close"] for row in expected(sql, bars(), "ohlc")]
    late = rows_of(run(sql, "--param", "period_seconds=60", "--since", "2024-01-01T03:00:00Z", "--output", "json"))
    assert late == [row for row in rows if row["open_time"] >= "2024-01-01T03:00:00"]


def test_a_person_sees_a_chart_with_marks_where_it_fired(run: Run) -> None:
    result = run("close > open * 1.009", "--param", "period_seconds=60", "--since", "2024-01-01")
    fired = len(expected("close > open * 1.009", bars(), "ohlc"))
    assert f"{TICKER}: 400 bars of 1m, 2024-01-01T00:00:00Z to 2024-01-01T06:39:00Z" in result.stdout
    assert f"fired {fired} times" in result.stdout
    (marks,) = [line for line in result.stdout.splitlines() if "▲" in line]
    assert sum(1 if sign == "▲" else int(sign) for sign in marks.split() for sign in sign) == fired


def test_trades_are_charted_as_candles_and_the_pattern_needs_no_option(run: Run) -> None:
    result = run(V_SHAPE)
    assert f"{TICKER}: 2000 trades" in result.stdout
    assert "vol" in result.stdout


def test_cooldown_holds_as_it_does_live(run: Run) -> None:
    sql = "close > open"
    all_of_them = rows_of(run(sql, "--param", "period_seconds=60", "--output", "json"))
    result = run(sql, "--param", "period_seconds=60", "--param", "cooldown_seconds=600", "--output", "json")
    times = [row["open_time"] for row in rows_of(result)]
    assert 30 <= len(times) <= 40 < len(all_of_them)
    shown = run(sql, "--param", "period_seconds=60", "--param", "cooldown_seconds=600").stdout
    assert f"{len(all_of_them) - len(times)} more fell into cooldown_seconds" in shown


def test_a_text_that_cannot_run_live_runs_over_the_table_and_says_so(run: Run) -> None:
    sql = "SELECT close FROM ohlc ORDER BY close DESC LIMIT 3"
    result = run(sql, "--output", "json")
    assert [row["close"] for row in rows_of(result)] == sorted(bars()["close"].to_pylist())[-1:-4:-1]
    assert "as a running trigger this text is refused" in result.stderr


def test_a_refused_text_is_one_line_and_exit_code_1(run: Run) -> None:
    result = run("pric > 1")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("INVALID_SQL 1:1: ")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--param", "period_seconds=300"), "no bars of 5m of BTC/USDT.BINANCE are stored"),
        (("--param", "period_seconds=60", "--since", "2030-01-01"), "since 2030-01-01T00:00:00Z"),
        (("--since", "2025-01-01"), "no trades of BTC/USDT.BINANCE are stored since 2025-01-01"),
        (("--data-dir", "nowhere"), "no tables are in "),
    ],
)
def test_what_is_not_stored_is_said(run: Run, arguments: tuple[str, ...], told: str) -> None:
    result = run("close > 1" if "--param" in arguments else "price > 1", *arguments)
    assert result.exit_code == 1
    assert told in str(result.exception)
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("arguments", [("--since", "soon"), ("--table", "quotes"), ("--ticker", "BTC")])
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("price > 1", *arguments).exit_code == 2


def test_progress_is_told_in_per_cent(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "CHUNK_ROWS", 100)
    told: list[tuple[int, int]] = []
    found = backtest.run(
        Settings(data_dir=data_dir), "close > open", {"period_seconds": "60"}, TICKER, START, None,
        lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(25, 100), (50, 100), (75, 100), (100, 100)]
    assert len(found.fired) == found.table.num_rows
    assert found.candles[0].open_time == START / SECOND


def test_trades_are_looked_for_only_where_the_files_have_some(data_dir: Path) -> None:
    settings, times = Settings(data_dir=data_dir), trades()["ts_ns"].to_pylist()
    assert tick_bounds(settings, TICKER, 0, 2**63 - 1) == (min(times), max(times) + 1)
    assert tick_bounds(settings, TICKER, START + SECOND, START + 5 * SECOND) == (START + SECOND, START + 5 * SECOND)
    assert tick_bounds(settings, TICKER, max(times) + 1, 2**63 - 1) is None
    assert tick_bounds(settings, "ETH/USDT.BINANCE", max(times) + 1, 2**63 - 1) is None
