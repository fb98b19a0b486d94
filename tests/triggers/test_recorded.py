"""Over recorded trades and bars a stream in random micro-batches, with restarts, gives the rows of one evaluation."""

import csv
import gzip
import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from candlewright_cep import evaluate
from documentation.trigger_text import Text
from tests.triggers import guide, market
from tests.triggers.market import Row
from tests.triggers.trigger_records import TICKER, V_SHAPE, rows

pytestmark = pytest.mark.timeout(120)


def _pattern(clauses: str) -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts {clauses}) AS m"


ON_TICKS = {
    "condition": "size > 1",
    "shape": V_SHAPE,
    "deep shape": guide.examples()["V-shape"].text.sql,
    "minutes": (
        "SELECT ticker, window_start, MIN(price) AS low, MAX(price) AS high, SUM(size) AS volume, COUNT(*) AS n "
        "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
        "GROUP BY ticker, window_start, window_end"
    ),
    "sessions": "SELECT ticker, COUNT(*) AS n FROM ticks GROUP BY ticker, SESSION(ts, INTERVAL '200' MILLISECOND)",
    "mean": (
        "SELECT ts, price - AVG(price) OVER (PARTITION BY ticker ORDER BY ts "
        "RANGE BETWEEN INTERVAL '2' SECOND PRECEDING AND CURRENT ROW) AS off FROM ticks"
    ),
    "budget": _pattern(
        "MEASURES SUM(A.size) AS total, COUNT(*) AS n AFTER MATCH SKIP TO NEXT ROW "
        "PATTERN (A+ B) DEFINE A AS SUM(A.size) < 0.5, B AS price > AVG(A.price)"
    ),
    "all rows": _pattern(
        "MEASURES CLASSIFIER() AS c, MATCH_NUMBER() AS n, FINAL COUNT(*) AS size_of ALL ROWS PER MATCH "
        "WITH UNMATCHED ROWS PATTERN (D{2,} U+? | E) DEFINE D AS price < PREV(price), U AS price > PREV(price), "
        "E AS size > 2"
    ),
    "quiet": _pattern(
        "MEASURES A.ts AS last_trade, B.ts AS next_trade ONE ROW PER MATCH WITH TIMEOUT ROWS "
        "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B) WITHIN INTERVAL '1' SECOND"
    ),
    "ahead": _pattern("MEASURES P.price AS top PATTERN (P) DEFINE P AS price > PREV(price) AND price > NEXT(price)"),
}
ON_BARS = {name: example.text for name, example in guide.examples().items() if example.text.input == "ohlc"}
del ON_BARS["Spread of two tickers"]


def _agree(
    texts: dict[str, Text], own: list[Row], input_name: str, seed: int, sizes: Sequence[int] = (1, 5, 50, 400)
) -> None:
    live, end = market.streamed(texts, market.records_of(own), random.Random(seed), restarts=True, sizes=sizes)
    for name, text in texts.items():
        found = [row for event in [*live, *end] if event.trigger_id == name for row in rows(event)]
        wanted = market.as_rows(evaluate(text.sql, market.table_of(own, input_name), text.parameters))
        assert sorted(found, key=repr) == sorted(wanted, key=repr), name
        assert found, name


def _trades(file: Path) -> list[Row]:
    """The trades among recorded websocket frames: `received JSON` a line."""
    found = []
    with gzip.open(file, "rt") as lines:
        for line in lines:
            frame = json.loads(line.partition(" ")[2])
            trade = frame.get("data", frame)
            if trade.get("e") == "trade":
                time = int(trade["T"]) * 1_000_000
                found.append({"ticker": TICKER, "time": time, "price": float(trade["p"]), "size": float(trade["q"])})
    return found


def test_recorded_trades_give_the_same_rows_on_a_stream(shared_data: Path) -> None:
    table = pq.read_table(shared_data / "binance" / "btcusdt_trades_20210108.parquet")
    own = [
        {
            "ticker": TICKER,
            "time": round(row["timestamp"].timestamp() * 1000) * 1_000_000,
            "price": row["price"],
            "size": row["quantity"],
        }
        for row in table.to_pylist()
    ]
    texts = {name: Text(sql, {"depth": "0.0001"}, (TICKER,)) for name, sql in ON_TICKS.items()}
    _agree(texts, own, "ticks", 1)


def test_hundreds_of_trades_of_one_millisecond_are_taken_together(shared_data: Path) -> None:
    own = [
        trade for day in ("08", "09") for trade in _trades(shared_data / "binance" / f"btcusdt_spot_ws_202408{day}.gz")
    ]
    assert len(own) == 19_904
    texts = {
        name: Text(sql, {"depth": "0.0001"}, (TICKER,))
        for name, sql in ON_TICKS.items()
        if name in ("condition", "shape", "minutes", "mean", "quiet")
    }
    _agree(texts, own, "ticks", 2, sizes=(1, 300, 3_000))


def test_recorded_bars_give_the_same_rows_on_a_stream(shared_data: Path) -> None:
    own: list[Row] = []
    with (shared_data / "ftx" / "btc_perp_1m_20211231_20220201.csv").open() as lines:
        for line in csv.DictReader(lines):
            time = datetime.fromisoformat(line.pop("timestamp")).replace(tzinfo=UTC)
            values = {name: float(value) for name, value in line.items()}
            own.append({"ticker": TICKER, "time": round(time.timestamp()) * 10**9} | values)
            if len(own) == 3_000:
                break
    _agree(ON_BARS, own, "ohlc", 3)
