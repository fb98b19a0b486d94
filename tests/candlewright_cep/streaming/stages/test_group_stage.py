"""Time windows on a stream: their state grows only by new rows, and its chunks survive restarts."""

import json
import random
from unittest.mock import patch

import pyarrow as pa
import pytest

from candlewright_cep import evaluate
from candlewright_cep.streaming.rows import row_log
from candlewright_cep.streaming.stages.group_stage import GroupStage
from tests.candlewright_cep.streaming.running import SECOND, Running, ticks
from tests.rounds import seeds


def _windows(call: str, value: str = "SUM(p) AS s", *, keys: str = "ticker, ", where: str = "") -> str:
    return (
        f"SELECT {keys}window_start, window_end, {value} FROM TABLE({call}) {where} "
        f"GROUP BY {keys}window_start, window_end"
    )


_TICKS = "TABLE ticks, DESCRIPTOR(ts), INTERVAL"
_TUMBLE, _HOP = f"TUMBLE({_TICKS} '20' SECOND)", f"HOP({_TICKS} '7' SECOND, INTERVAL '30' SECOND)"
_TEXTS = (
    _windows(_TUMBLE),
    _windows(_TUMBLE, keys="", where="WHERE p > 20"),
    _windows(_HOP, "MAX(p) AS top, COUNT(*) AS n", where="WHERE p < 120"),
    _windows(_HOP, keys=""),
    _windows(_HOP, "STRING_AGG(CAST(n AS VARCHAR), ',') AS l"),
    _windows(f"HOP({_TICKS} '20' SECOND, INTERVAL '5' SECOND)"),
    _windows(f"CUMULATE({_TICKS} '10' SECOND, INTERVAL '60' SECOND)"),
    _windows("SESSION(TABLE ticks PARTITION BY ticker, DESCRIPTOR(ts), INTERVAL '4' SECOND)"),
    _windows("SESSION(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' SECOND)", keys=""),
    _windows(f"TUMBLE({_TICKS} '1' DAY, 'America/New_York')", "AVG(p) AS a"),
)


@pytest.mark.parametrize("sql", _TEXTS)
@pytest.mark.parametrize("seed", seeds(3))
def test_steps_of_any_size_and_restarts_give_the_rows_of_the_batch(sql: str, seed: int) -> None:
    chance = random.Random(seed)
    table = ticks(chance, 500)
    running = Running(sql, table)
    at = 0
    with patch.object(row_log, "NEWEST_ROWS", chance.choice([4, 128])):
        while at < table.num_rows:
            size = chance.choice([1, 2, 9, 60])
            running.push(table.slice(at, size))
            at += size
            if chance.random() < 0.3:
                running.restart()
        running.close()
    expected = sorted(evaluate(sql, table).to_pylist(), key=repr)
    assert expected
    assert running.found == expected


def test_rows_whose_windows_end_in_the_step_that_brings_them_are_not_kept() -> None:
    table = ticks(random.Random(1), 5_000)
    running = Running(_TEXTS[0], table)
    running.push(table)
    assert sum(map(len, running.stream.parts().values())) < 10_000


@pytest.mark.parametrize("sql", [*_TEXTS, f"SELECT *, LAG(s) OVER (ORDER BY window_end) AS b FROM ({_TEXTS[0]})"])
def test_windows_that_end_in_the_first_step_after_all_tickers_paused_are_emitted(sql: str) -> None:
    before = ticks(random.Random(1), 60)
    later = pa.array([time + 3 * 86_400 * SECOND for time in before.column("ts").cast(pa.int64()).to_pylist()])
    after = before.set_column(1, "ts", later.cast(pa.timestamp("ns", "UTC")))
    running = Running(sql, before)
    for table in (before, after):
        running.push(table)
        running.close()
        running.restart()
    expected = sorted(evaluate(sql, pa.concat_tables([before, after])).to_pylist(), key=repr)
    assert running.found == expected


