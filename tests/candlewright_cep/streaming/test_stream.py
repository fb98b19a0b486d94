"""When a stream emits its rows, what it keeps, and what it rejects."""

import json
from itertools import cycle, islice
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright_cep import Limits, TriggerRejected, evaluate
from candlewright_cep.streaming.patterns.match_stream import FEW_PARTITIONS
from candlewright_cep.streaming.rows.release import NUMBER, Clock, ReleaseBuffer, Rows
from candlewright_cep.streaming.rows.retained import Gathered
from candlewright_cep.streaming.stream import Events, StreamInput, TriggerStream, compile_stream
from candlewright_cep.vector import Index

SECOND = 1_000_000_000
SCHEMA = pa.schema([("ticker", pa.string()), ("ts", pa.timestamp("ns")), ("price", pa.float64())])
TICKS = StreamInput(SCHEMA, ("ts",))


def ticks(*rows: tuple[str, float, float]) -> pa.Table:
    """Rows of (ticker, seconds, price)."""
    return pa.table(
        {
            "ticker": pa.array([row[0] for row in rows], pa.string()),
            "ts": pa.array([int(row[1] * SECOND) for row in rows], pa.int64()).cast(pa.timestamp("ns")),
            "price": pa.array([row[2] for row in rows], pa.float64()),
        },
        schema=SCHEMA,
    )


class Running:
    """A trigger with its release buffer."""

    def __init__(self, sql: str, limits: Limits | None = None, *, closes: bool = False) -> None:
        self.query = compile_stream(sql, {"ticks": TICKS}, limits=limits or Limits(), partitions_close=closes)
        self.buffer = ReleaseBuffer("ts", "ticker")
        self.stream = TriggerStream(query=self.query)

    def push(self, *rows: tuple[str, float, float]) -> list[tuple[Any, ...]]:
        return shown(self.events(*rows))

    def events(self, *rows: tuple[str, float, float]) -> Events:
        return self.stream.feed(self.buffer.push(ticks(*rows)).rows, self.buffer.clock)

    def watermark(self, seconds: float, ticker: str = "T") -> Events:
        return self.stream.feed(self.buffer.advance({ticker: int(seconds * SECOND)}), self.buffer.clock)

    def close(self, *tickers: str) -> list[tuple[Any, ...]]:
        return shown(self.stream.feed(self.buffer.close(set(tickers)), self.buffer.clock))

    def restart(self) -> None:
        state = self.stream.snapshot()
        self.stream = TriggerStream(query=self.query)
        self.stream.restore(state)


def shown(events: Events) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in events.table.to_pylist()]


def match(clauses: str) -> str:
    return f"SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts {clauses}) AS m"


def test_a_match_without_loop_comes_with_its_last_row() -> None:
    running = Running(match("MEASURES B.price AS p PATTERN (A B) DEFINE A AS price = 1, B AS price = 2"))
    assert running.push(("T", 0, 1), ("T", 1, 2)) == [("T", 2.0)]


def test_a_greedy_match_waits_for_the_row_that_ends_its_loop() -> None:
    running = Running(
        match("MEASURES LAST(U.price) AS p PATTERN (S D+ U+) DEFINE D AS price < PREV(price), U AS price > PREV(price)")
    )
    assert running.push(("T", 0, 5), ("T", 1, 4), ("T", 2, 6), ("T", 3, 7)) == []
    assert running.push(("T", 4, 7)) == [("T", 7.0)]


def test_a_lower_branch_waits_until_the_preferred_branch_is_dead() -> None:
    sql = match(
        "MEASURES COUNT(*) AS n PATTERN (A B C D | A B) "
        "DEFINE A AS price = 1, B AS price = 2, C AS price = 3, D AS price = 4"
    )
    running = Running(sql)
    assert running.push(("T", 0, 1), ("T", 1, 2), ("T", 2, 3)) == []
    assert running.push(("T", 3, 3)) == [("T", 2)]


def test_with_a_delay_ties_at_the_watermark_wait_and_are_never_late() -> None:
    buffer = ReleaseBuffer("ts", "ticker", delay_ns=10**9)
    assert buffer.push(ticks(("T", 1, 1), ("T", 3, 2))).rows.num_rows == 1
    released = buffer.push(ticks(("T", 2, 3), ("T", 1, 9), ("T", 2, 4), ("T", 4, 5)))
    assert released.rows.column("price").to_pylist() == [3.0, 4.0]
    assert released.late.column("price").to_pylist() == [9.0]
    assert buffer.late_rows == 1


def test_without_delay_rows_are_released_as_they_come() -> None:
    buffer = ReleaseBuffer("ts", "ticker")
    assert buffer.push(ticks(("T", 1, 1), ("T", 2, 2))).rows.num_rows == 2
    released = buffer.push(ticks(("T", 2, 3), ("T", 1, 9), ("T", 3, 4)))
    assert released.rows.column("price").to_pylist() == [3.0, 4.0]
    assert released.late.column("price").to_pylist() == [9.0]


STEPS = st.lists(
    st.tuples(st.sampled_from("TU"), st.integers(0, 3), st.sampled_from([-1, *range(6)])), min_size=1, max_size=25
)


