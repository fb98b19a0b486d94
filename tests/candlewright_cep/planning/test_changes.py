# ruff: noqa: E501  (texts of SQL)
"""GROUP BY ... EMIT CHANGES compared with a loop that groups again after each row, and on a stream."""

import random
from typing import Any

import pyarrow as pa
import pytest

from candlewright_cep import StreamInput, TriggerRejected, compile_stream, evaluate
from tests.candlewright_cep.streams import assert_streams, ordered
from tests.rounds import seeds

pytestmark = pytest.mark.timeout(60)


def _trades(seed: int, rows: int = 120) -> pa.Table:
    chance = random.Random(seed)
    times = sorted(chance.sample(range(1, 300), rows))
    return pa.table(
        {
            "ticker": [chance.choice("ABC") for _ in times],
            "ts": pa.array([time * 10**9 for time in times]).cast(pa.timestamp("ns", "UTC")),
            "side": pa.array([chance.choice(["buy", "sell", None]) for _ in times], pa.string()),
            "price": [chance.choice([None, *range(9)]) for _ in times],
        }
    )


def _again_after_each_row(table: pa.Table, keys: tuple[str, ...]) -> list[dict[str, Any]]:
    seen: dict[tuple[Any, ...], list[int]] = {}
    last: dict[tuple[Any, ...], Any] = {}
    found = []
    for row in table.to_pylist():
        key = tuple(row[name] for name in keys)
        prices = seen.setdefault(key, [])
        prices += [row["price"]] if row["price"] is not None else []
        result = {"high": max(prices, default=None), "total": sum(prices) if prices else None}
        if key not in last or last[key] != result:
            found.append(dict(zip(keys, key, strict=True)) | result)
        last[key] = result
    return found


@pytest.mark.parametrize("keys", [("ticker",), ("side",), ("ticker", "side"), ()])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_row_comes_with_each_change_of_its_group(keys: tuple[str, ...], seed: int) -> None:
    table = _trades(seed)
    columns = ", ".join((*keys, "MAX(price) AS high, SUM(price) AS total"))
    by = f"GROUP BY {', '.join(keys)}" if keys else ""
    found = assert_streams(f"SELECT {columns} FROM ticks {by} EMIT CHANGES", table, seed)
    assert ordered(found) == ordered(_again_after_each_row(table, keys))
    assert 0 < len(found) < table.num_rows


STREAMED = [
    "SELECT ticker, COUNT(*) AS n FROM ticks GROUP BY ticker HAVING COUNT(*) % 10 = 0 EMIT CHANGES",
    "SELECT UPPER(side) AS s, price % 3 AS r, VWAP(price, 2) AS v, LAST_VALUE(ts) AS at FROM ticks WHERE price > 1 GROUP BY 1, 2 EMIT CHANGES",
    "SELECT * FROM (SELECT ticker, LAST_VALUE(ts) AS at, MAX(price) AS high FROM ticks GROUP BY ticker EMIT CHANGES) WHERE high > 3",
]  # fmt: skip


@pytest.mark.parametrize("sql", STREAMED)
def test_a_stream_gives_the_rows_of_a_finished_table(sql: str) -> None:
    assert len(assert_streams(sql, _trades(7), 7)) > 5


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT price FROM ticks EMIT CHANGES", "EMIT CHANGES is for GROUP BY and aggregates"),
        ("SELECT COUNT(*) FROM ticks GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE) EMIT CHANGES", "without windows and sets"),
        ("SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE ticks, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_end EMIT CHANGES", "without windows and sets"),
        ("SELECT COUNT(*) FROM ticks GROUP BY ROLLUP(ticker) EMIT CHANGES", "without windows and sets"),
        ("SELECT COUNT(*) FROM (SELECT price FROM ticks) EMIT CHANGES", "needs a time column, and the input has none"),
        ("SELECT COUNT(*) FROM ticks EMIT FINAL", "not expected|unexpected"),
    ],
)  # fmt: skip
def test_emit_changes_where_it_cannot_apply_is_refused(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        evaluate(sql, _trades(1))


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT ticker, COUNT(*) FROM ticks GROUP BY ticker", "or EMIT CHANGES"),
        ("SELECT ticker, MEDIAN(price) AS m FROM ticks GROUP BY ticker EMIT CHANGES", "would keep every value"),
    ],
)
def test_unbounded_texts_are_refused_on_a_stream(sql: str, message: str) -> None:
    with pytest.raises(TriggerRejected, match=message):
        compile_stream(sql, {"ticks": StreamInput(_trades(1).schema, ("ts",))})
