# ruff: noqa: E501  (texts of SQL)
"""UNNEST compared with a loop, and on a stream; a match's rows as an array and back."""

import random
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import Limits, StreamInput, TriggerRejected, compile_stream, evaluate
from tests.candlewright_cep.streams import assert_streams, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)


def _rows(seed: int, rows: int = 80) -> pa.Table:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1, 500), rows))
    return pa.table(
        {
            "ticker": [chance.choice("AB") for _ in times],
            "ts": pa.array([time * 10**9 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "price": [float(chance.randrange(9)) for _ in times],
            "tags": pa.array(
                [chance.choice([None, [], ["x"], ["y", None], ["z", "x", "x"]]) for _ in times], pa.list_(pa.string())
            ),
        }
    )


@pytest.mark.parametrize("seed", seeds(3))
def test_each_row_comes_once_for_every_value(seed: int) -> None:
    table = _rows(seed)
    inner: list[dict[str, Any]] = []
    outer: list[dict[str, Any]] = []
    for row in table.to_pylist():
        made = [{"ts": row["ts"], "tag": tag, "n": n} for n, tag in enumerate(row["tags"] or [], 1)]
        inner += made
        outer += made or [{"ts": row["ts"], "tag": None, "n": None}]
    sql = "SELECT ts, u.tag, n FROM ticks CROSS JOIN UNNEST(tags) WITH ORDINALITY AS u(tag, n)"
    assert ordered(assert_streams(sql, table, seed)) == ordered(inner)
    sql = "SELECT ts, u.tag, n FROM ticks LEFT JOIN UNNEST(tags) WITH ORDINALITY AS u(tag, n) ON TRUE"
    assert ordered(assert_streams(sql, table, seed)) == ordered(outer)


STREAMED = [
    "SELECT t.ticker, value FROM ticks AS t, UNNEST(t.tags) WHERE value <> 'x'",
    "SELECT ticker, tag, window_start, COUNT(*) AS n FROM TABLE(TUMBLE((SELECT ticker, ts, tag FROM ticks CROSS JOIN UNNEST(tags) AS u(tag)), "
    "DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY ticker, tag, window_start, window_end",
    # The prices of every fall, one per row.
    "SELECT m.ticker, m.number, p FROM ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES MATCH_NUMBER() AS number, "
    "ARRAY_AGG(D.price) AS prices PATTERN (S D+ U) DEFINE D AS price < PREV(price), U AS price > PREV(price)) AS m CROSS JOIN UNNEST(m.prices) AS u(p)",
    "SELECT ts, x FROM ticks CROSS JOIN UNNEST(ARRAY[price, price * 2]) AS u(x) WHERE x > 9",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
@pytest.mark.parametrize("seed", seeds(2))
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str, seed: int) -> None:
    assert assert_streams(sql, _rows(seed), seed)


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM UNNEST(tags)", "UNNEST comes after a table"),
        ("SELECT * FROM ticks CROSS JOIN UNNEST(price) AS u(x)", "UNNEST takes an array, this is double"),
        ("SELECT * FROM ticks CROSS JOIN UNNEST(tags) AS u(x, y)", "2 names for 1 columns of UNNEST"),
        ("SELECT * FROM ticks JOIN UNNEST(tags) AS u(x) ON TRUE", "UNNEST takes CROSS JOIN"),
        ("SELECT * FROM ticks LEFT JOIN UNNEST(tags) AS u(x) ON x = 'a'", "expected TRUE"),
        ("SELECT x FROM ticks" + ", UNNEST(ARRAY[1, 2])" * 200, "unknown column 'x'"),
    ],
)  # fmt: skip
def test_malformed_texts_are_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _rows(1))


def test_rows_are_bounded() -> None:
    sql = "SELECT price FROM ticks" + "".join(f" CROSS JOIN UNNEST(ARRAY[1, 2, 3, 4]) AS u{n}(x{n})" for n in range(8))
    with pytest.raises(TriggerRejected, match=r"UNNEST makes \d+ rows"):
        evaluate(sql, _rows(1), limits=Limits(joined_rows=10_000))
    assert compile_stream(sql, {"ticks": StreamInput(_rows(1).schema, ("ts",))})
