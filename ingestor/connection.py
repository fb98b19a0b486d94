"""One DEALER socket to a broker, and the news that its peer is gone, or never answered."""

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
#: With several brokers: one that is stopped counts as lost after `ALIVE_MILLISECONDS`, one that does not shake hands
#: after `HANDSHAKE_SECONDS`, and after one that refuses there is a pause.
ASK_MILLISECONDS, ALIVE_MILLISECONDS = 1_000, 3_000
HANDSHAKE_SECONDS, PAUSE_SECONDS = 2.0, 0.2
_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED


class Connection:
    """`on_frames` gets each message, `on_lost` is called once when the TCP connection breaks.

    `moves_on`: there are other brokers, so that one which refuses or does not answer counts as lost, too.
    """

    def __init__(
        self,
        context: "zmq.asyncio.Context",
        address: str,
        on_frames: Callable[[Sequence[bytes]], None],
        on_lost: Callable[[], None],
        *,
        moves_on: bool = False,
    ) -> None:
        self._socket = context.socket(zmq.DEALER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, frames.MAX_FRAME_BYTES)
        self._socket.setsockopt(zmq.SNDHWM, MAX_UNSENT)
        self._socket.setsockopt(zmq.LINGER, 1_000)
        self._socket.setsockopt(zmq.RECONNECT_IVL, 100)
        self._socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1_000)
        if moves_on:
            self._socket.setsockopt(zmq.HEARTBEAT_IVL, ASK_MILLISECONDS)
            self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, ALIVE_MILLISECONDS)
        self._moves_on = moves_on
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
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
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS if self._moves_on else None) as until:
                while True:
                    event = await self._event()
                    if event == zmq.EVENT_DISCONNECTED:
                        break
                    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                        until.reschedule(None)
                    elif self._moves_on:
                        await asyncio.sleep(PAUSE_SECONDS)
                        break
        except TimeoutError:
            pass
        self._on_lost()

    async def _event(self) -> int:
        message = cast("Awaitable[dict[str, Any]]", recv_monitor_message(self._monitor))
        return int((await message)["event"])


def _count_unsent(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled() and future.exception() is not None:
        metrics.DROPPED_FRAMES.inc()
