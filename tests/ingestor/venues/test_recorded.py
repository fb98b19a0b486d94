"""Recorded replies of real exchanges, served unchanged."""

import csv
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from candlewright.wire.errors import DepthExceeded
from candlewright.wire.grid import SECOND
from ingestor.exchange.venue_keeper import venue_record
from ingestor.history.fetch import HistoryJob
from tests.ingestor.venues_on_loopback import (
    HastyProgress,
    Loopback,
    Row,
    binance_kline,
    client_of,
    fetch,
    loopback,
    serve_binance,
    serve_coinbase,
    serve_kraken,
)
from venues.catalogue import native_periods

HOUR = 3_600


def _binance_hours(shared_data: Path) -> list[list[Any]]:
    routes = json.loads((shared_data / "binance" / "http_mock_routes.json").read_text())["routes"]
    hours = [
        reply["data"]
        for reply in routes["/api/v3/klines"]["GET"]
        if "interval=1h" in reply["queryString"] and "BTCUSDT" in reply["queryString"] and len(reply["data"]) > 400
    ]
    rows = sorted((row for page in hours for row in page), key=lambda row: row[0])
    assert len(rows) == 1_468
    return rows


async def test_two_real_binance_pages_with_a_three_hour_hole(shared_data: Path) -> None:
    rows = _binance_hours(shared_data)
    start, end = rows[0][0] // 1000, rows[-1][0] // 1000 + HOUR
    async with loopback() as server, client_of("BINANCE", server.url) as client:
        serve_binance(server, rows, now=end + 2 * HOUR)
        await client.load_markets(HastyProgress())
        summary, candles, _ = await fetch(client, HistoryJob("BTC/USDT", HOUR, start * SECOND, end * SECOND))
        assert len(server.asked("/api/v3/klines")) == 2
    assert candles is not None and candles.quote_volume is not None and candles.trade_count is not None
    assert (summary.rows, summary.expected) == (1_468, 1_471)
    hole = 1_593_306_000 + HOUR
    assert summary.holes == ((hole * SECOND, (hole + 3 * HOUR) * SECOND),)
    assert candles.open_time.tolist() == [row[0] * 1_000_000 for row in rows]
    assert candles.open.tolist() == [float(row[1]) for row in rows]
    assert candles.quote_volume.tolist() == [float(row[7]) for row in rows]
    assert candles.trade_count.tolist() == [row[8] for row in rows]


def _kraken_reply(shared_data: Path) -> list[list[Any]]:
    rows: list[list[Any]] = json.loads((shared_data / "kraken" / "xbtusdt_ohlc_1m_rest.json").read_text())["result"][
        "XBTUSDT"
    ]
    assert len(rows) == 721
    return rows


async def test_the_kraken_reply_has_720_candles_and_its_unfinished_one_is_absent(shared_data: Path) -> None:
    rows = _kraken_reply(shared_data)
    first, last = rows[0][0], rows[-1][0]
    # The clock of this exchange is far ahead, so only its own mark shows that the newest row is unfinished.
    for clock in (last + 20, last + 86_400):
        async with loopback() as server, client_of("KRAKEN", server.url) as client:
            serve_kraken(server, rows, now=last + 20)
            server.answers["/0/public/Time"] = lambda query, at=clock: {"error": [], "result": {"unixtime": at}}  # type: ignore[misc]
            await client.load_markets(HastyProgress())
            job = HistoryJob("BTC/USDT", 60, first * SECOND, (last + 3_600) * SECOND)
            summary, candles, _ = await fetch(client, job)
        assert candles is not None and candles.trade_count is not None
        assert (summary.rows, summary.expected, summary.holes) == (720, 720, ())
        assert candles.open_time.tolist() == [row[0] * SECOND for row in rows[:-1]]
        assert candles.volume.tolist() == [float(row[6]) for row in rows[:-1]]
        assert candles.trade_count.tolist() == [row[7] for row in rows[:-1]]
        assert int((candles.trade_count == 0).sum()) == 215


@pytest.mark.parametrize("trades", ["none", "always the same page"])
async def test_kraken_candles_from_before_the_newest_720_are_refused(shared_data: Path, trades: str) -> None:
    rows = _kraken_reply(shared_data)
    first, last = rows[0][0], rows[-1][0]
    recorded = json.loads((shared_data / "kraken" / "xbtusdt_trades_rest.json").read_text())
    async with loopback() as server, client_of("KRAKEN", server.url) as client:
        serve_kraken(server, rows, now=last + 20)
        server.answers["/0/public/Trades"] = lambda query: (
            recorded if trades != "none" else {"error": [], "result": {"XBTUSDT": [], "last": query["since"]}}
        )
        await client.load_markets(HastyProgress())
        for start, end in ((first - 86_400, first - 3_600), (first - 60, last)):
            emitted = HistoryJob("BTC/USDT", 60, start * SECOND, end * SECOND)
            with pytest.raises(DepthExceeded, match="newest 720"):
                await fetch(client, emitted)


