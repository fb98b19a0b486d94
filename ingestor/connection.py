"""One DEALER socket to the broker, and the news that its peer is gone."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import zmq
import zmq.asyncio
from google.protobuf.message import Message
from zmq.utils.monitor import recv_monitor_message

from candlewright.wire import frames
from core.background import start_task
from ingestor import metrics

#: Frames that wait for a broker that is away; when there are more the newest are dropped and counted.
MAX_UNSENT = 10_000


class Connection:
    """`on_frames` gets each message, `on_lost` is called once when the TCP connection breaks."""

    def __init__(
        self,
        context: "zmq.asyncio.Context",
        address: str,
        on_frames: Callable[[Sequence[bytes]], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, frames.MAX_FRAME_BYTES)
        self._socket.setsockopt(zmq.SNDHWM, MAX_UNSENT)
        self._socket.setsockopt(zmq.LINGER, 1_000)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._socket.connect(address)
        self._tasks = [start_task(self._read, "broker frames"), start_task(self._watch, "broker connection")]

    def send(self, message: Message) -> None:
        """In order; dropped and counted when too many wait already."""
        future = cast("asyncio.Future[Any]", self._socket.send_multipart(frames.encode(message), flags=zmq.NOBLOCK))
        future.add_done_callback(_count_unsent)

    def close(self, linger_milliseconds: int = 1_000) -> None:
        """What was sent still has the linger time to leave."""
        for task in self._tasks:
            task.cancel()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_milliseconds)

    async def _read(self) -> None:
        while True:
            self._on_frames(await self._socket.recv_multipart())

    async def _watch(self) -> None:
        message: Awaitable[object] = recv_monitor_message(self._monitor)
        await message
        self._on_lost()


def _count_unsent(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled() and future.exception() is not None:
        metrics.DROPPED_FRAMES.inc()