@given(STEPS, st.lists(st.integers(0, 25), max_size=6), st.booleans())
def test_lateness_is_decided_row_by_row_however_rows_are_cut(
    steps: list[tuple[str, int, int]], cuts: list[int], restarts: bool
) -> None:
    """Compared with the written rule: older than a released row, or of its time with a lower number than a released row
    of that time.
    """
    wanted_late: list[int] = []
    newest: dict[str, tuple[int, int]] = {}
    for place, (ticker, second, number) in enumerate(steps):
        time, highest = newest.get(ticker, (-1, -1))
        if second < time or (second == time and 0 <= number < highest):
            wanted_late.append(place)
        else:
            newest[ticker] = second, max(number, highest) if second == time else number
    table = ticks(*((ticker, second, place) for place, (ticker, second, _) in enumerate(steps)))
    table = table.append_column(NUMBER, pa.array([number for *_, number in steps], pa.int64()))
    buffer, rows, late = ReleaseBuffer("ts", "ticker"), [], []
    places = sorted({cut for cut in cuts if cut < len(steps)})
    for start, end in zip([0, *places], [*places, len(steps)], strict=True):
        found = buffer.push(table.slice(start, end - start))
        rows += found.rows.column("price").to_pylist()
        late += found.late.column("price").to_pylist()
        if restarts:
            state, held = buffer.snapshot()
            buffer = ReleaseBuffer("ts", "ticker")
            buffer.restore(json.loads(json.dumps(state)), held)
    assert late == wanted_late
    for ticker in "TU":
        own = [place for place in map(int, rows) if steps[place][0] == ticker]
        assert own == [p for p, step in enumerate(steps) if step[0] == ticker and p not in wanted_late]


def test_watermarks_are_per_ticker() -> None:
    buffer = ReleaseBuffer("ts", "ticker")
    buffer.push(ticks(("FAST", 100, 1)))
    released = buffer.push(ticks(("SLOW", 1, 1), ("SLOW", 2, 1)))
    assert released.late.num_rows == 0
    assert released.rows.column("ticker").to_pylist() == ["SLOW", "SLOW"]


def test_next_in_define_is_decided_when_the_next_row_is_there() -> None:
    running = Running(
        match("MEASURES P.price AS p PATTERN (P) DEFINE P AS price > PREV(price) AND price > NEXT(price)")
    )
    assert running.push(("T", 0, 1), ("T", 1, 3)) == []
    assert running.push(("T", 2, 2)) == [("T", 3.0)]


def test_next_in_measures_delays_the_row() -> None:
    running = Running(match("MEASURES NEXT(A.price) AS p PATTERN (A) DEFINE A AS price = 1"))
    assert running.push(("T", 0, 1)) == []
    assert running.push(("T", 1, 5)) == [("T", 5.0)]


def test_within_gives_up_by_the_clock_without_a_further_row() -> None:
    running = Running(match("MEASURES COUNT(*) AS n PATTERN (A B*) WITHIN INTERVAL '5' SECOND DEFINE A AS price = 1"))
    assert running.push(("T", 0, 1), ("T", 1, 2), ("T", 2, 2)) == []
    assert shown(running.watermark(4.9)) == []
    assert shown(running.watermark(5)) == [("T", 3)]


def test_within_from_the_previous_row_counts_from_the_last_one() -> None:
    sql = match(
        "MEASURES COUNT(*) AS n PATTERN (A B*) WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW DEFINE A AS price = 1"
    )
    running = Running(sql)
    assert running.push(("T", 0, 1), ("T", 4, 2), ("T", 8, 2)) == []
    running.restart()
    assert shown(running.watermark(12.9)) == []
    assert shown(running.watermark(13)) == [("T", 3)]
    assert running.stream.retained_rows == 0


def test_the_first_of_two_bounds_of_within_ends_a_match() -> None:
    within = "WITHIN INTERVAL '10' SECOND, INTERVAL '5' SECOND FROM PREVIOUS ROW"
    running = Running(match(f"MEASURES COUNT(*) AS n PATTERN (A B*) {within} DEFINE A AS price = 1"))
    assert running.push(("T", 0, 1), ("T", 4, 2), ("T", 8, 2)) == []
    assert shown(running.watermark(10)) == [("T", 3)]
    assert running.push(("T", 20, 1)) == []
    assert shown(running.watermark(25)) == [("T", 1)]


def test_a_timeout_row_comes_when_the_next_row_is_too_late() -> None:
    sql = match(
        "MEASURES COUNT(*) AS n, LAST(price) AS p ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A X* B) "
        "WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW DEFINE A AS price = 1, B AS price = 2"
    )
    running = Running(sql)
    assert running.push(("T", 0, 1), ("T", 4, 3), ("T", 8, 4)) == []
    assert shown(running.watermark(12)) == []
    events = running.watermark(13)
    assert shown(events) == [("T", 3, 4.0)]
    assert events.context is not None and events.context.partial.tolist() == [True]


def test_a_row_that_waits_for_the_next_one_is_not_too_late() -> None:
    within = "WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW"
    sql = match(f"MEASURES COUNT(*) AS n PATTERN (A B+) {within} DEFINE B AS price > A.price AND NEXT(price) > 0")
    running = Running(sql)
    assert running.push(("T", 0, 1), ("T", 4, 2)) == []
    assert shown(running.watermark(100)) == []
    assert running.push(("T", 101, 1)) == [("T", 2)]


