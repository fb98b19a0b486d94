"""The ASGI application: the checks around every call, the API, and the console's files."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import cast
from urllib.parse import unquote

import orjson
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from starlette_compress import CompressMiddleware, remove_compress_type

from candlewright.wire.errors import CandlewrightError
from console import metrics
from console.access import Asked, Gate, Rates, Who
from console.live.sending import serve_socket
from console.openapi import COOKIE, PREFIX, document
from console.operation import Answer, Call, Operation, checked_body, checked_query
from console.problems import Problem, problem_of, response_of
from console.routes import (
    alerts,
    history,
    language,
    live,
    market,
    quality,
    session,
    sql,
    status,
    stored_events,
    triggers,
)
from console.services import Services
from console.web import SECURITY_HEADERS, Web
from core.log import get_logger

__all__ = ["OPERATIONS", "application"]

log = get_logger()

_WHO = "candlewright.who"
#: Shorter answers are not compressed.
_WORTH_BYTES = 1_000


async def get_openapi(call: Call) -> Response:
    return Response(_DOCUMENT, media_type="application/json", headers={"Cache-Control": "no-cache"})


OPERATIONS: Sequence[Operation] = (
    *status.OPERATIONS,
    *session.OPERATIONS,
    *history.OPERATIONS,
    *market.OPERATIONS,
    *quality.OPERATIONS,
    *triggers.OPERATIONS,
    *stored_events.OPERATIONS,
    *alerts.OPERATIONS,
    *live.OPERATIONS,
    *language.OPERATIONS,
    *sql.OPERATIONS,
    Operation(
        method="GET",
        path="/openapi.json",
        handler=get_openapi,
        summary="This document",
        answers={200: Answer("OpenAPI 3.1.", media=("application/json",))},
        is_public=True,
        tag="platform",
    ),
)
_DOCUMENT = orjson.dumps(document(OPERATIONS))


def application(services: Services) -> ASGIApp:
    """Raises nothing: a client's mistake gets an answer; a failure here is logged and answered with 500."""
    settings = services.settings.console
    # A wrong method is answered by the first path that matches: `/triggers/plan` before `/triggers/{trigger_id}`.
    paths = sorted(dict.fromkeys(each.path for each in OPERATIONS), key=lambda path: "{" in path)
    api = Starlette(
        routes=[
            *(_route([each for each in OPERATIONS if each.path == path], services) for path in paths),
            WebSocketRoute("/ws", _socket(services)),
        ],
        exception_handlers={
            Problem: _on_problem,
            CandlewrightError: _on_error,
            HTTPException: _on_http,
            Exception: _on_failure,
        },
    )
    api.router.default = _no_such_call
    api.router.redirect_slashes = False
    gate = Gate(settings, services.tokens.holder_of)
    public = frozenset(PREFIX + each.path for each in OPERATIONS if each.is_public)
    # Live messages are small, and must not wait for a compressor.
    remove_compress_type("text/event-stream")
    web = _problems_of(Web(services.tables.warm))
    places = CompressMiddleware(_Places(api, web), minimum_size=_WORTH_BYTES, brotli=False)
    return _Guarded(places, gate, Rates(settings.requests_per_second), public=public)


