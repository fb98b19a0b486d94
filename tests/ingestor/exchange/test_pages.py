"""The rows that each venue sends are read unchanged through stock ccxt."""

from collections.abc import Callable

import numpy as np
import pytest

from candlewright.wire.errors import NotOffered, UnknownTicker
from candlewright.wire.grid import SECOND
from ingestor.history.fetch import HistoryJob
from tests.ingestor.venues_on_loopback import (
    HastyProgress,
    Loopback,
    Row,
    binance_kline,
    client_of,
    fetch,
    loopback,
    minute_rows,
    serve_binance,
    serve_bybit,
    serve_coinbase,
    serve_coinbaseexchange,
    serve_kraken,
    serve_okx,
)

T0 = 1_700_000_040  # a whole minute
NOW = T0 + 60 * 5_000 + 100


def _binance(server: Loopback, rows: list[Row], page: int) -> None:
    serve_binance(server, [binance_kline(row) for row in rows], now=NOW, page=page)


def _okx(server: Loopback, rows: list[Row], page: int) -> None:
    serve_okx(server, rows, now=NOW, page=page)


def _bybit(server: Loopback, rows: list[Row], page: int) -> None:
    serve_bybit(server, rows, now=NOW, page=page)


def _coinbase(server: Loopback, rows: list[Row], page: int) -> None:
    serve_coinbase(server, rows, now=NOW, page=page)


def _coinbaseexchange(server: Loopback, rows: list[Row], page: int) -> None:
    serve_coinbaseexchange(server, rows, now=NOW, page=page)


SERVE: dict[str, Callable[[Loopback, list[Row], int], None]] = {
    "BINANCE": _binance,
    "OKX": _okx,
    "BYBIT": _bybit,
    "COINBASE": _coinbase,
    "COINBASEEXCHANGE": _coinbaseexchange,
}

JOB = HistoryJob("BTC/USDT", 60, (T0 - 20) * SECOND, (T0 + 60 * 2_000) * SECOND)