def test_an_end_anchor_comes_true_after_a_pause_if_no_row_came() -> None:
    within = "WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW"
    sql = match(f"MEASURES COUNT(*) AS n PATTERN (A B* $) {within} DEFINE A AS price = 1")
    with pytest.raises(TriggerRejected, match=r"\$ is never true"):
        compile_stream(sql, {"ticks": TICKS})
    running = Running(sql, closes=True)
    assert running.push(("T", 0, 1), ("T", 4, 2), ("T", 8, 2)) == []
    assert shown(running.watermark(60)) == []
    running.restart()
    assert running.close("T") == [("T", 3)]


def test_a_pause_bounds_no_state() -> None:
    previous = "WITHIN INTERVAL '5' SECOND FROM PREVIOUS ROW"
    for within, missing in (
        ("", "there is no WITHIN"),
        (previous, "WITHIN counts only from the previous row"),
        ("WITHIN INTERVAL '5' SECOND", None),
        (previous.replace("WITHIN", "WITHIN INTERVAL '9' SECOND,"), None),
    ):
        sql = match(f"MEASURES COUNT(*) AS n PATTERN (A B* C) {within} DEFINE C AS price = 1")
        warnings = compile_stream(sql, {"ticks": TICKS}).warnings
        assert [missing in warning for warning in warnings if missing] == ([True] if missing else [])
        assert bool(warnings) == bool(missing)


def test_absence_of_an_event_is_a_timeout_row() -> None:
    sql = match(
        "MEASURES A.price AS a, B.price AS b ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A B) "
        "WITHIN INTERVAL '5' SECOND DEFINE A AS price = 1, B AS price = 2"
    )
    running = Running(sql)
    running.push(("T", 0, 1), ("T", 1, 2), ("T", 2, 1))
    events = running.watermark(8)
    assert shown(events) == [("T", 1.0, None)]
    assert events.context is not None
    assert events.context.timed_out.tolist() == [True]
    assert events.context.partial.tolist() == [True]
    assert events.context.match_number.tolist() == [2]


def test_no_event_for_a_while_is_distinguished_from_the_end() -> None:
    sql = match(
        "MEASURES COUNT(*) AS n ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A X*) WITHIN INTERVAL '5' SECOND "
        "DEFINE A AS price = 1, X AS NOT price = 2"
    )
    running = Running(sql)
    running.push(("T", 0, 1), ("T", 1, 3), ("T", 2, 2), ("T", 3, 1), ("T", 4, 3))
    first = running.watermark(4.5)
    second = running.watermark(9)
    assert first.context is None or first.context.timed_out.tolist() in ([], [False])
    assert second.context is not None and second.context.timed_out.tolist() == [True]


def test_match_numbers_continue_after_a_restart() -> None:
    running = Running(
        match("MEASURES MATCH_NUMBER() AS n, FIRST(price) AS p PATTERN (A B) DEFINE B AS price > A.price")
    )
    assert running.push(("T", 0, 1), ("T", 1, 2), ("T", 2, 3)) == [("T", 1, 1.0)]
    running.restart()
    assert running.push(("T", 3, 4), ("T", 4, 5)) == [("T", 2, 3.0)]


def test_start_anchor_is_the_first_row_since_the_trigger_is_active() -> None:
    running = Running(match("MEASURES A.price AS p PATTERN (^ A)"))
    assert running.push(("T", 0, 1), ("T", 1, 2), ("T", 2, 3), ("T", 3, 3)) == [("T", 1.0)]


def test_end_anchor_needs_an_end() -> None:
    sql = match("MEASURES LAST(A.price) AS p PATTERN (A $)")
    with pytest.raises(TriggerRejected, match=r"\$ is never true"):
        compile_stream(sql, {"ticks": TICKS})
    running = Running(sql, closes=True)
    assert running.push(("T", 0, 1), ("T", 1, 2)) == []
    assert running.close("T") == [("T", 2.0)]


def test_an_end_anchor_with_within_needs_an_end_too() -> None:
    within = match("MEASURES LAST(A.price) AS p PATTERN (A $) WITHIN INTERVAL '1' SECOND")
    with pytest.raises(TriggerRejected, match=r"\$ is never true here: no partition ever ends"):
        compile_stream(within, {"ticks": TICKS})


def test_an_end_anchor_comes_true_after_the_deadline_if_no_row_came() -> None:
    sql = match("MEASURES COUNT(*) AS n PATTERN (A B? $) WITHIN INTERVAL '5' SECOND DEFINE A AS price = 1")
    running = Running(sql, closes=True)
    assert running.push(("T", 0, 1), ("T", 1, 2)) == []
    assert shown(running.watermark(60)) == []
    running.restart()
    assert shown(running.watermark(61)) == []
    assert running.close("T") == [("T", 2)]
    running = Running(sql, closes=True)
    running.push(("T", 0, 1), ("T", 1, 2))
    running.watermark(60)
    assert running.push(("T", 70, 1)) == []
    assert running.close("T") == [("T", 1)]


def test_a_timeout_row_of_a_pattern_with_an_end_anchor_is_that_of_the_finished_table() -> None:
    sql = match("MEASURES COUNT(*) AS n ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A $ A) WITHIN INTERVAL '1' SECOND")
    assert evaluate(sql, ticks(("T", 0, 1))).column("n").to_pylist() == [1]
    running = Running(sql, closes=True)
    running.push(("T", 0, 1))
    assert shown(running.watermark(60)) == []
    assert running.close("T") == [("T", 1)]


