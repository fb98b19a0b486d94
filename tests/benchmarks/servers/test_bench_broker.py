import pytest

from benchmarks.servers import bench_broker as benchmark

pytestmark = pytest.mark.processes


def test_every_job_of_the_benchmark_ends_once() -> None:
    result = benchmark.run(jobs=300, rounds=2)
    assert result["result_rows"] == result["rows"] == 300
    assert result["rows_per_second"] > 0
    assert result["ratio"] > 0
    assert len(result["round_ratios"]) == 2
    assert result["bare_ratio"] > 0
