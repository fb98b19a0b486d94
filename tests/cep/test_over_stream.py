"""OVER on a stream keeps no more rows than frames can still reach."""

import random

import pyarrow as pa
import pytest

from cep import ReleaseBuffer, StreamInput, TriggerStream, compile_stream, evaluate

pytestmark = pytest.mark.timeout(60)

_MINUTE = 60 * 10**9
_DAY = 1_440 * _MINUTE
_HIGH = """
    SELECT ticker, ts, MAX(p) OVER (
      PARTITION BY ticker, day ORDER BY ts RANGE BETWEEN INTERVAL '6' HOUR PRECEDING AND INTERVAL '1' MINUTE PRECEDING
    ) AS top
    FROM (SELECT ticker, ts, p, CAST(ts AS DATE) AS day FROM ticks)"""


def _rows(days: int) -> pa.Table:
    chance = random.Random(days)
    times = sorted(chance.randrange(days * _DAY) for _ in range(days * 100))
    return pa.table(
        {
            "ticker": pa.array([chance.choice("AB") for _ in times]),
            "ts": pa.array(times).cast(pa.timestamp("ns", "UTC")),
            "p": pa.array([chance.randrange(9) for _ in times]),
        }
    )


def _fed(table: pa.Table, cuts: list[int]) -> tuple[list[dict[str, object]], int]:
    """The rows of the stream, and the most rows that it kept."""
    stream = TriggerStream(compile_stream(_HIGH, {"ticks": StreamInput(table.schema, ("ts",))}))
    buffer = ReleaseBuffer("ts", "ticker")
    found: list[dict[str, object]] = []
    most = 0
    for start, end in zip([0, *cuts], [*cuts, table.num_rows], strict=True):
        found += stream.feed(buffer.push(table.slice(start, end - start)).rows, buffer.clock).table.to_pylist()
        most = max(most, stream.retained_rows)
    found += stream.feed(buffer.close({"A", "B"}), buffer.clock).table.to_pylist()
    return found, most


def test_partitions_of_past_days_are_let_go() -> None:
    table = _rows(20)
    cuts = list(range(50, table.num_rows, 50))
    found, most = _fed(table, cuts)
    assert sorted(found, key=repr) == sorted(evaluate(_HIGH, table).to_pylist(), key=repr)
    assert most < 100  # a quarter of a day has about 25 rows


@pytest.mark.parametrize("seed", range(5))
def test_any_batching_gives_the_rows_of_the_batch(seed: int) -> None:
    table = _rows(3)
    cuts = sorted(random.Random(seed).sample(range(table.num_rows), 40))
    assert sorted(_fed(table, cuts)[0], key=repr) == sorted(evaluate(_HIGH, table).to_pylist(), key=repr)
