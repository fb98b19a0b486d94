import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes


def test_a_process_that_configures_no_logs_leaves_its_stdout_to_its_rows() -> None:
    code = "from core.log import get_logger; get_logger().warning('bus_connection_lost')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == ""
    assert "bus_connection_lost" in done.stderr
