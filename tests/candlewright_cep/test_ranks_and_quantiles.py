# ruff: noqa: E501  (texts of SQL)
"""Top-N, ranks, percentiles and IGNORE NULLS: compared with DuckDB, and the same on a stream."""

import random
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import StreamInput, TriggerRejected, compile_stream, evaluate
from tests.candlewright_cep.streams import assert_streams, duckdb_rows, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)

TICKERS = "ABCD"


def _trades(seed: int, rows: int = 240) -> pa.Table:
    """Distinct times, few prices, NULLs among them."""
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1, 600_000), rows))
    prices = [None if chance.random() < 0.2 else chance.randrange(1, 12) / 2 for _ in times]
    return pa.table(
        {
            "ticker": pa.array([chance.choice(TICKERS[: 1 + row * 4 // rows]) for row in range(rows)]),
            "ts": pa.array([time * 10**6 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "price": pa.array(prices, pa.float64()),
            "size": [float(chance.randrange(1, 20)) for _ in times],
            "side": pa.array([chance.choice(["buy", "sell", None]) for _ in times], pa.string()),
        }
    )


# -- over finished tables, compared with DuckDB ---------------------------------------------------------------------

BY_TIME = "OVER (PARTITION BY ticker ORDER BY ts"
SAME = [
    "SELECT ticker, ts, price, size FROM ticks QUALIFY ROW_NUMBER() OVER (PARTITION BY ticker ORDER BY size DESC, ts) <= 3",
    "SELECT ticker, ts, RANK() OVER w AS r FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY size) QUALIFY r <= 2",
    "SELECT ticker, SUM(size) AS total, RANK() OVER (ORDER BY SUM(size) DESC) AS r FROM ticks GROUP BY ticker QUALIFY r < 3",
    "SELECT ticker, SUM(size) AS total FROM ticks GROUP BY ticker QUALIFY RANK() OVER (ORDER BY total DESC) < 3",
    "SELECT ticker, size * 2 AS twice FROM ticks QUALIFY ROW_NUMBER() OVER (PARTITION BY twice ORDER BY twice + size, ts) = 1",
    "SELECT ticker, SUM(size) AS total, COUNT(*) AS n FROM ticks GROUP BY ticker HAVING total > 300 AND n + 1 > 5",
    "SELECT ticker, SUM(size) AS size FROM ticks GROUP BY ticker HAVING MAX(size) > 15",
    "SELECT * FROM (SELECT ticker, ts, NTILE(7) OVER (PARTITION BY ticker ORDER BY ts) AS n FROM ticks) WHERE n = 2",
    "SELECT ticker, MEDIAN(price) AS m, PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY price) AS p, PERCENTILE_DISC(0.3) "
    "WITHIN GROUP (ORDER BY size) AS d, PERCENTILE_CONT(0.2) WITHIN GROUP (ORDER BY price DESC) AS q, "
    "PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY size) AS least, COUNT(DISTINCT price) AS n FROM ticks GROUP BY ticker",
    "SELECT side, MEDIAN(price) FILTER (WHERE size > 10) AS m FROM ticks GROUP BY side",
    f"SELECT ticker, ts, MEDIAN(price) {BY_TIME} ROWS BETWEEN 6 PRECEDING AND CURRENT ROW) AS m FROM ticks",
    f"SELECT ticker, ts, MEDIAN(price) {BY_TIME}) AS m FROM ticks",
    f"SELECT ticker, ts, MEDIAN(price) {BY_TIME} ROWS BETWEEN 3 PRECEDING AND 4 FOLLOWING) AS m FROM ticks",
    f"SELECT ticker, ts, LAG(ABS(price) IGNORE NULLS) {BY_TIME}) AS a, LAG(price, 3 IGNORE NULLS) {BY_TIME}) AS b, "
    f"LEAD(price, 2 IGNORE NULLS) {BY_TIME}) AS c, LAG(price, 2, -1.0 IGNORE NULLS) {BY_TIME}) AS d, "
    f"FIRST_VALUE(price IGNORE NULLS) {BY_TIME} ROWS 2 PRECEDING) AS e, LAST_VALUE(price IGNORE NULLS) {BY_TIME}) AS f, "
    f"NTH_VALUE(price, 2 IGNORE NULLS) {BY_TIME} ROWS 4 PRECEDING) AS g, LAST_VALUE(side RESPECT NULLS) {BY_TIME}) AS h "
    "FROM ticks",
]  # fmt: skip


@pytest.mark.parametrize("sql", SAME)
@pytest.mark.parametrize("seed", seeds(3))
def test_answers_equal_duckdbs_rows(sql: str, seed: int) -> None:
    table = _trades(seed)
    assert ordered(evaluate(sql, table).to_pylist()) == ordered(duckdb_rows(sql, table))


@pytest.mark.parametrize("seed", seeds(3))
def test_moving_percentiles_are_those_of_each_frame(seed: int) -> None:
    table = _trades(seed, 80)
    over = "OVER (PARTITION BY ticker ORDER BY ts ROWS 9 PRECEDING)"
    sql = (
        f"SELECT ts, PERCENTILE_CONT(0.8) WITHIN GROUP (ORDER BY price) {over} AS c, "
        f"PERCENTILE_DISC(0.8) WITHIN GROUP (ORDER BY price) {over} AS d, MODE(size) {over} AS m FROM ticks"
    )
    by_ticker: dict[str, list[dict[str, Any]]] = {}
    for row in table.to_pylist():
        by_ticker.setdefault(row["ticker"], []).append(row)
    expected = []
    for rows in by_ticker.values():
        for place, row in enumerate(rows):
            frame = rows[max(place - 9, 0) : place + 1]
            values = sorted(part["price"] for part in frame if part["price"] is not None)
            sizes = [part["size"] for part in frame]
            low = 0.8 * (len(values) - 1)
            cont = None if not values else values[int(low)] + (values[min(int(low) + 1, len(values) - 1)] - values[int(low)]) * (low % 1)  # fmt: skip
            disc = next((v for n, v in enumerate(values, 1) if n / len(values) >= 0.8 - 1e-12), None)
            most = max(dict.fromkeys(sizes), key=sizes.count)
            expected.append({"ts": row["ts"], "c": cont, "d": disc, "m": most})
    assert ordered(evaluate(sql, table).to_pylist()) == ordered(expected)


def test_mode_takes_the_first_of_equally_frequent_values() -> None:
    table = pa.table({"g": [1, 1, 1, 1, 2, 3], "v": ["b", "a", "a", "b", None, "c"]})
    found = evaluate("SELECT g, MODE(v) AS m, MODE() WITHIN GROUP (ORDER BY v) AS n FROM ticks GROUP BY g", table)
    assert found.to_pylist() == [
        {"g": 1, "m": "b", "n": "b"},
        {"g": 2, "m": None, "n": None},
        {"g": 3, "m": "c", "n": "c"},
    ]


def test_percentiles_over_no_rows_are_null() -> None:
    table = _trades(1).slice(0, 0)
    sql = (
        "SELECT MEDIAN(price) AS m, MODE(side) AS o, PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY side) AS d FROM ticks"
    )
    assert evaluate(sql, table).to_pylist() == [{"m": None, "o": None, "d": None}]


def test_the_percentile_1_is_no_number_of_rows() -> None:
    table = pa.table({"ts": [1, 2, 3], "price": [2.0, 5.0, 3.0]})
    sql = "SELECT APPROX_PERCENTILE(price, 1) OVER (ORDER BY ts ROWS 5 PRECEDING) AS p FROM ticks"
    assert evaluate(sql, table)["p"].to_pylist() == [2.0, 5.0, 5.0]


# -- on a stream ----------------------------------------------------------------------------------------------------

MOVES = (
    "SELECT ticker, window_start, window_end, LAST_VALUE(price) - FIRST_VALUE(price) AS move, MEDIAN(size) AS m, "
    "MODE(side) AS o, PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY size) AS p FROM TABLE({}) "
    "GROUP BY ticker, window_start, window_end"
)
TUMBLE = MOVES.format("TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)")
HOP = MOVES.format("HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '30' SECOND, INTERVAL '90' SECOND)")
CUMULATE = MOVES.format("CUMULATE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)")
STREAMED = [
    f"SELECT * FROM ({TUMBLE}) QUALIFY ROW_NUMBER() OVER (PARTITION BY window_start ORDER BY move DESC, ticker) <= 2",
    f"SELECT * FROM (SELECT *, RANK() OVER (PARTITION BY window_end ORDER BY move) AS r FROM ({HOP})) WHERE r <= 2",
    f"SELECT *, NTILE(2) OVER w AS n, LEAD(move) OVER w AS next, PERCENT_RANK() OVER w AS r, "
    f"MAX(move) OVER (PARTITION BY window_end) AS most FROM ({CUMULATE}) "
    "WINDOW w AS (PARTITION BY window_end ORDER BY move, ticker)",
    "SELECT ticker, TUMBLE_START(ts, INTERVAL '1' MINUTE) AS begin_ts, SUM(size) AS total FROM ticks "
    "GROUP BY ticker, TUMBLE(ts, INTERVAL '1' MINUTE) "
    "QUALIFY DENSE_RANK() OVER (PARTITION BY TUMBLE_START(ts, INTERVAL '1' MINUTE) ORDER BY SUM(size) DESC) = 1",
    # The ticker that moved most in three consecutive minutes.
    f"SELECT * FROM (SELECT ticker, window_start, move FROM ({TUMBLE}) QUALIFY ROW_NUMBER() OVER (PARTITION BY "
    "window_start ORDER BY move DESC, ticker) = 1) MATCH_RECOGNIZE (ORDER BY window_start MEASURES FIRST(ticker) AS "
    "first, LAST(ticker) AS last PATTERN (X Y) DEFINE Y AS Y.ticker <> X.ticker) AS m",
    f"SELECT ticker, ts, MEDIAN(price) {BY_TIME} ROWS 4 PRECEDING) AS m, MODE(size) {BY_TIME} ROWS 7 PRECEDING) AS o, "
    f"LAG(price, 2 IGNORE NULLS) {BY_TIME}) AS a, LAG(side IGNORE NULLS) {BY_TIME}) AS b, LAG(price, 1, 0.5 IGNORE NULLS) "
    f"{BY_TIME}) AS c, LAST_VALUE(price IGNORE NULLS) {BY_TIME}) AS d, FIRST_VALUE(side IGNORE NULLS) {BY_TIME}) AS e, "
    f"NTH_VALUE(side, 2 IGNORE NULLS) {BY_TIME} ROWS 5 PRECEDING) AS f, LAST_VALUE(price) {BY_TIME}) AS g FROM ticks",
    "SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES MEDIAN(A.price) AS m, MODE(size) AS o, "
    "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY A.size) AS p ALL ROWS PER MATCH PATTERN (A+ B) "
    "DEFINE A AS price <= 4 OR MEDIAN(A.size) > 12, B AS price > MEDIAN(A.price) + 1) AS m",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
@pytest.mark.parametrize("seed", seeds(3))
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str, seed: int) -> None:
    table = _trades(seed)
    assert evaluate(sql, table).num_rows > 1
    assert_streams(sql, table, seed)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT ticker FROM ticks QUALIFY price > 3", "QUALIFY needs a window function"),
        ("SELECT PERCENTILE_CONT(1.5) WITHIN GROUP (ORDER BY price) FROM ticks", "takes a number from 0 to 1"),
        ("SELECT PERCENTILE_CONT(price) WITHIN GROUP (ORDER BY price) FROM ticks", "takes a number from 0 to 1"),
        ("SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY ticker) FROM ticks", "has no form for"),
        ("SELECT SUM(0.5) WITHIN GROUP (ORDER BY price) FROM ticks", "WITHIN GROUP does not belong to SUM"),
        ("SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY price DESC) FROM ticks", "takes an ascending order"),
        ("SELECT SUM(price) IGNORE NULLS OVER (ORDER BY ts) FROM ticks", "IGNORE NULLS is not possible with SUM"),
        ("SELECT ROW_NUMBER() IGNORE NULLS OVER (ORDER BY ts) FROM ticks", "IGNORE NULLS is not possible with ROW_NUMBER"),
    ],
)  # fmt: skip
def test_impossible_ranks_and_percentiles_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades(1))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (
            f"SELECT * FROM ({TUMBLE}) QUALIFY RANK() OVER (ORDER BY move DESC) < 3",
            r"ORDER BY ts, or PARTITION BY window_start \(or TUMBLE_START\(...\)\) to compare the rows of each window",
        ),
        ("SELECT ts FROM ticks QUALIFY RANK() OVER (PARTITION BY ticker ORDER BY ts) < 3", "RANK would keep every row"),
        (f"SELECT MEDIAN(price) {BY_TIME}) AS m FROM ticks", "MEDIAN without a bound would keep every value"),
        (f"SELECT LAG(price, 10001) IGNORE NULLS {BY_TIME}) AS m FROM ticks", "goes back at most 10000 values"),
        (
            "SELECT ticker, RANK() OVER (PARTITION BY window_start ORDER BY n) AS r FROM (SELECT ticker, window_start, "
            "window_end, COUNT(*) AS n FROM TABLE(SESSION(TABLE ticks PARTITION BY ticker, DESCRIPTOR(ts), "
            "INTERVAL '1' MINUTE)) GROUP BY ticker, window_start, window_end)",
            "ORDER BY the event time",
        ),
    ],
)  # fmt: skip
def test_ranks_that_a_stream_cannot_bound_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        compile_stream(sql, {"ticks": StreamInput(_trades(1).schema, ("ts",))})
