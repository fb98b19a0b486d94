"""OKX and Bybit over their sockets: fills that the socket merges and REST does not, long ids, pages that lag."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from decimal import Decimal
from typing import Any

import orjson
import pytest
from aiohttp import WSMsgType, web

from ingestor.trade import ORDER, SIZE, TIME
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import ingestor, marks, stopped, ticks, until

FIRST_ID = {"OKX": 338476300, "BYBIT": 2290000000000000300}
_INSTRUMENTS: dict[str, dict[str, Any]] = {
    "OKX": {"instType": "SPOT", "instId": "BTC-USDT", "baseCcy": "BTC", "quoteCcy": "USDT", "tickSz": "0.1",
            "lotSz": "0.0001", "minSz": "0.0001", "state": "live", "listTime": "1500000000000"},
    "BYBIT": {"symbol": "BTCUSDT", "baseCoin": "BTC", "quoteCoin": "USDT", "status": "Trading",
              "lotSizeFilter": {"basePrecision": "0.0001", "minOrderQty": "0.0001"},
              "priceFilter": {"tickSize": "0.1"}},
}  # fmt: skip


class Fill:
    def __init__(self, number: int, time_ms: int, lots: int) -> None:
        self.number, self.time_ms, self.size = number, time_ms, Decimal(lots).scaleb(-4)


class Venue:
    """Orders with their fills, shown fill by fill by REST; `lag` newest fills are not shown there yet."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.fills: list[Fill] = []
        self.lag = 0
        self.pages = 0
        self.is_empty = False
        self.sockets: list[web.WebSocketResponse] = []

    def order(self, *lots: int, time_ms: int | None = None) -> list[Fill]:
        stamp = int(time.time() * 1_000) if time_ms is None else time_ms
        first = FIRST_ID[self.name] + len(self.fills)
        made = [Fill(first + place, stamp, size) for place, size in enumerate(lots)]
        self.fills += made
        return made

    async def send(self, fills: list[Fill]) -> None:
        """One order's fills at one price: OKX sends their sum under the last id."""
        if self.name == "OKX":
            total = sum((fill.size for fill in fills), Decimal())
            row = {"instId": "BTC-USDT", "tradeId": str(fills[-1].number), "px": "100.5", "sz": str(total),
                   "side": "buy", "ts": str(fills[0].time_ms), "count": str(len(fills))}  # fmt: skip
            message: dict[str, Any] = {"arg": {"channel": "trades", "instId": "BTC-USDT"}, "data": [row]}
        else:
            rows = [
                {"T": fill.time_ms, "s": "BTCUSDT", "S": "Buy", "v": str(fill.size), "p": "100.5",
                 "i": str(fill.number)} for fill in fills
            ]  # fmt: skip
            message = {"topic": "publicTrade.BTCUSDT", "type": "snapshot", "ts": fills[0].time_ms, "data": rows}
        await self.sockets[-1].send_str(orjson.dumps(message).decode())

    async def cut(self) -> None:
        await self.sockets.pop().close(code=1001)

    # ---- what the exchange answers

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Upgrade", "").lower() == "websocket":
            return await self._stream(request)
        return web.json_response(self._reply(request.path))

    def _reply(self, path: str) -> Any:
        now = str(int(time.time() * 1_000))
        if self.name == "OKX":
            data: dict[str, Callable[[], Any]] = {
                "/api/v5/public/instruments": lambda: [_INSTRUMENTS["OKX"]],
                "/api/v5/public/time": lambda: [{"ts": now}],
                "/api/v5/market/trades": self._page,
            }
            return {"code": "0", "msg": "", "data": data.get(path, list)()}
        result: dict[str, Callable[[], Any]] = {
            "/v5/market/instruments-info": lambda: {"category": "spot", "list": [_INSTRUMENTS["BYBIT"]]},
            "/v5/market/time": lambda: {"timeSecond": now[:-3], "timeNano": now + "000000"},
            "/v5/market/recent-trade": lambda: {"category": "spot", "list": self._page()},
        }
        found = result.get(path, lambda: {"list": []})()
        return {"retCode": 0, "retMsg": "OK", "result": found, "time": int(now)}

    def _page(self) -> list[dict[str, str]]:
        self.pages += 1
        shown = self.fills[: len(self.fills) - self.lag]
        if self.is_empty:
            shown = []
        if self.name == "OKX":
            return [
                {"instId": "BTC-USDT", "tradeId": str(fill.number), "px": "100.5", "sz": str(fill.size), "side": "buy",
                 "ts": str(fill.time_ms)} for fill in reversed(shown)
            ]  # fmt: skip
        return [
            {"execId": str(fill.number), "symbol": "BTCUSDT", "price": "100.5", "size": str(fill.size), "side": "Buy",
             "time": str(fill.time_ms)} for fill in reversed(shown[-60:])
        ]  # fmt: skip

    async def _stream(self, request: web.Request) -> web.WebSocketResponse:
        connection = web.WebSocketResponse()
        await connection.prepare(request)
        async for message in connection:
            if message.type != WSMsgType.TEXT or message.data == "ping":
                continue
            asked = orjson.loads(message.data)
            if asked.get("op") == "subscribe":
                answer = {"event": "subscribe", "arg": asked["args"][0]} if self.name == "OKX" else {
                    "success": True, "ret_msg": "", "op": "subscribe", "req_id": asked.get("req_id")}  # fmt: skip
                await connection.send_str(orjson.dumps(answer).decode())
                self.sockets.append(connection)
        return connection


