"""A running platform with short leases for the tests of this folder."""

import os
import random
import time
from collections.abc import Iterator

import pytest

from bus import Bus
from bus.redis.redis_bus import RedisBus
from candlewright_platform.supervisor.parts import bus_url_of
from tests.faults.harness import Platform, WireClient
from tests.faults.harness import platform as running_platform

ROUNDS, LONG_ROUNDS = 10, 40


@pytest.fixture(scope="package")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """Three ingestors, a lease of two seconds, a heartbeat of half a second."""
    environment = {"BROKER__LEASE_SECONDS": "2", "BROKER__HEARTBEAT_SECONDS": "0.5"}
    with running_platform(tmp_path_factory.mktemp("faults"), environment=environment) as running:
        yield running


@pytest.fixture
def client(platform: Platform, request: pytest.FixtureRequest) -> Iterator[WireClient]:
    platform.wait_until_well()
    with platform.client(request.node.name[:60]) as connected:
        yield connected


@pytest.fixture(scope="package")
def bus(platform: Platform) -> Iterator[Bus]:
    bus = RedisBus(bus_url_of(platform.up.settings), retry_seconds=0.2)
    yield bus
    bus.close()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    """How often a part is killed: `KILL_ROUNDS` in the environment, ten in the suite, more with `--long`."""
    return int(os.environ.get("KILL_ROUNDS") or (LONG_ROUNDS if request.config.option.long else ROUNDS))


@pytest.fixture
def choice() -> random.Random:
    """Its seed is `KILL_SEED` in the environment, and printed, so that a failure can be repeated."""
    seed = int(os.environ.get("KILL_SEED") or random.SystemRandom().randrange(1, 1 << 31))
    print(f"KILL_SEED={seed}")  # noqa: T201
    return random.Random(seed)


@pytest.fixture
def past(platform: Platform) -> Iterator[None]:
    """Afterwards the clock shows the present again, and no fault is active."""
    yield
    platform.exchange.clear_faults()
    platform.exchange.call(lambda sandbox: sandbox.clock.set(round(time.time() * 1_000), 1.0))
