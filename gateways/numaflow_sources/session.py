"""A session with a source, as numa has one: from the socket's first answer to the end of its streams."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from google.protobuf.empty_pb2 import Empty

from core.background import awaited_task
from core.settings_gateways import NumaflowSourceSettings
from gateways.numaflow import server_info
from gateways.numaflow.message import MAX_MESSAGE_BYTES
from gateways.numaflow_sources.protocol import Result, SourceRefused, acknowledges_lists, checked
from protobuf import source_superset_pb2 as source

_SOT = source.Handshake(sot=True)
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)
_READY_SECONDS = 1.0
_INFO_SECONDS = 0.2
_ANSWER_SECONDS = 10.0
#: Added to the time that a read may take; a source that stays silent longer is reconnected.
_SILENCE_SECONDS = 60.0


class SourceGone(Exception):
    """The source ended a stream, or has gone silent."""


class SourceSession:
    """Both streams, after their handshakes. Methods raise SourceGone, AioRpcError or TimeoutError if the source fails,
    SourceRefused if it breaks the protocol.
    """

    def __init__(self, channel: grpc.aio.Channel, reads: Any, acks: Any, *, info: server_info.ServerInfo) -> None:
        """Raises SourceRefused if the source cannot be read."""
        self._channel = channel
        self._reads = reads
        self._acks = acks
        self.info = info
        self._lists = acknowledges_lists(info)

    async def read(self, count: int, timeout_ms: int) -> AsyncIterator[Result]:
        """One batch."""
        request = source.ReadRequest.Request(num_records=count, timeout_in_ms=timeout_ms)
        await _write(self._reads, source.ReadRequest(request=request))
        seconds = timeout_ms / 1_000 + _SILENCE_SECONDS
        while not (answer := await _next(self._reads, seconds)).status.eot:
            yield checked(answer)

    async def acknowledge(self, offsets: Sequence[source.Offset]) -> None:
        """In one list, or one offset per request and answer; answers are read while requests are written."""
        groups = [offsets] if self._lists else [[offset] for offset in offsets]

        async def write() -> None:
            for each in groups:
                await _write(self._acks, source.AckRequest(request=source.AckRequest.Request(offsets=each)))

        writing = awaited_task(write())
        try:
            for _ in groups:
                await _next(self._acks, _SILENCE_SECONDS)
            await writing
        finally:
            writing.cancel()

    async def pending(self) -> int:
        """-1 if the source does not know."""
        return int((await _asked(self._channel, "PendingFn", source.PendingResponse)).result.count)

    async def close(self) -> None:
        for stream in (self._reads, self._acks):
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                await stream.done_writing()


@asynccontextmanager
async def opened(
    settings: NumaflowSourceSettings, stopping: asyncio.Event, doing: Callable[[str], None]
) -> AsyncIterator[SourceSession | None]:
    """Waits for socket, readiness and info file; reports each to `doing`. None if asked to stop meanwhile."""
    async with grpc.aio.insecure_channel(f"unix:{settings.socket}", options=_OPTIONS) as channel:
        doing(f"waiting for {settings.socket}")
        if not await _is_ready(channel, settings.socket, stopping):
            yield None
            return
        doing(f"waiting for {settings.server_info}")
        info = await _server_info(Path(settings.server_info), stopping)
        if info is None:
            yield None
            return
        acknowledges_lists(info)
        reads = await _stream(channel, "ReadFn", source.ReadRequest, source.ReadResponse)
        acks = await _stream(channel, "AckFn", source.AckRequest, source.AckResponse)
        session = SourceSession(channel, reads, acks, info=info)
        yield session
        await session.close()


async def pause(stopping: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), seconds)


async def _is_ready(channel: grpc.aio.Channel, socket: str, stopping: asyncio.Event) -> bool:
    while not stopping.is_set():
        try:
            if (await _asked(channel, "IsReady", source.ReadyResponse)).ready:
                return True
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                raise SourceRefused(f"{socket} is not a Numaflow source: it has no IsReady") from error
        await pause(stopping, _READY_SECONDS)
    return False


async def _server_info(path: Path, stopping: asyncio.Event) -> server_info.ServerInfo | None:
    while not stopping.is_set():
        try:
            info = server_info.parse(path.read_text())
        except FileNotFoundError:
            info = None
        except ValueError as error:
            raise SourceRefused(f"{path} is not a valid server info file: {error}") from error
        if info is not None:
            return info
        await pause(stopping, _INFO_SECONDS)
    return None


async def _stream(channel: grpc.aio.Channel, name: str, request: Any, response: Any) -> Any:
    stream = channel.stream_stream(
        f"/source.v1.Source/{name}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )()
    await _write(stream, request(handshake=_SOT))
    answer = await _next(stream, _ANSWER_SECONDS)
    if not answer.handshake.sot:
        raise SourceRefused(f"the source does not answer the handshake of {name}")
    return stream


async def _asked(channel: grpc.aio.Channel, name: str, response: Any) -> Any:
    call = channel.unary_unary(
        f"/source.v1.Source/{name}",
        request_serializer=Empty.SerializeToString,
        response_deserializer=response.FromString,
    )
    return _understood(await call(Empty(), timeout=_ANSWER_SECONDS))


async def _write(stream: Any, message: Any) -> None:
    """Raises SourceGone if the stream has ended, AioRpcError if it ends now."""
    try:
        await stream.write(message)
    except asyncio.InvalidStateError as error:
        raise SourceGone(f"the source ended the stream: {await _end_of(stream)}") from error


async def _next(stream: Any, seconds: float) -> Any:
    """Raises SourceGone at the end of the stream, TimeoutError after `seconds`, AioRpcError if it fails,
    SourceRefused for an invalid message.
    """
    answer = await asyncio.wait_for(stream.read(), seconds)
    if answer is grpc.aio.EOF:
        raise SourceGone(f"the source ended the stream: {await _end_of(stream)}")
    return _understood(answer)


def _understood(answer: Any) -> Any:
    """Raises SourceRefused for None, which stands for an unparsable message."""
    if answer is None:
        raise SourceRefused("the source sent an invalid source.v1 message")
    return answer


async def _end_of(stream: Any) -> str:
    return str(await stream.details() or (await stream.code()).name)
