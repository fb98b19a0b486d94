"""Parts whose status page cannot be served because another program has its address."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis

pytestmark = pytest.mark.processes

#: Ports of the parts' doors, any that are free.
_ANY_PORT = "127.0.0.1:0"


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), fsync="no") as server:
        yield server.url


@pytest.mark.parametrize("part", ["broker", "relay", "ingestor", "alerts", "console"])
def test_a_part_without_its_status_address_says_why_and_ends(tmp_path: Path, part: str, redis_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        own = {
            "CANDLEWRIGHT_BUS__URL": redis_url,
            "CANDLEWRIGHT_DATA_DIR": str(tmp_path),
            "CANDLEWRIGHT_HTTP__BIND": address,
            "CANDLEWRIGHT_BROKER__BIND": f"tcp://{_ANY_PORT}",
            "CANDLEWRIGHT_RELAY__REQUESTS_BIND": f"tcp://{_ANY_PORT}",
            "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": f"tcp://{_ANY_PORT}",
            "CANDLEWRIGHT_CONSOLE__BIND": _ANY_PORT,
        }
        done = subprocess.run(
            [sys.executable, "-m", part], env=os.environ | own, capture_output=True, text=True, timeout=60, check=False
        )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    assert "cannot_serve" in done.stderr
    assert "Address already in use" in done.stderr
