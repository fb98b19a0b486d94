"""The benchmark of stored candles over HTTP returns all rows in each format."""

import pytest

from benchmarks.servers.bench_http import FORMATS, run

pytestmark = [pytest.mark.long, pytest.mark.processes]


def test_every_form_has_all_rows() -> None:
    found = {line["name"]: line for line in run(rows=5_000, times=1)}
    assert tuple(found) == FORMATS
    assert all(float(line["rows_per_second"]) > 0 and line["result_rows"] == 5_000 for line in found.values())
    sizes = [float(found[form]["bytes"]) for form in FORMATS]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] > 5_000 * 13 * 4
