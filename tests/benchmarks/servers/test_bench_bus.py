from benchmarks.servers import bench_bus as benchmark


def test_the_benchmark_reads_back_every_published_record() -> None:
    result = benchmark.run(rows=2_000, batch=100, fsync="no")
    assert result["result_rows"] == result["rows"] == 2_000
    assert result["rows_per_second"] > 0
    assert result["ratio"] == min(result["publish_ratio"], result["read_ratio"]) > 0
