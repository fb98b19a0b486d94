"""The benchmark of a long run with WITHIN counts what the library finds, and reports memory and state by tenths."""

import pytest

from benchmarks.triggers import trigger_memory

pytestmark = pytest.mark.timeout(120)


def test_each_tenth_is_reported_with_live_partial_matches() -> None:
    result = trigger_memory.run(rows=40_000, batch_rows=1_000, partial_matches=50)
    assert result["rows"] == 40_000
    assert result["result_rows"] > 0
    assert len(result["resident_mib"]) == len(result["state_bytes"]) == 10
    assert 0 < result["live"] <= trigger_memory.SYMBOLS
    one, eleven = (result["partial_match"][length] for length in ("1", "11"))
    assert one["live"] == eleven["live"] == 50
    assert 0 < one["state_bytes"] < eleven["state_bytes"]
    assert 0 < one["memory_bytes"] < eleven["memory_bytes"]
