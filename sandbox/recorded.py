"""Other venues on one loopback port: recorded replies where recordings exist, else generated ones in the venue's form.

Kraken: recorded asset pairs, candles and trades, the latter also over its websocket. OKX: recorded instruments.
Coinbase (both APIs): recorded products. Bybit: instruments written from its documentation. Candles of OKX, Bybit and
Coinbase come from generated markets. The venues' paths all differ, so one base URL serves them all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from sandbox import venue_replies
from sandbox.clock import ExchangeClock, http_date
from sandbox.faults import Fault
from sandbox.generated import GeneratedMarket
from sandbox.instruments import DEFAULT_INSTRUMENTS, make_instrument
from sandbox.listener import Listener
from sandbox.market import Market
from sandbox.misbehaviour import SPOILING, misbehave, spoil
from sandbox.state import ExchangeState, Refuse, RequestArrived
from sandbox.tape import Kept
from sandbox.venue_replies import Reply
from sandbox.venues.kraken_socket import KrakenSocket, is_visible
from sandbox.wire import amount

_KRAKEN_DEPTH = 720
_GENERATED = ("BTC/USD", "ETH/USD", "BTC/EUR")
Parameters = Mapping[str, str]


class Recordings:
    """The recorded replies under a data directory (kraken/, okx/, coinbase/); read on first use."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._kept: dict[str, Any] = {}

    def reply(self, name: str) -> Any:
        """A file with one JSON reply. Raises OSError if it is absent."""
        if name not in self._kept:
            self._kept[name] = orjson.loads((self._directory / name).read_bytes())
        return self._kept[name]

    def captured(self, name: str, url_end: str) -> Any:
        """The first reply of a capture file (lines `URL -> time: JSON`) whose URL has this ending.

        Raises KeyError if there is none, OSError if the file is absent.
        """
        key = f"{name} {url_end}"
        if key not in self._kept:
            for line in (self._directory / name).read_text().splitlines():
                url, arrow, rest = line.partition(" -> ")
                if arrow and url.endswith(url_end):
                    self._kept[key] = orjson.loads(rest.partition(": ")[2])
                    break
        return self._kept[key]