OF_A_DAY = (
    "SELECT * FROM (SELECT ticker, ts, price, CAST(ts AS DATE) AS day FROM ticks) MATCH_RECOGNIZE ("
    "PARTITION BY ticker, day ORDER BY ts MEASURES LAST(A.price) AS p PATTERN (A $) ) AS m"
)


def test_an_end_anchor_comes_true_when_the_day_of_the_partition_is_over() -> None:
    running = Running(OF_A_DAY)
    assert running.push(("T", 0, 1), ("T", 9, 2), ("U", 8, 5)) == []
    assert [row[2] for row in running.push(("T", 86_400, 3), ("T", 86_401, 4))] == [2.0]
    assert running.push(("T", 86_500, 3)) == []
    with pytest.raises(TriggerRejected, match="no partition ever ends"):
        compile_stream(OF_A_DAY, {"ticks": TICKS}, is_in_order=False)
    with pytest.raises(TriggerRejected, match="no partition ever ends"):
        compile_stream(OF_A_DAY.replace("CAST(ts AS DATE)", "CAST(price AS BIGINT)"), {"ticks": TICKS})


def test_first_rows_of_a_new_ticker_are_not_evaluated_after_newer_rows() -> None:
    """A text over all tickers cannot have waited for them: they are late, and counted."""
    running = Running("SELECT ticker, price, LAG(price) OVER (ORDER BY ts) AS before FROM ticks")
    assert running.push(("T", 1, 1), ("T", 5, 2), ("T", 9, 3)) == [("T", 1.0, None), ("T", 5 - 3.0, 1.0)]
    running.restart()
    assert running.push(("U", 2, 20), ("U", 8, 21), ("U", 9, 22), ("U", 11, 23)) == []
    assert running.stream.late_rows == {"U": 2}
    assert running.push(("T", 12, 4)) == [("T", 3.0, 2.0), ("U", 22.0, 3.0)]
    assert running.stream.late_rows == {}
    assert running.close("T", "U") == [("U", 23.0, 22.0), ("T", 4.0, 23.0)]
    assert running.push(("V", 3, 30), ("V", 12, 31)) == []
    assert running.stream.late_rows == {"V": 1}


def test_emitted_windows_do_not_open_again_for_a_new_ticker() -> None:
    running = Running(
        "SELECT TUMBLE_START(ts, INTERVAL '10' SECOND) AS at, COUNT(*) AS n FROM ticks "
        "GROUP BY TUMBLE(ts, INTERVAL '10' SECOND)"
    )
    assert [row[1] for row in running.push(("T", 1, 1), ("T", 5, 2), ("T", 25, 3))] == [2]
    assert running.push(("U", 2, 20), ("U", 24, 21), ("U", 26, 22)) == []
    assert running.stream.late_rows == {"U": 2}
    assert [row[1] for row in running.push(("T", 31, 3), ("U", 32, 3))] == [2]


def kept(running: Running) -> int:
    return running.stream.partitions


def test_partitions_in_which_nothing_has_begun_are_forgotten() -> None:
    sql = match("MEASURES A.price AS p PATTERN (A B) DEFINE A AS price < 0").replace("BY ticker", "BY price, ticker")
    running = Running(sql)
    for first in range(0, 9_000, 100):
        running.push(*(("T", first + n, first + n) for n in range(100)))
    assert kept(running) <= 2 * FEW_PARTITIONS


def test_partitions_whose_matches_have_numbers_or_that_look_back_are_not_forgotten() -> None:
    for clauses in (
        "PATTERN (A)",
        "PATTERN (A) DEFINE A AS PREV(price) > price",
        "PATTERN (^ A B) DEFINE A AS price < 0",
    ):
        sql = match(f"MEASURES MATCH_NUMBER() AS n {clauses}").replace("BY ticker", "BY price, ticker")
        running = Running(sql)
        running.push(*(("T", n, n) for n in range(3_000)))
        assert kept(running) == 3_000


def test_partitions_of_a_past_day_are_forgotten_with_their_open_attempts() -> None:
    days = OF_A_DAY.replace("(A $)", "(A B* C) DEFINE C AS price < 0")
    running = Running(days)
    for day in range(50):
        running.push(("T", day * 86_400, 1), ("T", day * 86_400 + 1, 1), ("U", day * 86_400 + 2, 1))
        running.restart()
    assert kept(running) == 2
    assert running.stream.retained_rows == 3


def test_frames_of_too_many_partitions_end_the_trigger() -> None:
    sql = "SELECT price, LAG(price) OVER (PARTITION BY ticker, price ORDER BY ts) AS before FROM ticks"
    running = Running(sql, Limits(retained_rows=50))
    for second in range(40):
        running.push(("T", second, second), ("U", second, second))
    with pytest.raises(TriggerRejected, match="the frames of OVER keep 51 rows of a ticker; 50 are allowed"):
        for second in range(40, 60):
            running.push(("T", second, second))


def test_rows_of_open_windows_are_bounded_and_closed_windows_make_room() -> None:
    sql = "SELECT ticker, MAX(price) AS high FROM ticks GROUP BY ticker, TUMBLE(ts, INTERVAL '{}' SECOND)"
    running = Running(sql.format(50), Limits(retained_rows=60))
    for second in range(300):
        running.push(("T", second, second), ("U", second, second))
    running = Running(sql.format(86_400), Limits(retained_rows=60))
    with pytest.raises(TriggerRejected, match="the open windows keep 61 rows of a ticker; 60 are allowed"):
        for second in range(300):
            running.push(("T", second, second))


