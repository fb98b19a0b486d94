"""The benchmark of the Numaflow source, on a small number of records."""

import pytest

from benchmarks.gateways import numaflow

pytestmark = pytest.mark.timeout(300)


def test_every_record_of_the_benchmark_comes_once_and_is_acknowledged() -> None:
    result = numaflow.run(messages=300, batch=50, rounds=1, acks="single")
    assert result["result_rows"] == result["rows"] == 300
    assert result["pending"] == 0
    assert result["rows_per_second"] > 0
    assert result["floor_rows_per_second"] > 0
    assert len(result["round_ratios"]) == 1
