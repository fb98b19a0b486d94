import pytest

from candlewright.wire.errors import ConfigurationError
from ingestor.exchange import stock as exchange
from ingestor.exchange.addresses import hosts, redirected
from ingestor.venues import described, venue_of


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("venue", described())
async def test_no_other_host_is_left(venue: str, streaming: bool) -> None:
    stock = exchange.build(venue_of(venue), url="http://127.0.0.1:9001", timeout_seconds=1, streaming=streaming)
    found = set(hosts(stock.urls["api"]))
    await stock.close()
    assert found == {"127.0.0.1:9001"}


async def test_real_hosts_stay_without_a_url() -> None:
    stock = exchange.build(venue_of("BINANCE"), url="", timeout_seconds=1)
    found = set(hosts(stock.urls["api"]))
    await stock.close()
    assert "api.binance.com" in found


def test_paths_schemes_and_nesting_are_kept() -> None:
    urls = {
        "public": "https://api.{hostname}/api/v3",
        "ws": {"spot": "wss://stream.x.com:9443/ws", "more": ["wss://y.com/v5?a=1"]},
        "flag": True,
    }
    assert redirected(urls, "http://127.0.0.1:9001/base/") == {
        "public": "http://127.0.0.1:9001/base/api/v3",
        "ws": {"spot": "ws://127.0.0.1:9001/base/ws", "more": ["ws://127.0.0.1:9001/base/v5?a=1"]},
        "flag": True,
    }


@pytest.mark.parametrize("server", ["127.0.0.1:9001", "ftp://x", "", "http://"])
def test_a_server_that_is_not_a_url_is_refused(server: str) -> None:
    with pytest.raises(ConfigurationError):
        redirected({"public": "https://x"}, server)


def test_an_exchange_that_ccxt_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="atlantis"):
        exchange.build(venue_of("ATLANTIS"), url="", timeout_seconds=1)
