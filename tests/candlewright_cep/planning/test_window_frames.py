# ruff: noqa: E501  (texts of SQL)
"""GROUPS, EXCLUDE, and frames that look ahead: compared with DuckDB, and the same on a stream."""

import random

import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
from tests.candlewright_cep.streams import assert_streams, duckdb_rows, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)


def _trades(seed: int, rows: int = 120) -> pa.Table:
    """Several trades at one time; `n` distinguishes them."""
    chance = random.Random(seed)
    times = sorted(chance.randrange(1, 60) * 10**9 for _ in range(rows))
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "n": list(range(rows)),
            "price": [None if chance.random() < 0.2 else chance.randrange(9) / 2 for _ in times],
        }
    )


def _select(frame: str) -> str:
    return (
        "SELECT ticker, n, SUM(price) OVER w AS s, COUNT(*) OVER w AS c, MAX(price) OVER w AS m, MEDIAN(price) OVER w AS d "
        f"FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts {frame})"
    )


def _ranked(frame: str) -> str:
    """Rank the rows in an order that is the same in every engine."""
    return (
        "SELECT ticker, n, FIRST_VALUE(price) OVER w AS f, LAST_VALUE(price) OVER w AS l, NTH_VALUE(price, 2) OVER w AS t, "
        f"FIRST_VALUE(price IGNORE NULLS) OVER w AS k FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY n {frame})"
    )


BOUNDS = [
    "2 PRECEDING", "BETWEEN 3 PRECEDING AND 1 PRECEDING", "BETWEEN CURRENT ROW AND CURRENT ROW",
    "BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", "BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    "BETWEEN 1 FOLLOWING AND 3 FOLLOWING", "BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
]  # fmt: skip
EXCLUDED = ["EXCLUDE NO OTHERS", "EXCLUDE CURRENT ROW", "EXCLUDE GROUP", "EXCLUDE TIES"]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("excluded", EXCLUDED)
def test_groups_and_exclusions_are_those_of_duckdb(bounds: str, excluded: str) -> None:
    for seed in seeds(2):
        table = _trades(seed)
        for unit in ("GROUPS", "ROWS"):
            sql = _select(f"{unit} {bounds} {excluded}") if unit == "GROUPS" else _ranked(f"{unit} {bounds} {excluded}")
            assert ordered(evaluate(sql, table).to_pylist()) == ordered(duckdb_rows(sql, table)), sql


STREAMED = [
    _select("GROUPS BETWEEN 2 PRECEDING AND CURRENT ROW"),
    _select("GROUPS BETWEEN 3 PRECEDING AND 1 PRECEDING"),
    _select("GROUPS BETWEEN 3 PRECEDING AND CURRENT ROW EXCLUDE TIES"),
    _select("ROWS BETWEEN 4 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW"),
    _select("RANGE BETWEEN INTERVAL '5' SECOND PRECEDING AND CURRENT ROW EXCLUDE GROUP"),
    "SELECT ticker, n, SUM(price) OVER (PARTITION BY ticker ORDER BY ts GROUPS UNBOUNDED PRECEDING) AS s FROM ticks",
    # Ahead.
    _select("ROWS BETWEEN 2 PRECEDING AND 3 FOLLOWING"),
    _select("ROWS BETWEEN 1 FOLLOWING AND 3 FOLLOWING EXCLUDE TIES"),
    _select("GROUPS BETWEEN 1 PRECEDING AND 2 FOLLOWING EXCLUDE CURRENT ROW"),
    _select("RANGE BETWEEN INTERVAL '3' SECOND PRECEDING AND INTERVAL '7' SECOND FOLLOWING"),
    "SELECT ticker, n, LEAD(price) OVER w AS a, LEAD(price, 3, -1.0) OVER w AS b, LAG(n, 2) OVER w AS c, ROW_NUMBER() OVER w AS r, "
    "EMA(price, 3) OVER w AS e FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts)",
    "SELECT * FROM (SELECT ticker, n, price, LEAD(price) OVER (PARTITION BY ticker ORDER BY ts) AS next, "
    "AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS 3 PRECEDING) AS mean FROM ticks) WHERE next > price AND price > mean",
    "SELECT n, LEAD(ticker) OVER (ORDER BY ts, n) AS next FROM ticks",
    "SELECT n, SUM(price) OVER (ORDER BY ts RANGE BETWEEN CURRENT ROW AND INTERVAL '4' SECOND FOLLOWING) AS s FROM ticks",
    "SELECT ticker, w, n, LEAD(n) OVER (PARTITION BY ticker ORDER BY w) AS next FROM (SELECT ticker, window_start AS w, COUNT(*) AS n "
    "FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND)) GROUP BY ticker, window_start, window_end)",
    "SELECT n, LEAD(n) OVER (PARTITION BY ticker, ticker || CAST(n % 2 AS VARCHAR) ORDER BY ts) AS next FROM ticks",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
@pytest.mark.parametrize("seed", seeds(2))
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str, seed: int) -> None:
    assert assert_streams(sql, _trades(seed), seed)


