"""Rows that wait for later ones reach the next window as if they had not waited."""

import pyarrow as pa
import pytest

from candlewright_cep import evaluate
from tests.candlewright_cep.streams import ordered, streamed

#: The frame of the first trade at 2 s is complete before the second one's.
SECONDS, PRICES = [1, 2, 2, 3, 4, 5], [96.0, 105.0, 97.0, 106.0, 98.0, 99.0]


@pytest.mark.parametrize(
    "window",
    [
        "ORDER BY ts GROUPS 1 PRECEDING",
        "ORDER BY ts RANGE INTERVAL '1' SECOND PRECEDING",
        "ORDER BY ts, p ROWS 1 PRECEDING",
    ],
)
@pytest.mark.parametrize(
    "ahead", ["LEAD(p, 2) OVER (PARTITION BY ticker ORDER BY ts)",
              "MAX(p) OVER (PARTITION BY ticker ORDER BY ts ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING)"]
)  # fmt: skip
def test_trades_of_one_time_stay_together(ahead: str, window: str) -> None:
    sql = f"SELECT ts, p, {ahead} AS later, SUM(p) OVER (PARTITION BY ticker {window}) AS total FROM ticks"
    table = pa.table(
        {
            "ticker": ["T"] * len(SECONDS),
            "ts": pa.array([second * 10**9 for second in SECONDS]).cast(pa.timestamp("ns", "UTC")),
            "p": PRICES,
        }
    )
    wanted = ordered(evaluate(sql, table).to_pylist())
    assert ordered(streamed(sql, table, list(range(len(SECONDS))))) == wanted
