"""The sandbox exchange on a loopback port."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path

from aiohttp import web

from sandbox import control
from sandbox.clock import ExchangeClock, http_date
from sandbox.faults import Fault
from sandbox.files import Trade, read_candles, read_trades
from sandbox.generated import GeneratedMarket
from sandbox.instruments import DEFAULT_INSTRUMENTS, make_instrument, utc_ms
from sandbox.listener import Listener
from sandbox.market import Market
from sandbox.misbehaviour import SPOILING, misbehave, spoil
from sandbox.recording import RecordedCandles, RecordedTrades, WireRow
from sandbox.rest import ApiError, Request, RestApi, is_heavy, weight
from sandbox.sockets import StreamConnection
from sandbox.state import ExchangeState, Refuse, RequestArrived
from sandbox.tape import Kept

_JSON = "application/json"


class Sandbox(Listener):
    """An exchange that speaks Binance's spot API.

    `port` 0 takes a free one. `symbols` are pairs (BASE/QUOTE) listed besides the built-in ones. `clock` is the
    exchange's time at the start, as ISO text or ms (None: the real time), `speed` how fast it runs. Equal `seed`,
    symbol and time give equal data in every process. `candles` are recordings to serve, each PAIR:INTERVAL=FILE;
    `trades` are files of recorded frames to replay, which drive the clock when none is given.
    Raises ValueError for a malformed symbol, time, speed or file, OSError for a file that cannot be read.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seed: int = 1,
        symbols: Sequence[str] = (),
        clock: str | int | None = None,
        speed: float = 1.0,
        rate_limit: bool = True,
        candles: Sequence[str] = (),
        trades: Sequence[str] = (),
    ) -> None:
        super().__init__(host, port)
        self._seed = seed
        self.markets: dict[str, Market] = {}
        kept = Kept()
        for instrument in (*DEFAULT_INSTRUMENTS, *map(make_instrument, symbols)):
            self.markets.setdefault(instrument.symbol, GeneratedMarket(instrument, seed, kept))
        self.clock = ExchangeClock(utc_ms(clock) if isinstance(clock, str) else clock, speed)
        self.state = ExchangeState(rate_limit=rate_limit, seed=seed)
        self.stream_counters: Counter[str] = Counter()
        self.connections: set[StreamConnection] = set()
        self._api = RestApi(self.markets)
        self._last_bodies: dict[tuple[str, str | None], bytes] = {}
        self._load(candles, trades, drive=clock is None)

    @property
    def ws_url(self) -> str:
        """The base URL of the websocket."""
        return f"ws://{self._host}:{self._port}"

    def add_candles(self, symbol: str, interval: str, rows: Iterable[WireRow]) -> None:
        """Serve these candles for a pair (BASE/QUOTE) instead of generated data; see RecordedCandles.add."""
        market = RecordedCandles(symbol)
        present = self.markets.get(market.symbol)
        market = present if isinstance(present, RecordedCandles) else market
        market.add(interval, rows)
        self.markets[market.symbol] = market

    def add_trades(self, symbol: str, trades: Iterable[Trade], *, drive: bool = True) -> None:
        """Serve these trades for a pair and all that follows from them; see RecordedTrades.

        With `drive` the clock stands just before the first trade and moves on as fast as websocket clients read
        trades; after the last one it runs on in real time.
        """
        market = RecordedTrades(symbol, trades)
        self.markets[market.symbol] = market
        if drive:
            self.clock.driven = True
            self.clock.set(market.first_time - 1, 0.0)

    def add_fault(self, fault: Fault) -> int:
        """Put a fault rule in force; returns its id."""
        return self.state.faults.add(fault)

    def clear_faults(self) -> None:
        """Take all fault rules away."""
        self.state.faults.clear()

    def add_hole(self, symbol: str, start_ms: int, end_ms: int) -> None:
        """A downtime: no candles and no trades of the symbol in [start, end). Raises KeyError, ValueError."""
        self.markets[symbol.replace("/", "")].add_hole(start_ms, end_ms)
        self._look_again()

    def clear_holes(self) -> None:
        """Forget all downtimes."""
        for market in self.markets.values():
            market.clear_holes()
        self._look_again()

    def _look_again(self) -> None:
        for connection in self.connections:
            connection.session.look_again()

    def _load(self, candles: Sequence[str], trades: Sequence[str], *, drive: bool) -> None:
        for source in candles:
            name, equals, path = source.partition("=")
            pair, colon, interval = name.partition(":")
            if not equals or not colon:
                raise ValueError(f"{source!r} is not of the form BASE/QUOTE:INTERVAL=FILE")
            self.add_candles(pair, interval, read_candles(Path(path)))
        for symbol, found in read_trades(map(Path, trades)).items():
            self.add_trades(symbol, found, drive=drive)

    def routes(self) -> web.Application:
        """Websockets, REST, and the control page of tests."""
        app = web.Application(client_max_size=1 << 20)
        control.add_routes(app, self)
        app.router.add_get("/ws", self._serve_stream)
        app.router.add_get("/ws/{streams:.*}", self._serve_stream)
        app.router.add_get("/stream", self._serve_stream)
        app.router.add_route("*", "/{path:.*}", self._serve_rest)
        return app

    def farewells(self) -> Iterable[Awaitable[None]]:
        """The closes of open websockets."""
        return [connection.close() for connection in self.connections]

    async def _serve_stream(self, request: web.Request) -> web.StreamResponse:
        verdict = self.state.handle(RequestArrived(request.path, None, 2, time.monotonic()))
        fault = verdict.fault if not isinstance(verdict, Refuse) else None
        if fault is not None and fault.kind != "delay":
            return await misbehave(request, fault, {}, self._stopping)
        tail = request.match_info.get("streams", "")
        streams = [] if tail.isdecimal() else [name for name in tail.split("/") if name]
        streams += [name for name in request.query.get("streams", "").split("/") if name]
        combined = request.path == "/stream"
        connection = StreamConnection(
            self.markets, self.clock, self.state.faults, self.stream_counters, combined=combined
        )
        self.connections.add(connection)
        try:
            return await connection.serve(request, streams)
        finally:
            self.connections.discard(connection)

    async def _serve_rest(self, request: web.Request) -> web.StreamResponse:
        parameters = dict(request.query)
        symbol = parameters.get("symbol")
        arrived = RequestArrived(request.path, symbol, weight(request.path, parameters), time.monotonic())
        verdict = self.state.handle(arrived)
        used = str(verdict.used_weight)
        headers = {"Date": http_date(self.clock.now()), "X-MBX-USED-WEIGHT": used, "X-MBX-USED-WEIGHT-1M": used}
        if isinstance(verdict, Refuse):
            return self._refuse(verdict, headers)
        fault = verdict.fault
        if fault is not None and fault.kind not in SPOILING:
            return await misbehave(request, fault, headers, self._stopping)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        try:
            if is_heavy(request.path, parameters):
                body = await asyncio.to_thread(self._answer, request, parameters)
            else:
                body = self._answer(request, parameters)
        except ApiError as error:
            return web.Response(status=error.status, body=error.body(), content_type=_JSON, headers=headers)
        if fault is not None:
            body = spoil(body, fault, self._last_bodies.get((request.path, symbol)))
        self._last_bodies[request.path, symbol] = body
        return web.Response(body=body, content_type=_JSON, headers=headers)

    def _answer(self, request: web.Request, parameters: dict[str, str]) -> bytes:
        route = self._api.routes.get(request.path)
        if route is None or request.method != "GET":
            raise ApiError(404, -1000, "This sandbox has public market data only: no such endpoint.")
        return route(Request(parameters, request.headers.get("X-MBX-APIKEY"), self.clock.now()))

    def _refuse(self, refusal: Refuse, headers: dict[str, str]) -> web.Response:
        until = self.clock.now() + refusal.retry_after_seconds * 1000
        message = (
            f"Way too much request weight used; IP banned until {until}. Please use WebSocket Streams for live updates."
            if refusal.status == 418
            else "Too much request weight used; current limit is 6000 request weight per 1 MINUTE."
        )
        body = ApiError(refusal.status, -1003, message).body()
        headers["Retry-After"] = str(refusal.retry_after_seconds)
        return web.Response(status=refusal.status, body=body, content_type=_JSON, headers=headers)
