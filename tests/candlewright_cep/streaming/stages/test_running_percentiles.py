# ruff: noqa: E501  (texts of SQL)
"""APPROX_PERCENTILE over the whole past of a stream: as over stored rows for few values, within its error for many."""

import random
import sys
from bisect import bisect_left, bisect_right, insort

import duckdb
import pyarrow as pa
import pytest

from candlewright_cep import StreamInput, TriggerRejected, compile_stream, evaluate
from candlewright_cep.functions.aggregates.sketches import EXACT_VALUES
from candlewright_cep.streaming.stages import running_percentiles
from tests.candlewright_cep.streaming.running import SECOND, Running, ticks
from tests.candlewright_cep.streams import assert_streams
from tests.rounds import seeds

_W = "WINDOW w AS (PARTITION BY ticker ORDER BY ts)"
_OVER = f"SELECT ticker, ts, p, APPROX_PERCENTILE(p, 0.9) OVER w AS high FROM ticks {_W}"
_CHANGES = "SELECT ticker, APPROX_PERCENTILE(p, 0.9) AS high FROM ticks GROUP BY ticker EMIT CHANGES"
#: Of the rank; see test_sketches.py.
_ERROR = 2 * 0.0028 + 0.001

TEXTS = [
    _OVER,
    _CHANGES,
    f"SELECT ts, APPROX_PERCENTILE(p, 0) OVER w AS a, APPROX_PERCENTILE(p, 0.5) OVER w AS b, APPROX_PERCENTILE(p, 1) OVER w AS c, APPROX_PERCENTILE(p * n, 0.25) OVER w AS d, SUM(n) OVER w AS e, LAG(p) OVER w AS f FROM ticks {_W}",
    "SELECT ts, APPROX_PERCENTILE(p, 0.4) OVER (PARTITION BY ticker ORDER BY ts ROWS UNBOUNDED PRECEDING) AS a FROM ticks",
    "SELECT ts, APPROX_PERCENTILE(p, 0.4) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING) AS a, SUM(n) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 3 PRECEDING) AS s FROM ticks",
    "SELECT ts, APPROX_PERCENTILE(CAST(n AS INT), 0.7) OVER (PARTITION BY ticker, n % 2 ORDER BY ts) AS a FROM ticks",
    "SELECT ts, APPROX_PERCENTILE(p, 0.7) FILTER (WHERE n > 2) OVER (PARTITION BY ticker ORDER BY ts) AS a FROM ticks",
    "SELECT ts, APPROX_PERCENTILE(NULL, 0.7) OVER (PARTITION BY ticker ORDER BY ts) AS a FROM ticks",
    "SELECT ts, p FROM ticks QUALIFY p > APPROX_PERCENTILE(p, 0.9) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)",
    "SELECT ticker, COUNT(*) AS n, APPROX_PERCENTILE(p, 0.1) AS low, APPROX_PERCENTILE(p, 0.9) AS high FROM ticks GROUP BY ticker HAVING COUNT(*) % 5 = 0 EMIT CHANGES",
    "SELECT APPROX_PERCENTILE(p, 0.5) AS m FROM ticks WHERE n <> 3 EMIT CHANGES",
    "SELECT t.ts, t.p, o.m FROM ticks t ASOF JOIN (SELECT ticker, ts, APPROX_PERCENTILE(p, 0.5) OVER (PARTITION BY ticker ORDER BY ts ROWS UNBOUNDED PRECEDING) AS m FROM ticks) o ON t.ticker = o.ticker AND t.ts > o.ts",
    "SELECT ticker, APPROX_PERCENTILE(high, 0.5) OVER (PARTITION BY ticker ORDER BY window_start) AS m FROM (SELECT ticker, window_start, MAX(p) AS high FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '7' SECOND)) GROUP BY ticker, window_start)",
]  # fmt: skip


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("sql", TEXTS)
def test_few_values_give_the_rows_of_a_finished_table(sql: str, seed: int) -> None:
    assert len(assert_streams(sql, ticks(random.Random(seed), 150), seed)) > 5


def test_few_values_give_what_duckdb_gives() -> None:
    table = ticks(random.Random(5), 900)
    running = Running(_OVER, table)
    for start in range(0, table.num_rows, 41):
        running.push(table.slice(start, 41))
        running.restart()
    running.close()
    with duckdb.connect() as database:
        database.register("ticks", table)
        rows = database.execute(
            "SELECT ticker, ts, p, quantile_disc(p, 0.9) OVER (PARTITION BY ticker ORDER BY ts) FROM ticks"
        ).fetchall()
    found = [(row["ticker"], row["p"], row["high"]) for row in running.rows]
    assert sorted(found, key=repr) == sorted(((ticker, price, high) for ticker, _, price, high in rows), key=repr)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("sql", [_OVER, _CHANGES])
@pytest.mark.parametrize("shape", ["random", "rising", "falling"])
def test_many_values_stay_within_the_error_over_restarts(sql: str, shape: str) -> None:
    rows = 9_000
    chance = random.Random(11)
    prices = {
        "random": [None if chance.random() < 0.1 else chance.gauss() for _ in range(rows)],
        "rising": [float(row) for row in range(rows)],
        "falling": [-float(row) for row in range(rows)],
    }[shape]
    tickers = [chance.choice("ABC") for _ in range(rows)]
    times = pa.array([row * SECOND for row in range(rows)]).cast(pa.timestamp("ns", "UTC"))
    table = pa.table({"ticker": tickers, "ts": times, "p": pa.array(prices, pa.float64())})
    running = Running(sql, table)
    past: dict[str, list[float]] = {"A": [], "B": [], "C": []}
    row = beyond = 0
    while row < rows:
        piece = table.slice(row, chance.randrange(1, 400))
        running.push(piece)
        running.restart()
        for ticker, price in zip(piece["ticker"].to_pylist(), piece["p"].to_pylist(), strict=True):
            if price is not None:
                insort(past[ticker], price)
        row += piece.num_rows
        for ticker, values in past.items():
            known = [one["high"] for one in running.rows if one["ticker"] == ticker]
            if known:
                low, high = (place(values, known[-1]) / len(values) for place in (bisect_left, bisect_right))
                assert low < high and low - _ERROR <= 0.9 <= high + _ERROR
                beyond += len(values) > EXACT_VALUES
    assert beyond > 40


