"""The benchmark of a trigger's latency gets an event for each tick through a relay, and times both of its queries."""

import pyarrow as pa
import pytest

from benchmarks import trigger_latency
from candlewright_cep import evaluate

pytestmark = pytest.mark.timeout(1_200)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_tick_is_an_event_and_both_queries_are_timed() -> None:
    result = trigger_latency.run(rows=6, pause_seconds=0.02)
    ticks = 2 * (6 + trigger_latency.TURNS * trigger_latency.WARM_ROWS)
    expected = evaluate(trigger_latency.SQL, pa.table({"price": [float(n) for n in range(1, ticks + 1)]}))
    assert result["rows"] == ticks
    assert result["result_rows"] == expected.num_rows == ticks
    assert result["timed"] == 6
    assert 0 < result["median_ms"] <= result["p99_ms"] < 1_000 * result["seconds"]
    assert 0 < result["bare_median_ms"] <= result["bare_p99_ms"] < 1_000 * result["seconds"]
    assert result["ratio"] == pytest.approx(result["median_ms"] / result["bare_median_ms"], rel=0.01)
    assert {"rows_per_second", "p99_ratio", "received_at"} <= result.keys()