class RecordedVenues(Listener):
    """A server for tests: `async with RecordedVenues(data_directory) as venues: venues.url`.

    `now` is the venues' time in ms at the start. By default the time is fixed at half a minute into Kraken's last
    recorded candle, which is unfinished.
    """

    def __init__(
        self, directory: Path, *, host: str = "127.0.0.1", port: int = 0, now: int | None = None, seed: int = 1
    ) -> None:
        super().__init__(host, port)
        self._recordings = Recordings(directory)
        kept = Kept()
        instruments = (*DEFAULT_INSTRUMENTS, *map(make_instrument, _GENERATED))
        self.markets: dict[str, Market] = {
            f"{instrument.base}-{instrument.quote}": GeneratedMarket(instrument, seed, kept)
            for instrument in instruments
        }
        self.clock = ExchangeClock(self._recorded_time() if now is None else now, 0.0)
        self.state = ExchangeState(rate_limit=False, seed=seed)
        self._last_bodies: dict[str, bytes] = {}
        self._sockets: set[KrakenSocket] = set()
        self._routes: dict[str, Callable[[Parameters], Reply]] = {
            "/0/public/Time": self._kraken_time,
            "/0/public/Assets": self._kraken_assets,
            "/0/public/AssetPairs": self._kraken_pairs,
            "/0/public/OHLC": self._kraken_candles,
            "/0/public/Trades": self._kraken_trades,
            "/api/v5/public/time": lambda parameters: {"code": "0", "msg": "", "data": [{"ts": str(self.clock.now())}]},
            "/api/v5/public/instruments": self._okx_instruments,
            "/api/v5/market/candles": lambda parameters: self._okx_candles(parameters, history=False),
            "/api/v5/market/history-candles": lambda parameters: self._okx_candles(parameters, history=True),
            "/v5/market/time": self._bybit_time,
            "/v5/market/instruments-info": self._bybit_instruments,
            "/v5/market/kline": self._bybit_candles,
            "/v2/currencies": lambda parameters: {"data": [{"id": "USD", "name": "US Dollar", "min_size": "0.01"}]},
            "/v2/currencies/crypto": self._coinbase_currencies,
            "/v2/exchange-rates": lambda parameters: {"data": {"currency": "USD", "rates": {"USD": "1.0"}}},
            "/v2/time": lambda parameters: {"data": {"epoch": self.clock.now() // 1000}},
            "/api/v3/brokerage/market/products": self._coinbase_products,
            "/products": lambda parameters: list(self._products()),
            "/currencies": self._coinbase_exchange_currencies,
            "/time": lambda parameters: {"epoch": self.clock.now() / 1000},
        }

    @property
    def is_streaming(self) -> bool:
        """Whether a client is subscribed to trades."""
        return any(socket.is_subscribed for socket in self._sockets)

    def add_fault(self, fault: Fault) -> int:
        """Add a fault rule; returns its id."""
        return self.state.faults.add(fault)

    def routes(self) -> web.Application:
        """Kraken's websocket, and every venue's REST."""
        app = web.Application()
        app.router.add_get("/v2", self._serve_kraken_stream)
        app.router.add_get("/{path:.*}", self._serve)
        return app

    def farewells(self) -> Iterable[Awaitable[None]]:
        """Functions that close the open websockets."""
        return [socket.close() for socket in self._sockets]

    async def _serve_kraken_stream(self, request: web.Request) -> web.StreamResponse:
        socket = KrakenSocket("BTC/USDT", self._kraken_recorded_trades(), self.clock, self.state.faults)
        self._sockets.add(socket)
        try:
            return await socket.serve(request)
        finally:
            self._sockets.discard(socket)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        verdict = self.state.handle(RequestArrived(request.path, None, 1, time.monotonic()))
        fault = None if isinstance(verdict, Refuse) else verdict.fault
        headers = {"Date": http_date(self.clock.now())}
        if fault is not None and fault.kind not in SPOILING:
            return await misbehave(request, fault, headers, self._stopping)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        reply = self._answer(request.path, request.query)
        status = 200
        if reply is None:
            status, reply = 404, {"message": "NotFound"}
        body = orjson.dumps(reply)
        if fault is not None:
            body = spoil(body, fault, self._last_bodies.get(request.path))
        self._last_bodies[request.path] = body
        return web.Response(status=status, body=body, content_type="application/json", headers=headers)

    def _answer(self, path: str, parameters: Parameters) -> Reply | None:
        route = self._routes.get(path)
        if route is not None:
            return route(parameters)
        *_, collection, product, tail = ("", "", *path.split("/"))
        market = self.markets.get(product)
        if collection != "products" or tail != "candles" or market is None:
            return None
        if path.startswith("/api/v3/brokerage/"):
            return venue_replies.coinbase_candles(market, parameters, self.clock.now())
        return venue_replies.coinbase_exchange_candles(market, parameters, self.clock.now())

    # Kraken

    def _recorded_time(self) -> int:
        rows = self._recordings.reply("kraken/xbtusdt_ohlc_1m_rest.json")["result"]["XBTUSDT"]
        return (int(rows[-1][0]) + 30) * 1000

    def _kraken_time(self, parameters: Parameters) -> Reply:
        return {"error": [], "result": {"unixtime": self.clock.now() // 1000, "rfc1123": http_date(self.clock.now())}}

    def _kraken_assets(self, parameters: Parameters) -> Reply:
        pairs = self._recordings.captured("kraken/assetpairs_capture_2021.txt", "/AssetPairs")["result"].values()
        names = {pair["base"] for pair in pairs} | {pair["quote"] for pair in pairs}
        assets = {
            name: {
                "aclass": "currency",
                "altname": name[1:] if len(name) == 4 and name[0] in "XZ" else name,
                "decimals": 10,
                "display_decimals": 5,
                "status": "enabled",
            }
            for name in sorted(names)
        }
        return {"error": [], "result": assets}

    def _kraken_pairs(self, parameters: Parameters) -> Reply:
        reply: Reply = self._recordings.captured("kraken/assetpairs_capture_2021.txt", "/AssetPairs")
        return reply

    def _kraken_candles(self, parameters: Parameters) -> Reply:
        """As on the venue: at most the newest 720, however old `since` is."""
        if parameters.get("pair") != "XBTUSDT":
            return {"error": ["EQuery:Unknown asset pair"]}
        if parameters.get("interval", "1") != "1":
            return {"error": ["EGeneral:Invalid arguments"]}
        recorded = self._recordings.reply("kraken/xbtusdt_ohlc_1m_rest.json")["result"]
        since = int(parameters.get("since", 0))
        newest = recorded["XBTUSDT"][-_KRAKEN_DEPTH - 1 :]
        rows = [row for row in newest if row[0] > since and row[0] * 1000 <= self.clock.now()]
        return {"error": [], "result": {"XBTUSDT": rows, "last": recorded["last"]}}

    def _kraken_trades(self, parameters: Parameters) -> Reply:
        if parameters.get("pair") != "XBTUSDT":
            return {"error": ["EQuery:Unknown asset pair"]}
        recorded = self._kraken_recorded_trades()
        text = parameters.get("since", "0")
        since = int(text) if len(text) > 12 else int(float(text) * 1_000_000_000)
        count = min(int(parameters.get("count", 1000)), 1000)
        now = self.clock.now()
        rows = [row for row in recorded if round(row[2] * 1_000_000_000) > since and is_visible(row, now)][:count]
        last = round(rows[-1][2] * 1_000_000_000) if rows else since
        return {"error": [], "result": {"XBTUSDT": rows, "last": str(last)}}

    def _kraken_recorded_trades(self) -> list[list[Any]]:
        rows: list[list[Any]] = self._recordings.reply("kraken/xbtusdt_trades_rest.json")["result"]["XBTUSDT"]
        return rows

    # OKX

    def _okx_instruments(self, parameters: Parameters) -> Reply:
        family = f"&uly={parameters['uly']}" if "uly" in parameters else ""
        try:
            reply: Reply = self._recordings.captured(
                "okx/instruments_capture_2022.txt", f"instType={parameters.get('instType', '')}{family}"
            )
        except KeyError:
            return {"code": "0", "msg": "", "data": []}
        return reply

    def _okx_candles(self, parameters: Parameters, *, history: bool) -> Reply:
        market = self.markets.get(parameters.get("instId", ""))
        return venue_replies.okx_candles(market, parameters, self.clock.now(), history=history)

    # Bybit

    def _bybit_time(self, parameters: Parameters) -> Reply:
        now = self.clock.now()
        return venue_replies.bybit(now, {"timeSecond": str(now // 1000), "timeNano": str(now * 1_000_000)})

    def _bybit_instruments(self, parameters: Parameters) -> Reply:
        category = parameters.get("category", "")
        listed = [_bybit_instrument(market) for market in self.markets.values()] if category == "spot" else []
        return venue_replies.bybit(self.clock.now(), {"category": category, "list": listed, "nextPageCursor": ""})

    def _bybit_candles(self, parameters: Parameters) -> Reply:
        symbols = {market.symbol: market for market in self.markets.values()}
        return venue_replies.bybit_candles(symbols.get(parameters.get("symbol", "")), parameters, self.clock.now())

    # Coinbase

    def _products(self) -> list[dict[str, Any]]:
        products: list[dict[str, Any]] = self._recordings.captured("coinbase/products_capture_2021.txt", "/products")
        return products

    def _coinbase_products(self, parameters: Parameters) -> Reply:
        if parameters.get("product_type", "SPOT") != "SPOT":
            return {"products": [], "num_products": 0}
        products = [_advanced_product(product) for product in self._products()]
        return {"products": products, "num_products": len(products)}

    def _coinbase_currencies(self, parameters: Parameters) -> Reply:
        names = sorted({product["base_currency"] for product in self._products()})
        return {"data": [{"asset_id": f"asset-{name}", "code": name, "name": name, "type": "crypto"} for name in names]}

    def _coinbase_exchange_currencies(self, parameters: Parameters) -> Reply:
        products = self._products()
        names = {product["base_currency"] for product in products} | {product["quote_currency"] for product in products}
        return [
            {"id": name, "name": name, "min_size": "0.00000001", "status": "online", "max_precision": "0.00000001"}
            for name in sorted(names)
        ]


def _bybit_instrument(market: Market) -> dict[str, Any]:
    step = amount(1, market.lot_decimals)
    return {
        "symbol": market.symbol,
        "baseCoin": market.base,
        "quoteCoin": market.quote,
        "innovation": "0",
        "status": "Trading" if market.status == "TRADING" else "Closed",
        "marginTrading": "none",
        "lotSizeFilter": {
            "basePrecision": step,
            "quotePrecision": "0.00000001",
            "minOrderQty": step,
            "maxOrderQty": "100000000",
            "minOrderAmt": "1",
            "maxOrderAmt": "1000000",
        },
        "priceFilter": {"tickSize": amount(1, market.price_decimals)},
    }


def _advanced_product(product: dict[str, Any]) -> dict[str, Any]:
    """A recorded product of the Exchange API in the form of the Advanced Trade API."""
    return {
        "product_id": product["id"],
        "price": "",
        "base_increment": product["base_increment"],
        "quote_increment": product["quote_increment"],
        "price_increment": product["quote_increment"],
        "base_min_size": product["base_min_size"],
        "base_max_size": product["base_max_size"],
        "quote_min_size": product["min_market_funds"],
        "quote_max_size": product["max_market_funds"],
        "base_name": product["base_currency"],
        "quote_name": product["quote_currency"],
        "status": product["status"],
        "is_disabled": False,
        "trading_disabled": product["trading_disabled"],
        "product_type": "SPOT",
        "base_currency_id": product["base_currency"],
        "quote_currency_id": product["quote_currency"],
    }
