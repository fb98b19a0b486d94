"""Sends a reader's events over a connection: server-sent events, and WebSocket."""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from candlewright.wire.errors import CandlewrightError
from console import metrics
from console.connection import DIRECT, Connection, chunk
from console.live.channel import Event
from console.live.hub import Hub
from console.live.reader import Reader, TooSlow
from console.problems import Problem, problem_of
from core.background import awaited_task

__all__ = ["EventStream", "serve_socket"]

#: Seconds of silence after which a comment shows that the connection is alive.
_SILENCE_SECONDS = 15.0
#: How long a connection may accept no bytes.
_SEND_SECONDS = 20.0
_RETRY_MILLISECONDS = 1_000
#: How long a socket may have no topic; it is not counted among the streams.
_IDLE_SECONDS = 60.0
_MAX_COMMAND_BYTES = 64 << 10
_MAX_SEQUENCE = 1 << 62
#: Events that are kept encoded for other readers: more than a reader takes in one turn; larger ones are not kept.
_KEPT_EVENTS, _KEPT_BYTES = 256, 4 << 10


class EventStream(Response):
    """`detach` is called at the end, whatever its cause."""

    media_type = "text/event-stream"

    def __init__(self, reader: Reader, detach: Callable[[], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Connection": "close"})
        del self.headers["content-length"]
        self._reader = reader
        self._detach = detach

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        gone = awaited_task(_disconnected(receive), "stream-disconnect")
        gone.add_done_callback(lambda _: self._reader.wake())
        connection: Connection = scope["extensions"][DIRECT]

        async def put(data: bytes, *, has_more: bool = True) -> None:
            async with asyncio.timeout(_SEND_SECONDS):
                await send({"type": "http.response.body", "body": data, "more_body": has_more})

        def push() -> bool:
            """Like the loop below, but without a turn of the event loop, for which a thousand readers would wait."""
            if not connection.is_writable:
                return False
            try:
                batch = self._reader.take_shared()
            except TooSlow:
                return False
            if batch.encoded is None:
                batch.encoded = chunk(b"".join(map(_block, batch.events))) if batch.events else b""
            if batch.encoded:
                connection.write(batch.encoded)
            return True

        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            # Without data, browsers dispatch no event: they only remember the position.
            await put(f"retry: {_RETRY_MILLISECONDS}\nid: {self._reader.cursor}\n\n".encode())
            self._reader.push = push
            while not gone.done() and not self._reader.is_closing:
                if not await self._reader.wait(_SILENCE_SECONDS):
                    await put(b": still here\n\n")
                    continue
                try:
                    events = self._reader.take()
                except TooSlow as error:
                    metrics.SLOW.inc()
                    await put(_closed("too_slow", str(error)))
                    break
                if events:
                    await put(b"".join(map(_block, events)))
            if self._reader.is_closing:
                await put(_closed("stopping", "the server is stopping; connect again to continue without a gap"))
            await put(b"", has_more=False)
        except TimeoutError:
            # The reader accepts nothing, so it would not get a message either: cut the connection.
            metrics.SLOW.inc()
        except OSError:
            """The reader is gone."""
        finally:
            gone.cancel()
            self._detach()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _block(event: Event) -> bytes:
    """Readers of the same topics get equal events, so small ones are encoded once."""
    return _encoded(event) if len(event.data) > _KEPT_BYTES else _kept(event)


@lru_cache(_KEPT_EVENTS)
def _kept(event: Event) -> bytes:
    return _encoded(event)


def _encoded(event: Event) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event.id.encode(), event.kind.encode(), event.data)


def _closed(code: str, reason: str) -> bytes:
    return b"event: closed\ndata: %b\n\n" % orjson.dumps({"code": code, "reason": reason})


async def serve_socket(websocket: WebSocket, hub: Hub, who: str) -> None:
    """Topics are in the address, as for server-sent events, or in commands: {"subscribe": [topic, …]} replaces the
    previous ones, with "cursor" or "from_sequence".
    """
    query = websocket.query_params
    topics, cursor = query.getlist("topic"), query.get("cursor", "")
    from_sequence = query.get("from_sequence")
    await websocket.accept()
    reader: Reader | None = None
    wanted: Sequence[str] = ()

    def listen() -> "asyncio.Task[str]":
        task = awaited_task(_command(websocket), "socket-commands")
        task.add_done_callback(lambda _: reader.wake() if reader is not None else None)
        return task

    commands = listen()
    try:
        if topics:
            number = _number(from_sequence)
            reader, wanted = await hub.attach(who, topics, cursor, from_sequence=number), topics
            await _tell(websocket, {"event": "subscribed", "topics": topics, "id": reader.cursor})
        while not hub.is_closing:
            if reader is None:
                await asyncio.wait([commands], timeout=_IDLE_SECONDS)
                if not commands.done():
                    await _close(websocket, 1008, f"no topic for {_IDLE_SECONDS:.0f} s; connect again to subscribe")
                    return
            elif not commands.done():
                await reader.wait(_SILENCE_SECONDS)
            if commands.done():
                chosen, after, number = _subscription(commands.result())
                commands = listen()
                fresh = await hub.attach(who, chosen, after, from_sequence=number) if chosen else None
                if reader is not None:
                    hub.detach(who, wanted, reader)
                reader, wanted = fresh, chosen
                await _tell(
                    websocket,
                    {"event": "subscribed", "topics": list(wanted), "id": reader.cursor if reader is not None else ""},
                )
            if reader is not None:
                for event in reader.take():
                    text = b'{"event":"%b","id":"%b","data":%b}' % (event.kind.encode(), event.id.encode(), event.data)
                    await _put(websocket, text.decode())
        await _close(websocket, 1001, "the server is stopping; connect again to continue without a gap")
    except TooSlow as error:
        metrics.SLOW.inc()
        await _close(websocket, 1008, str(error))
    except TimeoutError:
        metrics.SLOW.inc()
    except (Problem, CandlewrightError) as error:
        problem = error if isinstance(error, Problem) else problem_of(error)
        await _tell(websocket, {"event": "problem", "status": problem.status, "detail": problem.detail})
        await _close(websocket, 1008, problem.detail)
    except (WebSocketDisconnect, RuntimeError, OSError):
        """The reader is gone."""
    finally:
        commands.cancel()
        if reader is not None:
            hub.detach(who, wanted, reader)


async def _command(websocket: WebSocket) -> str:
    """A binary frame is refused like any other text that is not a command."""
    message = await websocket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message["code"], message.get("reason"))
    return message.get("text") or ""


