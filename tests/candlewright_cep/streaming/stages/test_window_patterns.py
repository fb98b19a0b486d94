# ruff: noqa: E501  (texts of SQL)
"""Row patterns in a WINDOW clause: a stream gives the rows of the finished table, cut anywhere and restarted."""

import random

import pyarrow as pa
import pytest

from candlewright_cep import Clock, StreamInput, TriggerRejected, TriggerStream, compile_stream
from tests.candlewright_cep.streams import assert_streams
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)

V = "PATTERN (S D+ U+) DEFINE D AS price < PREV(price), U AS price > PREV(price)"


def _trades(seed: int, rows: int = 120) -> pa.Table:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1, 600), rows))
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array([time * 10**9 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "price": pa.array([chance.choice([None, 1.0, 2.0, 3.0, 4.0]) for _ in times], pa.float64()),
        }
    )


def over(pattern: str, what: str = "n OVER w", rows: int = 5, *, measures: str = "COUNT(*) AS n") -> str:
    frame = f"ROWS BETWEEN CURRENT ROW AND {rows} FOLLOWING"
    return (
        f"SELECT ticker, ts, price, {what} AS x FROM ticks "
        f"WINDOW w AS (PARTITION BY ticker ORDER BY ts MEASURES {measures} {frame} {pattern})"
    )


TEXTS = {
    "past the last row": over(f"AFTER MATCH SKIP PAST LAST ROW {V}"),
    "to the next row": over(f"AFTER MATCH SKIP TO NEXT ROW {V}"),
    "to a variable": over(f"AFTER MATCH SKIP TO LAST U {V}"),
    "seek": over("AFTER MATCH SKIP PAST LAST ROW SEEK PATTERN (A B) DEFINE A AS price = 1, B AS price = 4", "FIRST_VALUE(ts) OVER w"),
    "covers many": over("AFTER MATCH SKIP PAST LAST ROW PATTERN (A+) DEFINE A AS price >= FIRST(A.price)", "SUM(price) OVER w", 17),
    "within": over("PATTERN (A B* C) WITHIN INTERVAL '20' SECOND DEFINE C AS C.price > A.price", rows=8),
    "pauses": over("PATTERN (A B*) WITHIN INTERVAL '9' SECOND FROM PREVIOUS ROW", rows=8),
    "of one row": over("PATTERN (A) DEFINE A AS price > 2", rows=0),
    "measures": over(V, "low OVER w", 9, measures="MIN(D.price) AS low, LAST(U.price) AS high"),
    "reluctant": over("PATTERN (A B*? C) DEFINE A AS price = 1, C AS C.price > A.price + AVG(B.price)", rows=8),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("seed", seeds(9))
def test_a_stream_gives_the_rows_of_the_table(name: str, seed: int) -> None:
    found = assert_streams(TEXTS[name], _trades(seed), seed)
    assert len(found) == 120 and any(row["x"] is not None for row in found)


def test_a_filter_fires_for_the_rows_at_which_a_match_begins() -> None:
    found = assert_streams(f"SELECT ticker, ts, x FROM ({TEXTS['past the last row']}) WHERE x >= 3", _trades(5), 5)
    assert found and all(row["x"] >= 3 for row in found)


def test_a_row_comes_with_the_last_row_of_its_frame() -> None:
    table = pa.table(
        {
            "ticker": ["A"] * 5,
            "ts": pa.array([n * 10**9 for n in range(5)], pa.timestamp("ns", "UTC")),
            "price": [1.0, 3.0, 2.0, 4.0, 5.0],
        }
    )
    text = over("AFTER MATCH SKIP PAST LAST ROW PATTERN (A B) DEFINE B AS B.price > A.price", rows=2)
    stream = TriggerStream(query=compile_stream(text, {"ticks": StreamInput(table.schema, ("ts",))}))
    shown = []
    for row in range(5):
        rows = table.slice(row, 1).append_column("_sequence", pa.array([row], pa.int64()))
        found = stream.feed(rows, Clock({"A": row * 10**9})).table
        shown.append([(r["price"], r["x"]) for r in found.to_pylist()])
    # The match of 1 and 3 covers 3, so none begins there.
    assert shown == [[], [], [(1.0, 2)], [(3.0, None)], [(2.0, 2)]]
    assert stream.retained_rows == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            over(V).replace("5 FOLLOWING", "UNBOUNDED FOLLOWING"),
            "waits for the rows of its frame, so they must be counted",
        ),
        (over(V, "n OVER w AS n, LAG(price) OVER w"), "on a stream LAG needs a window without a row pattern"),
    ],
)
def test_undecidable_window_patterns_are_refused(text: str, said: str) -> None:
    with pytest.raises(TriggerRejected, match=said) as refused:
        compile_stream(text, {"ticks": StreamInput(_trades(1).schema, ("ts",))})
    assert refused.value.hint