def _route(operations: Sequence[Operation], services: Services) -> Route:
    """The operations of one path."""
    by_method = {each.method: each for each in operations}
    most_bytes = services.settings.console.max_body_bytes

    async def endpoint(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        who = cast(Who, request.scope.get(_WHO))
        if not operation.is_public and not who.may(operation.role):
            raise Problem(403, "not_allowed", f"{who.name} is a {who.role}; this needs the role {operation.role}")
        query = checked_query(operation.query, request)
        body = await checked_body(operation.body, request, most_bytes)
        path = {name: unquote(value) for name, value in request.path_params.items()}
        with metrics.SECONDS.labels(operation.name).time():
            return await operation.handler(Call(request, services, who, path, query, body))

    return Route(operations[0].path, endpoint, methods=list(by_method))


def _socket(services: Services) -> Callable[[WebSocket], Awaitable[None]]:
    async def endpoint(websocket: WebSocket) -> None:
        await serve_socket(websocket, services.hub, cast(Who, websocket.scope[_WHO]).name)

    return endpoint


async def _no_such_call(scope: Scope, receive: Receive, send: Send) -> None:
    raise Problem(404, "no_such_call", f"no such call; see {PREFIX}/openapi.json")


# ---- answers to what went wrong
async def _on_problem(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return response_of(error)


async def _on_error(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, CandlewrightError)
    return response_of(problem_of(error))


async def _on_http(request: HTTPConnection, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    return response_of(Problem(error.status_code, "http", HTTPStatus(error.status_code).description, headers=headers))


async def _on_failure(request: HTTPConnection, error: Exception) -> Response:
    metrics.FAILED.inc()
    return response_of(Problem(500, "failed", "the server failed; its log has the reason"))


def _problems_of(app: ASGIApp) -> ASGIApp:
    return Starlette(routes=[Mount("/", app=app)], exception_handlers={HTTPException: _on_http})


# ---- around every call
class _Places:
    """Routes calls under the API's prefix, where names in a path may contain an encoded slash; all others go to the
    console.
    """

    def __init__(self, api: ASGIApp, web: ASGIApp) -> None:
        self._api = api
        self._web = web

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._web(scope, receive, send)
            return
        path: str = scope["path"]
        if path != "/api" and not path.startswith("/api/"):
            await self._web(scope, receive, send)
            return
        raw = scope.get("raw_path", path.encode()).decode("latin-1").partition("?")[0]
        inner = raw.removeprefix(PREFIX) if raw.startswith(PREFIX + "/") else "/no-such-version"
        await self._api({**scope, "path": inner, "raw_path": inner.encode("latin-1")}, receive, send)


class _Guarded:
    """Checks hosts, origins, tokens and rates, and adds the headers that every answer has."""

    def __init__(self, app: ASGIApp, gate: Gate, rates: Rates, *, public: frozenset[str]) -> None:
        self._app = app
        self._gate = gate
        self._rates = rates
        self._public = public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        is_live = scope["type"] == "websocket"

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith("/api/"):
                    headers.setdefault("Cache-Control", "no-store")
                metrics.ANSWERS.labels(str(message["status"])).inc()
            await send(message)

        try:
            scope[_WHO] = self._admitted(scope)
        except Problem as problem:
            await _refuse(problem, is_live=is_live, scope=scope, receive=receive, send=send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)

    def _admitted(self, scope: Scope) -> Who | None:
        asked = _asked(scope)
        self._gate.check_place(asked)
        path: str = scope["path"]
        if not path.startswith("/api/"):
            return None
        who = None if path in self._public else self._gate.identify(asked)
        wait = self._rates.wait_seconds(who.name if who is not None else asked.peer, time.monotonic())
        if wait > 0:
            headers = {"Retry-After": str(max(1, round(wait)))}
            raise Problem(429, "too_many_calls", f"too many calls; try again in {wait:.2f} s", headers=headers)
        return who


async def _refuse(problem: Problem, *, is_live: bool, scope: Scope, receive: Receive, send: Send) -> None:
    answer = response_of(problem)
    if not is_live:
        await answer(scope, receive, send)
        return
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": problem.detail[:120]})
        return
    start = {"type": "websocket.http.response.start", "status": problem.status, "headers": answer.raw_headers}
    await send(start)
    await send({"type": "websocket.http.response.body", "body": bytes(answer.body)})


def _asked(scope: Scope) -> Asked:
    headers = Headers(scope=scope)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    is_session = scheme.lower() != "bearer"
    if is_session:
        token = _cookie(headers)
    peer = scope.get("client")
    return Asked(
        # Several values are as wrong as a foreign one.
        ", ".join(headers.getlist("host")),
        headers.get("origin", ""),
        token.strip(),
        peer[0] if peer else "unix socket",
        is_session=is_session and bool(token),
        is_change=scope["type"] == "websocket" or scope["method"] not in ("GET", "HEAD"),
    )


def _cookie(headers: Mapping[str, str]) -> str:
    for pair in headers.get("cookie", "").split(";"):
        name, _, value = pair.strip().partition("=")
        if name == COOKIE:
            return value
    return ""
