"""The REST API: checks parameters and answers like Binance's spot API. Pure: text in, bytes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson

from sandbox.markets.instruments import utc_ms
from sandbox.markets.intervals import HOUR, INTERVALS
from sandbox.markets.market import Market
from sandbox.markets.ticker import BookTop, DayStatistics, book, book_top, day_statistics
from sandbox.markets.wire import amount
from sandbox.venues import binance_messages

Parameters = Mapping[str, str]
#: What requests may weigh together in a minute.
WEIGHT_LIMIT = 6000
_MAX_TIME = utc_ms("9000-01-01")  # the calendar ends in the year 9999
_LONG = frozenset({"4h", "6h", "8h", "12h", "1d", "3d", "1w", "1M"})
_DEPTHS = ((100, 5), (500, 25), (1000, 50), (5000, 250))


class ApiError(Exception):
    """An error reply: HTTP status, Binance's code, message."""

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message

    def body(self) -> bytes:
        """The JSON body of the reply."""
        return orjson.dumps({"code": self.code, "msg": self.message})


@dataclass(frozen=True, slots=True)
class Request:
    """A GET request without its transport."""

    parameters: Parameters
    api_key: str | None
    now: int


class RestApi:
    """Answers requests on the given markets (a mapping that may change while running)."""

    def __init__(self, markets: Mapping[str, Market]) -> None:
        self._markets = markets
        self.routes: dict[str, Callable[[Request], bytes]] = {
            "/api/v3/ping": lambda request: b"{}",
            "/api/v3/time": lambda request: orjson.dumps({"serverTime": request.now}),
            "/api/v3/exchangeInfo": self._exchange_info,
            "/api/v3/klines": self._klines,
            "/api/v3/aggTrades": self._agg_trades,
            "/api/v3/trades": self._trades,
            "/api/v3/historicalTrades": self._historical_trades,
            "/api/v3/ticker/24hr": self._ticker_24hr,
            "/api/v3/ticker/price": self._ticker_price,
            "/api/v3/ticker/bookTicker": self._ticker_book,
            "/api/v3/depth": self._depth,
            # No futures are listed, but a client that asks for all market types gets an answer.
            "/fapi/v1/exchangeInfo": lambda request: _no_symbols(request.now),
            "/dapi/v1/exchangeInfo": lambda request: _no_symbols(request.now),
        }

    def _exchange_info(self, request: Request) -> bytes:
        chosen = self._chosen(request.parameters)
        return orjson.dumps(
            {
                "timezone": "UTC",
                "serverTime": request.now,
                "rateLimits": [
                    {
                        "rateLimitType": "REQUEST_WEIGHT",
                        "interval": "MINUTE",
                        "intervalNum": 1,
                        "limit": WEIGHT_LIMIT,
                    },
                    {"rateLimitType": "ORDERS", "interval": "SECOND", "intervalNum": 10, "limit": 100},
                    {"rateLimitType": "ORDERS", "interval": "DAY", "intervalNum": 1, "limit": 200000},
                    {"rateLimitType": "RAW_REQUESTS", "interval": "MINUTE", "intervalNum": 5, "limit": 61000},
                ],
                "exchangeFilters": [],
                "symbols": [binance_messages.symbol_information(market) for market in chosen],
            }
        )

    def _klines(self, request: Request) -> bytes:
        parameters = request.parameters
        market = self._market(parameters)
        name = _required(parameters, "interval")
        interval = INTERVALS.get(name)
        if interval is None:
            raise ApiError(400, -1120, "Invalid interval.")
        start, end = _integer(parameters, "startTime"), _integer(parameters, "endTime")
        if start is not None and end is not None and start > end:
            return b"[]"
        return market.kline_page(interval, start, end, limit=_limit(parameters, 500, 1000), now=request.now)

    def _agg_trades(self, request: Request) -> bytes:
        parameters = request.parameters
        market = self._market(parameters)
        limit = _limit(parameters, 500, 1000)
        from_id = _integer(parameters, "fromId")
        start, end = _integer(parameters, "startTime"), _integer(parameters, "endTime")
        if from_id is not None:
            if start is not None or end is not None:
                raise ApiError(400, -1128, "Combination of optional parameters invalid.")
            return binance_messages.agg_trade_page(market, market.orders(from_id, limit, request.now))
        if start is not None and end is not None and end - start > HOUR:
            raise ApiError(400, -1127, "More than 1 hours between startTime and endTime.")
        upto = request.now if end is None else min(end, request.now)
        if start is not None:
            return binance_messages.agg_trade_page(market, market.orders(market.order_at(start), limit, upto))
        newest = market.order_at(upto + 1)
        return binance_messages.agg_trade_page(market, market.orders(max(1, newest - limit), limit, upto))

    def _trades(self, request: Request) -> bytes:
        market = self._market(request.parameters)
        limit = _limit(request.parameters, 500, 1000)
        newest = market.fill_at(request.now + 1)
        return binance_messages.trade_page(market, market.fills(max(1, newest - limit), limit, request.now))

    def _historical_trades(self, request: Request) -> bytes:
        if not request.api_key:
            raise ApiError(401, -2014, "API-key format invalid.")
        market = self._market(request.parameters)
        limit = _limit(request.parameters, 500, 1000)
        from_id = _integer(request.parameters, "fromId")
        if from_id is None:
            from_id = market.fill_at(request.now + 1) - limit
        return binance_messages.trade_page(market, market.fills(max(1, from_id), limit, request.now))

    def _ticker_24hr(self, request: Request) -> bytes:
        mini = request.parameters.get("type") == "MINI"

        def entry(market: Market) -> dict[str, Any]:
            return day_ticker(market, request.now, mini=mini)

        return self._for_each(request.parameters, entry)

    def _ticker_price(self, request: Request) -> bytes:
        def entry(market: Market) -> dict[str, Any]:
            day = day_statistics(market, request.now)
            return {"symbol": market.symbol, "price": amount(day.last if day else 0, market.price_decimals)}

        return self._for_each(request.parameters, entry)

    def _ticker_book(self, request: Request) -> bytes:
        def entry(market: Market) -> dict[str, Any]:
            top = _book_of(market, request.now)
            return {
                "symbol": market.symbol,
                "bidPrice": amount(top.bid, market.price_decimals),
                "bidQty": amount(top.bid_lots, market.lot_decimals),
                "askPrice": amount(top.ask, market.price_decimals),
                "askQty": amount(top.ask_lots, market.lot_decimals),
            }

        return self._for_each(request.parameters, entry)

    def _depth(self, request: Request) -> bytes:
        market = self._market(request.parameters)
        found = book(market, request.now, _limit(request.parameters, 100, 5000))
        if found is None or market.status != "TRADING":
            return orjson.dumps({"lastUpdateId": 0, "bids": [], "asks": []})
        top, bids, asks = found
        return orjson.dumps({"lastUpdateId": top.update_id, "bids": bids, "asks": asks})

    def _market(self, parameters: Parameters) -> Market:
        symbol = _required(parameters, "symbol")
        if not symbol.replace("_", "").replace("-", "").isalnum() or len(symbol) > 20:
            raise ApiError(
                400, -1100, "Illegal characters found in parameter 'symbol'; legal range is '^[A-Z0-9-_.]{1,20}$'."
            )
        found = self._markets.get(symbol)
        if found is None:
            raise ApiError(400, -1121, "Invalid symbol.")
        return found

    def _chosen(self, parameters: Parameters) -> list[Market]:
        """The markets that symbol or symbols name; all of them if neither is sent."""
        if "symbol" in parameters:
            return [self._market(parameters)]
        if "symbols" not in parameters:
            return list(self._markets.values())
        try:
            symbols = orjson.loads(parameters["symbols"])
        except orjson.JSONDecodeError:
            symbols = None
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ApiError(400, -1100, "Illegal characters found in parameter 'symbols'; a JSON list of names is due.")
        return [self._market({"symbol": symbol}) for symbol in symbols]

    def _for_each(self, parameters: Parameters, entry: Callable[[Market], dict[str, Any]]) -> bytes:
        entries = [entry(market) for market in self._chosen(parameters)]
        return orjson.dumps(entries[0] if "symbol" in parameters else entries)


