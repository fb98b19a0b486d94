# ruff: noqa: E501  (texts of SQL)
"""BARS BY VOLUME, TRADES and VALUE: compared with a naive loop over the trades, and the same on a stream."""

import random
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import StreamInput, TriggerRejected, compile_stream, evaluate
from candlewright_cep.planning import bars
from tests.candlewright_cep.streams import assert_streams, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)


def _trades(seed: int, rows: int = 200) -> pa.Table:
    """Several trades at one time; some without price or size, with size zero, or as large as a whole bar."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(1, rows) * 10**9 for _ in range(rows))
    return pa.table(
        {
            "ticker": [chance.choice("ABC") for _ in times],
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "price": [chance.choice([None, *(k / 10 for k in range(90, 110))]) for _ in times],
            "size": [chance.choice([None, float("nan"), -1.0, 0.0, 0.1, 0.2, 0.3, 0.7, 2.5, 9.0]) for _ in times],
        }
    )


def _naive(table: pa.Table, measure: str, size: str) -> list[dict[str, Any]]:
    """The expected bars, in exact numbers from the decimal text of the doubles."""
    found: list[dict[str, Any]] = []
    opened: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        price, amount = row["price"], row["size"]
        if price is None or amount is None or not amount >= 0:
            continue
        part = opened.setdefault(row["ticker"], [])
        part.append(row)
        exact = [(Fraction(str(trade["price"])), Fraction(str(trade["size"]))) for trade in part]
        total = {
            "TRADES": Fraction(len(part)),
            "VOLUME": sum(s for _, s in exact),
            "VALUE": sum(p * s for p, s in exact),
        }
        if total[measure] >= Fraction(size):
            prices = [trade["price"] for trade in part]
            found.append(
                {
                    "ticker": row["ticker"], "open_time": part[0]["ts"], "close_time": row["ts"], "open": prices[0],
                    "high": max(prices), "low": min(prices), "close": prices[-1],
                    "volume": sum(trade["size"] for trade in part),
                    "quote_volume": sum(trade["price"] * trade["size"] for trade in part), "trade_count": len(part),
                }
            )  # fmt: skip
            opened[row["ticker"]] = []
    return found


SIZES = [("VOLUME", "0.9"), ("VOLUME", "6"), ("TRADES", "1"), ("TRADES", "7"), ("VALUE", "19.8"), ("VALUE", "75")]


@pytest.mark.parametrize(("measure", "size"), SIZES)
@pytest.mark.parametrize("seed", seeds(2))
def test_bars_are_those_of_a_loop_over_the_trades(measure: str, size: str, seed: int) -> None:
    table = _trades(seed)
    found = assert_streams(f"SELECT * FROM ticks BARS BY {measure} {size}", table, seed)
    assert ordered(found) == ordered(_naive(table, measure, size))
    assert len(found) > 3


def test_blocks_of_rows_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    table, sql = _trades(5), "SELECT * FROM ticks BARS BY VOLUME 3"
    whole = evaluate(sql, table).to_pylist()
    monkeypatch.setattr(bars, "_BLOCK", 7)
    assert evaluate(sql, table).to_pylist() == whole


READERS = [
    "SELECT *, AVG(close) OVER (PARTITION BY ticker ORDER BY close_time ROWS 2 PRECEDING) AS mean FROM ticks BARS BY TRADES 5",
    "SELECT *, SUM(volume) OVER (PARTITION BY ticker ORDER BY open_time) AS total FROM ticks BARS BY TRADES 2",
    "SELECT *, SUM(volume) OVER (ORDER BY close_time) AS total FROM ticks BARS BY TRADES 2",
    "SELECT *, LAG(ticker) OVER (ORDER BY close_time) AS before FROM ticks BARS BY TRADES 2",
    "SELECT b.ticker, b.close, RSI(close, 3) OVER (PARTITION BY ticker ORDER BY close_time) AS r FROM ticks AS t BARS BY VALUE 20 AS b WHERE b.high > 10",
    "SELECT * FROM (SELECT ticker, ts, price, size FROM ticks WHERE price > 9.5) BARS BY VOLUME 2 MATCH_RECOGNIZE (PARTITION BY ticker "
    "ORDER BY close_time MEASURES FIRST(open) AS a, LAST(close) AS b, COUNT(*) AS n PATTERN (U U+) DEFINE U AS close > open) AS m",
    "SELECT * FROM ticks BARS BY VOLUME 2 MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY open_time "
    "MEASURES FIRST(open_time) AS a, LAST(close_time) AS b PATTERN (X Y+) WITHIN INTERVAL '20' SECOND DEFINE Y AS close < PREV(close)) AS m",
    "SELECT * FROM ticks BARS BY VOLUME 2 MATCH_RECOGNIZE (ORDER BY close_time, ticker MEASURES FIRST(ticker) AS a, LAST(ticker) AS b "
    "PATTERN (X Y) DEFINE Y AS Y.ticker <> X.ticker) AS m",
    "SELECT * FROM ticks BARS BY VOLUME 2 MATCH_RECOGNIZE (ORDER BY open_time, ticker, close_time MEASURES FIRST(ticker) AS a, "
    "LAST(ticker) AS b PATTERN (X Y) DEFINE Y AS Y.ticker <> X.ticker) AS m",
    "SELECT ticker, window_start, COUNT(*) AS n, MAX(high) AS high FROM TABLE(TUMBLE((SELECT * FROM ticks BARS BY TRADES 3), "
    "DESCRIPTOR(close_time), INTERVAL '30' SECOND)) GROUP BY ticker, window_start, window_end",
    "SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT * FROM ticks BARS BY TRADES 3), "
    "DESCRIPTOR(open_time), INTERVAL '30' SECOND)) GROUP BY ticker, window_start, window_end",
    "SELECT * FROM (SELECT ts, price, size FROM ticks) BARS BY TRADES 9",
]  # fmt: skip


@pytest.mark.parametrize("sql", READERS)
@pytest.mark.parametrize("seed", seeds(2))
def test_texts_over_bars_give_the_same_rows_on_a_stream(sql: str, seed: int) -> None:
    assert assert_streams(sql, _trades(seed), seed)


def test_bars_take_a_parameter_and_new_names() -> None:
    sql = "SELECT b.c FROM ticks BARS BY TRADES :n AS b(t, a, z, o, h, l, c, v, q, n)"
    table = _trades(1)
    expected = [row["close"] for row in _naive(table, "TRADES", "4")]
    assert sorted(evaluate(sql, table, {"n": "4"}).column("c").to_pylist()) == sorted(expected)


def test_only_one_open_bar_of_a_ticker_is_kept() -> None:
    from candlewright_cep import ReleaseBuffer, TriggerStream

    table = _trades(2, 5_000)
    stream = TriggerStream(
        query=compile_stream("SELECT * FROM ticks BARS BY VOLUME 1e9", {"ticks": StreamInput(table.schema, ("ts",))})
    )
    buffer = ReleaseBuffer("ts", "ticker")
    assert stream.feed(buffer.push(table).rows, buffer.clock).table.num_rows == 0
    assert stream.retained_rows == 3
    stream.remove("A")
    assert stream.retained_rows == 2


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM ticks BARS BY WEIGHT 3", "BARS BY takes VOLUME, TRADES, VALUE, found 'WEIGHT'"),
        ("SELECT * FROM ticks BARS BY VOLUME 0", "must be a number greater than 0"),
        ("SELECT * FROM ticks BARS BY VOLUME :n", "no value for the parameter"),
        ("SELECT * FROM ticks BARS BY VOLUME 'x'", "must be a number or a parameter"),
        ("SELECT * FROM ticks BARS BY VOLUME price", "must be a number or a parameter"),
        ("SELECT * FROM ticks BARS BY TRADES 2.5", "takes a whole number"),
        ("SELECT * FROM ticks BARS BY VOLUME 1e999", "too large|must be a number"),
        ("SELECT * FROM (SELECT ts, price FROM ticks) BARS BY VOLUME 3", "a column size of numbers"),
        ("SELECT * FROM (SELECT price AS ts, price, size FROM ticks) BARS BY VOLUME 3", "a column ts of times"),
    ],
)  # fmt: skip
def test_invalid_bars_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades(1))


def test_bars_on_a_stream_go_by_event_time() -> None:
    sql = "SELECT * FROM (SELECT ticker, ts + INTERVAL '1' SECOND AS ts, price, size FROM ticks) BARS BY TRADES 3"
    with pytest.raises(TriggerRejected, match="bars on a stream must use the event time"):
        compile_stream(sql, {"ticks": StreamInput(_trades(1).schema, ("ts",))})
