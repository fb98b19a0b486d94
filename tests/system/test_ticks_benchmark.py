"""The benchmark of live trades runs and counts every trade."""

from benchmarks.exchanges import ticks


def test_a_small_run_delivers_every_trade_on_both_sides() -> None:
    result = ticks.run(rows=2_000, latency_rows=100, pace=400.0, settle_seconds=0.5)
    assert result["result_rows"] == result["stock_result_rows"] == 2_000
    assert result["rate_ratio"] > 0 and result["median_ratio"] > 0 and result["p99_ratio"] > 0
