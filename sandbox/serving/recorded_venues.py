"""Serves other venues on one loopback port, with recorded replies where recordings exist, else generated ones in the
venue's form.

Each venue's answers are defined in its file in `sandbox/venues`. Their paths all differ, so one base URL serves them
all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterable
from pathlib import Path

import orjson
from aiohttp import web

from sandbox.behaviour.clock import ExchangeClock, http_date
from sandbox.behaviour.faults import Fault
from sandbox.behaviour.misbehaviour import SPOILING, misbehave, spoil
from sandbox.generated.market import GeneratedMarket
from sandbox.generated.tape import Kept
from sandbox.markets.instruments import DEFAULT_INSTRUMENTS, make_instrument
from sandbox.markets.market import Market
from sandbox.serving.listener import Listener
from sandbox.serving.state import ExchangeState, Refuse, RequestArrived
from sandbox.venues import kraken
from sandbox.venues.kraken_socket import KrakenSocket
from sandbox.venues.recordings import Recordings
from sandbox.venues.shape import Answer, Parameters, Reply, Scene
from sandbox.venues.shaped import shapes

_GENERATED = ("BTC/USD", "ETH/USD", "BTC/EUR")


class RecordedVenues(Listener):
    """A server for tests: `async with RecordedVenues(data_directory) as venues: venues.url`.

    `now` is the venues' time in ms at the start. By default the time is fixed at half a minute into Kraken's last
    recorded candle, which is unfinished.
    """

    def __init__(
        self, directory: Path, *, host: str = "127.0.0.1", port: int = 0, now: int | None = None, seed: int = 1
    ) -> None:
        super().__init__(host, port)
        recordings = Recordings(directory)
        kept = Kept()
        instruments = (*DEFAULT_INSTRUMENTS, *map(make_instrument, _GENERATED))
        self.markets: dict[str, Market] = {
            f"{instrument.base}-{instrument.quote}": GeneratedMarket(instrument, seed, kept)
            for instrument in instruments
        }
        self.clock = ExchangeClock(kraken.recorded_time(recordings) if now is None else now, 0.0)
        self.state = ExchangeState(rate_limit=False, seed=seed)
        self._scene = Scene(recordings, self.markets, self.clock)
        self._routes: dict[str, Answer] = {path: answer for shape in shapes() for path, answer in shape.routes.items()}
        self._last_bodies: dict[str, bytes] = {}
        self._sockets: set[KrakenSocket] = set()

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
        app.router.add_get(kraken.STREAM_PATH, self._serve_kraken_stream)
        app.router.add_get("/{path:.*}", self._serve)
        return app

    def farewells(self) -> Iterable[Awaitable[None]]:
        """Functions that close the open websockets."""
        return [socket.close() for socket in self._sockets]

    async def _serve_kraken_stream(self, request: web.Request) -> web.StreamResponse:
        trades = kraken.recorded_trades(self._scene.recordings)
        socket = KrakenSocket("BTC/USDT", trades, self.clock, faults=self.state.faults)
        self._sockets.add(socket)
        try:
            return await socket.serve(request)
        finally:
            self._sockets.discard(socket)

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        [verdict] = self.state.handle(RequestArrived(request.path, None, 1, time.monotonic()))
        fault = None if isinstance(verdict, Refuse) else verdict.fault
        headers = {"Date": http_date(self.clock.now())}
        if fault is not None and fault.kind not in SPOILING:
            return await misbehave(request, fault, headers, stopping=self._stopping)
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
        answer = self._routes.get(path)
        if answer is not None:
            return answer(self._scene, parameters)
        *front, product, tail = ("", "", *path.split("/"))
        answer = self._routes.get("/".join((*front[2:], "{product}", tail)))
        return None if answer is None else answer(self._scene, {**parameters, "product": product})
