"""Recorded candles and trades, served in the exchange's wire format."""

from __future__ import annotations

import asyncio
import csv
import gzip
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import orjson
import pytest

from sandbox import Sandbox
from sandbox.markets.instruments import utc_ms
from sandbox.markets.intervals import HOUR, INTERVALS, MINUTE
from sandbox.recorded.files import read_candles, read_trades
from sandbox.recorded.markets import RecordedCandles, RecordedTrades, split_pair
from tests.sandbox.conftest import MakeExchange

NOW = utc_ms("2026-01-01")
START = utc_ms("2024-01-01")
ZEROS = ["0.00000000", 0, "0.00000000", "0.00000000", "0"]
Trade = tuple[int, str, str, int, bool]


def page(market: Any, interval: str, start: int | None = None, *, limit: int = 1000, now: int = NOW) -> Any:
    return orjson.loads(market.kline_page(INTERVALS[interval], start, None, limit=limit, now=now))


def candle(opened: int, price: str, volume: str = "1.5") -> list[Any]:
    return [opened, price, price, price, price, volume]


def test_candles_keep_their_texts_and_missing_columns_are_zero() -> None:
    market = RecordedCandles("ABC/USDT")
    market.add("1m", [[START, "1.10000000", 1.2, "1.1", Decimal("1.15"), 1e-9]])
    assert page(market, "1m") == [
        [START, "1.10000000", "1.20000000", "1.10000000", "1.15000000", "0.000000001", START + 59_999, *ZEROS]
    ]


def test_candles_added_in_any_order_are_served_in_order() -> None:
    market = RecordedCandles("ABC/USDT")
    opens = [START + n * MINUTE for n in (3, 1, 2, 0)]
    market.add("1m", [candle(opened, "1") for opened in opens[:2]])
    market.add("1m", [candle(opened, "1") for opened in opens[2:]])
    assert [row[0] for row in page(market, "1m")] == sorted(opens)
    assert [row[0] for row in page(market, "1m", START + 1, limit=2)] == [START + MINUTE, START + 2 * MINUTE]
    assert len(page(market, "1m", now=START + MINUTE)) == 2


def test_intervals_that_were_not_given_are_merged_from_those_that_were() -> None:
    market = RecordedCandles("ABC/USDT")
    market.add("1m", [candle(START + n * MINUTE, str(100 + n % 7), "0.1") for n in range(120)])
    hours = page(market, "1h")
    assert [row[:6] for row in hours] == [
        [START, "100.00000000", "106.00000000", "100.00000000", "103.00000000", "6.00000000"],
        [START + HOUR, "104.00000000", "106.00000000", "100.00000000", "100.00000000", "6.00000000"],
    ]
    assert page(market, "1s") == []


def test_columns_of_recorded_candles_are_scaled_integers() -> None:
    market = RecordedCandles("ABC/USDT")
    market.add("1m", [candle(START, "1.25", "3.5")])
    columns = market.candles(INTERVALS["1m"], START, START, now=NOW)
    assert (columns.open.tolist(), columns.volume.tolist()) == ([125], [35])


def test_hole_hides_recorded_candles() -> None:
    market = RecordedCandles("ABC/USDT")
    market.add("1m", [candle(START + n * MINUTE, "1") for n in range(10)])
    market.add_hole(START + 2 * MINUTE, START + 5 * MINUTE)
    assert len(page(market, "1m")) == 7
    market.clear_holes()
    assert len(page(market, "1m")) == 10


@pytest.mark.parametrize(
    ("interval", "row"),
    [
        ("7m", candle(START, "1")),
        ("1m", candle(START + 1, "1")),
        ("1m", candle(START, "NaN")),
        ("1m", [START, "1", "1"]),
    ],
)
def test_malformed_candles_are_refused(interval: str, row: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"interval|number|columns"):
        RecordedCandles("ABC/USDT").add(interval, [row])


TRADES: list[Trade] = [
    (7, "10.50", "0.3", START + 100, True),
    (8, "10.50", "0.2", START + 100, True),
    (9, "10.25", "1", START + 100, False),
    (10, "10.75", "2", START + 2 * MINUTE + 5, True),
]


def test_candles_follow_from_trades_and_quiet_minutes_are_flat() -> None:
    market = RecordedTrades("ABC/USDT", TRADES)
    rows = page(market, "1m")
    assert [row[1:6] for row in rows] == [
        ["10.50000000", "10.50000000", "10.25000000", "10.25000000", "1.50000000"],
        ["10.25000000", "10.25000000", "10.25000000", "10.25000000", "0.00000000"],
        ["10.75000000", "10.75000000", "10.75000000", "10.75000000", "2.00000000"],
    ]
    assert [row[8] for row in rows] == [3, 0, 1]
    assert [row[7] for row in rows] == ["15.50000000", "0.00000000", "21.50000000"]
    assert [row[10] for row in rows] == ["5.25000000", "0.00000000", "21.50000000"]


