"""Stock ccxt on the recorded replies of the other venues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import ccxt.async_support
import pytest

from sandbox import Fault
from sandbox.serving.recorded_venues import RecordedVenues

URLS = {
    "kraken": "public",
    "okx": "rest",
    "bybit": "public",
    "coinbase": "rest",
    "coinbaseexchange": "public",
}
LISTED = {"kraken": 293, "okx": 513, "bybit": 15, "coinbase": 162, "coinbaseexchange": 162}
MINUTE = 60_000
Make = Callable[[str], Any]


@pytest.fixture
async def venues(shared_data: Path) -> AsyncIterator[RecordedVenues]:
    async with RecordedVenues(shared_data) as running:
        yield running


@pytest.fixture
async def make(venues: RecordedVenues) -> AsyncIterator[Make]:
    opened: list[Any] = []

    def exchange(name: str) -> Any:
        options = {"fetchMarkets": {"types": ["spot"]}} if name in ("okx", "bybit") else {}
        urls = {"api": {URLS[name]: venues.url}}
        settings = {"enableRateLimit": False, "timeout_on_exit": 0, "options": options, "urls": urls}
        opened.append(getattr(ccxt.async_support, name)(settings))
        return opened[-1]

    yield exchange
    await asyncio.gather(*(one.close() for one in opened))


@pytest.mark.parametrize("name", sorted(URLS))
async def test_market_list_loads(make: Make, name: str) -> None:
    markets = await make(name).load_markets()
    assert len(markets) == LISTED[name]
    market = markets["BTC/USD" if name.startswith("coinbase") else "BTC/USDT"]
    # Kraken's list was recorded before it had a status; ccxt treats such a market as inactive.
    assert market["active"] is (name != "kraken")
    assert 0 < market["precision"]["price"] <= 0.1


@pytest.mark.parametrize("name", sorted(URLS))
async def test_a_venue_returns_its_time(make: Make, venues: RecordedVenues, name: str) -> None:
    assert await make(name).fetch_time() == venues.clock.now()  # a whole second, as Kraken's is


async def test_kraken_gives_its_newest_720_and_the_unfinished_one_however_old_since_is(make: Make) -> None:
    kraken = make("kraken")
    rows = await kraken.fetch_ohlcv("BTC/USDT", "1m", 1_600_000_000_000)
    assert len(rows) == 721
    assert rows[0][0] == 1762777020000
    assert sum(row[5] == 0 for row in rows) == 216
    assert len(await kraken.fetch_ohlcv("BTC/USDT", "1m", rows[-10][0])) == 10


async def test_kraken_trades_are_paged_by_cursor(make: Make) -> None:
    kraken = make("kraken")
    await kraken.load_markets()
    first = (await kraken.publicGetTrades({"pair": "XBTUSDT", "since": "0", "count": 400}))["result"]
    second = (await kraken.publicGetTrades({"pair": "XBTUSDT", "since": first["last"]}))["result"]
    ids = [row[6] for row in first["XBTUSDT"] + second["XBTUSDT"]]
    assert ids == list(range(10218208, 10219208))


async def test_kraken_streams_trades_and_resends_the_newest_on_each_subscribe(venues: RecordedVenues) -> None:
    first, last = 10218208, 10219207
    venues.add_fault(Fault(kind="close", path="/v2", code=1001, after=500))
    ids: list[int] = []
    async with aiohttp.ClientSession() as client:
        for number in range(2):
            if number == 0:
                venues.clock.set(1762795433000)
            async with client.ws_connect(f"{venues.url}/v2") as socket:
                assert (await socket.receive_json(timeout=5))["channel"] == "status"
                await socket.send_json(
                    {"method": "subscribe", "params": {"channel": "trade", "symbol": ["BTC/USDT"]}, "req_id": 7}
                )
                assert (await socket.receive_json(timeout=5))["success"] is True
                if number == 0:
                    venues.clock.set(1762820250000)
                while not ids or ids[-1] < last:
                    message = await socket.receive(timeout=5)
                    if message.type != aiohttp.WSMsgType.TEXT:
                        break
                    frame = message.json()
                    if frame["channel"] == "trade":
                        ids += [row["trade_id"] for row in frame["data"]]
    assert ids == [*range(first, first + 500), *range(last - 49, last + 1)]


@pytest.mark.parametrize(("name", "symbol"), [("okx", "BTC/USDT"), ("bybit", "BTC/USDT")])
async def test_candle_pages_of_okx_and_bybit_join_without_gap(
    make: Make, venues: RecordedVenues, name: str, symbol: str
) -> None:
    exchange = make(name)
    start = venues.clock.now() // MINUTE * MINUTE - 2000 * MINUTE
    rows, since = [], start
    while page := await exchange.fetch_ohlcv(symbol, "1m", since, 300):
        rows += page
        since = page[-1][0] + MINUTE
        if since > venues.clock.now():
            break
    assert [row[0] for row in rows] == [start + n * MINUTE for n in range(2001)]


@pytest.mark.parametrize("name", ["coinbase", "coinbaseexchange"])
async def test_coinbase_leaves_quiet_minutes_out(make: Make, venues: RecordedVenues, name: str) -> None:
    start = venues.clock.now() // MINUTE * MINUTE - 200 * MINUTE
    rows = await make(name).fetch_ohlcv("BTC/USD", "1m", start, 100)
    opens = [row[0] for row in rows]
    assert opens == sorted(set(opens))
    assert 90 <= len(rows) <= 101
    assert all(row[5] > 0 for row in rows)


async def test_coinbase_exchange_refuses_a_window_that_is_too_wide(make: Make) -> None:
    exchange = make("coinbaseexchange")
    with pytest.raises(ccxt.async_support.BaseError):
        await exchange.publicGetProductsIdCandles(
            {"id": "BTC-USD", "granularity": 60, "start": "2025-01-01T00:00:00Z", "end": "2025-01-02T00:00:00Z"}
        )


async def test_recent_okx_candles_reach_1440_bars_back(make: Make, venues: RecordedVenues) -> None:
    okx = make("okx")
    await okx.load_markets()
    old = venues.clock.now() - 3000 * MINUTE
    query = {"instId": "BTC-USDT", "bar": "1m", "before": old, "after": old + 100 * MINUTE}
    assert (await okx.publicGetMarketCandles(query))["data"] == []
    found = (await okx.publicGetMarketHistoryCandles(query))["data"]
    assert len(found) == 100
    assert {row[8] for row in found} == {"1"}
    newest = (await okx.publicGetMarketCandles({"instId": "BTC-USDT"}))["data"][0]
    assert newest[8] == "0"


@pytest.mark.parametrize(
    ("name", "error"), [("kraken", "ExchangeError"), ("okx", "BadSymbol"), ("bybit", "BadRequest")]
)
async def test_unknown_pair_gets_the_error_of_the_venue(make: Make, name: str, error: str) -> None:
    exchange = make(name)
    await exchange.load_markets()
    calls = {
        "kraken": lambda: exchange.publicGetOHLC({"pair": "NOPE"}),
        "okx": lambda: exchange.publicGetMarketCandles({"instId": "NO-PE"}),
        "bybit": lambda: exchange.publicGetV5MarketKline({"category": "spot", "symbol": "NOPE", "interval": "1"}),
    }
    with pytest.raises(getattr(ccxt.async_support, error)):
        await calls[name]()


async def test_faults_strike_here_too(make: Make, venues: RecordedVenues) -> None:
    venues.add_fault(Fault(kind="status", path="/0/public/OHLC", status=503, count=1))
    kraken = make("kraken")
    with pytest.raises(ccxt.async_support.ExchangeNotAvailable):
        await kraken.fetch_ohlcv("BTC/USDT")
    assert len(await kraken.fetch_ohlcv("BTC/USDT")) == 721
