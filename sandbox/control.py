"""The sandbox's own endpoints under /sandbox/: clock, faults, downtimes, counters."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import orjson
from aiohttp import web

from sandbox.faults import Fault

if TYPE_CHECKING:
    from sandbox.server import Sandbox


def add_routes(app: web.Application, sandbox: Sandbox) -> None:
    """Add the control endpoints to the application."""
    control = _Control(sandbox)
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
    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def state(self, request: web.Request) -> web.Response:
        sandbox = self._sandbox
        return _reply(
            {
                "now": sandbox.clock.now(),
                "speed": sandbox.clock.speed,
                "driven": sandbox.clock.driven,
                "symbols": list(sandbox.markets),
                "requests": dict(sandbox.state.requests),
                "refused": {str(status): count for status, count in sandbox.state.refused.items()},
                "struck": dict(sandbox.state.struck),
                "faults": sandbox.state.faults.describe(),
                "streams": dict(sandbox.stream_counters),
                "connections": [connection.session.names for connection in sandbox.connections],
            }
        )

    async def clock(self, request: web.Request) -> web.Response:
        return _reply({"now": self._sandbox.clock.now(), "speed": self._sandbox.clock.speed})

    async def set_clock(self, request: web.Request) -> web.Response:
        order = await _order(request)
        try:
            if "advance" in order:
                self._sandbox.clock.advance(int(order["advance"]))
            if "now" in order or "speed" in order:
                now, speed = order.get("now"), order.get("speed")
                self._sandbox.clock.set(None if now is None else int(now), None if speed is None else float(speed))
        except (TypeError, ValueError) as error:
            raise _refusal(str(error)) from error
        return await self.clock(request)

    async def add_fault(self, request: web.Request) -> web.Response:
        order = await _order(request)
        try:
            fault = Fault(**order)
        except (TypeError, ValueError) as error:
            raise _refusal(str(error)) from error
        return _reply({"id": self._sandbox.add_fault(fault)})

    async def clear_faults(self, request: web.Request) -> web.Response:
        self._sandbox.clear_faults()
        return _reply({})

    async def remove_fault(self, request: web.Request) -> web.Response:
        text = request.match_info["id"]
        if not text.isdecimal() or not self._sandbox.state.faults.remove(int(text)):
            raise _refusal("there is no fault with this id", 404)
        return _reply({})

    async def add_hole(self, request: web.Request) -> web.Response:
        order = await _order(request)
        try:
            self._sandbox.add_hole(str(order["symbol"]), int(order["start"]), int(order["end"]))
        except (KeyError, TypeError, ValueError) as error:
            raise _refusal(f"a hole has symbol, start and end: {error}") from error
        return _reply({})

    async def clear_holes(self, request: web.Request) -> web.Response:
        self._sandbox.clear_holes()
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