def test_neighbours_of_one_price_side_and_time_are_one_aggregate() -> None:
    orders = RecordedTrades("ABC/USDT", TRADES).orders(0, 10, NOW)
    assert orders.first.tolist() == [7, 9, 10]
    assert orders.last.tolist() == [8, 9, 10]
    assert orders.lots.tolist() == [5, 10, 20]
    assert (np.diff(orders.id) == 1).all()


def test_only_trades_until_now_are_visible() -> None:
    market = RecordedTrades("ABC/USDT", TRADES)
    assert market.fills(0, 10, START + 100).id.tolist() == [7, 8, 9]
    assert market.fills(9, 1, NOW).id.tolist() == [9]
    assert market.next_trade_time(START + 100) == START + 2 * MINUTE + 5
    assert market.next_trade_time(START + 2 * MINUTE + 5) is None
    assert page(market, "1m", now=START + 99) == []
    assert market.fill_at(START + 101) == 10


@pytest.mark.parametrize(
    ("trades", "text"),
    [
        ([], "no trades"),
        ([TRADES[0], TRADES[3]], "contiguous"),
        ([(1, "1.00000001", "1e12", START, True)], "too many digits"),
    ],
)
def test_trades_that_cannot_be_served_are_refused(trades: list[Trade], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        RecordedTrades("ABC/USDT", trades)


@pytest.mark.parametrize(("name", "pair"), [("BTC/USDT", ("BTC", "USDT")), ("ethbtc", ("ETH", "BTC"))])
def test_pair_is_recognised_in_either_form(name: str, pair: tuple[str, str]) -> None:
    assert split_pair(name) == pair


def test_pair_of_unknown_quote_is_refused() -> None:
    with pytest.raises(ValueError, match="BASE/QUOTE"):
        split_pair("ABCXYZ")


@pytest.mark.parametrize("time", ["2024-01-01 00:00:00.000000", "1704067200", "1704067200000", "1704067200000000000"])
def test_candle_files_may_have_any_usual_time(tmp_path: Path, time: str) -> None:
    file = tmp_path / "candles.csv"
    file.write_text(f"timestamp,open,high,low,close,volume\n{time},1.0,2.0,0.5,1.5,10.0\n")
    assert read_candles(file) == [[START, "1.0", "2.0", "0.5", "1.5", "10.0"]]


def test_candle_file_with_all_columns_and_one_without_prices(tmp_path: Path) -> None:
    file = tmp_path / "candles.csv"
    names = "open_time,open,high,low,close,volume,close_time,quote_volume,count,taker_volume,taker_quote_volume"
    file.write_text(f"{names}\n{START},1,2,0.5,1.5,10,{START + 59999},15,3,4,6\n")
    assert len(read_candles(file)[0]) == 12
    file.write_text(f"open_time,open\n{START},1\n")
    with pytest.raises(ValueError, match="close"):
        read_candles(file)


def test_line_that_is_not_a_frame_is_named(tmp_path: Path) -> None:
    file = tmp_path / "frames"
    file.write_text('1 {"stream":"x","data":{"e":"other"}}\n2 {"broken\n')
    with pytest.raises(ValueError, match="line 2"):
        read_trades([file])


async def test_long_candle_file_is_paged_through_ccxt_unchanged(shared_data: Path, make_exchange: MakeExchange) -> None:
    file = shared_data / "ftx" / "btc_perp_1m_20211231_20220201.csv"
    async with Sandbox(candles=[f"BTC/USDT:1m={file}"], rate_limit=False) as sandbox:
        exchange = make_exchange(sandbox)
        since, rows = utc_ms("2021-12-31"), list[list[float]]()
        while found := await exchange.fetch_ohlcv("BTC/USDT", "1m", since, 1000):
            rows += found
            since = found[-1][0] + MINUTE
        await exchange.close()
    with file.open() as stream:
        expected = [[utc_ms(t), *map(float, values)] for t, *values in list(csv.reader(stream))[1:]]
    assert len(rows) == 45_031
    assert rows == expected


async def test_recorded_pages_with_a_real_hole_come_back_to_the_letter(shared_data: Path) -> None:
    routes = orjson.loads((shared_data / "binance" / "http_mock_routes.json").read_bytes())["routes"]
    wanted = ("startTime=1588280400000", "startTime=1591880400000")
    pages = [e["data"] for e in routes["/api/v3/klines"]["GET"] if any(start in e["queryString"] for start in wanted)]
    recorded = [row for found in pages for row in found]
    assert len(recorded) == 1468
    async with Sandbox(rate_limit=False) as sandbox, aiohttp.ClientSession(sandbox.url) as client:
        sandbox.add_candles("BTC/USDT", "1h", recorded)
        served: list[Any] = []
        since = recorded[0][0]
        while True:
            query = {"symbol": "BTCUSDT", "interval": "1h", "startTime": str(since), "limit": "1000"}
            async with client.get("/api/v3/klines", params=query) as reply:
                found = await reply.json()
            if not found:
                break
            served += found
            since = found[-1][0] + HOUR
    assert served == recorded


@pytest.mark.timeout(60)
async def test_recorded_frames_are_replayed_at_full_speed_and_rest_agrees(shared_data: Path) -> None:
    files = [shared_data / "binance" / f"btcusdt_spot_ws_2024080{day}.gz" for day in (8, 9)]
    frames = []
    for file in files:
        for line in gzip.decompress(file.read_bytes()).splitlines():
            data = orjson.loads(line.partition(b" ")[2]).get("data", {})
            if data.get("e") == "trade":
                frames.append(data)
    async with (
        Sandbox(trades=[str(file) for file in files], rate_limit=False) as sandbox,
        aiohttp.ClientSession() as client,
        client.ws_connect(f"{sandbox.ws_url}/ws/btcusdt@trade") as socket,
    ):
        seen = [await socket.receive_json(timeout=10) for _ in range(5000)]
        query = f"{sandbox.url}/api/v3/trades?symbol=BTCUSDT&limit=1"
        async with client.get(query) as reply:
            newest = (await reply.json())[0]["id"]
        assert newest >= seen[-1]["t"]
        seen += [await socket.receive_json(timeout=10) for _ in range(len(frames) - 5000)]
        while sandbox.clock.driven:
            await asyncio.sleep(0.005)
        async with client.get(f"{sandbox.url}/api/v3/klines?symbol=BTCUSDT&interval=1m") as reply:
            rows = await reply.json()
    for frame in (*frames, *seen):
        del frame["E"]
    assert seen == frames
    minutes: dict[int, list[dict[str, Any]]] = {}
    for frame in frames:
        minutes.setdefault(frame["T"] // MINUTE * MINUTE, []).append(frame)
    assert len(rows) == len(minutes)
    for row in rows:
        inside = minutes[row[0]]
        prices = [Decimal(frame["p"]) for frame in inside]
        assert [Decimal(text) for text in row[1:5]] == [prices[0], max(prices), min(prices), prices[-1]]
        assert Decimal(row[5]) == sum(Decimal(frame["q"]) for frame in inside)
        assert Decimal(row[7]) == sum(Decimal(frame["q"]) * Decimal(frame["p"]) for frame in inside)
        assert row[8] == len(inside)


@pytest.mark.timeout(60)
async def test_replay_waits_for_a_client_that_reconnects() -> None:
    trades = [(n + 1, "10.5", "1", START + n * 20, True) for n in range(3000)]
    async with Sandbox(rate_limit=False) as sandbox, aiohttp.ClientSession() as client:
        sandbox.add_trades("ABC/USDT", trades)
        seen: list[int] = []
        async with client.ws_connect(f"{sandbox.ws_url}/ws/abcusdt@trade") as socket:
            seen += [(await socket.receive_json(timeout=5))["t"] for _ in range(500)]
        while sandbox.connections:
            await asyncio.sleep(0.005)
        first_missed = sandbox.markets["ABCUSDT"].fill_at(sandbox.clock.now() + 1)
        async with client.ws_connect(f"{sandbox.ws_url}/ws/abcusdt@trade") as socket:
            assert (await socket.receive_json(timeout=5))["t"] == first_missed
    assert seen == list(range(1, 501))


@pytest.mark.timeout(60)
async def test_client_of_a_generated_pair_neither_drives_nor_ends_a_replay() -> None:
    trades = [(n + 1, "10.5", "1", START + n * 20, True) for n in range(300)]
    async with Sandbox(rate_limit=False) as sandbox, aiohttp.ClientSession() as client:
        sandbox.add_trades("ABC/USDT", trades)
        async with (
            client.ws_connect(f"{sandbox.ws_url}/ws/btcusdt@trade") as other,
            client.ws_connect(f"{sandbox.ws_url}/ws/abcusdt@kline_1m") as candles,
        ):
            closed = await candles.receive_json(timeout=5)
            while sandbox.clock.driven:
                await asyncio.sleep(0.005)
            assert sandbox.clock.now() >= trades[-1][3]
            assert closed["s"] == "ABCUSDT"
            await other.send_json({"method": "LIST_SUBSCRIPTIONS", "id": 1})
            while "result" not in (message := await other.receive_json(timeout=5)):
                assert message["s"] == "BTCUSDT"
        later = START + 3600_000
        sandbox.add_trades("DEF/USDT", [(n + 1, "1", "1", later + n, True) for n in range(10)])
        async with client.ws_connect(f"{sandbox.ws_url}/ws/btcusdt@trade") as other:
            await other.send_json({"method": "LIST_SUBSCRIPTIONS", "id": 1})
            await other.receive_json(timeout=5)
            assert sandbox.clock.driven
            assert sandbox.clock.now() == later - 1


@pytest.mark.parametrize("text", ["BTC/USDT=x.csv", "BTC/USDT:1m", "x"])
async def test_malformed_candle_source_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="of the form"):
        Sandbox(candles=[text])
