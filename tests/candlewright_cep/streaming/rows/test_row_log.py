"""The state of OVER on a stream grows only by new rows, and its chunks survive restarts."""

import random

import pyarrow as pa
import pytest

from candlewright_cep import ReleaseBuffer, StreamInput, TriggerRejected, TriggerStream, compile_stream, evaluate
from candlewright_cep.limits import Limits
from tests.candlewright_cep.streaming.running import Running, ticks
from tests.rounds import seeds

_BY_TICKER = (
    "SELECT ticker, ts, MAX(p) OVER w AS top, SUM(p) OVER w AS s, AVG(p) OVER w AS a, COUNT(*) OVER w AS n, "
    "STDDEV(p) OVER w AS d, FIRST_VALUE(p) OVER w AS f, LAG(p, 2, -1.0) OVER w AS before, MIN_BY(n, p) OVER w AS at, "
    "LAST_VALUE(p) IGNORE NULLS OVER w AS known FROM ticks WINDOW w AS (PARTITION BY ticker ORDER BY ts {frame})"
)
_FRAMES = (
    "RANGE BETWEEN INTERVAL '50' SECOND PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN INTERVAL '300' SECOND PRECEDING AND INTERVAL '9' SECOND PRECEDING",
    "ROWS BETWEEN 7 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 800 PRECEDING AND 3 PRECEDING",
    "GROUPS BETWEEN 4 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 20 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW",
)
_OTHERS = (
    "SELECT ts, MAX(p) OVER (ORDER BY ts RANGE BETWEEN INTERVAL '60' SECOND PRECEDING AND CURRENT ROW) AS m FROM ticks",
    "SELECT ticker, ts, SUM(p) OVER (PARTITION BY ticker, n ORDER BY ts ROWS 5 PRECEDING) AS s FROM ticks",
    "SELECT ticker, ts, MIN(p) OVER (PARTITION BY ticker ORDER BY ts, n ROWS 9 PRECEDING) AS low FROM ticks",
)


@pytest.mark.parametrize("sql", [*(_BY_TICKER.format(frame=frame) for frame in _FRAMES), *_OTHERS])
@pytest.mark.parametrize("seed", seeds(3))
def test_steps_of_any_size_and_restarts_give_the_rows_of_the_batch(sql: str, seed: int) -> None:
    table = ticks(random.Random(seed), 2_600)
    chance = random.Random(seed)
    running = Running(sql, table)
    at = 0
    while at < table.num_rows:
        size = chance.choice([1, 3, 40, 700])
        running.push(table.slice(at, size))
        at += size
        if chance.random() < 0.4:
            running.restart()
    running.close()
    assert running.found == sorted(evaluate(sql, table).to_pylist(), key=repr)


def test_a_step_writes_little_of_a_long_frame_and_keeps_few_parts() -> None:
    table = ticks(random.Random(1), 11_500, "A")
    running = Running(_BY_TICKER.format(frame="ROWS 8000 PRECEDING"), table)
    for at in range(0, 8_500, 500):
        running.push(table.slice(at, 500))
    written = running.bytes_written(table, 8_500)
    whole = len(running.stream.snapshot())
    assert sorted(written)[len(written) // 2] < whole / 20
    assert sum(written) < whole * len(written) / 10
    assert running.stream.retained_rows <= 8_000


@pytest.mark.parametrize(
    "frame", ["ROWS 300 PRECEDING", "ROWS BETWEEN 300 PRECEDING AND CURRENT ROW EXCLUDE CURRENT ROW"]
)
def test_columns_that_the_window_does_not_read_are_not_kept(frame: str) -> None:
    table = ticks(random.Random(6), 500).append_column("note", pa.array([f"note-{row}" for row in range(500)]))
    sql = f"SELECT note, MAX(p) OVER (PARTITION BY ticker ORDER BY ts {frame}) AS top FROM ticks"
    running = Running(sql, table)
    for at in range(0, table.num_rows, 90):
        running.push(table.slice(at, 90))
        running.restart()
    assert b"note-" not in b"".join(running.stream.parts().values())
    running.close()
    assert running.found == sorted(evaluate(sql, table).to_pylist(), key=repr)


def test_a_ticker_that_leaves_takes_its_rows_from_all_chunks() -> None:
    table = ticks(random.Random(2), 3_000, "AB")
    running = Running(_BY_TICKER.format(frame="ROWS 5000 PRECEDING"), table)
    for at in range(0, table.num_rows, 100):
        running.push(table.slice(at, 100))
    running.stream.remove("A")
    assert running.stream.retained_rows == table.column("ticker").to_pylist().count("B")
    running.restart()
    assert running.stream.retained_rows == table.column("ticker").to_pylist().count("B")


def test_a_part_that_is_missing_is_refused() -> None:
    table = ticks(random.Random(3), 2_000, "A")
    running = Running(_BY_TICKER.format(frame="ROWS 5000 PRECEDING"), table)
    running.push(table)
    parts = running.stream.parts()
    with pytest.raises(ValueError, match="chunk 1 of a state is missing"):
        TriggerStream(query=running.query).restore_parts({"": parts[""]})
    with pytest.raises(ValueError, match="not a trigger's state"):
        TriggerStream(query=running.query).restore_parts({})


def test_the_limit_counts_the_rows_that_are_needed() -> None:
    table = ticks(random.Random(4), 3_000, "A")
    sql = "SELECT MAX(p) OVER (PARTITION BY ticker ORDER BY ts ROWS {rows} PRECEDING) AS m FROM ticks"
    inputs = {"ticks": StreamInput(table.schema, ("ts",))}
    for rows, fits in ((900, True), (1_100, False)):
        stream = TriggerStream(query=compile_stream(sql.format(rows=rows), inputs, limits=Limits(retained_rows=1_000)))
        buffer = ReleaseBuffer("ts", "ticker")

        def run(stream: TriggerStream = stream, buffer: ReleaseBuffer = buffer) -> None:
            for at in range(0, table.num_rows, 50):
                stream.feed(buffer.push(table.slice(at, 50)).rows, buffer.clock)

        if fits:
            run()
        else:
            with pytest.raises(TriggerRejected, match=r"keep 10\d\d rows of a ticker; 1000 are allowed"):
                run()
