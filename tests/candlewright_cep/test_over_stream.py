"""OVER on a stream keeps only the rows that frames can still reach."""

import random

import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
from tests.rounds import rounds, seeds

pytestmark = pytest.mark.timeout(60)

_MINUTE = 60 * 10**9
_DAY = 1_440 * _MINUTE
_HIGH = """
    SELECT ticker, ts, MAX(p) OVER (
      PARTITION BY ticker, day ORDER BY ts RANGE BETWEEN INTERVAL '6' HOUR PRECEDING AND INTERVAL '1' MINUTE PRECEDING
    ) AS top
    FROM (SELECT ticker, ts, p, CAST(ts AS DATE) AS day FROM ticks)"""


def _rows(days: int) -> pa.Table:
    chance = random.Random(days)
    times = sorted(chance.randrange(days * _DAY) for _ in range(days * 100))
    return pa.table(
        {
            "ticker": pa.array([chance.choice("AB") for _ in times]),
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "p": pa.array([chance.randrange(9) for _ in times]),
        }
    )


def _fed(table: pa.Table, cuts: list[int]) -> tuple[list[dict[str, object]], int]:
    """The rows of the stream, and the most rows that it kept."""
    stream = TriggerStream(query=compile_stream(_HIGH, {"ticks": StreamInput(table.schema, ("ts",))}))
    buffer = ReleaseBuffer("ts", "ticker")
    found: list[dict[str, object]] = []
    most = 0
    for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        found += stream.feed(buffer.push(table.slice(start, end - start)).rows, buffer.clock).table.to_pylist()
        most = max(most, stream.retained_rows)
    found += stream.feed(buffer.close({"A", "B"}), buffer.clock).table.to_pylist()
    return found, most


def test_partitions_of_past_days_are_dropped() -> None:
    table = _rows(20)
    cuts = list(range(50, table.num_rows, 50))
    found, most = _fed(table, cuts)
    assert sorted(found, key=repr) == sorted(evaluate(_HIGH, table).to_pylist(), key=repr)
    assert most < 100  # a quarter of a day has about 25 rows


@pytest.mark.parametrize("seed", seeds(5))
def test_any_batching_gives_the_rows_of_the_batch(seed: int) -> None:
    table = _rows(3)
    cuts = sorted(random.Random(seed).sample(range(table.num_rows), rounds(160)))
    assert sorted(_fed(table, cuts)[0], key=repr) == sorted(evaluate(_HIGH, table).to_pylist(), key=repr)


TOTALS = [
    "SELECT ticker, ts, p, SUM(p) OVER w AS s, COUNT(*) OVER w AS n, AVG(p) OVER w AS a, MIN(p) OVER w AS low, "
    "FIRST_VALUE(p) OVER w AS f, LAST_VALUE(p) OVER w AS l, STDDEV(p) OVER w AS d, MAX_BY(ts, p) OVER w AS t "
    "FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts)",
    # The day's traded volume so far, and its volume-weighted mean price.
    "SELECT ticker, ts, SUM(p * v) OVER w / SUM(v) OVER w AS vwap, ROW_NUMBER() OVER w AS n, LAG(p, 3) OVER w AS q "
    "FROM (SELECT ticker, ts, p, p % 3 + 1 AS v, CAST(ts AS DATE) AS day FROM ticks) "
    "WINDOW w AS (PARTITION BY ticker, day ORDER BY ts ROWS UNBOUNDED PRECEDING)",
    "SELECT ticker, ts, p FROM (SELECT ticker, ts, p, MAX(p) OVER (PARTITION BY ticker ORDER BY ts "
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING) AS top FROM ticks) WHERE p > top OR top IS NULL",
    "SELECT ts, COUNT(*) FILTER (WHERE p > 4) OVER (ORDER BY ts) AS n FROM ticks",
    "SELECT ticker, ts, COUNT(DISTINCT p) OVER w AS n, SUM(DISTINCT p) OVER w AS s, MAX(DISTINCT p) OVER w AS m "
    "FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts ROWS 3 PRECEDING)",
    "SELECT ticker, ts, ROW_NUMBER() OVER w AS n, SUM(p) OVER w AS s FROM ticks "
    "WINDOW w AS (PARTITION BY ticker ORDER BY ts ROWS 3 PRECEDING)",
    "SELECT ticker, w, SUM(n) OVER (PARTITION BY ticker ORDER BY w) AS n FROM (SELECT ticker, window_end AS w, "
    "COUNT(*) AS n FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) "
    "GROUP BY ticker, window_start, window_end)",
    "SELECT * FROM (SELECT ticker, ts, p, MAX(p) OVER (PARTITION BY ticker ORDER BY ts) AS top FROM ticks) "
    "MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS n, LAST(top) AS top PATTERN (A B+) "
    "DEFINE B AS top = PREV(top)) AS m",
]


