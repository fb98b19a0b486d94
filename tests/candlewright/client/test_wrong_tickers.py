"""A ticker that its venue does not list is raised by both twins, against a relay."""

import pytest

import candlewright as cw
from core.settings import Settings
from tests.relay.conftest import Start, start_relay  # noqa: F401
from tests.relay.test_live import LIMITS, eventually, list_markets, put_ticks


def test_a_stream_of_an_unknown_ticker_raises_with_near_names_and_continues(start_relay: Start) -> None:  # noqa: F811
    platform = start_relay(limits=LIMITS)
    list_markets(platform.bus, "BTC/USDT")
    relay = platform.relay
    # Before that, the relay does not read the topic of ticks, and a subscriber misses what is published.
    eventually(lambda: relay.status().is_ready)
    with cw.connect(relay.requests_address, relay.notifications_address, settings=Settings()) as client:
        bars, ticks = client.bars("BTC/USDX.BINANCE", 60), client.ticks("BTC/USDX.BINANCE")
        for stream in (bars, ticks):
            with pytest.raises(cw.TickerNotFound, match=r"did you mean BTC/USDT\.BINANCE\?"):
                stream.next(10)
        put_ticks(platform.bus, "BTC/USDX.BINANCE", "1")
        assert ticks.next(10).trade_id == "1"
        with client.ticks("BTC/USDT.BINANCE") as right, pytest.raises(TimeoutError):
            right.next(0.3)


async def test_the_async_twin_raises_it_as_well(start_relay: Start) -> None:  # noqa: F811
    platform = start_relay(limits=LIMITS)
    list_markets(platform.bus, "BTC/USDT")
    relay = platform.relay
    async with cw.aconnect(relay.requests_address, relay.notifications_address, settings=Settings()) as client:
        with pytest.raises(cw.TickerNotFound, match="did you mean"):
            await client.bars("BTC/USDX.BINANCE", 60).next(10)
