"""Which columns of its input a text reads."""

import pyarrow as pa
import pytest

from candlewright_cep.streaming.stream import StreamInput, compile_stream

pytestmark = pytest.mark.timeout(60)

SCHEMA = pa.schema(
    [
        ("ticker", pa.string()),
        ("ts", pa.timestamp("ns", "UTC")),
        ("price", pa.float64()),
        ("size", pa.float64()),
        ("side", pa.string()),
    ]
)
INPUTS = {"ticks": StreamInput(SCHEMA, ("ts",))}
PATTERN = """ticks MATCH_RECOGNIZE (PARTITION BY ticker ORDER BY ts MEASURES LAST(B.size) AS s %s
  PATTERN (A B) DEFINE B AS price > A.price) AS m"""


@pytest.mark.parametrize(
    ("sql", "read"),
    [
        (f"SELECT * FROM {PATTERN % ''}", {"ticker", "ts", "price", "size"}),
        (f"SELECT s FROM {PATTERN % ''} WHERE s > 2", {"ticker", "ts", "price", "size"}),
        (f"SELECT * FROM {PATTERN % 'ALL ROWS PER MATCH'}", None),
        ("SELECT price * 2 AS p FROM ticks WHERE size > 1", {"price", "size"}),
        ("SELECT ticker FROM ticks WHERE side = 'buy'", {"ticker", "side"}),
        ("price > 1", None),
        (
            "SELECT SUM(size) OVER (PARTITION BY ticker ORDER BY ts ROWS 3 PRECEDING) AS s FROM ticks",
            {"ticker", "ts", "size"},
        ),
        ("SELECT *, LAG(size) OVER (PARTITION BY ticker ORDER BY ts) AS s FROM ticks", None),
        (
            "SELECT MAX(price) AS p FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
            "WHERE size > 1 GROUP BY ticker, window_start HAVING COUNT(*) > 2",
            {"ticker", "ts", "price", "size"},
        ),
        ("SELECT close FROM ticks BARS BY TRADES 3", None),
    ],
)
def test_columns_that_a_text_reads(sql: str, read: set[str] | None) -> None:
    found = compile_stream(sql, INPUTS).columns_read
    everything = set(SCHEMA.names)
    assert (everything if found is None else set(found)) == (everything if read is None else read)
