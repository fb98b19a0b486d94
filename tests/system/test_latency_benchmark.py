"""The benchmark of latencies times a running platform, and its hops add up to the whole way."""

import pytest

from benchmarks.system import latency

pytestmark = pytest.mark.timeout(1_200)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_each_way_is_timed_with_its_floor_and_its_hops_add_up() -> None:
    found = {
        line["name"]: line
        for line in latency.run(
            rows=3,
            pause_seconds=0.02,
            load_rate=200,
            idle_seconds=1.0,
            hops=True,
            quiet_seconds=0.5,
            slow_rows=500,
            threshold_rows=500,
        )
    }
    for name in ("trigger", "bars", "load", "slow", "threshold"):
        assert 0 < found[name]["p50_ms"] <= found[name]["p99_ms"]
        assert found[name]["floor_p50_ms"] > 0
    for name in ("trigger", "bars"):
        hops = [found[f"{name}.{hop}"]["p99_ms"] for hop in ("publish", "engine", "relay")]
        assert sum(hops) + 1 >= found[name]["p50_ms"]
    assert found["disk"]["p50_ms"] > 0 and found["memory"]["p50_ms"] > 0
    assert found["idle"]["cores"] > 0
    assert found["idle"]["pss_mib"] > 100
