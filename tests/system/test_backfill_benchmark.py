"""The benchmark of a live ticker beside a backlog measures both on a running platform."""

import pytest

from benchmarks.system import backfill

pytestmark = pytest.mark.timeout(600)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_live_ticker_is_timed_while_other_partitions_catch_up() -> None:
    found = {line["name"]: line for line in backfill.run(rows=20_000, tickers=2, timed=3)}
    assert found["alone"]["timed"] == 3
    assert found["backfill"]["timed"] > 0
    for name in ("alone", "backfill"):
        assert 0 < found[name]["p50_ms"] <= found[name]["max_ms"]
    for name in ("backfill", "unwatched"):
        assert found[name]["rows"] == 20_000
        assert found[name]["rows_per_second"] > 0
