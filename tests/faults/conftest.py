"""A running platform with short leases for the tests of this folder."""

from collections.abc import Iterator

import pytest

from tests.faults.harness import Platform, WireClient
from tests.faults.harness import platform as running_platform


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