@asynccontextmanager
async def served(venue: Venue) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", venue.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@pytest.fixture(params=["OKX", "BYBIT"])
def venue(request: pytest.FixtureRequest) -> Venue:
    made = Venue(request.param)
    # Earlier trades, so that pages reach back far enough.
    for second in range(120, 60, -1):
        made.order(1, time_ms=int(time.time() * 1_000) - second * 1_000)
    return made


def total(bus: FreshBus, ticker: str) -> Decimal:
    return sum((Decimal(repr(one[SIZE])) for one in ticks(bus, ticker)), Decimal())


def expected(bus: FreshBus, ticker: str, venue: Venue) -> Decimal:
    """The bars of all fills since the first trade on the bus."""
    first = min(one[ORDER] for one in ticks(bus, ticker))
    return sum((fill.size for fill in venue.fills if fill.number >= first), Decimal())


@asynccontextmanager
async def streaming(venue: Venue, *orders: tuple[int, ...]) -> AsyncIterator[tuple[FreshBus, str]]:
    """A running job, the trades of these orders on its bus, and its ticker."""
    bus, ticker = FreshBus(), f"BTC/USDT.{venue.name}"
    venue.order(3, 4)
    async with served(venue) as url, ingestor(bus, url, venue=venue.name) as own:
        task = own.start(ticker, "j1")
        await until(lambda: venue.sockets)
        for lots in orders:
            await venue.send(venue.order(*lots))
        await until(lambda: ticks(bus, ticker) and total(bus, ticker) == expected(bus, ticker, venue))
        yield bus, ticker
        await stopped(task)


async def test_trades_missed_by_a_closed_socket_count_once_although_rest_lists_single_fills(venue: Venue) -> None:
    async with streaming(venue, (1, 2, 3), (5,), (7, 8)) as (bus, ticker):
        # The socket joined fills of one millisecond, and more arrive in the same millisecond while it is closed.
        last = venue.order(10, 11, 12)
        await venue.send(last)
        await until(lambda: total(bus, ticker) == expected(bus, ticker, venue))
        await venue.cut()
        venue.order(20, 21, time_ms=last[0].time_ms)
        venue.order(30, time_ms=last[0].time_ms + 1)
        await until(lambda: venue.sockets)
        await venue.send(venue.order(40, 41))
        await until(lambda: total(bus, ticker) >= expected(bus, ticker, venue))
        assert total(bus, ticker) == expected(bus, ticker, venue)
        assert not marks(bus, ticker, "gap")
    found = ticks(bus, ticker)
    assert [one[ORDER] for one in found] == sorted({one[ORDER] for one in found})
    assert [one[TIME] for one in found] == sorted(one[TIME] for one in found)


async def test_a_page_that_lags_behind_the_socket_is_requested_again(venue: Venue) -> None:
    async with streaming(venue, (1,)) as (bus, ticker):
        await venue.cut()
        venue.order(20)
        await until(lambda: venue.sockets)
        # REST shows neither the missed trades nor the current ones of the socket yet.
        venue.lag, pages = 2, venue.pages
        await venue.send(venue.order(40))
        await until(lambda: venue.pages > pages)
        venue.lag = 0
        await until(lambda: total(bus, ticker) == expected(bus, ticker, venue))
        assert not marks(bus, ticker, "gap")


async def test_an_empty_page_after_a_close_is_a_gap_and_no_proof(venue: Venue) -> None:
    async with streaming(venue, (1,)) as (bus, ticker):
        last = venue.fills[-1]
        await venue.cut()
        venue.order(20)
        venue.is_empty = True
        await until(lambda: venue.sockets)
        await venue.send(venue.order(40))
        (gap,) = await until(lambda: marks(bus, ticker, "gap"))
        assert (gap.from_trade_id, gap.is_repaired) == (str(last.number), False)
        assert gap.from_time == last.time_ms * 10**6
        await until(lambda: ticks(bus, ticker)[-1][ORDER] == venue.fills[-1].number)
