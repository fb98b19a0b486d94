"""A client's stream, from its handshake to its end."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from candlewright.wire.errors import BusError
from core.background import awaited_task
from core.log import get_logger
from gateways.numaflow import metrics
from protobuf import source_superset_pb2 as source

log = get_logger()

Message = TypeVar("Message", source.ReadRequest, source.AckRequest)
Context = grpc.aio.ServicerContext[Any, Any]


class BadCall(Exception):
    """The client sent a message that is invalid here."""


class Stream(Generic[Message]):
    """What a client sends: a handshake, then requests."""

    def __init__(self, requests: AsyncIterator[Message], stopping: asyncio.Event) -> None:
        self._requests: AsyncIterator[Message] = requests
        self._stopping = stopping

    async def shook_hands(self) -> bool:
        """False if the client left without sending anything. Raises BadCall for anything but a handshake."""
        first = await self._next()
        if first is None:
            return False
        if not first.handshake.sot or first.HasField("request"):
            raise BadCall("the first message must be a handshake with sot, and nothing else")
        return True

    async def requests(self) -> AsyncIterator[Message]:
        """Requests until the client has closed its side, or the process is asked to stop."""
        while (message := await self._next()) is not None:
            yield _checked(message)

    async def rest(self) -> AsyncIterator[Message]:
        """Requests until the client has closed its side, even if the process is asked to stop."""
        async for message in self._requests:
            yield _checked(message)

    async def _coming(self) -> Message | None:
        return await anext(self._requests, None)

    async def _next(self) -> Message | None:
        coming = awaited_task(self._coming())
        stopping = awaited_task(self._stopping.wait())
        try:
            await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return coming.result() if coming.done() else None
        finally:
            coming.cancel()
            stopping.cancel()


def _checked(message: Message) -> Message:
    """Raises BadCall."""
    if not message.HasField("request"):
        raise BadCall("after the handshake every message must have a request")
    return message


class Streams:
    """The open streams by call. `stopping` ends them, and refuses new ones."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.open: Counter[str] = Counter(ReadFn=0, AckFn=0)

    @asynccontextmanager
    async def opened(
        self, call: str, requests: AsyncIterator[Message], context: Context
    ) -> AsyncIterator[Stream[Message] | None]:
        """None if the client left before its handshake. Ends the call with a status if anything is raised inside."""
        self.open[call] += 1
        try:
            async with failures_as_status(call, context):
                if self.stopping.is_set():
                    await context.abort(grpc.StatusCode.UNAVAILABLE, "the source is stopping")
                stream = Stream(requests, self.stopping)
                if await stream.shook_hands():
                    metrics.SESSIONS.labels(call).inc()
                    yield stream
                else:
                    yield None
        finally:
            self.open[call] -= 1


@asynccontextmanager
async def failures_as_status(call: str, context: Context) -> AsyncIterator[None]:
    """Ends the call with a status if anything is raised inside: the client reconnects and gets every record again."""
    try:
        yield
    except (BadCall, DecodeError) as error:
        metrics.BAD_CALLS.labels(call).inc()
        log.warning("bad_call", call=call, text=str(error))
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"{call}: {error}")
    except BusError as error:
        metrics.BUS_FAILURES.labels(call).inc()
        log.error("bus_failed", call=call, error=str(error))
        code = grpc.StatusCode.UNAVAILABLE if error.retryable else grpc.StatusCode.INTERNAL
        await context.abort(code, str(error))
