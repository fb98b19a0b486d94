"""Parts whose `bus.url` cannot be used: a sentence and the exit code after which `up` does not start them again."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from candlewright_platform.supervisor.state import REFUSED

pytestmark = pytest.mark.processes


@pytest.mark.parametrize("part", ["broker", "relay", "ingestor", "alerts", "gateways", "flink_replacement_spark"])
def test_a_part_with_an_unusable_bus_url_says_why_and_is_not_restarted(tmp_path: Path, part: str) -> None:
    own = {
        "CANDLEWRIGHT_BUS__URL": "rediss://127.0.0.1:6379/0?ssl_ca_certs=/missing/ca.pem",
        "CANDLEWRIGHT_DATA_DIR": str(tmp_path),
        "CANDLEWRIGHT_GATEWAYS__KAFKA_PIXY__ENABLED": "true",
    }
    done = subprocess.run(
        [sys.executable, "-m", part], env={**os.environ, **own}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == REFUSED
    assert done.stderr.splitlines() == ["bus.url: ssl_ca_certs: the file /missing/ca.pem does not exist"]
