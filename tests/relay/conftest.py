"""Relays for the tests of this folder."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import zmq

from bus.api import Bus
from relay.server import Relay
from tests.fresh_bus import FreshBus
from tests.relay.harness import Platform, config, no_rows

Start = Callable[..., Platform]


@pytest.fixture
def start_relay() -> Iterator[Start]:
    with ExitStack() as stack:
        context: zmq.Context[zmq.Socket[bytes]] = stack.enter_context(zmq.Context())

        def start(
            bus: Bus | None = None, read_rows: Any = no_rows, read_stored: Any = None, **changes: Any
        ) -> Platform:
            bus = bus or FreshBus()
            relay = Relay(config(**changes), bus, read_rows, read_stored=read_stored)
            relay.start()
            stack.callback(relay.close)
            return Platform(bus, relay, stack, context=context)

        yield start


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    """One relay for tests that share nothing but it: each uses its own ids."""
    with ExitStack() as stack:
        context: zmq.Context[zmq.Socket[bytes]] = stack.enter_context(zmq.Context())
        bus = FreshBus()
        relay = Relay(config(), bus, no_rows, read_stored=no_rows)
        relay.start()
        stack.callback(relay.close)
        yield Platform(bus, relay, stack, context=context)
