"""Bars of several periods in one table: the rows that a text gives over it are those of the registered trigger."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.grid import SECOND
from candlewright_cep import TriggerRejected, evaluate
from tests.triggers.trigger_records import TICKER, bar, batch, register, rows
from triggers.partition import TriggerPartition
from triggers.texts.check import INPUTS

START = OHLCV.FromString(bar(0, 1.0)).open_time
#: (minute, close, period)
BARS = [(minute, 2 + minute % 3 + minute / 16, 60) for minute in range(20)]
BARS += [(minute, 1.5 + minute / 8, 300) for minute in range(0, 20, 5)]
TRADES = [(30.0 * number, str(number + 1), 2 + number % 4 + 0.5) for number in range(41)]
MEAN = "AVG(close) OVER (PARTITION BY ticker ORDER BY open_time ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)"
PATTERN = """SELECT * FROM ohlc MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time
    MEASURES FIRST(close) AS top, LAST(D.close) AS bottom, LAST(U.close) AS back
    PATTERN (S D+ U+) DEFINE D AS close < PREV(close), U AS close > PREV(close)) AS v"""
LAST_BAR = "SELECT t.price, o.close FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time"
TREND = f"""WITH trend AS (SELECT *, {MEAN} AS mean FROM ohlc WHERE period_seconds = 300)
    SELECT m.close, f.mean FROM ohlc m ASOF JOIN trend f ON m.ticker = f.ticker AND m.close_time >= f.close_time"""
TEXTS = {
    "plain": "SELECT close, period_seconds FROM ohlc WHERE close > 2",
    "own column": "SELECT close FROM ohlc WHERE period_seconds = 300",
    "over": f"SELECT close, {MEAN} AS mean FROM ohlc",
    "indicator": "SELECT close, SMA(close, 3) OVER (PARTITION BY ticker ORDER BY open_time) AS mean FROM ohlc",
    "pattern": PATTERN,
    "self join": """SELECT a.close, b.close AS same
        FROM ohlc a JOIN ohlc b ON a.ticker = b.ticker AND a.open_time = b.open_time""",
    "last bar": LAST_BAR,
    "one side is named": TREND,
    "both are named": f"{TREND} WHERE m.period_seconds = 60",
    "named in ON": f"{LAST_BAR} AND o.period_seconds = 300",
}


def tables() -> dict[str, pa.Table]:
    bars = [OHLCV.FromString(bar(minute, close, period)) for minute, close, period in BARS]
    names = [field.name for field in INPUTS["ohlc"].schema]
    candles = [{name: getattr(each, name, None) for name in names} for each in bars]
    ticks = [
        {"ticker": TICKER, "trade_id": number, "ts": START + round(second * SECOND), "price": price, "size": 0.5}
        for second, number, price in TRADES
    ]
    return {
        "ohlc": pa.Table.from_pylist(candles, INPUTS["ohlc"].schema),
        "ticks": pa.Table.from_pylist(ticks, INPUTS["ticks"].schema),
    }


def registered(sql: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
    """In event time the bars of a minute come after its trades."""
    partition = TriggerPartition()
    partition.process([], controls=[register("t", sql, TICKER, **parameters)])
    bars = [bar(minute, close, period) for minute, close, period in BARS]
    output = partition.process([batch(1, *TRADES)], bars=bars)
    return [row for event in output.events for row in rows(event)]


def by_value(found: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, default=str) for row in found)


@pytest.mark.parametrize("name", TEXTS)
def test_bars_of_one_period(name: str) -> None:
    counts = []
    for period in ("60", "300"):
        parameters = {"period_seconds": period}
        stored = evaluate(TEXTS[name], tables(), parameters).to_pylist()
        assert by_value(stored) == by_value(registered(TEXTS[name], parameters))
        counts.append(len(stored))
    assert max(counts) > 0
    assert not evaluate(TEXTS["plain"], tables(), {"period_seconds": "3600"}).num_rows


def test_a_text_that_no_stream_takes_has_the_same_bars() -> None:
    newest = "SELECT close FROM ohlc ORDER BY open_time DESC LIMIT 2"
    assert evaluate(newest, tables(), {"period_seconds": "300"}).to_pydict() == {"close": [3.375, 2.75]}
    outer = f"{TREND.replace('ASOF JOIN', 'FULL JOIN').replace('>=', '=')} WHERE m.period_seconds = 60 ORDER BY m.close"
    found = evaluate(outer, tables(), {"period_seconds": "60"})
    assert (found.num_rows, found["mean"].null_count) == (20, 16)


def test_an_invalid_period_is_refused() -> None:
    for text in ("", "x", "0", "-60", "1.5", "nan", "inf"):
        with pytest.raises(TriggerRejected, match="period_seconds is not a whole number"):
            evaluate("close > 0", tables(), {"period_seconds": text}, table_name="ohlc")


@pytest.mark.parametrize("name", ["plain", "over", "pattern"])
def test_without_a_period_each_period_is_evaluated_separately(name: str, tmp_path: Path) -> None:
    pq.write_table(tables()["ohlc"], tmp_path / "bars.parquet")
    given = ["trigger", "try", "--sql", TEXTS[name], "--input", f"ohlc={tmp_path / 'bars.parquet'}", "--output", "json"]
    found = CliRunner().invoke(app, given)
    assert found.exit_code == 0
    assert by_value([json.loads(line) for line in found.stdout.splitlines()]) == by_value(registered(TEXTS[name], {}))
