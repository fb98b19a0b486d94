"""The benchmark of many triggers counts the events that the library finds in the same ticks."""

import pyarrow as pa
import pytest

from benchmarks.triggers import bench_triggers as benchmark
from benchmarks.triggers.trigger_engine import V_SHAPE, Ticks
from candlewright.wire.tick_columns import decode
from candlewright_cep import evaluate

pytestmark = pytest.mark.timeout(1_200)

ROWS = 6_000
SYMBOLS = 4


def table_of(values: list[bytes]) -> pa.Table:
    batches = [decode(value) for value in values]
    return pa.concat_tables(
        pa.table({"ticker": [batch.ticker] * len(batch), "ts_ns": batch.timestamp, "price": batch.price})
        for batch in batches
    )


def closed_matches(ticks: pa.Table) -> int:
    """Matches behind which their ticker has another row: the last ones may still grow."""
    found = evaluate(V_SHAPE % "", ticks)
    last = {
        row["ticker"]: row["ts_ns_max"] for row in ticks.group_by("ticker").aggregate([("ts_ns", "max")]).to_pylist()
    }
    return sum(row["t1"] < last[row["ticker"]] for row in found.to_pylist())


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_events_are_those_of_the_library() -> None:
    ticks = Ticks(SYMBOLS)
    before = table_of(ticks.batch(ROWS))
    after = pa.concat_tables([before, table_of(ticks.batch(ROWS))])
    expected = closed_matches(after) - closed_matches(before)
    result = benchmark.run(ROWS, SYMBOLS, [1, SYMBOLS], setting="shared")
    one, all_of_them = result["costs"]
    assert all_of_them["result_rows"] == expected > 20
    assert 0 < one["result_rows"] < expected
    assert result["over_all"]["result_rows"] == expected, "one trigger over all tickers finds them, too"
    assert all_of_them["cpu_ratio_over_all"] > 0
    assert result["result_rows"] == one["result_rows"] + expected
    assert result["ratio_of"] == [SYMBOLS, 1]
    assert result["ratio"] == round(all_of_them["seconds"] / one["seconds"], 2)
    assert {"rows", "seconds", "rows_per_second", "floor_rows_per_second", "cpu_ratio"} <= result.keys()