def test_rows_that_wait_for_a_silent_ticker_are_bounded() -> None:
    running = Running("SELECT price, LAG(price) OVER (ORDER BY ts) AS before FROM ticks", Limits(retained_rows=50))
    running.push(("U", 0, 0))
    with pytest.raises(TriggerRejected, match="more than 50 rows wait for a slower ticker"):
        for second in range(60):
            running.push(("T", second, second))


def test_a_pattern_with_too_many_partitions_ends_before_they_are_made() -> None:
    sql = match("MEASURES A.price AS p PATTERN (A B) WITHIN INTERVAL '10' SECOND").replace(
        "BY ticker", "BY price, ticker"
    )
    running = Running(sql, Limits(partitions=20))
    for second in range(500):
        running.push(("T", second, second))
    with pytest.raises(TriggerRejected, match="more than 20 partitions"):
        running.push(*(("T", 500 + n / 10, 1_000 + n) for n in range(30)))


def test_a_missing_skip_target_degrades_and_is_counted() -> None:
    running = Running(
        match("MEASURES COUNT(*) AS n AFTER MATCH SKIP TO B PATTERN (A B?) DEFINE A AS price = 1, B AS price = 2")
    )
    assert running.push(("T", 0, 1), ("T", 1, 1), ("T", 2, 2), ("T", 3, 0), ("T", 4, 0)) == [("T", 1), ("T", 2)]
    assert running.stream.reports.degraded_skips == 1


def test_the_row_limit_drops_the_oldest_starts_and_counts_them() -> None:
    running = Running(match("MEASURES COUNT(*) AS n PATTERN (A B* C) DEFINE C AS price = 9"), Limits(retained_rows=100))
    for start in range(0, 2000, 50):
        running.push(*(("T", start + offset, 1.0) for offset in range(50)))
    assert running.stream.retained_rows <= 200
    assert running.stream.reports.dropped_starts > 0
    assert "grows" in running.query.warnings[0]


def test_state_stays_small_when_within_prunes() -> None:
    running = Running(
        match("MEASURES COUNT(*) AS n PATTERN (A B* C) WITHIN INTERVAL '10' SECOND DEFINE C AS price = 9")
    )
    for start in range(0, 1000, 20):
        running.push(*(("T", start + offset, 1.0) for offset in range(20)))
    assert running.stream.retained_rows <= 40


def test_rows_that_a_match_keeps_are_not_copied_with_each_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = 0
    take = Gathered._picked

    def counted(gathered: Gathered, wanted: Index) -> Rows:
        nonlocal copied
        copied += len(wanted)
        return take(gathered, wanted)

    monkeypatch.setattr(Gathered, "_picked", counted)
    running = Running(match("MEASURES COUNT(*) AS n PATTERN (S A* B) DEFINE B AS price < 0"))
    for first in range(0, 3_000, 30):
        running.push(*((ticker, row, 1.0) for row in range(first, first + 30) for ticker in "TU"))
    # Each row is copied with its batch, with the next one that looks back at it, and whenever rows are in too many
    # pieces.
    assert running.stream.retained_rows > 5_900
    assert copied < 5 * 6_000
    assert running.push(("T", 3_000.0, -1.0), ("T", 3_001.0, 1.0)) == []
    assert [row[-1] for row in running.close("T")] == [3_001]


def test_partitions_that_span_tickers_wait_for_the_slowest() -> None:
    sql = "SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES A.ticker AS a, B.ticker AS b PATTERN (A B)) AS m"
    running = Running(sql)
    running.buffer.advance({"X": 0, "Y": 0})
    assert running.push(("X", 0, 1), ("X", 2, 1), ("X", 4, 1)) == []
    assert running.push(("Y", 1, 1), ("Y", 3, 1)) == [("X", "Y")]


def test_rows_from_before_the_registration_do_not_exist() -> None:
    query = compile_stream(match("MEASURES A.price AS p PATTERN (A)"), {"ticks": TICKS})
    buffer = ReleaseBuffer("ts", "ticker")
    stream = TriggerStream(query=query, active_from=2)
    released = buffer.push(ticks(("T", 0, 1), ("T", 1, 2), ("T", 2, 3), ("T", 3, 4))).rows
    assert shown(stream.feed(released, buffer.clock)) == [("T", 3.0), ("T", 4.0)]