@pytest.mark.parametrize("sql", TOTALS)
def test_frames_without_start_run_on_over_batches_and_restarts(sql: str) -> None:
    table = _rows(2)
    # Several rows of one time, which are peers.
    times = table.column("ts").cast(pa.int64()).to_numpy() // (10 * _MINUTE) * (10 * _MINUTE)
    prices = [None if row % 11 == 0 else float(price.as_py()) for row, price in enumerate(table.column("p"))]
    table = pa.table(
        {
            "ticker": table.column("ticker"),
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "p": pa.array(prices, pa.float64()),
        }
    )
    query = compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))})
    stream = TriggerStream(query=query)
    buffer = ReleaseBuffer("ts", "ticker")
    buffer.advance({"A": -1, "B": -1})
    found: list[dict[str, object]] = []
    for start in range(0, table.num_rows, 17):
        found += stream.feed(buffer.push(table.slice(start, 17)).rows, buffer.clock).table.to_pylist()
        state = stream.snapshot()
        stream = TriggerStream(query=query)
        stream.restore(state)
    found += stream.feed(buffer.close({"A", "B"}), buffer.clock).table.to_pylist()
    assert stream.retained_rows <= 12  # three of each partition, for LAG
    assert sorted(found, key=repr) == sorted(evaluate(sql, table).to_pylist(), key=repr)


@pytest.mark.parametrize(
    ("function", "frame", "message"),
    [
        ("STRING_AGG(ticker)", "", "STRING_AGG without a bound would keep every value"),
        ("COUNT(DISTINCT p)", "", "COUNT_DISTINCT without a bound would keep every value"),
        ("RANK()", "", "RANK would keep every row of a stream"),
        ("SUM(p)", "RANGE BETWEEN UNBOUNDED PRECEDING AND INTERVAL '1' SECOND PRECEDING", "ends at CURRENT ROW or at"),
        ("SUM(p)", "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING", "looks ahead"),
    ],
)
def test_windows_that_would_keep_every_row_are_refused(function: str, frame: str, message: str) -> None:
    sql = f"SELECT {function} OVER (PARTITION BY ticker ORDER BY ts {frame}) FROM ticks"
    with pytest.raises(TriggerRejected, match=rf"1:\d+: .*{message}"):
        compile_stream(sql, {"ticks": StreamInput(_rows(1).schema, ("ts",))})


def test_totals_of_past_days_are_dropped() -> None:
    days = 3_000
    table = pa.table(
        {
            "ticker": pa.array(["A"] * 2 * days),
            "ts": pa.array([row * _DAY // 2 for row in range(2 * days)]).cast(pa.timestamp("ns", "UTC")),
            "p": pa.array([1] * 2 * days),
        }
    )
    sql = (
        "SELECT ts, SUM(p) OVER (PARTITION BY ticker, day ORDER BY ts) AS n "
        "FROM (SELECT ticker, ts, p, CAST(ts AS DATE) AS day FROM ticks)"
    )
    stream = TriggerStream(query=compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))}))
    buffer = ReleaseBuffer("ts", "ticker")
    found: list[int] = []
    sizes: list[int] = []
    for start in range(0, table.num_rows, 301):
        result = stream.feed(buffer.push(table.slice(start, 301)).rows, buffer.clock)
        found += result.table.column("n").to_pylist()
        sizes.append(len(stream.snapshot()))
    assert found == ([1, 2] * days)[: len(found)]
    assert max(sizes[-5:]) < max(sizes[:8]) * 2
