"""The sandbox exchange on a loopback port."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable, Sequence

from aiohttp import web

from sandbox.behaviour.clock import http_date
from sandbox.behaviour.misbehaviour import SPOILING, misbehave, spoil
from sandbox.serving import control
from sandbox.serving.exchange import Exchange
from sandbox.serving.listener import Listener
from sandbox.serving.sockets import StreamConnection
from sandbox.serving.state import Refuse, RequestArrived
from sandbox.venues.binance import ApiError, Request, RestApi, is_heavy, weight

_JSON = "application/json"


class Sandbox(Exchange, Listener):
    """An exchange that speaks Binance's spot API, open inside `async with`.

    `port` 0 takes a free one. `Exchange` documents the other arguments and the errors.
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
        Listener.__init__(self, host, port)
        Exchange.__init__(
            self,
            seed=seed,
            symbols=symbols,
            clock=clock,
            speed=speed,
            rate_limit=rate_limit,
            candles=candles,
            trades=trades,
        )
        self._api = RestApi(self.markets)
        self._last_bodies: dict[tuple[str, str | None], bytes] = {}

    @property
    def ws_url(self) -> str:
        """The base URL of the websocket."""
        return f"ws://{self._host}:{self._port}"

    def routes(self) -> web.Application:
        """Websockets, REST, and the control endpoints."""
        app = web.Application(client_max_size=1 << 20)
        control.add_routes(app, self)
        app.router.add_get("/ws", self._serve_stream)
        app.router.add_get("/ws/{streams:.*}", self._serve_stream)
        app.router.add_get("/stream", self._serve_stream)
        app.router.add_route("*", "/{path:.*}", self._serve_rest)
        return app

    def farewells(self) -> Iterable[Awaitable[None]]:
        """Functions that close the open websockets."""
        return [connection.close() for connection in self.connections]

    async def _serve_stream(self, request: web.Request) -> web.StreamResponse:
        [verdict] = self.state.handle(RequestArrived(request.path, None, 2, time.monotonic()))
        fault = verdict.fault if not isinstance(verdict, Refuse) else None
        if fault is not None and fault.kind != "delay":
            return await misbehave(request, fault, {}, stopping=self._stopping)
        tail = request.match_info.get("streams", "")
        streams = [] if tail.isdecimal() else [name for name in tail.split("/") if name]
        streams += [name for name in request.query.get("streams", "").split("/") if name]
        combined = request.path == "/stream"
        connection = StreamConnection(
            self.markets, self.clock, self.state.faults, counters=self.stream_counters, combined=combined
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
        [verdict] = self.state.handle(arrived)
        used = str(verdict.used_weight)
        headers = {"Date": http_date(self.clock.now()), "X-MBX-USED-WEIGHT": used, "X-MBX-USED-WEIGHT-1M": used}
        if isinstance(verdict, Refuse):
            return self._refuse(verdict, headers)
        fault = verdict.fault
        if fault is not None and fault.kind not in SPOILING:
            return await misbehave(request, fault, headers, stopping=self._stopping)
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