def _subscription(text: str) -> tuple[list[str], str, int | None]:
    """Raises Problem."""
    wrong = Problem(400, "invalid_request", 'a command is {"subscribe": [topic, …], "cursor": …, "from_sequence": …}')
    try:
        if len(text) > _MAX_COMMAND_BYTES:
            raise wrong
        given = orjson.loads(text)
        topics = given.pop("subscribe")
        cursor, number = given.pop("cursor", ""), given.pop("from_sequence", None)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise wrong from None
    is_sound = isinstance(topics, list) and all(isinstance(topic, str) for topic in topics) and not given
    if (
        not is_sound
        or not isinstance(cursor, str)
        or not (number is None or (type(number) is int and 0 < number < _MAX_SEQUENCE))
    ):
        raise wrong
    return topics, cursor, number


def _number(text: str | None) -> int | None:
    """Raises Problem."""
    if text is None:
        return None
    # Python refuses to convert thousands of digits.
    is_number = text.isascii() and text.isdecimal() and len(text) < 20
    if not is_number or not 0 < int(text) < _MAX_SEQUENCE:
        raise Problem(400, "invalid_request", f"from_sequence: {text[:40]!r} is not a number from 1 on")
    return int(text)


async def _tell(websocket: WebSocket, body: object) -> None:
    await _put(websocket, orjson.dumps(body).decode())


async def _put(websocket: WebSocket, text: str) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await websocket.send_text(text)


async def _close(websocket: WebSocket, code: int, reason: str) -> None:
    async with asyncio.timeout(_SEND_SECONDS):
        await websocket.close(code, reason[:120])
