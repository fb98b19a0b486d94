"""Unmodified ccxt and ccxt.pro against the sandbox: configuration only."""

from __future__ import annotations

import asyncio
from typing import Any

import ccxt
import ccxt.async_support
import pytest

from sandbox import Fault, Sandbox, SandboxThread
from tests.sandbox.conftest import NOON, NOON_MS, MakeExchange

MINUTE = 60_000


async def test_markets_load_with_precision_limits_and_status(exchange: Any) -> None:
    markets = await exchange.load_markets()
    assert len(markets) >= 8
    assert markets["BTC/USDT"]["precision"]["price"] == 0.01
    assert markets["BTC/USDT"]["precision"]["amount"] == 0.00001
    assert markets["BTC/USDT"]["active"] is True
    assert markets["WAVES/USDT"]["active"] is False
    assert {market["type"] for market in markets.values()} == {"spot"}


async def test_default_market_types_load_too(sandbox: Sandbox) -> None:
    """With ccxt's default configuration the futures' market lists are requested as well."""
    paths = {"public": "/api/v3", "fapiPublic": "/fapi/v1", "dapiPublic": "/dapi/v1"}
    urls = {name: sandbox.url + path for name, path in paths.items()}
    exchange = ccxt.async_support.binance({"urls": {"api": urls}})
    try:
        assert "BTC/USDT" in await exchange.load_markets()
    finally:
        await exchange.close()


async def test_candles_page_by_page_are_all_there_once(exchange: Any) -> None:
    start, since, rows = NOON_MS // MINUTE * MINUTE - 3500 * MINUTE, NOON_MS // MINUTE * MINUTE - 3500 * MINUTE, []
    while page := await exchange.fetch_ohlcv("BTC/USDT", "1m", since, 1000):
        rows += page
        since = page[-1][0] + MINUTE
    assert [row[0] for row in rows] == [start + n * MINUTE for n in range(3501)]


async def test_ticker_and_book_have_both_sides(exchange: Any) -> None:
    ticker = await exchange.fetch_ticker("BTC/USDT")
    assert ticker["timestamp"] == NOON_MS
    assert ticker["bid"] < ticker["ask"]
    assert ticker["low"] <= ticker["last"] <= ticker["high"]
    book = await exchange.fetch_order_book("BTC/USDT", 5)
    assert len(book["bids"]) == len(book["asks"]) == 5


async def test_trades_of_rest_are_aggregates_from_since(exchange: Any) -> None:
    trades = await exchange.fetch_trades("BTC/USDT", NOON_MS - 600_000, 500)
    assert len(trades) == 500
    assert all(trade["timestamp"] >= NOON_MS - 600_000 for trade in trades)
    ids = [int(trade["id"]) for trade in trades]
    assert sorted(ids) == list(range(min(ids), min(ids) + 500))


async def test_numbers_stay_exact_texts_when_requested(exchange: Any) -> None:
    exchange.number = str
    row = (await exchange.fetch_ohlcv("SHIB/USDT", "1m", NOON_MS - 600_000, 1))[0]
    assert all(isinstance(value, str) for value in row[1:])


async def test_server_time_is_the_sandbox_clock(exchange: Any) -> None:
    assert await exchange.fetch_time() == NOON_MS


async def test_unknown_symbol_is_a_bad_symbol(exchange: Any) -> None:
    with pytest.raises(ccxt.async_support.BadSymbol):
        await exchange.publicGetKlines({"symbol": "NOPE", "interval": "1m"})


@pytest.mark.timeout(30)
async def test_watched_trades_are_those_that_rest_returns(make_exchange: MakeExchange) -> None:
    async with Sandbox(seed=3, clock=NOON, speed=30, rate_limit=False) as fast:
        exchange = make_exchange(fast)
        seen: dict[str, Any] = {}
        while len(seen) < 60:
            seen |= {trade["id"]: trade for trade in await exchange.watch_trades("BTC/USDT")}
        told = {
            str(trade["id"]): trade for trade in await exchange.publicGetTrades({"symbol": "BTCUSDT", "limit": 1000})
        }
        assert sorted(map(int, seen)) == list(range(min(map(int, seen)), max(map(int, seen)) + 1))
        for number, trade in seen.items():
            assert trade["price"] == float(told[number]["price"])
            assert trade["amount"] == float(told[number]["qty"])
            assert trade["timestamp"] == int(told[number]["time"])
            assert (trade["side"] == "sell") == told[number]["isBuyerMaker"]
        await exchange.close()


@pytest.mark.timeout(30)
async def test_candles_and_tickers_can_be_watched(make_exchange: MakeExchange) -> None:
    async with Sandbox(seed=3, clock=NOON, speed=20, rate_limit=False) as fast:
        exchange = make_exchange(fast)
        candles, ticker = await asyncio.gather(
            exchange.watch_ohlcv("BTC/USDT", "1m"), exchange.watch_ticker("BTC/USDT")
        )
        assert candles[-1][0] % MINUTE == 0
        assert ticker["last"] > 0
        await exchange.close()


async def test_ban_comes_through_as_ddos_protection_with_retry_after(make_exchange: MakeExchange) -> None:
    async with Sandbox(clock=NOON, speed=0) as limited:
        exchange = make_exchange(limited)
        limited.add_fault(
            Fault(kind="status", path="*/klines", status=418, retry_after=7, body={"code": -1003, "msg": "x"})
        )
        with pytest.raises(ccxt.async_support.DDoSProtection):
            await exchange.fetch_ohlcv("BTC/USDT")
        assert exchange.last_response_headers["Retry-After"] == "7"
        assert int(exchange.last_response_headers["X-MBX-USED-WEIGHT-1M"]) > 20


def test_sandbox_in_a_thread_serves_code_without_asyncio() -> None:
    with SandboxThread(seed=3, clock=NOON, speed=0, rate_limit=False) as running:
        exchange = ccxt.binance({"enableRateLimit": False, "options": {"fetchMarkets": {"types": ["spot"]}}})
        exchange.urls["api"]["public"] = f"{running.url}/api/v3"
        assert len(exchange.fetch_ohlcv("ETH/USDT", "1h", limit=24)) == 24
        running.add_fault(Fault(kind="status", status=503, count=1))
        with pytest.raises(ccxt.ExchangeNotAvailable):
            exchange.fetch_time()
        assert running.call(lambda sandbox: sandbox.state.struck) == {"status": 1}
        running.clear_faults()
        exchange.session.close()


def test_thread_that_cannot_start_says_why() -> None:
    with SandboxThread() as running:
        port = int(running.url.rpartition(":")[2])
        with pytest.raises(OSError, match="address"), SandboxThread(port=port):
            pass
    with pytest.raises(ValueError, match="BASE/QUOTE"), SandboxThread(symbols=["FOO"]):
        pass