WINDOWED = [
    "SELECT ticker, TUMBLE_START(ts, INTERVAL '10' SECOND) AS w, COUNT(*) AS n, MAX(price) AS p FROM ticks "
    "GROUP BY ticker, TUMBLE(ts, INTERVAL '10' SECOND) HAVING COUNT(*) > 1",
    "SELECT window_start, window_end, SUM(price) AS s FROM TABLE(HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND, "
    "INTERVAL '15' SECOND)) GROUP BY window_start, window_end",
    "SELECT ticker, SESSION_END(ts, INTERVAL '4' SECOND) AS w, COUNT(*) AS n FROM ticks "
    "GROUP BY ticker, SESSION(ts, INTERVAL '4' SECOND)",
    "SELECT ticker, FIRST_VALUE(price) AS o, MAX(price) AS h, LAST_VALUE(price) AS c, COUNT(DISTINCT price) AS d, "
    "SUM(DISTINCT price) AS s, COUNT(*) FILTER (WHERE price > 2) AS high FROM ticks "
    "GROUP BY ticker, TUMBLE(ts, INTERVAL '10' SECOND)",
    "SELECT ticker, SESSION_START(ts, INTERVAL '2' SECOND) AS w, COUNT(*) AS n FROM ticks "
    "GROUP BY ticker, SESSION(ts, INTERVAL '2' SECOND)",
    "SELECT ticker, window_end, COUNT(*) AS n FROM TABLE(CUMULATE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND, "
    "INTERVAL '15' SECOND)) WHERE price > 2 GROUP BY ticker, window_start, window_end",
    "SELECT ticker, ts, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) "
    "AS a, LAG(price, 2) OVER (PARTITION BY ticker ORDER BY ts) AS b FROM ticks",
    "SELECT ticker, SUM(price) OVER (PARTITION BY ticker ORDER BY ts RANGE BETWEEN INTERVAL '6' SECOND PRECEDING AND "
    "CURRENT ROW) AS s FROM ticks WHERE price <> 3",
    "SELECT * FROM (SELECT ticker, ts, price, AVG(price) OVER (PARTITION BY ticker ORDER BY ts ROWS 2 PRECEDING) AS ma "
    "FROM ticks) MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(B.ma) AS m PATTERN (A B+) "
    "DEFINE B AS ma > PREV(ma)) AS m",
    "SELECT * FROM (SELECT ticker, window_end AS w, MAX(price) AS hi FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), "
    "INTERVAL '5' SECOND)) GROUP BY ticker, window_start, window_end) MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY w "
    "MEASURES B.hi AS hi PATTERN (A B) DEFINE B AS hi > A.hi) AS m",
    "SELECT a.ts, a.price - b.price AS spread FROM ticks a JOIN ticks b ON a.ts = b.ts AND a.ticker = "
    "'A' AND b.ticker = 'B'",
    "WITH a AS (SELECT ts, price FROM ticks WHERE ticker = 'A'), b AS (SELECT ts, price FROM ticks WHERE ticker = 'B') "
    "SELECT * FROM (SELECT a.ts AS t, a.price - b.price AS d FROM a LEFT JOIN b ON a.ts = b.ts) "
    "MATCH_RECOGNIZE (ORDER BY t "
    "MEASURES LAST(D.d) AS d PATTERN (S D) DEFINE D AS D.d < S.d OR S.d IS NULL) AS m",
    "SELECT ticker, ts, price, SUM(price) OVER (PARTITION BY ticker ORDER BY ts, price DESC ROWS 2 PRECEDING) AS s, "
    "LAG(price) OVER (PARTITION BY ticker ORDER BY ts, price DESC) AS l FROM ticks",
    # A window is emitted at its end: ordered by its start, it would be too late for WITHIN and for windows of another
    # size.
    *(
        f"SELECT * FROM (SELECT ticker, window_start AS w, MAX(price) AS hi FROM {window} GROUP BY ticker, "
        "window_start, window_end) MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY w MEASURES FIRST(w) AS f, "
        "COUNT(*) AS n ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (A B C) WITHIN INTERVAL '8' SECOND "
        "DEFINE B AS hi <> A.hi) AS m"
        for window in (
            "HOP(ticks, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
            "CUMULATE(ticks, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
            "SESSION(ticks PARTITION BY ticker, DESCRIPTOR(ts), INTERVAL '1' SECOND)",
        )
    ),
    "SELECT ticker, window_end AS e, SUM(n) AS n FROM TUMBLE((SELECT ticker, window_start AS w, COUNT(*) AS n FROM "
    "TUMBLE(ticks, DESCRIPTOR(ts), INTERVAL '7' SECOND) GROUP BY ticker, window_start, window_end), DESCRIPTOR(w), "
    "INTERVAL '10' SECOND) GROUP BY ticker, window_start, window_end",
    # Windows that share a start are peers, and sessions end in another order than they begin.
    *(
        f"SELECT ticker, w, n, SUM(n) OVER ({partition}ORDER BY w{frame}) AS s, MAX(e) OVER ({partition}ORDER BY w) "
        "AS e FROM (SELECT ticker, window_start AS w, window_end AS e, COUNT(*) AS n FROM CUMULATE(ticks, "
        "DESCRIPTOR(ts), INTERVAL '5' SECOND, INTERVAL '15' SECOND) GROUP BY ticker, window_start, window_end)"
        for partition in ("PARTITION BY ticker ", "")
        for frame in ("", " RANGE BETWEEN INTERVAL '15' SECOND PRECEDING AND CURRENT ROW")
    ),
    *(
        "SELECT * FROM (SELECT ticker, price, window_start AS w, COUNT(*) AS n FROM SESSION(ticks PARTITION BY "
        "(ticker, price), DESCRIPTOR(ts), INTERVAL '6' SECOND) GROUP BY ticker, price, window_start, window_end) "
        f"{tail}"
        for tail in (
            "MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY w, price MEASURES FIRST(w) AS f, SUM(n) AS s PATTERN (A B) "
            "WITHIN INTERVAL '9' SECOND DEFINE B AS n >= A.n) AS m",
            "MATCH_RECOGNIZE (ORDER BY w, ticker, price MEASURES FIRST(w) AS f, SUM(n) AS s PATTERN (A B) DEFINE B AS "
            "n >= A.n) AS m",
        )
    ),
    "SELECT ticker, w, n, SUM(n) OVER (PARTITION BY ticker ORDER BY w) AS s, LAG(n) OVER (PARTITION BY ticker ORDER BY "
    "w, price) AS l, SUM(n) OVER (PARTITION BY ticker ORDER BY w, price ROWS 1 PRECEDING) AS r FROM (SELECT ticker, "
    "price, window_start AS w, COUNT(*) AS n FROM SESSION(ticks PARTITION BY (ticker, price), DESCRIPTOR(ts), "
    "INTERVAL '6' SECOND) GROUP BY ticker, price, window_start, window_end)",
    # After a match, everything waits for matches that may still bring earlier rows.
    "SELECT ticker, window_start AS w, COUNT(*) AS n, MAX(mn) AS m FROM TABLE(TUMBLE((SELECT * FROM ticks "
    "MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES MATCH_NUMBER() AS mn ALL ROWS PER MATCH PATTERN (A B+) "
    "DEFINE B AS price >= PREV(price)) AS m), DESCRIPTOR(ts), INTERVAL '10' SECOND)) "
    "GROUP BY ticker, window_start, window_end",
    "SELECT ticker, TUMBLE_START(mt, INTERVAL '10' SECOND) AS w, COUNT(*) AS n, SUM(n) AS s FROM ticks MATCH_RECOGNIZE "
    "(PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS n, MATCH_ROWTIME() AS mt AFTER MATCH SKIP TO NEXT ROW "
    "PATTERN (A B+) DEFINE B AS price >= PREV(price)) AS m GROUP BY ticker, TUMBLE(mt, INTERVAL '10' SECOND)",
    "SELECT e, SUM(n) OVER (ORDER BY e RANGE INTERVAL '10' SECOND PRECEDING) AS s FROM ticks MATCH_RECOGNIZE "
    "(PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS n, LAST(ts) AS e PATTERN (A B* C) WITHIN INTERVAL '7' "
    "SECOND DEFINE B AS price >= PREV(price), C AS price < PREV(price)) AS m",
    "SELECT * FROM (SELECT ticker, e, n + 1 AS k FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES "
    "COUNT(*) AS n, LAST(ts) AS e AFTER MATCH SKIP TO NEXT ROW PATTERN (A B* C) DEFINE B AS price >= PREV(price), "
    "C AS price < PREV(price)) AS m) MATCH_RECOGNIZE (ORDER BY e, ticker, k MEASURES FIRST(e) AS f, LAST(e) AS l, "
    "SUM(k) AS k ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (X Y{2}) WITHIN INTERVAL '5' SECOND "
    "DEFINE Y AS k >= PREV(k)) AS o",
    "SELECT * FROM (SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES MATCH_NUMBER() AS mn "
    "ALL ROWS PER MATCH AFTER MATCH SKIP TO NEXT ROW PATTERN (A B* C) DEFINE B AS price >= PREV(price), "
    "C AS price < PREV(price)) AS m WHERE price > 0) MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts, mn "
    "MEASURES COUNT(*) AS n, FIRST(ts) AS f PATTERN (X Y+) WITHIN INTERVAL '6' SECOND DEFINE Y AS mn >= PREV(mn)) AS k",
    "SELECT ts, ticker, SUM(n) OVER (ORDER BY ts, ticker, mn, n ROWS 3 PRECEDING) AS s FROM ticks MATCH_RECOGNIZE "
    "(PARTITION BY ticker ORDER BY ts MEASURES MATCH_NUMBER() AS mn, COUNT(*) AS n ALL ROWS PER MATCH "
    "AFTER MATCH SKIP TO NEXT ROW PATTERN (A B+) DEFINE B AS price >= PREV(price)) AS m",
    "price > 3",
    "SELECT ticker, price * 2 AS d FROM ticks WHERE price BETWEEN 2 AND 4",
    "SELECT ticker, n + 1 AS n FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES COUNT(*) AS n "
    "PATTERN (A B+) DEFINE B AS price > PREV(price)) AS m WHERE n > 2",
]


