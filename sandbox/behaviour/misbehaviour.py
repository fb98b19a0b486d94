"""Answers an HTTP request, and ends a websocket, that was struck by a fault."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, NoReturn

import orjson
from aiohttp import web

from sandbox.behaviour.faults import Fault

SPOILING = frozenset({"truncate", "short", "none", "repeat", "delay"})
"""The kinds that modify a true reply; all others need none."""
_WEB_PAGE = b"<!DOCTYPE html><html><head><title>Just a moment...</title></head><body>Please wait.</body></html>"
_HANG_SECONDS = 24 * 3600.0


async def misbehave(
    request: web.Request, fault: Fault, headers: dict[str, str], *, stopping: asyncio.Event
) -> web.StreamResponse:
    """Answer as the fault says, or not at all, without a true reply. A hanging request ends when the server stops."""
    if fault.kind == "hang":
        with suppress(TimeoutError):
            await asyncio.wait_for(stopping.wait(), _HANG_SECONDS)
    if fault.kind in ("reset", "hang"):
        if request.transport is not None:
            request.transport.abort()
        raise asyncio.CancelledError
    if fault.kind == "html":
        return web.Response(body=_WEB_PAGE, content_type="text/html", headers=headers)
    if fault.kind == "empty":
        return web.Response(body=b"", content_type="application/json", headers=headers)
    headers |= fault.headers
    if fault.retry_after is not None:
        headers["Retry-After"] = f"{fault.retry_after:g}"
    is_text = isinstance(fault.body, str)
    body = fault.body.encode() if is_text else orjson.dumps(fault.body)
    content_type = "text/plain" if is_text else "application/json"
    return web.Response(status=fault.status, body=body, content_type=content_type, headers=headers)


async def cut(socket: web.WebSocketResponse, request: web.BaseRequest | None, fault: Fault) -> NoReturn:
    """End a websocket with the fault's close code, or without a close frame: a client reports that as code 1006."""
    if fault.kind == "close" and fault.code != 1006:
        await socket.close(code=fault.code)
    elif request is not None and request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("cut by a fault")


def spoil(body: bytes, fault: Fault, previous: bytes | None) -> bytes:
    """The reply as modified by the fault."""
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
