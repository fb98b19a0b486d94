"""Stock ccxt clients whose exchange is an aiohttp server in this process, serving what a test gives it."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from ingestor.candles import Candles, joined
from ingestor.exchange import stock as exchange
from ingestor.exchange.budget import Budget
from ingestor.exchange.client import VenueClient
from ingestor.exchange.pages import PageSource, source_of
from ingestor.history.fetch import HistoryFetch, HistoryJob, HistorySummary
from ingestor.history.trade_candles import older_candles_of
from ingestor.progress import Progress
from ingestor.threads import BusThreads
from ingestor.venues import venue_of
from tests.fresh_bus import FreshBus

Query = Mapping[str, str]
Answer = Callable[[Query], Any]


class HastyProgress(Progress):
    """Sleeps are recorded and skipped, so that a test of retries takes no time."""

    def __init__(self, *, is_background: bool = False) -> None:
        super().__init__(is_background=is_background)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@dataclass
class Loopback:
    """`answers` by path; `faults` are served first, one per request of their path (`""`: any path)."""

    answers: dict[str, Answer] = field(default_factory=dict)
    faults: deque[tuple[str, Callable[[], web.StreamResponse]]] = field(default_factory=deque)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    url: str = ""
    hangs: bool = False
    is_over: asyncio.Event = field(default_factory=asyncio.Event)

    def asked(self, path: str) -> list[dict[str, str]]:
        return [query for asked, query in self.requests if asked == path]

    def fail(self, path: str, *, status: int = 200, body: str | bytes = "", times: int = 1, **headers: str) -> None:
        """Answer the next `times` requests of `path` with these bytes."""
        content_type = headers.pop("content_type", "application/json")
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        payload = body.encode() if isinstance(body, str) else body
        for _ in range(times):
            self.faults.append(
                (path, lambda: web.Response(status=status, body=payload, content_type=content_type, headers=named))
            )

    async def handle(self, request: web.Request) -> web.StreamResponse:
        query = dict(request.query)
        self.requests.append((request.path, query))
        if self.hangs:
            await self.is_over.wait()
        if self.faults and self.faults[0][0] in ("", request.path):
            return self.faults.popleft()[1]()
        answer = self.answers.get(request.path)
        if answer is None:
            return web.Response(status=404, text="{}", content_type="application/json")
        found = answer(query)
        if isinstance(found, web.StreamResponse):
            return found
        return web.Response(body=orjson.dumps(found), content_type="application/json")


@asynccontextmanager
async def loopback() -> AsyncIterator[Loopback]:
    server = Loopback()
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = runner.addresses[0][0] and f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        server.is_over.set()
        await runner.cleanup()


@asynccontextmanager
async def client_of(
    venue: str,
    url: str,
    *,
    patience: float = 60.0,
    request_timeout: float = 5.0,
    bus: FreshBus | None = None,
    is_limited: bool = False,
    on_blocked: Callable[[float], None] = lambda until: None,
) -> AsyncIterator[VenueClient]:
    description = venue_of(venue)
    stock = exchange.build(description, url=url, timeout_seconds=request_timeout)
    threads = BusThreads(2)
    budget = Budget(
        bus or FreshBus(),
        threads,
        venue=venue,
        limits=description.limits,
        exchange=stock,
        egress="test",
        share=0.7,
        is_limited=is_limited,
        patience=patience,
        on_blocked=on_blocked,
    )
    try:
        yield VenueClient(description, stock, budget, request_timeout=request_timeout, patience=patience)
    finally:
        await stock.close()
        threads.close()


async def fetch(
    client: VenueClient, job: HistoryJob, progress: Progress | None = None, *, source: PageSource | None = None
) -> tuple[HistorySummary, Candles | None, list[str]]:
    """Run one history job; returns its candles, and the source of each batch."""
    parts: list[Candles] = []
    sources: list[str] = []

    async def emit(candles: Candles, source: str) -> None:
        parts.append(candles)
        sources.append(source)

    run = HistoryFetch(
        client,
        source or source_of(client),
        job,
        progress=progress or HastyProgress(),
        emit=emit,
        older=older_candles_of(client),
    )
    summary = await run.run()
    return summary, joined(parts) if parts else None, sources


# ---- replies in each exchange's form; rows are (open time in s, open, high, low, close, volume) as text

Row = tuple[int, str, str, str, str, str]


def minute_rows(first: int, count: int, step: int = 60) -> list[Row]:
    """Candles that differ from each other, from `first` (s) on."""
    return [
        (first + step * n, f"{100 + n}.10", f"{101 + n}.35", f"{99 + n}.05", f"{100 + n}.20", f"{n % 7}.12345678")
        for n in range(count)
    ]


def binance_info(*symbols: str) -> dict[str, Any]:
    return {
        "timezone": "UTC",
        "serverTime": int(time.time() * 1000),
        "rateLimits": [],
        "symbols": [
            {
                "symbol": symbol.replace("/", ""),
                "status": "TRADING",
                "baseAsset": symbol.split("/")[0],
                "quoteAsset": symbol.split("/")[1],
                "baseAssetPrecision": 8,
                "quotePrecision": 8,
                "isSpotTradingAllowed": True,
                "permissions": ["SPOT"],
                "filters": [
                    {"filterType": "PRICE_FILTER", "tickSize": "0.01", "minPrice": "0.01", "maxPrice": "1000000"},
                    {"filterType": "LOT_SIZE", "stepSize": "0.00001", "minQty": "0.00001", "maxQty": "9000"},
                ],
            }
            for symbol in symbols
        ],
    }


def binance_kline(row: Row, step: int = 60) -> list[Any]:
    time_s, open_, high, low, close, volume = row
    open_ms = time_s * 1000
    return [open_ms, open_, high, low, close, volume, open_ms + step * 1000 - 1, "12.5", 7, "1", "1", "0"]


def serve_binance(
    server: Loopback, klines: list[list[Any]], *, now: float, symbols: tuple[str, ...] = ("BTC/USDT",), page: int = 1000
) -> None:
    """`now`: the exchange's clock (s); `klines` are whole rows in its form."""

    def answer(query: Query) -> Any:
        start, end = int(query["startTime"]), int(query["endTime"])
        found = [row for row in klines if start <= row[0] <= end]
        return found[: min(int(query["limit"]), page)]

    server.answers["/api/v3/exchangeInfo"] = lambda query: binance_info(*symbols)
    server.answers["/api/v3/time"] = lambda query: {"serverTime": int(now * 1000)}
    server.answers["/api/v3/klines"] = answer


