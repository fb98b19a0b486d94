"""JSON objects of the API: symbols, trades, and the events of the streams."""

from __future__ import annotations

from typing import Any

import orjson

from sandbox.markets.candles import Candles
from sandbox.markets.intervals import Interval
from sandbox.markets.market import Market, Trades
from sandbox.markets.ticker import BookTop, DayStatistics
from sandbox.markets.wire import amount


def _unit(decimals: int) -> str:
    return amount(1, decimals)


def symbol_information(market: Market) -> dict[str, Any]:
    """An entry of exchangeInfo, with the filters that clients read precision and limits from."""
    tick, step = _unit(market.price_decimals), _unit(market.lot_decimals)
    return {
        "symbol": market.symbol,
        "status": market.status,
        "baseAsset": market.base,
        "baseAssetPrecision": 8,
        "quoteAsset": market.quote,
        "quotePrecision": 8,
        "quoteAssetPrecision": 8,
        "baseCommissionPrecision": 8,
        "quoteCommissionPrecision": 8,
        "orderTypes": ["LIMIT", "LIMIT_MAKER", "MARKET"],
        "icebergAllowed": True,
        "ocoAllowed": True,
        "quoteOrderQtyMarketAllowed": True,
        "allowTrailingStop": True,
        "cancelReplaceAllowed": True,
        "isSpotTradingAllowed": True,
        "isMarginTradingAllowed": False,
        "filters": [
            {"filterType": "PRICE_FILTER", "minPrice": tick, "maxPrice": "1000000.00000000", "tickSize": tick},
            {"filterType": "LOT_SIZE", "minQty": step, "maxQty": "92141578.00000000", "stepSize": step},
            {"filterType": "ICEBERG_PARTS", "limit": 10},
            {"filterType": "MARKET_LOT_SIZE", "minQty": "0.00000000", "maxQty": "9000000.00000000", "stepSize": step},
            {
                "filterType": "NOTIONAL",
                "minNotional": "5.00000000",
                "applyMinToMarket": True,
                "maxNotional": "9000000.00000000",
                "applyMaxToMarket": False,
                "avgPriceMins": 5,
            },
            {"filterType": "MAX_NUM_ORDERS", "maxNumOrders": 200},
        ],
        "permissions": ["SPOT"],
        "permissionSets": [["SPOT"]],
        "defaultSelfTradePreventionMode": "EXPIRE_MAKER",
        "allowedSelfTradePreventionModes": ["EXPIRE_TAKER", "EXPIRE_MAKER", "EXPIRE_BOTH"],
    }


def trade_page(market: Market, trades: Trades) -> bytes:
    """A trades or historicalTrades reply."""
    prices, lots = market.price_decimals, market.lot_decimals
    return orjson.dumps(
        [
            {
                "id": number,
                "price": amount(price, prices),
                "qty": amount(size, lots),
                "quoteQty": amount(price * size, prices + lots),
                "time": time,
                "isBuyerMaker": not bought,
                "isBestMatch": True,
            }
            for number, price, size, time, bought in zip(
                trades.id.tolist(),
                trades.price.tolist(),
                trades.lots.tolist(),
                trades.time.tolist(),
                trades.bought.tolist(),
                strict=True,
            )
        ]
    )


def agg_trade_page(market: Market, trades: Trades) -> bytes:
    """An aggTrades reply."""
    return orjson.dumps(
        [
            {
                "a": number,
                "p": amount(price, market.price_decimals),
                "q": amount(size, market.lot_decimals),
                "f": first,
                "l": last,
                "T": time,
                "m": not bought,
                "M": True,
            }
            for number, price, size, time, bought, first, last in zip(
                *(column.tolist() for column in trades.columns()), strict=True
            )
        ]
    )


def trade_events(market: Market, trades: Trades) -> list[str]:
    """`trade` events, one per raw trade."""
    prices, lots, symbol = market.price_decimals, market.lot_decimals, market.symbol
    return [
        f'{{"e":"trade","E":{time},"s":"{symbol}","t":{number},"p":"{amount(price, prices)}",'
        f'"q":"{amount(size, lots)}","T":{time},"m":{"false" if bought else "true"},"M":true}}'
        for number, price, size, time, bought, _, _ in zip(
            *(column.tolist() for column in trades.columns()), strict=True
        )
    ]


