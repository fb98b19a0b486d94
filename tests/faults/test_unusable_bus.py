"""Parts that the server of `bus.url` refuses: they print a sentence, and exit with the code after which `up` does not
restart them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis
from candlewright_platform.supervisor.state import REFUSED

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server, with another password than the server's."""
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), fsync="no") as server:
        yield f"redis://:wrong@127.0.0.1:{server.url.rpartition(':')[2]}"


@pytest.mark.parametrize("part", ["broker", "relay", "ingestor", "alerts", "gateways", "flink_replacement_spark"])
def test_a_part_that_redis_refuses_says_why_and_is_not_restarted(tmp_path: Path, part: str, refusing: str) -> None:
    own = {
        "CANDLEWRIGHT_BUS__URL": refusing,
        "CANDLEWRIGHT_DATA_DIR": str(tmp_path),
        "CANDLEWRIGHT_GATEWAYS__KAFKA_PIXY__ENABLED": "true",
    }
    # Java says that it picks these up.
    env = {name: value for name, value in os.environ.items() if name != "JDK_JAVA_OPTIONS"} | own
    done = subprocess.run(
        [sys.executable, "-m", part], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == REFUSED
    (told,) = done.stderr.splitlines()
    assert told.startswith("bus.url: Redis refuses its user or password: invalid username-password pair")