def serve_kraken(server: Loopback, ohlc: list[list[Any]], *, now: float, pair: str = "XBTUSDT", step: int = 60) -> None:
    """The newest 720 of `ohlc` after `since` and the unfinished row after them, as the exchange does it."""

    def answer(query: Query) -> Any:
        rows = [row for row in ohlc[-721:] if row[0] > int(query["since"])]
        finished = [row[0] for row in ohlc if row[0] + step <= now]
        return {"error": [], "result": {pair: rows, "last": finished[-1] if finished else 0}}

    server.answers["/0/public/AssetPairs"] = lambda query: {
        "error": [],
        "result": {
            pair: {
                "altname": pair,
                "wsname": "XBT/USDT",
                "base": "XXBT",
                "quote": "USDT",
                "pair_decimals": 1,
                "lot_decimals": 8,
                "fees": [],
                "fees_maker": [],
                "leverage_buy": [],
                "leverage_sell": [],
                "ordermin": "0.0001",
                "costmin": "0.5",
                "status": "online",
            }
        },
    }
    server.answers["/0/public/Time"] = lambda query: {"error": [], "result": {"unixtime": int(now)}}
    server.answers["/0/public/OHLC"] = answer


def serve_okx(server: Loopback, rows: list[Row], *, now: float, page: int = 300, step: int = 60) -> None:
    def answer(query: Query) -> Any:
        after, before = int(query["after"]), int(query["before"])
        found = [row for row in rows if before < row[0] * 1000 < after]
        newest = sorted(found, reverse=True)[: min(int(query["limit"]), page)]
        data = [
            [str(t * 1000), *prices, volume, volume, "55.5", "1" if t + step <= now else "0"]
            for t, *prices, volume in newest
        ]
        return {"code": "0", "msg": "", "data": data}

    instrument = {
        "instType": "SPOT",
        "instId": "BTC-USDT",
        "baseCcy": "BTC",
        "quoteCcy": "USDT",
        "tickSz": "0.1",
        "lotSz": "0.00001",
        "minSz": "0.00001",
        "state": "live",
        "listTime": "1500000000000",
        "ctVal": "",
        "ctMult": "",
        "expTime": "",
        "settleCcy": "",
        "uly": "",
        "optType": "",
        "stk": "",
        "alias": "",
        "ctType": "",
        "lever": "",
    }
    server.answers["/api/v5/public/instruments"] = lambda query: {"code": "0", "msg": "", "data": [instrument]}
    server.answers["/api/v5/public/time"] = lambda query: {
        "code": "0",
        "msg": "",
        "data": [{"ts": str(int(now * 1000))}],
    }
    server.answers["/api/v5/market/candles"] = answer
    server.answers["/api/v5/market/history-candles"] = answer


