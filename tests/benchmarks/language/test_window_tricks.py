"""The patterns of the benchmark find what DuckDB's windows find."""

import pytest

from benchmarks.language.window_tricks import QUESTIONS, compared, market


@pytest.mark.parametrize("name", QUESTIONS)
def test_patterns_and_windows_find_the_same_rows(name: str) -> None:
    found = compared(name, market(20_000, 3), 1)
    # A difference ends the benchmark.
    assert found["rows"] == 20_000 and found["result_rows"]
