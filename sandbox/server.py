"""The sandbox exchange on a loopback port, for `async with`, a thread, or a process of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson
from aiohttp import web

from sandbox import control
from sandbox.clock import ExchangeClock
from sandbox.faults import Fault
from sandbox.generated import GeneratedMarket
from sandbox.instruments import DEFAULT_INSTRUMENTS, make_instrument, utc_ms
from sandbox.market import Market
from sandbox.rest import ApiError, Request, RestApi, weight
from sandbox.sockets import StreamConnection
from sandbox.state import ExchangeState, Refuse, RequestArrived

_JSON = "application/json"
_WEB_PAGE = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>Please wait.</body></html>"
_HANG_SECONDS = 24 * 3600.0
_Result = TypeVar("_Result")


class Sandbox:
    """An exchange that speaks Binance's spot API.

    `port` 0 takes a free one. `symbols` are pairs (BASE/QUOTE) listed besides the built-in ones. `clock` is the
    exchange's time at the start, as ISO text or ms (None: the real time), `speed` how fast it runs. Equal `seed`,
    symbol and time give equal data in every process. Raises ValueError for a malformed symbol, time or speed.
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
    ) -> None:
        self._host = host
        self._port = port
        self._seed = seed
        self.markets: dict[str, Market] = {}
        for instrument in (*DEFAULT_INSTRUMENTS, *map(make_instrument, symbols)):
            self.markets.setdefault(instrument.symbol, GeneratedMarket(instrument, seed))
        self.clock = ExchangeClock(utc_ms(clock) if isinstance(clock, str) else clock, speed)
        self.state = ExchangeState(rate_limit=rate_limit, seed=seed)
        self.stream_counters: Counter[str] = Counter()
        self.connections: set[StreamConnection] = set()
        self._api = RestApi(self.markets)
        self._last_bodies: dict[tuple[str, str | None], bytes] = {}
        self._runner: web.AppRunner | None = None
        self._stopping = asyncio.Event()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._port

    @property
    def url(self) -> str:
        """The base URL of the REST API; the websocket has the same host and port."""
        return f"http://{self._host}:{self._port}"

    @property
    def ws_url(self) -> str:
        """The base URL of the websocket."""
        return f"ws://{self._host}:{self._port}"

    def add_fault(self, fault: Fault) -> int:
        """Put a fault rule in force; returns its id."""
        return self.state.faults.add(fault)

    def clear_faults(self) -> None:
        """Take all fault rules away."""
        self.state.faults.clear()

    def add_hole(self, symbol: str, start_ms: int, end_ms: int) -> None:
        """A downtime: no candles and no trades of the symbol in [start, end). Raises KeyError, ValueError."""
        self.markets[symbol.replace("/", "")].add_hole(start_ms, end_ms)

    def clear_holes(self) -> None:
        """Forget all downtimes."""
        for market in self.markets.values():
            market.clear_holes()

    async def start(self) -> None:
        """Listen. Raises OSError when the port is taken."""
        app = web.Application(client_max_size=1 << 20)
        control.add_routes(app, self)
        app.router.add_get("/ws", self._serve_stream)
        app.router.add_get("/ws/{streams:.*}", self._serve_stream)
        app.router.add_get("/stream", self._serve_stream)
        app.router.add_route("*", "/{path:.*}", self._serve_rest)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self._port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close all connections and the port."""
        self._stopping.set()
        await asyncio.gather(*(connection.close() for connection in tuple(self.connections)))
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self.stop()

    async def _serve_stream(self, request: web.Request) -> web.StreamResponse:
        verdict = self.state.handle(RequestArrived(request.path, None, 2, time.monotonic()))
        fault = verdict.fault if not isinstance(verdict, Refuse) else None
        if fault is not None and fault.kind != "delay":
            return await self._misbehave(request, fault, {})
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
        headers = {"X-MBX-USED-WEIGHT": str(verdict.used_weight), "X-MBX-USED-WEIGHT-1M": str(verdict.used_weight)}
        if isinstance(verdict, Refuse):
            return self._refuse(verdict, headers)
        fault = verdict.fault
        if fault is not None and fault.kind not in ("truncate", "short", "none", "repeat", "delay"):
            return await self._misbehave(request, fault, headers)
        if fault is not None and fault.kind == "delay":
            await asyncio.sleep(fault.seconds)
        try:
            body = self._answer(request, parameters)
        except ApiError as error:
            return web.Response(status=error.status, body=error.body(), content_type=_JSON, headers=headers)
        if fault is not None:
            body = _spoil(body, fault, self._last_bodies.get((request.path, symbol)))
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

    async def _misbehave(self, request: web.Request, fault: Fault, headers: dict[str, str]) -> web.StreamResponse:
        """Faults that need no answer to spoil."""
        if fault.kind == "hang":
            await self._hang()
        if fault.kind in ("reset", "hang"):
            if request.transport is not None:
                request.transport.abort()
            raise asyncio.CancelledError
        if fault.kind == "html":
            return web.Response(body=_WEB_PAGE, content_type="text/html", headers=headers)
        if fault.kind == "empty":
            return web.Response(body=b"", content_type=_JSON, headers=headers)
        headers |= fault.headers
        if fault.retry_after is not None:
            headers["Retry-After"] = f"{fault.retry_after:g}"
        is_text = isinstance(fault.body, str)
        body = fault.body.encode() if is_text else orjson.dumps(fault.body)
        return web.Response(
            status=fault.status, body=body, content_type="text/plain" if is_text else _JSON, headers=headers
        )

    async def _hang(self) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), _HANG_SECONDS)
        except TimeoutError:
            return


def _spoil(body: bytes, fault: Fault, previous: bytes | None) -> bytes:
    """The reply as the fault leaves it."""
    if fault.kind == "truncate":
        return body[: max(1, len(body) // 2)]
    if fault.kind == "none":
        return b"[]"
    if fault.kind == "repeat":
        return body if previous is None else previous
    if fault.kind == "short":
        rows: Any = orjson.loads(body)
        if isinstance(rows, list):
            return orjson.dumps(rows[: len(rows) // 2 if fault.rows is None else fault.rows])
    return body


class SandboxThread:
    """A Sandbox in a thread with a loop of its own, for tests and programs without asyncio.

    Takes the arguments of Sandbox. `call` runs a function with the Sandbox in that thread.
    """

    def __init__(self, **arguments: Any) -> None:
        self._arguments = arguments
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sandbox: Sandbox | None = None

    @property
    def url(self) -> str:
        """See Sandbox."""
        return self._running().url

    @property
    def ws_url(self) -> str:
        """See Sandbox."""
        return self._running().ws_url

    def call(self, function: Callable[[Sandbox], _Result]) -> _Result:
        """Run the function with the Sandbox, in its thread, and return the result."""
        sandbox = self._running()

        async def run() -> _Result:
            return function(sandbox)

        if self._loop is None:
            raise RuntimeError("the sandbox is not running")
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    def add_fault(self, fault: Fault) -> int:
        """See Sandbox."""
        return self.call(lambda sandbox: sandbox.add_fault(fault))

    def clear_faults(self) -> None:
        """See Sandbox."""
        self.call(lambda sandbox: sandbox.clear_faults())

    def __enter__(self) -> Self:
        started: Future[Sandbox] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(started)), name="sandbox", daemon=True)
        self._thread.start()
        self._sandbox = started.result(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._finish)
            self._thread.join(10)

    def _running(self) -> Sandbox:
        if self._sandbox is None:
            raise RuntimeError("the sandbox is not running")
        return self._sandbox

    def _finish(self) -> None:
        self._finished.set()

    async def _run(self, started: Future[Sandbox]) -> None:
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        try:
            async with Sandbox(**self._arguments) as sandbox:
                started.set_result(sandbox)
                await self._finished.wait()
        except (OSError, ValueError) as error:
            started.set_exception(error)