def serve_bybit(server: Loopback, rows: list[Row], *, now: float, page: int = 1000) -> None:
    def reply(result: Any) -> Any:
        return {"retCode": 0, "retMsg": "OK", "result": result, "retExtInfo": {}, "time": int(now * 1000)}

    def answer(query: Query) -> Any:
        found = [row for row in rows if int(query["start"]) <= row[0] * 1000 <= int(query["end"])]
        newest = sorted(found, reverse=True)[: min(int(query["limit"]), page)]
        found_rows = [[str(t * 1000), *prices, volume, "77.25"] for t, *prices, volume in newest]
        return reply({"category": "spot", "symbol": "BTCUSDT", "list": found_rows})

    instrument = {
        "symbol": "BTCUSDT",
        "baseCoin": "BTC",
        "quoteCoin": "USDT",
        "status": "Trading",
        "lotSizeFilter": {"basePrecision": "0.000001", "quotePrecision": "0.01", "minOrderQty": "0.00001"},
        "priceFilter": {"tickSize": "0.01"},
    }
    server.answers["/v5/market/instruments-info"] = lambda query: reply(
        {"category": "spot", "list": [instrument], "nextPageCursor": ""}
    )
    server.answers["/v5/market/time"] = lambda query: reply({"timeSecond": str(int(now))})
    server.answers["/v5/market/kline"] = answer


def serve_coinbase(server: Loopback, rows: list[Row], *, now: float, page: int = 300) -> None:
    def answer(query: Query) -> Any:
        found = [row for row in rows if int(query["start"]) <= row[0] <= int(query["end"])]
        newest = sorted(found, reverse=True)[:page]
        names = ("open", "high", "low", "close", "volume")
        return {"candles": [{"start": str(t), **dict(zip(names, values, strict=True))} for t, *values in newest]}

    product = {
        "product_id": "BTC-USDT",
        "base_currency_id": "BTC",
        "quote_currency_id": "USDT",
        "base_increment": "0.00000001",
        "quote_increment": "0.01",
        "price_increment": "0.01",
        "base_min_size": "0.00000001",
        "base_max_size": "3400",
        "quote_min_size": "1",
        "quote_max_size": "150000000",
        "status": "online",
        "trading_disabled": False,
        "product_type": "SPOT",
    }
    root = "/api/v3/brokerage/market/products"
    server.answers[root] = lambda query: {
        "products": [product] if query.get("product_type", "SPOT") == "SPOT" else [],
        "num_products": 1,
    }
    server.answers["/v2/time"] = lambda query: {"data": {"epoch": int(now), "iso": ""}}
    server.answers[f"{root}/BTC-USDT/candles"] = answer


def serve_coinbaseexchange(server: Loopback, rows: list[Row], *, now: float, page: int = 300) -> None:
    def seconds(text: str) -> float:
        from datetime import datetime

        return datetime.fromisoformat(text).timestamp()

    def answer(query: Query) -> Any:
        start, end = seconds(query["start"]), seconds(query["end"])
        if (end - start) / 60 > 300:
            return web.Response(
                status=400, text='{"message": "granularity too small"}', content_type="application/json"
            )
        found = [row for row in rows if start <= row[0] <= end]
        return [
            [t, float(low), float(high), float(open_), float(close), float(volume)]
            for t, open_, high, low, close, volume in sorted(found, reverse=True)[:page]
        ]

    product = {
        "id": "BTC-USDT",
        "base_currency": "BTC",
        "quote_currency": "USDT",
        "base_increment": "0.00000001",
        "quote_increment": "0.01",
        "min_market_funds": "1",
        "status": "online",
    }
    server.answers["/products"] = lambda query: [product]
    server.answers["/time"] = lambda query: {"iso": "", "epoch": now}
    server.answers["/products/BTC-USDT/candles"] = answer
