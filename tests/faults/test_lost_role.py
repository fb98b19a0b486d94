"""What a part reports when another process has taken its role."""

import json
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE

import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.roles import ALERTS, BROKER, REGISTRY, Roles
from candlewright_platform.supervisor.ports import free_port
from tests.faults.harness import until
from tests.faults.link import Link
from tests.faults.process import Process

PATIENCE_SECONDS = 60.0
#: A process of the same seat gets a role without waiting for the lease.
SEAT = "1"
pytestmark = pytest.mark.processes


class _Heard(Process):
    stderr = PIPE


@pytest.mark.parametrize(("part", "role"), [("broker", BROKER), ("relay", REGISTRY), ("alerts", ALERTS)])
def test_a_part_that_loses_its_role_reports_that_alone(tmp_path: Path, part: str, role: str) -> None:
    addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(3)]
    with ExitStack() as stack:
        redis = stack.enter_context(EmbeddedRedis(tmp_path / "redis", fsync="no"))
        link = stack.enter_context(Link(redis.url))
        holder = _Heard(
            part,
            tmp_path,
            link,
            CANDLEWRIGHT_DATA_DIR=str(tmp_path),
            CANDLEWRIGHT_SUPERVISED=SEAT,
            CANDLEWRIGHT_LOG__LEVEL="warning",
            CANDLEWRIGHT_ROLES__LEASE_SECONDS="1",
            CANDLEWRIGHT_BROKER__BIND=addresses[0],
            CANDLEWRIGHT_RELAY__REQUESTS_BIND=addresses[1],
            CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND=addresses[2],
        )
        stack.callback(holder.end)
        roles = Roles(redis.url)
        stack.callback(roles.close)
        until(lambda: holder.is_ready() and role in roles.all(), PATIENCE_SECONDS, "the part serves")
        assert roles.acquire(role, "other", 60, seat=SEAT) is not None
        _, errors = holder.process.communicate(timeout=PATIENCE_SECONDS)
        assert holder.process.returncode != 0
    lines = [json.loads(line) for line in errors.splitlines()]
    assert {"role_lost"} == {line["event"] for line in lines}
    assert all(
        (line["level"], line["role"], line["epoch"], line["newest"]) == ("warning", role, 1, 2) for line in lines
    )