@pytest.mark.parametrize("sql", WINDOWED)
@pytest.mark.parametrize("sizes", [(1, 2, 7), (1000,), pytest.param((1,), marks=pytest.mark.long)], ids=str)
def test_windows_and_queries_on_a_stream_are_those_of_the_batch(sql: str, sizes: tuple[int, ...]) -> None:
    random = np.random.default_rng(5)
    times = np.cumsum(random.integers(0, 3, 60))
    rows = [("AB"[int(random.integers(0, 2))], float(second), float(random.integers(0, 6))) for second in times]
    running = Running(sql)
    running.buffer.advance({"A": -1, "B": -1})
    found: list[tuple[Any, ...]] = []
    remaining = iter(rows)
    for size in cycle(sizes):
        if not (batch := list(islice(remaining, size))):
            break
        found += running.push(*batch)
        running.restart()
    found += running.close("A", "B")
    wanted = [tuple(row.values()) for row in evaluate(sql, ticks(*rows)).to_pylist()]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)
    assert wanted


@pytest.mark.parametrize(
    ("sql", "place"),
    [
        ("SELECT * FROM ticks ORDER BY price", "1:30"),
        ("SELECT * FROM ticks LIMIT 3", "1:27"),
        ("SELECT * FROM (\nSELECT DISTINCT ticker FROM ticks)", "2:1"),
        ("SELECT ticker, COUNT(*) FROM ticks\nGROUP BY ticker", "1:1"),
        ("SELECT a.price FROM ticks a\nJOIN ticks b ON a.price = b.price", "2:1"),
        ("SELECT a.price FROM ticks a FULL JOIN ticks b ON a.price = b.price", "1:29"),
        ("SELECT a.price FROM ticks a JOIN (SELECT MAX(ts) AS ts FROM ticks) b ON a.ts = b.ts", "1:29"),
        ("SELECT price FROM ticks\n  UNION SELECT price FROM ticks", "2:3"),
        (
            "SELECT price FROM ticks UNION ALL SELECT SUM(price) FROM ticks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
            "1:25",
        ),
        (
            "SELECT price FROM ticks UNION ALL SELECT LAG(price) OVER (PARTITION BY ticker ORDER BY ts) FROM ticks",
            "1:25",
        ),
        (
            "SELECT * FROM (SELECT * FROM ticks UNION ALL SELECT * FROM ticks) AS u MATCH_RECOGNIZE ("
            "PARTITION BY ticker ORDER BY ts PATTERN (A)) AS m",
            "1:36",
        ),
        ("SELECT RANK() OVER (PARTITION BY ticker ORDER BY ts) FROM ticks", "1:20"),
        (
            "SELECT SUM(price) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) "
            "FROM ticks",
            "1:24",
        ),
        ("SELECT STRING_AGG(ticker) OVER (PARTITION BY ticker ORDER BY ts) FROM ticks", "1:32"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY price PATTERN (A)) AS m", "1:15"),
        ("SELECT * FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts DESC PATTERN (A)) AS m", "1:15"),
        (
            "SELECT * FROM TABLE(TUMBLE((SELECT * FROM ticks MATCH_RECOGNIZE (ORDER BY ts MEASURES LAST(ts) AS t "
            "PATTERN (A)) AS m), DESCRIPTOR(t), INTERVAL '5' SECOND))",
            "1:21",
        ),
        ("SELECT window_start FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '5' SECOND))", "1:32"),
    ],
)
def test_texts_that_no_stream_can_run_are_refused(sql: str, place: str) -> None:
    with pytest.raises(TriggerRejected, match=rf"^INVALID_SQL {place}: .+ \(.+\)$"):
        compile_stream(sql, {"ticks": TICKS})