def test_a_step_writes_little_of_large_states() -> None:
    written = Running(_OVER, table := ticks(random.Random(2), 6_000)).bytes_written(table, 0)
    late = written[300:]
    assert sum(late) / len(late) < 8_000 and max(late) < 60_000


def test_many_tickers_are_apart_and_those_that_leave_are_forgotten() -> None:
    names = [f"T{number}" for number in range(400)]
    rows = [(name, turn) for turn in range(70) for name in names]
    table = pa.table(
        {
            "ticker": [name for name, _ in rows],
            "ts": pa.array([turn * SECOND for _, turn in rows]).cast(pa.timestamp("ns", "UTC")),
            "p": [float(int(name[1:]) * 1_000 + turn * 31 % 70) for name, turn in rows],
        }
    )
    sql = _OVER.replace("BY ts)", "BY ts ROWS UNBOUNDED PRECEDING)")
    running = Running(sql, table)
    running.buffer.advance(dict.fromkeys(names, -1))
    for start in range(0, len(rows), 9_000):
        running.push(table.slice(start, 9_000))
        running.restart()
    assert running.found == sorted(evaluate(sql, table).to_pylist(), key=repr)
    assert len(running.stream.parts()) == 1 + len(names)
    running.stream.remove(*names[1:])
    assert len(running.stream.parts()) == 2 and running.stream.partitions == 1


def test_a_state_without_one_of_its_chunks_is_refused() -> None:
    running = Running(_OVER, table := ticks(random.Random(2), 600))
    running.push(table)
    parts = running.stream.parts()
    assert len(parts) == 4
    with pytest.raises(ValueError, match="is missing"):
        running.restore({name: part for name, part in parts.items() if name != min(parts.keys() - {""})})


def test_the_number_of_sketches_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_percentiles, "_MAX_SKETCHES", 8)
    table = ticks(random.Random(2), 200)
    own = "APPROX_PERCENTILE(p, 0.5) OVER w AS a, APPROX_PERCENTILE(p, 0.9) OVER w AS b"
    for columns, window, fits in (
        (own, "ticker, n", False),
        (own, "ticker", True),
        (f"{own}, APPROX_PERCENTILE(p + 1, 0.5) OVER w AS c", "n", False),
        (own, "n", True),
    ):
        running = Running(f"SELECT {columns} FROM ticks WINDOW w AS (PARTITION BY {window} ORDER BY ts)", table)
        if fits:
            running.push(table)
        else:
            with pytest.raises(TriggerRejected, match=r"OVER keeps more than [48] partitions"):
                running.push(table)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("n", r"does not hold every bigint exactly \(write APPROX_PERCENTILE\(CAST\(x AS DOUBLE\), p\)\)"),
        ("CAST(p AS DECIMAL(20, 8))", r"every decimal\(20, 8\) exactly \(write APPROX_PERCENTILE\(CAST"),
        ("ts", "does not hold every timestamp"),
        ("ticker", "does not hold every string exactly$"),
    ],
)
def test_values_that_a_double_cannot_hold_are_refused_on_a_stream_only(value: str, message: str) -> None:
    table = ticks(random.Random(1), 20)
    for sql in (_OVER, _CHANGES):
        text = sql.replace("E(p,", f"E({value},")
        assert evaluate(text, table).num_rows
        with pytest.raises(TriggerRejected, match=f"(?i)1:[0-9]+: .*{message}"):
            Running(text, table)


@pytest.mark.parametrize(
    ("function", "hint"),
    [
        ("MEDIAN(p)", "write APPROX_PERCENTILE(x, 0.5)"),
        ("PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY p)", "write APPROX_PERCENTILE(x, p)"),
        ("PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY p)", "write APPROX_PERCENTILE(x, p)"),
    ],
)
def test_exact_percentiles_without_a_bound_name_the_approximate_one(function: str, hint: str) -> None:
    for sql in (_OVER, _CHANGES):
        with pytest.raises(TriggerRejected, match="would keep every value") as refused:
            Running(sql.replace("APPROX_PERCENTILE(p, 0.9)", function), ticks(random.Random(1), 20))
        assert refused.value.hint == hint


def test_without_the_package_the_extra_is_named_and_stored_rows_need_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketches", None)
    table = ticks(random.Random(1), 2_000)
    for sql in (_OVER, _CHANGES):
        assert evaluate(sql, table).num_rows
        with pytest.raises(TriggerRejected, match=r"not installed \(pip install 'candlewright-cep\[sketches\]'\)"):
            compile_stream(sql, {"ticks": StreamInput(table.schema, ("ts",))})
    framed = _OVER.replace("OVER w", "OVER (PARTITION BY ticker ORDER BY ts ROWS 5 PRECEDING)")
    compile_stream(framed, {"ticks": StreamInput(table.schema, ("ts",))})