def agg_trade_events(market: Market, trades: Trades) -> list[str]:
    """`aggTrade` events, one per aggregate trade."""
    prices, lots, symbol = market.price_decimals, market.lot_decimals, market.symbol
    return [
        f'{{"e":"aggTrade","E":{time},"s":"{symbol}","a":{number},"p":"{amount(price, prices)}",'
        f'"q":"{amount(size, lots)}","f":{first},"l":{last},"T":{time},"m":{"false" if bought else "true"},"M":true}}'
        for number, price, size, time, bought, first, last in zip(
            *(column.tolist() for column in trades.columns()), strict=True
        )
    ]


def kline_event(market: Market, interval: Interval, candles: Candles, *, row: int, now: int, closed: bool) -> str:
    """A `kline` event for one row of candles."""
    prices, lots = market.price_decimals, market.lot_decimals
    opened, count = int(candles.open_time[row]), int(candles.count[row])
    first = market.fill_at(opened) if count else -1
    return orjson.dumps(
        {
            "e": "kline",
            "E": now,
            "s": market.symbol,
            "k": {
                "t": opened,
                "T": int(candles.close_time[row]),
                "s": market.symbol,
                "i": interval.name,
                "f": first,
                "L": first + count - 1 if count else -1,
                "o": amount(int(candles.open[row]), prices),
                "c": amount(int(candles.close[row]), prices),
                "h": amount(int(candles.high[row]), prices),
                "l": amount(int(candles.low[row]), prices),
                "v": amount(int(candles.volume[row]), lots),
                "n": count,
                "x": closed,
                "q": amount(int(candles.quote[row]), prices + lots),
                "V": amount(int(candles.taker_volume[row]), lots),
                "Q": amount(int(candles.taker_quote[row]), prices + lots),
                "B": "0",
            },
        }
    ).decode()


def mini_ticker_event(market: Market, day: DayStatistics, now: int) -> str:
    """A `24hrMiniTicker` event."""
    prices = market.price_decimals
    return orjson.dumps(
        {
            "e": "24hrMiniTicker",
            "E": now,
            "s": market.symbol,
            "c": amount(day.last, prices),
            "o": amount(day.open, prices),
            "h": amount(day.high, prices),
            "l": amount(day.low, prices),
            "v": amount(day.volume, market.lot_decimals),
            "q": amount(day.quote, prices + market.lot_decimals),
        }
    ).decode()


def ticker_event(entry: dict[str, Any], now: int) -> str:
    """A `24hrTicker` event from a ticker/24hr entry."""
    names = {
        "s": "symbol",
        "p": "priceChange",
        "P": "priceChangePercent",
        "w": "weightedAvgPrice",
        "x": "prevClosePrice",
        "c": "lastPrice",
        "Q": "lastQty",
        "b": "bidPrice",
        "B": "bidQty",
        "a": "askPrice",
        "A": "askQty",
        "o": "openPrice",
        "h": "highPrice",
        "l": "lowPrice",
        "v": "volume",
        "q": "quoteVolume",
        "O": "openTime",
        "C": "closeTime",
        "F": "firstId",
        "L": "lastId",
        "n": "count",
    }
    return orjson.dumps({"e": "24hrTicker", "E": now} | {key: entry[name] for key, name in names.items()}).decode()


def book_ticker_event(market: Market, top: BookTop) -> str:
    """A `bookTicker` event (it has no event type and no time, as on the exchange)."""
    return orjson.dumps(
        {
            "u": top.update_id,
            "s": market.symbol,
            "b": amount(top.bid, market.price_decimals),
            "B": amount(top.bid_lots, market.lot_decimals),
            "a": amount(top.ask, market.price_decimals),
            "A": amount(top.ask_lots, market.lot_decimals),
        }
    ).decode()