@pytest.mark.parametrize("page", [1000, 300, 70])
@pytest.mark.parametrize("venue", SERVE)
async def test_every_row_of_a_range_with_holes_comes_once_for_any_page_size(venue: str, page: int) -> None:
    rows = [row for row in minute_rows(T0, 2_100) if not 300 <= (row[0] - T0) // 60 < 310 and row[0] != T0 + 60 * 599]
    async with loopback() as server, client_of(venue, server.url) as client:
        SERVE[venue](server, rows, page)
        await client.load_markets(HastyProgress())
        summary, candles, sources = await fetch(client, JOB)
    wanted = [row for row in rows if row[0] < T0 + 60 * 2_000]
    assert candles is not None
    assert candles.open_time.tolist() == [row[0] * SECOND for row in wanted]
    for place, column in enumerate((candles.open, candles.high, candles.low, candles.close, candles.volume), 1):
        assert column.tolist() == [float(row[place]) for row in wanted]
    assert (summary.rows, summary.expected) == (len(wanted), 2_000)
    assert summary.holes == (
        ((T0 + 60 * 300) * SECOND, (T0 + 60 * 310) * SECOND),
        ((T0 + 60 * 599) * SECOND, (T0 + 60 * 600) * SECOND),
    )
    assert set(sources) == {"exchange"}


@pytest.mark.parametrize("beyond", [1, 999_999, 1_000_001, 30 * SECOND])
@pytest.mark.parametrize("venue", SERVE)
async def test_an_end_between_two_candles_takes_the_one_before_it(venue: str, beyond: int) -> None:
    """A candle opens a nanosecond before the end. No exchange supports such an end, so it is moved to the grid."""
    last = T0 + 60 * 4
    async with loopback() as server, client_of(venue, server.url) as client:
        SERVE[venue](server, minute_rows(T0, 10), 1000)
        await client.load_markets(HastyProgress())
        summary, candles, _ = await fetch(client, HistoryJob("BTC/USDT", 60, T0 * SECOND + 1, last * SECOND + beyond))
    assert candles is not None
    assert candles.open_time.tolist() == [(T0 + 60 * n) * SECOND for n in range(1, 5)]
    assert (summary.rows, summary.expected, summary.holes) == (4, 4, ())


async def test_binance_gives_quote_volume_and_trade_count() -> None:
    async with loopback() as server, client_of("BINANCE", server.url) as client:
        _binance(server, minute_rows(T0, 3), 1000)
        await client.load_markets(HastyProgress())
        _, candles, _ = await fetch(client, HistoryJob("BTC/USDT", 60, T0 * SECOND, (T0 + 180) * SECOND))
    assert candles is not None and candles.quote_volume is not None and candles.trade_count is not None
    assert candles.quote_volume.tolist() == [12.5] * 3
    assert candles.trade_count.tolist() == [7] * 3


@pytest.mark.parametrize("venue", ["OKX", "BYBIT"])
async def test_quote_volume_of_venues_that_give_it(venue: str) -> None:
    async with loopback() as server, client_of(venue, server.url) as client:
        SERVE[venue](server, minute_rows(T0, 3), 1000)
        await client.load_markets(HastyProgress())
        _, candles, _ = await fetch(client, HistoryJob("BTC/USDT", 60, T0 * SECOND, (T0 + 180) * SECOND))
    assert candles is not None and candles.quote_volume is not None
    assert set(candles.quote_volume.tolist()) == ({55.5} if venue == "OKX" else {77.25})
    assert candles.trade_count is None


async def test_okx_asks_the_older_endpoint_for_older_bars() -> None:
    async with loopback() as server, client_of("OKX", server.url) as client:
        _okx(server, minute_rows(T0, 5_000), 300)
        await client.load_markets(HastyProgress())
        summary, _, _ = await fetch(client, HistoryJob("BTC/USDT", 60, T0 * SECOND, NOW * SECOND))
        recent = server.asked("/api/v5/market/candles")
        older = server.asked("/api/v5/market/history-candles")
    assert summary.rows == 5_000
    assert all(int(query["before"]) >= (NOW - 60 * 1_400) * 1000 - 60_000 for query in recent)
    assert older and recent


async def test_okx_days_and_weeks_are_those_of_utc() -> None:
    async with loopback() as server, client_of("OKX", server.url) as client:
        serve_okx(server, [], now=NOW)
        await client.load_markets(HastyProgress())
        await fetch(client, HistoryJob("BTC/USDT", 86_400, 0, 86_400 * SECOND))
        await fetch(client, HistoryJob("BTC/USDT", 3_600, 0, 3_600 * SECOND))
        bars = {query["bar"] for query in server.asked("/api/v5/market/history-candles")}
    assert bars == {"1Dutc", "1H"}


@pytest.mark.parametrize("venue", SERVE)
async def test_an_unknown_symbol_costs_no_candle_request(venue: str) -> None:
    async with loopback() as server, client_of(venue, server.url) as client:
        SERVE[venue](server, [], 1000)
        await client.load_markets(HastyProgress())
        near = next(iter(client.markets))
        before = len(server.requests)
        with pytest.raises(UnknownTicker, match="NOPE/USDT"):
            await fetch(client, HistoryJob("NOPE/USDT", 60, T0 * SECOND, NOW * SECOND))
        with pytest.raises(UnknownTicker, match=f"did you mean {near}.{venue}"):
            await fetch(client, HistoryJob(near.replace("/", ""), 60, T0 * SECOND, NOW * SECOND))
        assert len(server.requests) == before


async def test_a_new_listing_is_found_by_asking_again() -> None:
    async with loopback() as server, client_of("BINANCE", server.url) as client:
        _binance(server, minute_rows(T0, 3), 1000)
        await client.load_markets(HastyProgress())
        client._loaded_at -= 3_600
        serve_binance(
            server, [binance_kline(row) for row in minute_rows(T0, 3)], now=NOW, symbols=("BTC/USDT", "NEW/USDT")
        )
        summary, _, _ = await fetch(client, HistoryJob("NEW/USDT", 60, T0 * SECOND, (T0 + 180) * SECOND))
    assert summary.rows == 3


@pytest.mark.parametrize(("venue", "period"), [("BINANCE", 2_592_000), ("BINANCE", 45), ("COINBASE", 14_400)])
async def test_a_period_that_the_venue_does_not_serve_costs_no_request(venue: str, period: int) -> None:
    async with loopback() as server, client_of(venue, server.url) as client:
        SERVE[venue](server, [], 1000)
        await client.load_markets(HastyProgress())
        before = len(server.requests)
        with pytest.raises(NotOffered, match=str(period)):
            await fetch(client, HistoryJob("BTC/USDT", period, T0 * SECOND, NOW * SECOND))
        assert len(server.requests) == before


async def test_kraken_two_weeks_are_not_offered_since_ccxt_asks_for_fifteen_days() -> None:
    async with loopback() as server, client_of("KRAKEN", server.url) as client:
        serve_kraken(server, [], now=NOW)
        with pytest.raises(NotOffered):
            client.timeframe(14 * 86_400)
        assert client.timeframe(7 * 86_400) == "1w"


async def test_any_other_exchange_goes_through_the_unified_call() -> None:
    """gate sends [time s, quote volume, close, high, low, open, base volume, is closed], oldest first."""
    rows = minute_rows(T0, 250)

    def answer(query: dict[str, str]) -> object:
        start = int(query["from"])
        end = int(query.get("to", NOW))
        found = [row for row in rows if start <= row[0] <= end][: int(query.get("limit", 100))]
        return [[str(t), "1", close, high, low, open_, vol, "true"] for t, open_, high, low, close, vol in found]

    async with loopback() as server, client_of("GATE", server.url) as client:
        server.answers["/api/v4/spot/currency_pairs"] = lambda query: [
            {
                "id": "BTC_USDT",
                "base": "BTC",
                "quote": "USDT",
                "fee": "0.2",
                "min_quote_amount": "1",
                "amount_precision": 4,
                "precision": 2,
                "trade_status": "tradable",
                "sell_start": 0,
                "buy_start": 0,
            }
        ]
        for path in ("/api/v4/spot/currencies", "/api/v4/margin/currency_pairs", "/api/v4/delivery/usdt/contracts"):
            server.answers[path] = lambda query: []
        for path in ("/api/v4/futures/btc/contracts", "/api/v4/futures/usdt/contracts", "/api/v4/options/underlyings"):
            server.answers[path] = lambda query: []
        server.answers["/api/v4/spot/candlesticks"] = answer  # type: ignore[assignment]
        server.answers["/api/v4/spot/time"] = lambda query: {"server_time": NOW * 1000}
        await client.load_markets(HastyProgress())
        summary, candles, _ = await fetch(client, HistoryJob("BTC/USDT", 60, T0 * SECOND, (T0 + 60 * 250) * SECOND))
    assert candles is not None
    assert summary.rows == summary.expected == 250
    assert candles.close.tolist() == [float(row[4]) for row in rows]
    assert np.array_equal(candles.open_time, [row[0] * SECOND for row in rows])