def weight(path: str, parameters: Parameters) -> int:
    """The weight that the exchange counts for a request."""
    single = "symbol" in parameters
    if path == "/api/v3/depth":
        asked = int(parameters["limit"]) if parameters.get("limit", "").isdecimal() else 100
        return next((cost for levels, cost in _DEPTHS if asked <= levels), 250)
    if path == "/api/v3/ticker/24hr":
        return 2 if single else 80
    if path in ("/api/v3/ticker/price", "/api/v3/ticker/bookTicker"):
        return 2 if single else 4
    costs = {"klines": 2, "aggTrades": 4, "trades": 25, "historicalTrades": 25, "exchangeInfo": 20}
    return costs.get(path.rpartition("/")[2], 1)


def is_heavy(path: str, parameters: Parameters) -> bool:
    """Whether the answer may take long enough to delay other requests: pages over months of minutes."""
    return path == "/api/v3/klines" and parameters.get("interval") in _LONG


def day_ticker(market: Market, now: int, *, mini: bool = False) -> dict[str, Any]:
    """A ticker/24hr entry."""
    day = day_statistics(market, now) or DayStatistics(
        open_time=now,
        close_time=now,
        open=0,
        high=0,
        low=0,
        last=0,
        last_lots=0,
        volume=0,
        quote=0,
        count=0,
        first_id=-1,
        last_id=-1,
    )
    top = _book_of(market, now)
    prices, lots = market.price_decimals, market.lot_decimals
    change = day.last - day.open
    average = Decimal(day.quote) / day.volume if day.volume else Decimal(day.last)
    entry: dict[str, Any] = {"symbol": market.symbol}
    if not mini:
        percent = Decimal(change) * 100 / day.open if day.open else Decimal(0)
        entry |= {
            "priceChange": amount(change, prices),
            "priceChangePercent": f"{percent:.3f}",
            "weightedAvgPrice": f"{average.scaleb(-prices):.8f}",
            "prevClosePrice": amount(day.open, prices),
            "lastPrice": amount(day.last, prices),
            "lastQty": amount(day.last_lots, lots),
            "bidPrice": amount(top.bid, prices),
            "bidQty": amount(top.bid_lots, lots),
            "askPrice": amount(top.ask, prices),
            "askQty": amount(top.ask_lots, lots),
        }
    entry |= {
        "openPrice": amount(day.open, prices),
        "highPrice": amount(day.high, prices),
        "lowPrice": amount(day.low, prices),
        "lastPrice": amount(day.last, prices),
        "volume": amount(day.volume, lots),
        "quoteVolume": amount(day.quote, prices + lots),
        "openTime": day.open_time,
        "closeTime": day.close_time,
        "firstId": day.first_id,
        "lastId": day.last_id,
        "count": day.count,
    }
    return entry


def _book_of(market: Market, now: int) -> BookTop:
    """The best prices; all zero for a pair that is not trading."""
    top = book_top(market, now) if market.status == "TRADING" else None
    return top or BookTop(0, 0, 0, 0, 0)


def _required(parameters: Parameters, name: str) -> str:
    value = parameters.get(name, "")
    if not value:
        raise ApiError(400, -1102, f"Mandatory parameter '{name}' was not sent, was empty/null, or malformed.")
    return value


def _integer(parameters: Parameters, name: str) -> int | None:
    text = parameters.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 20:
        raise ApiError(400, -1100, f"Illegal characters found in parameter '{name}'; legal range is '^[0-9]{{1,20}}$'.")
    return min(int(text), _MAX_TIME)


def _limit(parameters: Parameters, default: int, largest: int) -> int:
    limit = _integer(parameters, "limit")
    if limit == 0:
        raise ApiError(400, -1130, "Data sent for parameter 'limit' is not valid.")
    return min(default if limit is None else limit, largest)


def _no_symbols(now: int) -> bytes:
    return orjson.dumps({"timezone": "UTC", "serverTime": now, "rateLimits": [], "exchangeFilters": [], "symbols": []})
