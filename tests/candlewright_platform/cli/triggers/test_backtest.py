"""`candlewright trigger try --ticker`: over real tables, the same rows as the batch, and the output for people."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import Result
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright_cep import evaluate
from candlewright_platform.cli.triggers import backtest
from core.settings import Settings
from iceberg import OHLC, OHLC_REVISIONS, TICKS, append, corrections, create_tables, load_table, open_catalog
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
    """Several trades of one time, with ids that sort differently as text; over two days."""
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
    found = evaluate(sql, table.sort_by(times) if name == "ohlc" else in_order(table))
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


def test_a_text_that_cannot_run_live_runs_over_the_table_and_reports_it(run: Run) -> None:
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
        (("--data-dir", "nowhere"), "found no tables in "),
    ],
)
def test_missing_rows_are_reported(run: Run, arguments: tuple[str, ...], told: str) -> None:
    result = run("close > 1" if "--param" in arguments else "price > 1", *arguments)
    assert result.exit_code == 1
    assert told in str(result.exception)
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("arguments", [("--since", "soon"), ("--table", "quotes"), ("--ticker", "BTC")])
def test_wrong_usage_is_exit_code_2(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("price > 1", *arguments).exit_code == 2


def test_progress_is_reported_in_per_cent(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backtest, "CHUNK_ROWS", 100)
    told: list[tuple[int, int]] = []
    found = backtest.run(
        Settings(data_dir=data_dir), "close > open", {"period_seconds": "60"}, ticker=TICKER, since=START, table=None,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == [(25, 100), (50, 100), (75, 100), (100, 100)]
    assert len(found.fired) == found.table.num_rows
    assert found.candles[0].open_time == START / SECOND


def test_trades_are_looked_for_only_where_the_files_have_some(data_dir: Path) -> None:
    settings, times = Settings(data_dir=data_dir), trades()["ts_ns"].to_pylist()
    assert tick_bounds(settings, TICKER, start_ns=0, end_ns=2**63 - 1) == (min(times), max(times) + 1)
    assert tick_bounds(settings, TICKER, start_ns=START + SECOND, end_ns=START + 5 * SECOND) == (
        START + SECOND,
        START + 5 * SECOND,
    )
    assert tick_bounds(settings, TICKER, start_ns=max(times) + 1, end_ns=2**63 - 1) is None
    assert tick_bounds(settings, "ETH/USDT.BINANCE", start_ns=max(times) + 1, end_ns=2**63 - 1) is None


# ---- as seen
def published(minutes: list[tuple[int, float, int]]) -> pa.Table:
    """(minute, close, known at: seconds after the start)."""
    columns = OHLC_REVISIONS.arrow_schema.names
    plain = {"open": 100.0, "high": 200.0, "low": 1.0, "volume": 1.0, "quote_volume": None, "trade_count": 3}
    rows = [
        {
            "ticker": TICKER, "period_seconds": 60, "source": "ticks", "complete": True, "close": close,
            "open_time": pa.scalar(START // 1_000 + minute * 60_000_000, pa.timestamp("us", "UTC")),
            "known_at": pa.scalar(START // 1_000 + known * 1_000_000, pa.timestamp("us", "UTC")),
            "revision": sum(other == minute for other, _, _ in minutes[:place]),
        } | plain
        for place, (minute, close, known) in enumerate(minutes)
    ]  # fmt: skip
    return pa.Table.from_pylist([{name: row[name] for name in columns} for row in rows], OHLC_REVISIONS.arrow_schema)


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Bar 1 is corrected after bar 2, bar 3 arrives late after bar 4; the exchange's candle corrects bar 2."""
    folder = tmp_path_factory.mktemp("lived")
    catalog = open_catalog(Settings(data_dir=folder))
    create_tables(catalog)
    seen = published([(0, 101, 60), (1, 99, 120), (2, 102, 180), (1, 103, 190), (4, 104, 300), (3, 105, 310)])
    append(load_table(catalog, OHLC_REVISIONS), seen, {})
    candles = bars().slice(2, 1)
    append(load_table(catalog, OHLC_REVISIONS), corrections(candles, seen, START // 1_000_000 + 400_000), {})
    append(load_table(catalog, OHLC), bars(), {})
    return folder


@pytest.mark.parametrize(
    ("parameters", "since", "closes"),
    [
        ({}, 0, [101, 102, 104]),
        ({"period_seconds": "60"}, 0, [101, 102, 104]),
        ({"revisions": "true"}, 0, [101, 102, 103, 104, 105]),
        ({"revisions": "true", "cooldown_seconds": "180"}, 0, [101, 104]),
        ({}, 150, [102, 104]),
        ({"revisions": "true"}, 185, [103, 104, 105]),
        ({}, 185, [104]),
    ],
)
def test_as_seen_gives_the_events_of_the_bars_as_they_came(
    run: Run, lived: Path, parameters: dict[str, str], since: int, closes: list[float]
) -> None:
    given = [part for item in parameters.items() for part in ("--param", "=".join(item))]
    at = f"2024-01-01T00:0{since // 60}:{since % 60:02d}Z"
    sql = "SELECT close FROM ohlc WHERE close > 100"
    rows = rows_of(run(sql, "--as-seen", "--since", at, *given, "--data-dir", lived, "--output", "json"))
    assert [row["close"] for row in rows] == closes


def test_as_seen_draws_the_bars_that_came(run: Run, lived: Path) -> None:
    shown = run("close > 100", "--as-seen", "--param", "period_seconds=60", "--data-dir", lived).stdout
    told = f"{TICKER}: 6 bars of 1m as they were published, 2024-01-01T00:00:00Z to 2024-01-01T00:04:00Z"
    assert told in shown
    assert "fired 3 times" in shown


@pytest.mark.parametrize("sql", ["price > 1", V_SHAPE])
def test_as_seen_of_trades_is_refused_with_a_sentence(run: Run, lived: Path, sql: str) -> None:
    result = run(sql, "--as-seen", "--data-dir", lived)
    assert result.exit_code == 1
    assert str(result.exception).startswith("--as-seen is for triggers over ohlc: stored trades have neither")


def test_as_seen_without_published_bars_reports_it(run: Run, lived: Path) -> None:
    result = run("close > 1", "--as-seen", "--param", "period_seconds=300", "--data-dir", lived)
    assert result.exit_code == 1
    assert f"no bars of 5m of {TICKER} were published" in str(result.exception)
    assert run("SELECT close FROM ohlc ORDER BY close", "--as-seen", "--data-dir", lived).exit_code == 1


def test_as_seen_needs_a_ticker(tmp_path: Path) -> None:
    given = ["trigger", "try", "--sql", "close > 1", "--input", str(tmp_path / "x.parquet"), "--as-seen"]
    assert CliRunner().invoke(app, given).exit_code == 2


def test_a_join_reads_the_stored_rows_of_each_of_its_inputs(run: Run) -> None:
    sql = """SELECT t.ts_ns, t.price, o.close FROM ticks t ASOF JOIN ohlc o
        ON t.ticker = o.ticker AND t.ts >= o.close_time AND o.period_seconds = 60"""
    found = run(sql, "--since", "2024-01-01", "--output", "json")
    assert "refused" not in found.stderr
    closes = bars()["close"].to_pylist()
    wanted = []
    for row in in_order(trades()).to_pylist():
        ended = min((row["ts_ns"] - START) // (60 * SECOND), BARS)
        if ended:
            wanted.append((row["ts_ns"], row["price"], closes[ended - 1]))
    assert [tuple(row.values()) for row in rows_of(found)] == wanted
