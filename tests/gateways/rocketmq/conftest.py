"""A gateway on a bus, and a client of it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bus.api import Bus
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.server import RocketMQGateway
from tests.fresh_bus import FreshBus
from tests.gateways.rocketmq.client import Client

Start = Callable[..., Awaitable[Client]]


@pytest.fixture
def bus() -> Bus:
    return FreshBus()


@pytest.fixture
async def start(bus: Bus, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts a gateway with the settings given; returns a client of it."""
    async with AsyncExitStack() as stack:

        async def begin(metadata: tuple[tuple[str, str], ...] = (), **options: Any) -> Client:
            options.setdefault("tls", False)
            settings = RocketMQSettings(bind="127.0.0.1:0", **options)
            gateway = RocketMQGateway(settings, bus, keys=tmp_path / "keys", partitions=4)
            await gateway.start()
            stack.push_async_callback(gateway.stop)
            certificate = (tmp_path / "keys" / "rocketmq.crt").read_bytes() if settings.tls else None
            address = str(gateway.details()["address"])
            client = await stack.enter_async_context(Client(address, certificate, metadata))
            client.queue = gateway._store.queue
            return client

        yield begin
