# ruff: noqa: E501  (texts of SQL)
"""ROLLUP, CUBE, GROUPING SETS and GROUPING: compared with DuckDB, and the same on a stream."""

import random

import pyarrow as pa
import pytest

from candlewright_cep import StreamInput, TriggerRejected, compile_query, compile_stream, evaluate
from tests.candlewright_cep.streams import assert_streams, duckdb_rows, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)


def _trades(seed: int, rows: int = 150) -> pa.Table:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1, 300), rows))
    return pa.table(
        {
            "ticker": [chance.choice("ABC") for _ in times],
            "ts": pa.array([time * 10**9 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "side": pa.array([chance.choice(["buy", "sell", None]) for _ in times], pa.string()),
            "price": [chance.randrange(9) / 2 for _ in times],
            "size": [float(chance.randrange(9)) for _ in times],
        }
    )


GROUPED = [
    "SELECT ticker, side, COUNT(*) AS n, SUM(size) AS s, GROUPING(ticker) AS g, GROUPING(ticker, side) AS h FROM ticks GROUP BY {}",
    "SELECT side, ticker, MAX(price) AS m FROM ticks GROUP BY {} HAVING GROUPING(side) = 0 OR COUNT(*) > 60",
]
SETS = [
    "ROLLUP(ticker, side)", "CUBE(ticker, side)", "GROUPING SETS((ticker, side), (side), ())", "ticker, CUBE(side)",
    "GROUPING SETS(ticker, ROLLUP(side, ticker))", "ROLLUP((ticker, side))", "ticker, side, ROLLUP(ticker)",
    "GROUPING SETS((ticker), (ticker), (side))", "ROLLUP(ticker), ROLLUP(side)", "GROUPING SETS((ticker, side))",
]  # fmt: skip


@pytest.mark.parametrize("sql", GROUPED)
@pytest.mark.parametrize("sets", SETS)
def test_grouping_sets_are_those_of_duckdb(sql: str, sets: str) -> None:
    for table in (_trades(1), _trades(2).slice(0, 5)):
        text = sql.format(sets)
        assert ordered(evaluate(text, table).to_pylist()) == ordered(duckdb_rows(text, table))


def test_expressions_may_be_in_parentheses_and_no_rows_have_one_total() -> None:
    table = _trades(3)
    sql = "SELECT (size + 1) * 2 AS k, COUNT(*) AS n FROM ticks GROUP BY ROLLUP((size + 1) * 2)"
    assert ordered(evaluate(sql, table).to_pylist()) == ordered(duckdb_rows(sql, table))
    assert evaluate(sql, table.slice(0, 0)).to_pylist() == [{"k": None, "n": 0}]
    assert compile_query(GROUPED[0].format(SETS[0]), {"ticks": table.schema}).warnings == ()


STREAMED = [
    "SELECT ticker, side, window_start, COUNT(*) AS n, GROUPING(ticker, side) AS g FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), "
    "INTERVAL '20' SECOND)) GROUP BY ROLLUP(ticker, side), window_start, window_end",
    "SELECT ticker, side, window_end, SUM(size) AS n FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '10' SECOND, "
    "INTERVAL '20' SECOND)) GROUP BY ticker, window_start, window_end, CUBE(side)",
    "SELECT ticker, TUMBLE_START(ts, INTERVAL '30' SECOND) AS begin_ts, MAX(price) AS p FROM ticks "
    "GROUP BY GROUPING SETS(ticker, ()), TUMBLE(ts, INTERVAL '30' SECOND)",
    # Every ticker's share of each minute's total.
    "SELECT ticker, window_start, volume / MAX(volume) OVER (PARTITION BY window_start) AS share FROM (SELECT ticker, window_start, "
    "SUM(size) AS volume FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ROLLUP(ticker), window_start, window_end)",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
@pytest.mark.parametrize("seed", seeds(2))
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str, seed: int) -> None:
    assert len(assert_streams(sql, _trades(seed), seed)) > 10


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT COUNT(*) FROM ticks GROUP BY CUBE(ticker, side, price, size, ts, price, size)", "more than 64 grouping sets"),
        ("SELECT COUNT(*) FROM ticks GROUP BY CUBE(ticker, side), CUBE(price, size), CUBE(ts, side), ROLLUP(side)", "more than 64 grouping sets"),
        ("SELECT COUNT(*) FROM ticks GROUP BY GROUPING SETS(" + "GROUPING SETS(" * 300 + "()" + ")" * 300 + ")", "nested"),
        ("SELECT GROUPING(price) FROM ticks GROUP BY ROLLUP(ticker)", "GROUPING takes expressions of GROUP BY"),
        ("SELECT GROUPING() FROM ticks GROUP BY ticker", "GROUPING takes one column"),
        ("SELECT price FROM ticks GROUP BY ROLLUP(ticker)", "neither in GROUP BY"),
        ("SELECT COUNT(*) FROM ticks GROUP BY ROLLUP(ticker, TUMBLE(ts, INTERVAL '1' MINUTE))", "every grouping set needs the window"),
        ("SELECT COUNT(*) FROM ticks GROUP BY ROLLUP(ticker), SESSION(ts, INTERVAL '1' MINUTE)", "windows that all keys share"),
        ("SELECT COUNT(*) FROM ticks GROUP BY ROLLUP()", "expected|not expected"),
    ],
)  # fmt: skip
def test_malformed_sets_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades(1))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("ROLLUP(ticker)", "GROUP BY on a stream needs a time window"),
        ("ROLLUP(window_start, window_end)", "needs window_start or window_end in GROUP BY"),
    ],
)
def test_sets_without_a_window_are_refused_on_a_stream(keys: str, message: str) -> None:
    source = "ticks" if "window" not in keys else "TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
    with pytest.raises(TriggerRejected, match=message):
        compile_stream(
            f"SELECT COUNT(*) FROM {source} GROUP BY {keys}", {"ticks": StreamInput(_trades(1).schema, ("ts",))}
        )
