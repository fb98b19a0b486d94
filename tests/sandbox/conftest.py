"""Stock ccxt pointed at a sandbox: plain configuration, nothing patched."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import ccxt.pro
import pytest

from sandbox import Sandbox

MakeExchange = Callable[[Sandbox], Any]
NOON = "2024-03-05T12:00:30"
NOON_MS = 1709640030000


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """A sandbox whose clock stands still at NOON."""
    async with Sandbox(seed=3, clock=NOON, speed=0, rate_limit=False) as running:
        yield running


@pytest.fixture
async def make_exchange() -> AsyncIterator[MakeExchange]:
    """Makes ccxt.pro exchanges (their REST part is the async ccxt) for a sandbox, and closes them."""
    opened: list[Any] = []

    def make(running: Sandbox) -> Any:
        exchange = ccxt.pro.binance(
            {
                "enableRateLimit": False,
                "timeout_on_exit": 0,  # the time that TLS needs to end
                "options": {"fetchMarkets": {"types": ["spot"]}},
                "urls": {"api": {"public": f"{running.url}/api/v3", "ws": {"spot": f"{running.ws_url}/ws"}}},
            }
        )
        opened.append(exchange)
        return exchange

    yield make
    for exchange in opened:
        await exchange.close()


@pytest.fixture
async def exchange(sandbox: Sandbox, make_exchange: MakeExchange) -> Any:
    """One ccxt.pro exchange on the standing sandbox."""
    return make_exchange(sandbox)
