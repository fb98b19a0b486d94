"""Replies and error bodies of the REST API, without a socket."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import orjson
import pytest

from sandbox.generated.market import GeneratedMarket
from sandbox.markets.instruments import DEFAULT_INSTRUMENTS, utc_ms
from sandbox.markets.intervals import HOUR, INTERVALS, MINUTE
from sandbox.markets.market import Market
from sandbox.venues.binance import ApiError, Request, RestApi, weight

NOW = utc_ms("2024-03-05T12:00:30")
START = utc_ms("2024-03-05T06:00")
MARKETS: dict[str, Market] = {i.symbol: GeneratedMarket(i, 7) for i in DEFAULT_INSTRUMENTS}
API = RestApi(MARKETS)


def get(path: str, *, api_key: Any = None, **parameters: object) -> Any:
    texts = {name: str(value) for name, value in parameters.items()}
    return orjson.loads(API.routes[f"/api/v3/{path}"](Request(texts, api_key, NOW)))


def refusal(path: str, **parameters: object) -> tuple[int, int]:
    with pytest.raises(ApiError) as caught:
        get(path, **parameters)
    return caught.value.status, caught.value.code


def test_time_and_ping() -> None:
    assert get("ping") == {}
    assert get("time") == {"serverTime": NOW}


def test_exchange_info_lists_every_pair_with_its_filters() -> None:
    symbols = {entry["symbol"]: entry for entry in get("exchangeInfo")["symbols"]}
    assert len(symbols) >= 8
    filters = {entry["filterType"]: entry for entry in symbols["BTCUSDT"]["filters"]}
    assert filters["PRICE_FILTER"]["tickSize"] == "0.01000000"
    assert filters["LOT_SIZE"]["stepSize"] == "0.00001000"
    assert symbols["WAVESUSDT"]["status"] == "BREAK"
    one = get("exchangeInfo", symbol="ETHBTC")["symbols"]
    two = get("exchangeInfo", symbols='["ETHBTC","BTCUSDT"]')["symbols"]
    assert [entry["symbol"] for entry in one + two] == ["ETHBTC", "ETHBTC", "BTCUSDT"]


def test_klines_default_to_the_newest_500_and_are_clamped_to_1000() -> None:
    newest = get("klines", symbol="BTCUSDT", interval="1m")
    assert len(newest) == 500
    assert newest[-1][0] == NOW // MINUTE * MINUTE
    assert len(get("klines", symbol="BTCUSDT", interval="1m", limit=5000)) == 1000


@pytest.mark.parametrize("interval", sorted(INTERVALS))
def test_klines_have_twelve_columns_and_eight_decimals_in_every_interval(interval: str) -> None:
    for row in get("klines", symbol="BTCUSDT", interval=interval, limit=2):
        assert len(row) == 12
        assert all(len(row[place].partition(".")[2]) == 8 for place in (1, 2, 3, 4, 5, 7, 9, 10))
        assert Decimal(row[3]) <= Decimal(row[1]) <= Decimal(row[2])


def test_klines_of_a_range_turned_round_are_none() -> None:
    assert get("klines", symbol="BTCUSDT", interval="1m", startTime=NOW, endTime=START) == []


@pytest.mark.parametrize(
    ("parameters", "error"),
    [
        ({"interval": "1m"}, (400, -1102)),
        ({"symbol": "BTCUSDT"}, (400, -1102)),
        ({"symbol": "NOPE", "interval": "1m"}, (400, -1121)),
        ({"symbol": "BTC/USDT", "interval": "1m"}, (400, -1100)),
        ({"symbol": "btcusdt", "interval": "1m"}, (400, -1121)),
        ({"symbol": "BTCUSDT", "interval": "7m"}, (400, -1120)),
        ({"symbol": "BTCUSDT", "interval": "1m", "limit": "x"}, (400, -1100)),
        ({"symbol": "BTCUSDT", "interval": "1m", "limit": 0}, (400, -1130)),
        ({"symbol": "BTCUSDT", "interval": "1m", "startTime": "-5"}, (400, -1100)),
    ],
)
def test_wrong_klines_requests_get_the_exchange_codes(parameters: dict[str, object], error: tuple[int, int]) -> None:
    assert refusal("klines", **parameters) == error


def test_huge_times_are_not_an_error() -> None:
    assert get("klines", symbol="BTCUSDT", interval="1M", startTime=10**19) == []
    assert len(get("klines", symbol="BTCUSDT", interval="1M", endTime=10**19, limit=3)) == 3


def test_agg_trades_of_a_window_and_by_id_are_the_same() -> None:
    window = get("aggTrades", symbol="BTCUSDT", startTime=START, endTime=START + HOUR, limit=1000)
    assert len(window) == 1000
    assert window[0]["T"] >= START
    assert get("aggTrades", symbol="BTCUSDT", fromId=window[0]["a"], limit=1000) == window
    following = get("aggTrades", symbol="BTCUSDT", fromId=window[-1]["a"] + 1, limit=5)
    assert following[0]["f"] == window[-1]["l"] + 1


def test_a_quiet_window_has_no_agg_trades_although_later_ones_exist() -> None:
    candles = get("klines", symbol="LTCBNB", interval="1m", startTime=START, limit=100)
    quiet = next(row for row in candles if row[8] == 0)
    assert get("aggTrades", symbol="LTCBNB", startTime=quiet[0], endTime=quiet[6]) == []


def test_agg_trades_without_bounds_are_the_newest() -> None:
    newest = get("aggTrades", symbol="BTCUSDT", limit=10)
    assert len(newest) == 10
    assert newest[-1]["T"] <= NOW
    assert get("aggTrades", symbol="BTCUSDT", fromId=newest[-1]["a"] + 1) == []
    assert get("aggTrades", symbol="BTCUSDT", endTime=newest[4]["T"], limit=1)[-1]["T"] == newest[4]["T"]


def test_agg_trade_windows_over_an_hour_and_ids_with_times_are_refused() -> None:
    assert refusal("aggTrades", symbol="BTCUSDT", startTime=START, endTime=START + HOUR + 1) == (400, -1127)
    assert refusal("aggTrades", symbol="BTCUSDT", fromId=5, startTime=START) == (400, -1128)


def test_newest_trades_and_their_amounts() -> None:
    trades = get("trades", symbol="BTCUSDT", limit=1000)
    assert len(trades) == 1000
    assert trades[-1]["time"] <= NOW
    assert all(Decimal(t["price"]) * Decimal(t["qty"]) == Decimal(t["quoteQty"]) for t in trades)
    assert {t["isBuyerMaker"] for t in trades} == {True, False}


def test_historical_trades_need_a_key_and_go_back_by_id() -> None:
    assert refusal("historicalTrades", symbol="BTCUSDT") == (401, -2014)
    page = get("historicalTrades", api_key="any", symbol="BTCUSDT", fromId=1000, limit=3)
    assert [trade["id"] for trade in page] == [1000, 1001, 1002]
    assert get("historicalTrades", api_key="any", symbol="BTCUSDT", limit=7) == get("trades", symbol="BTCUSDT", limit=7)


def test_day_ticker_agrees_with_candles_and_trades() -> None:
    ticker = get("ticker/24hr", symbol="BTCUSDT")
    newest = get("trades", symbol="BTCUSDT", limit=1)[0]
    candles = get("klines", symbol="BTCUSDT", interval="1m", startTime=ticker["openTime"], limit=1000)
    candles += get("klines", symbol="BTCUSDT", interval="1m", startTime=candles[-1][0] + MINUTE, limit=1000)
    assert ticker["lastPrice"] == newest["price"]
    assert ticker["lastId"] == newest["id"]
    assert ticker["lastId"] - ticker["firstId"] + 1 == ticker["count"] == sum(row[8] for row in candles)
    assert Decimal(ticker["volume"]) == sum(Decimal(row[5]) for row in candles)
    assert Decimal(ticker["quoteVolume"]) == sum(Decimal(row[7]) for row in candles)
    assert Decimal(ticker["highPrice"]) == max(Decimal(row[2]) for row in candles)
    assert ticker["openPrice"] == candles[0][1]
    assert Decimal(ticker["bidPrice"]) < Decimal(ticker["askPrice"])


def test_tickers_of_all_of_some_and_of_one() -> None:
    assert len(get("ticker/price")) == len(DEFAULT_INSTRUMENTS)
    assert [t["symbol"] for t in get("ticker/bookTicker", symbols='["ETHBTC"]')] == ["ETHBTC"]
    assert get("ticker/price", symbol="ETHBTC")["price"] == get("ticker/24hr", symbol="ETHBTC")["lastPrice"]
    assert "priceChange" not in get("ticker/24hr", symbol="ETHBTC", type="MINI")
    assert refusal("ticker/price", symbols="ETHBTC") == (400, -1100)


def test_depth_is_ordered_around_the_last_price() -> None:
    book = get("depth", symbol="BTCUSDT", limit=20)
    bids, asks = ([Decimal(price) for price, _ in book[side]] for side in ("bids", "asks"))
    assert len(bids) == len(asks) == 20
    assert bids == sorted(bids, reverse=True)
    assert asks == sorted(asks)
    assert bids[0] < asks[0]
    assert get("depth", symbol="WAVESUSDT")["bids"] == []


def test_weights_are_those_of_the_exchange() -> None:
    assert weight("/api/v3/klines", {"symbol": "BTCUSDT"}) == 2
    assert weight("/api/v3/aggTrades", {}) == 4
    assert weight("/api/v3/ticker/24hr", {}) == 80
    assert weight("/api/v3/depth", {"limit": "5000"}) == 250
    assert weight("/api/v3/depth", {"limit": "nonsense"}) == 5
    assert weight("/api/v3/time", {}) == 1
