"""The sandbox's own endpoints under /sandbox/: clock, faults, downtimes, counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from sandbox.behaviour.faults import Fault
from sandbox.serving.exchange import Exchange


def add_routes(app: web.Application, exchange: Exchange) -> None:
    """Add the control endpoints to the application."""
    control = _Control(exchange)
    routes: tuple[tuple[str, str, Callable[[web.Request], Awaitable[web.Response]]], ...] = (
        ("GET", "/sandbox/state", control.state),
        ("GET", "/sandbox/clock", control.clock),
        ("POST", "/sandbox/clock", control.set_clock),
        ("POST", "/sandbox/faults", control.add_fault),
        ("DELETE", "/sandbox/faults", control.clear_faults),
        ("DELETE", "/sandbox/faults/{id}", control.remove_fault),
        ("POST", "/sandbox/holes", control.add_hole),
        ("DELETE", "/sandbox/holes", control.clear_holes),
    )
    for method, path, handler in routes:
        app.router.add_route(method, path, handler)


class _Control:
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    async def state(self, request: web.Request) -> web.Response:
        exchange = self._exchange
        return _reply(
            {
                "now": exchange.clock.now(),
                "speed": exchange.clock.speed,
                "driven": exchange.clock.driven,
                "symbols": list(exchange.markets),
                "requests": dict(exchange.state.requests),
                "refused": {str(status): count for status, count in exchange.state.refused.items()},
                "struck": dict(exchange.state.struck),
                "faults": exchange.state.faults.describe(),
                "streams": dict(exchange.stream_counters),
                "connections": [connection.session.names for connection in exchange.connections],
            }
        )

    async def clock(self, request: web.Request) -> web.Response:
        return _reply({"now": self._exchange.clock.now(), "speed": self._exchange.clock.speed})

    async def set_clock(self, request: web.Request) -> web.Response:
        order = await _order(request)
        try:
            if "advance" in order:
                self._exchange.clock.advance(int(order["advance"]))
            if "now" in order or "speed" in order:
                now, speed = order.get("now"), order.get("speed")
                self._exchange.clock.set(None if now is None else int(now), None if speed is None else float(speed))
        except (TypeError, ValueError) as error:
            raise _refusal(str(error)) from error
        return await self.clock(request)

    async def add_fault(self, request: web.Request) -> web.Response:
        order = await _order(request)
        try:
            fault = Fault(**order)
        except (TypeError, ValueError) as error:
            raise _refusal(str(error)) from error
        return _reply({"id": self._exchange.add_fault(fault)})

    async def clear_faults(self, request: web.Request) -> web.Response:
        self._exchange.clear_faults()
        return _reply({})

    async def remove_fault(self, request: web.Request) -> web.Response:
        text = request.match_info["id"]
        if not text.isdecimal() or not self._exchange.state.faults.remove(int(text)):
            raise _refusal("no fault with this id", 404)
        return _reply({})

    async def add_hole(self, request: web.Request) -> web.Response:
        order = await _order(request)
        try:
            self._exchange.add_hole(str(order["symbol"]), int(order["start"]), int(order["end"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _refusal(f"a hole needs symbol, start and end: {error}") from error
        return _reply({})

    async def clear_holes(self, request: web.Request) -> web.Response:
        self._exchange.clear_holes()
        return _reply({})


async def _order(request: web.Request) -> dict[str, Any]:
    try:
        order = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise _refusal("the body is not JSON") from error
    if not isinstance(order, dict):
        raise _refusal("the body is not a JSON object")
    return order


def _reply(content: dict[str, Any]) -> web.Response:
    return web.Response(body=orjson.dumps(content), content_type="application/json")


def _refusal(text: str, status: int = 400) -> web.HTTPException:
    error = web.HTTPNotFound if status == 404 else web.HTTPBadRequest
    return error(text=orjson.dumps({"error": text}).decode(), content_type="application/json")