def serve_kraken_trades(server: Loopback, trades: list[list[Any]], pair: str = "XBTUSDT", *, page: int = 1_000) -> None:
    """Trades after a nanosecond cursor."""

    def nanoseconds(trade: list[Any]) -> int:
        return round(float(trade[2]) * 1e7) * 100

    def answer(query: dict[str, str]) -> Any:
        found = [trade for trade in trades if nanoseconds(trade) > int(query["since"])][:page]
        last = nanoseconds(found[-1]) if found else int(query["since"])
        return {"error": [], "result": {pair: found, "last": str(last)}}

    server.answers["/0/public/Trades"] = answer  # type: ignore[assignment]


def _older_than_kept(folder: Path) -> tuple[list[list[Any]], list[list[Any]], int, int]:
    """Candles and trades, the first whole minute of the trades, and the one 200 minutes later, both in seconds."""
    trades = json.loads((folder / "kraken" / "xbtusdt_trades_rest.json").read_text())["result"]["XBTUSDT"]
    start = int(trades[0][2]) // 60 * 60 + 60
    return _kraken_reply(folder), trades, start, start + 200 * 60


@pytest.mark.parametrize("page", [1_000, 130])
async def test_older_kraken_candles_are_built_from_trades_and_equal_the_exchanges_own(
    shared_data: Path, page: int
) -> None:
    rows, trades, start, kept_from = _older_than_kept(shared_data)
    async with loopback() as server, client_of("KRAKEN", server.url) as client:
        serve_kraken(server, [row for row in rows if row[0] >= kept_from], now=rows[-1][0] + 20)
        serve_kraken_trades(server, trades, page=page)
        await client.load_markets(HastyProgress())
        job = HistoryJob("BTC/USDT", 60, start * SECOND, (kept_from + 50 * 60) * SECOND)
        summary, candles, sources = await fetch(client, job)
    assert candles is not None
    own = {row[0] * SECOND: row for row in rows}
    derived = [time for time in candles.open_time.tolist() if time < kept_from * SECOND]
    traded = [row[0] * SECOND for row in rows if start <= row[0] < kept_from and row[7] > 0]
    assert derived == traded and len(derived) > 50
    for place, time in enumerate(candles.open_time.tolist()):
        values = (candles.open, candles.high, candles.low, candles.close, candles.volume)
        expected = [float(own[time][n]) for n in (1, 2, 3, 4, 6)]
        assert [float(column[place]) for column in values] == expected
    assert sources[0] == "derived" and sources[-1] == "exchange"
    assert summary.expected == 250 and summary.rows == len(candles)


async def test_a_gap_in_the_ids_of_older_trades_is_not_a_candle(shared_data: Path) -> None:
    rows, trades, start, kept_from = _older_than_kept(shared_data)
    async with loopback() as server, client_of("KRAKEN", server.url) as client:
        serve_kraken(server, [row for row in rows if row[0] >= kept_from], now=rows[-1][0] + 20)
        serve_kraken_trades(server, trades[:50] + trades[51:])
        await client.load_markets(HastyProgress())
        with pytest.raises(DepthExceeded, match="gaps"):
            await fetch(client, HistoryJob("BTC/USDT", 60, start * SECOND, kept_from * SECOND))


async def test_trades_that_an_empty_answer_leaves_out_are_requested_again(shared_data: Path) -> None:
    rows, trades, start, kept_from = _older_than_kept(shared_data)
    async with loopback() as server, client_of("KRAKEN", server.url) as client:
        serve_kraken(server, [row for row in rows if row[0] >= kept_from], now=rows[-1][0] + 20)
        serve_kraken_trades(server, trades, page=130)
        tell = server.answers["/0/public/Trades"]
        asked: list[str] = []

        def lie_once(query: Any) -> Any:
            asked.append(query["since"])
            if len(asked) == 2:
                return {"error": [], "result": {"XBTUSDT": [], "last": query["since"]}}
            return tell(query)

        server.answers["/0/public/Trades"] = lie_once
        await client.load_markets(HastyProgress())
        _, candles, _ = await fetch(client, HistoryJob("BTC/USDT", 60, start * SECOND, kept_from * SECOND))
    traded = [row[0] * SECOND for row in rows if start <= row[0] < kept_from and row[7] > 0]
    assert candles is not None and candles.open_time.tolist() == traded
    assert asked[1] == asked[2]