def test_a_lead_comes_with_the_row_that_it_reads_and_keeps_no_more() -> None:
    table = _trades(1, 150)
    sql = "SELECT ticker, n, LEAD(n, 2) OVER (PARTITION BY ticker ORDER BY ts) AS next FROM ticks"
    stream = TriggerStream(query=compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))}))
    buffer = ReleaseBuffer("ts", "ticker")
    seen: dict[str, list[int]] = {"A": [], "B": []}
    for row in range(table.num_rows):
        one = table.slice(row, 1)
        events = stream.feed(buffer.push(one).rows, buffer.clock).table.to_pylist()
        own = seen[one.column("ticker")[0].as_py()]
        own.append(row)
        assert [(event["n"], event["next"]) for event in events] == ([(own[-3], own[-1])] if len(own) > 2 else [])
        assert stream.retained_rows <= 4


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT SUM(n) OVER (GROUPS 2 PRECEDING) FROM ticks", "a GROUPS frame needs ORDER BY"),
        ("SELECT SUM(n) OVER (ORDER BY ts GROUPS 1.5 PRECEDING) FROM ticks", "offset of a GROUPS frame must be a whole number"),
        ("SELECT SUM(n) OVER (ORDER BY ts ROWS 2 PRECEDING EXCLUDE OTHERS) FROM ticks", "expected CURRENT ROW, GROUP, TIES or NO OTHERS"),
        ("SELECT SUM(n) OVER (ORDER BY ts EXCLUDE TIES) FROM ticks", "expected '\\)'"),
    ],
)  # fmt: skip
def test_malformed_frames_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades(1))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        (_select("ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"), "a frame without an end"),
        (_select("ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING"), "would keep every row"),
        (_select("ROWS UNBOUNDED PRECEDING EXCLUDE TIES"), "with EXCLUDE would keep every row|without a bound"),
        ("SELECT LEAD(n IGNORE NULLS) OVER (PARTITION BY ticker ORDER BY ts) AS x FROM ticks", "waits for a value that may never come"),
        (
            "SELECT * FROM (SELECT *, LEAD(n) OVER (PARTITION BY ticker ORDER BY ts) AS x FROM ticks) MATCH_RECOGNIZE "
            "(PARTITION BY ticker ORDER BY ts MEASURES A.n AS m PATTERN (A B) DEFINE B AS n > 1)",
            "come last on a stream",
        ),
        (
            "SELECT a.n, a.x FROM (SELECT *, LEAD(n) OVER (PARTITION BY ticker ORDER BY ts) AS x FROM ticks) a ASOF JOIN ticks b "
            "ON a.ticker = b.ticker AND a.ts >= b.ts",
            "not possible in a join by time",
        ),
        (
            "SELECT SUM(n) OVER (PARTITION BY ticker ORDER BY w RANGE BETWEEN CURRENT ROW AND INTERVAL '9' SECOND FOLLOWING) AS x "
            "FROM (SELECT ticker, window_start AS w, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND)) "
            "GROUP BY ticker, window_start, window_end)",
            "goes over the input of a stream",
        ),
    ],
)  # fmt: skip
def test_frames_that_a_stream_cannot_decide_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        compile_stream(sql, {"ticks": StreamInput(_trades(1).schema, ("ts",))})