@pytest.mark.parametrize("sql", [_TEXTS[place] for place in (0, 3, 7)])
@pytest.mark.parametrize("seed", seeds(3))
@pytest.mark.parametrize("is_in_order", [True, False])
def test_late_rows_and_tickers_that_come_again_do_not_depend_on_chunks(sql: str, seed: int, is_in_order: bool) -> None:
    """Old rows are left in chunks of any size, whose windows were emitted: they must not be emitted again."""
    found = []
    for newest in (2, 10_000):
        chance = random.Random(seed)
        table = ticks(chance, 240)
        running = Running(sql, table, is_in_order=is_in_order)
        with patch.object(row_log, "NEWEST_ROWS", newest):
            for at in range(0, table.num_rows, 5):
                given = running.buffer.push(table.slice(at, 5))
                running.feed(given.rows)
                if not is_in_order and at > 50:
                    running.feed(given.fresh.take(pa.array([0])))
                    late = table.slice(at - chance.randrange(40), 1)
                    running.feed(late.append_column("_sequence", pa.array([at], pa.int64())))
                if chance.random() < 0.05:
                    running.close(chance.choice("ABC"))
                elif chance.random() < 0.1:
                    running.buffer.clock.closed.clear()
                elif chance.random() < 0.05:
                    running.stream.remove(chance.choice("ABC"))
                elif chance.random() < 0.2:
                    running.restart()
            running.close()
        found.append(running.found)
    assert found[0]
    assert found[0] == found[1]


@pytest.mark.parametrize("call", ["TUMBLE({} '2' HOUR)", "HOP({} '1' MINUTE, INTERVAL '2' HOUR)"])
def test_a_step_writes_little_of_a_long_window_and_keeps_few_parts(call: str) -> None:
    table = ticks(random.Random(1), 6_000, "A")
    running = Running(_windows(call.format(_TICKS)), table)
    for at in range(0, 5_500, 500):
        running.push(table.slice(at, 500))
    written = running.bytes_written(table, 5_500)
    assert running.stream.retained_rows > 5_000
    assert sorted(written)[len(written) // 2] < len(running.stream.snapshot()) / 20


def test_the_limit_counts_the_rows_of_open_windows() -> None:
    table = ticks(random.Random(4), 3_000, "A")
    running = Running(_windows(_TUMBLE), table)
    for at in range(0, table.num_rows, 50):
        running.push(table.slice(at, 50))
    assert running.stream.retained_rows < 60


#: Each step reads the windows of all tickers in one order, in which many have the same time.
_JOINT = (
    f"SELECT * FROM ({_windows(_TUMBLE)}) MATCH_RECOGNIZE (ORDER BY window_end MEASURES A.ticker AS a, B.s AS s "
    "PATTERN (A B) DEFINE B AS B.ticker <> A.ticker) AS m",
    f"SELECT ticker, window_end, LAG(s) OVER (ORDER BY window_end) AS other FROM ({_windows(_HOP)})",
)


@pytest.mark.parametrize("sql", _JOINT)
@pytest.mark.parametrize("seed", seeds(6))
def test_windows_that_end_together_are_read_in_the_order_in_which_they_began(sql: str, seed: int) -> None:
    chance = random.Random(seed)
    table = ticks(chance, 90)
    running = Running(sql, table)
    cuts = sorted(chance.sample(range(90), 20))
    for start, end in zip([0, *cuts], [*cuts, 90], strict=True):
        running.push(table.slice(start, end - start))
        running.restart()
    running.close()
    assert sorted(map(repr, running.rows)) == sorted(map(repr, evaluate(sql, table).to_pylist()))


def test_a_state_that_kept_tickers_apart_repeats_no_window() -> None:
    table = ticks(random.Random(5), 90)
    running = Running(_JOINT[0], table)
    running.push(table.slice(0, 60))
    windows = running.stream.stages[0]
    assert isinstance(windows, GroupStage)
    state, rows = windows.snapshot()
    least = json.loads(state)["least"]
    assert least > 20 * SECOND
    windows.restore({"seen": dict.fromkeys("ABC", least), "least": None}, rows)
    running.push(table.slice(60))
    running.close()
    assert sorted(map(repr, running.rows)) == sorted(map(repr, evaluate(_JOINT[0], table).to_pylist()))