@pytest.mark.parametrize("size", [1, 3, 8])
def test_branches_of_union_all_give_their_rows_with_the_row_that_they_come_from(size: int) -> None:
    sql = """
        WITH high AS (SELECT ticker, price, 'high' AS why FROM ticks WHERE price > 2)
        SELECT ticker, price * 2 AS twice, why FROM (
          SELECT * FROM high UNION ALL (SELECT ticker, 1, 'any' FROM ticks UNION ALL SELECT * FROM high WHERE price > 3)
        ) AS found WHERE price < 9
    """
    rows = [("A", 0, 1.0), ("B", 0, 4.0), ("A", 0, 3.0), ("A", 1, 9.0), ("B", 2, 2.5), ("A", 2, 0.5)]
    running = Running(sql)
    assert running.query.columns_read == {"ticker", "price"}
    found, numbers = [], []
    for start in range(0, len(rows), size):
        events = running.events(*rows[start : start + size])
        found += shown(events)
        numbers += events.sequence.tolist()
        running.restart()
    found += running.close("A", "B")
    wanted = [tuple(row.values()) for row in evaluate(sql, ticks(*rows)).to_pylist()]
    assert sorted(found) == sorted(wanted)
    assert [why for ticker, _, why in found if ticker == "A"] == ["any", "high", "any", "any", "any"]
    assert [why for ticker, _, why in found if ticker == "B"] == ["high", "any", "high", "high", "any"]


def test_union_all_of_two_inputs_is_refused() -> None:
    with pytest.raises(TriggerRejected, match=r"^INVALID_SQL 1:25: UNION ALL of two inputs .+ \(.+\)$"):
        compile_stream("SELECT price FROM ticks UNION ALL SELECT price FROM bars", {"ticks": TICKS, "bars": TICKS})


def test_a_snapshot_of_another_trigger_is_refused() -> None:
    running = Running(match("MEASURES A.price AS p PATTERN (A)"))
    with pytest.raises(ValueError, match="not a trigger's state"):
        running.stream.restore(b"nonsense")


def test_a_feed_without_rows_or_watermark_gives_nothing() -> None:
    running = Running(match("MEASURES A.price AS p PATTERN (A)"))
    assert shown(running.stream.feed(ticks(), Clock())) == []


def test_no_deadline_passes_before_rows_that_wait_for_next() -> None:
    sql = match(
        "MEASURES COUNT(C.*) AS n ONE ROW PER MATCH WITH TIMEOUT ROWS PATTERN (B C B) WITHIN INTERVAL '3' SECOND "
        "DEFINE B AS NEXT(price) > 0"
    )
    rows = [("T", 0, 1.0), ("T", 1, 1.0), ("T", 3, 1.0), ("T", 9, 1.0)]
    running = Running(sql)
    # At 3 the deadline of the first row has passed, but the row that decides the one at 1 has not arrived.
    found = running.push(*rows[:3]) + running.push(*rows[3:]) + running.close("T")
    assert found == [tuple(row.values()) for row in evaluate(sql, ticks(*rows)).to_pylist()]
    assert found[0] == ("T", 1)
