"""Imports whose command and driver, as real processes, are killed at random points."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh_bus import FreshBus


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_killed_import_leaves_nothing_half_done_and_a_second_run_finishes_it(tmp_path: Path) -> None:
    bus = FreshBus()
    environment = os.environ | {"CANDLEWRIGHT_BUS__URL": bus.url, "CANDLEWRIGHT_DATA_DIR": str(tmp_path / "data")}
    command = [sys.executable, "-m", "tests.flink_replacement_spark.history.import_kills", tmp_path, "10", "1"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=590, check=True)
    assert done.stderr.count("killed in 10 of") == 2
    assert [line for line in done.stdout.splitlines() if line.startswith(("wrong:", "Traceback"))] == []