async def test_a_month_of_real_minutes_is_bit_equal(shared_data: Path) -> None:
    with (shared_data / "ftx" / "btc_perp_1m_20211231_20220201.csv").open() as file:
        rows: list[Row] = [
            (
                int(datetime.fromisoformat(row["timestamp"] + "+00:00").timestamp()),
                row["open"],
                row["high"],
                row["low"],
                row["close"],
                row["volume"],
            )
            for row in csv.DictReader(file)
        ]
    assert len(rows) == 45_031
    klines = [binance_kline(row) for row in rows]
    start, end = rows[0][0], rows[-1][0] + 60
    async with loopback() as server, client_of("BINANCE", server.url) as client:
        serve_binance(server, klines, now=end + 60)
        await client.load_markets(HastyProgress())
        summary, candles, _ = await fetch(client, HistoryJob("BTC/USDT", 60, start * SECOND, end * SECOND))
    assert candles is not None
    assert summary.rows == 45_031
    assert np.array_equal(candles.open_time, np.array([row[0] * SECOND for row in rows]))
    for place, column in enumerate((candles.open, candles.high, candles.low, candles.close, candles.volume), 1):
        assert column.tolist() == [float(row[place]) for row in rows]


def _captured(path: Path, wanted: str = "") -> Any:
    """The first reply of a capture file, with lines `URL -> time: JSON`."""
    for line in path.read_text().splitlines():
        head, _, body = line.partition(": ")
        if " -> " in head and wanted in head:
            return json.loads(body)
    raise AssertionError(f"no reply for {wanted!r} in {path}")


def _serve_market_list(server: Loopback, venue: str, shared_data: Path) -> None:
    if venue == "BINANCE":
        info = _captured(shared_data / "binance" / "exchangeinfo_capture_2021.txt")
        server.answers["/api/v3/exchangeInfo"] = lambda query: info
    elif venue == "KRAKEN":
        pairs = _captured(shared_data / "kraken" / "assetpairs_capture_2021.txt")
        server.answers["/0/public/AssetPairs"] = lambda query: pairs
    elif venue == "OKX":
        instruments = _captured(shared_data / "okx" / "instruments_capture_2022.txt", "instType=SPOT")
        server.answers["/api/v5/public/instruments"] = lambda query: instruments
    elif venue == "COINBASEEXCHANGE":
        products = _captured(shared_data / "coinbase" / "products_capture_2021.txt")
        server.answers["/products"] = lambda query: products
    else:
        serve_coinbase(server, [], now=0)
        products = _captured(shared_data / "coinbase" / "products_capture_2021.txt")
        template = server.answers["/api/v3/brokerage/market/products"]({})["products"][0]
        listed = [
            {
                **template,
                "product_id": product["id"],
                "base_currency_id": product["base_currency"],
                "quote_currency_id": product["quote_currency"],
            }
            for product in products
        ]
        server.answers["/api/v3/brokerage/market/products"] = lambda query: {
            "products": listed if query.get("product_type", "SPOT") == "SPOT" else []
        }


@pytest.mark.parametrize(
    ("venue", "count", "symbol", "market_id"),
    [
        ("BINANCE", 1_695, "BTC/USDT", "BTCUSDT"),
        ("KRAKEN", 280, "BTC/USD", "XXBTZUSD"),
        ("OKX", 400, "BTC/USDT", "BTC-USDT"),
        ("COINBASE", 150, "BTC/USD", "BTC-USD"),
        ("COINBASEEXCHANGE", 150, "BTC/USD", "BTC-USD"),
    ],
)
async def test_recorded_market_lists_load_and_tickers_map_both_ways(
    shared_data: Path, venue: str, count: int, symbol: str, market_id: str
) -> None:
    async with loopback() as server, client_of(venue, server.url) as client:
        _serve_market_list(server, venue, shared_data)
        await client.load_markets(HastyProgress())
        record = venue_record(client)
        assert {path for path, _ in server.requests} == set(server.answers) - {
            "/v2/time",
            "/api/v3/brokerage/market/products/BTC-USDT/candles",
        }
    assert len(client.markets) >= count * 0.95
    assert client.markets[symbol].market_id == market_id
    by_id = {market.market_id: market.symbol for market in record.markets}
    assert by_id[market_id] == symbol
    # A market id names one symbol; of markets that would share a symbol, ccxt keeps one.
    assert len(by_id) == len(record.markets) == record.market_count
    assert frozenset(record.period_seconds) == native_periods(venue)


async def test_inactive_markets_still_have_history(shared_data: Path) -> None:
    async with loopback() as server, client_of("BINANCE", server.url) as client:
        _serve_market_list(server, "BINANCE", shared_data)
        await client.load_markets(HastyProgress())
        inactive = next(market for market in client.markets.values() if not market.is_active)
        row = binance_kline((1_600_000_020 // 60 * 60, "1", "2", "0.5", "1.5", "3"))
        server.answers["/api/v3/klines"] = lambda query: [row]
        server.answers["/api/v3/time"] = lambda query: {"serverTime": 1_700_000_000_000}
        job = HistoryJob(inactive.symbol, 60, row[0] * 1_000_000, row[0] * 1_000_000 + 60 * SECOND)
        summary, _, _ = await fetch(client, job)
    assert summary.rows == 1
