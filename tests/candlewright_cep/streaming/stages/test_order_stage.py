# ruff: noqa: E501  (texts of SQL)
"""Windows and bars come at their end, but may be read by their start: also after a pattern, which keeps them longer."""

import datetime as dt
import random

import pyarrow as pa
import pytest

from tests.candlewright_cep.streams import assert_streams

_WINDOW = "SELECT ticker, window_start, window_end, MAX(price) AS close FROM TABLE({}) GROUP BY ticker, window_start, window_end"
SOURCES = {
    "bars": "SELECT ticker, open_time AS window_start, close_time AS window_end, close FROM ticks BARS BY TRADES 3",
    "windows": _WINDOW.format("TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '3' SECOND)"),
    "hops": _WINDOW.format("HOP(TABLE ticks, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '6' SECOND)"),
    "sessions": _WINDOW.format("SESSION(TABLE ticks PARTITION BY ticker, DESCRIPTOR(ts), INTERVAL '2' SECOND)"),
}
PATTERNS = {
    "all rows by start": "ORDER BY window_start MEASURES COUNT(*) AS k ALL ROWS PER MATCH",
    "all rows by end": "ORDER BY window_end MEASURES COUNT(*) AS k ALL ROWS PER MATCH",
    "one row": "ORDER BY window_start MEASURES LAST(window_start) AS window_start, LAST(close) AS close",
}
READERS = {
    "windows": "SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(time), INTERVAL '5' SECOND)) GROUP BY ticker, window_start, window_end",
    "sessions": "SELECT ticker, window_start, COUNT(*) AS n FROM TABLE(SESSION(TABLE m PARTITION BY ticker, DESCRIPTOR(time), INTERVAL '3' SECOND)) GROUP BY ticker, window_start, window_end",
    "all tickers": "SELECT ticker, time, LAG(close) OVER (ORDER BY time, ticker, close) AS before FROM m",
}


def _trades(seed: int) -> pa.Table:
    chance, time = random.Random(seed), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = []
    for _ in range(50):
        time += dt.timedelta(milliseconds=chance.choice([0, 500, 1000, 2000, 9000 if chance.random() < 0.2 else 700]))
        rows.append({"ticker": chance.choice("AB"), "ts": time, "price": chance.randint(1, 9), "size": 1.0})
    return pa.Table.from_pylist(rows).cast(
        pa.schema(
            [
                ("ticker", pa.string()),
                ("ts", pa.timestamp("ns", "UTC")),
                ("price", pa.float64()),
                ("size", pa.float64()),
            ]
        )
    )


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_matches_of_windows_are_read_by_the_start(source: str, pattern: str, reader: str) -> None:
    sql = (
        f"WITH b AS ({source}), p AS (SELECT * FROM b MATCH_RECOGNIZE (PARTITION BY ticker {pattern} "
        "PATTERN (A B*) WITHIN INTERVAL '8' SECOND DEFINE B AS close > A.close) AS x), "
        f"m AS (SELECT ticker, window_start AS time, close FROM p) {reader}"
    )
    assert assert_streams(sql, _trades(3), 3)
