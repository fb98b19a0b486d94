"""One DEALER socket to a broker, which reports when the broker is gone or never answered."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import zmq
import zmq.asyncio
from google.protobuf.message import Message
from zmq.utils.monitor import recv_monitor_message

from candlewright.wire import frames
from candlewright.wire.keys import ClientKey
from core.background import start_task
from core.log import get_logger
from ingestor import metrics

#: Frames queued for a broker that is down; beyond this, new frames are dropped and counted.
MAX_UNSENT = 10_000
#: With several brokers: a stopped one counts as lost after `ALIVE_MILLISECONDS`, one that does not complete the
#: handshake after `HANDSHAKE_SECONDS`. A pause follows if no one listens, and a longer one if the door closes at once.
ASK_MILLISECONDS, ALIVE_MILLISECONDS = 1_000, 3_000
HANDSHAKE_SECONDS, PAUSE_SECONDS, CLOSED_SECONDS = 2.0, 0.2, 1.0
_REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_CONNECT_RETRIED | _REFUSED
#: The shortest time between two log lines about a broker that refuses, since libzmq retries several times a second.
TELL_SECONDS = 10.0
log = get_logger()


class Connection:
    """`on_frames` receives each message; `on_lost` is called once, when the connection breaks. `key`: the CURVE key
    that a broker with keys on requires. While a broker does not let the ingestor in, libzmq itself retries.

    `moves_on`: other brokers exist, so one that refuses or does not answer also counts as lost.
    """

    def __init__(
        self,
        context: "zmq.asyncio.Context",
        address: str,
        on_frames: Callable[[Sequence[bytes]], None],
        *,
        on_lost: Callable[[], None],
        moves_on: bool = False,
        key: ClientKey | None = None,
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
        if key is not None:
            self._socket.setsockopt(zmq.CURVE_SERVERKEY, key.platform.encode())
            self._socket.setsockopt(zmq.CURVE_PUBLICKEY, key.public.encode())
            self._socket.setsockopt(zmq.CURVE_SECRETKEY, key.secret.encode())
        self._key = key
        self._tell_at = 0.0
        self._moves_on = moves_on
        self._on_frames = on_frames
        self._on_lost = on_lost
        self._monitor = self._socket.get_monitor_socket(_EVENTS)
        self._socket.connect(address)
        self._tasks = [start_task(self._read, "broker frames"), start_task(self._watch, "broker connection")]

    def send(self, message: Message) -> None:
        """Send in order; the message is dropped and counted if too many are already queued."""
        future = cast("asyncio.Future[Any]", self._socket.send_multipart(frames.encode(message), flags=zmq.NOBLOCK))
        future.add_done_callback(_count_unsent)

    def close(self, linger_milliseconds: int = 1_000) -> None:
        """Close the socket; queued messages may still be sent within the linger time."""
        for task in self._tasks:
            task.cancel()
        self._socket.disable_monitor()
        self._monitor.close(0)
        self._socket.close(linger_milliseconds)

    async def _read(self) -> None:
        while True:
            self._on_frames(await self._socket.recv_multipart())

    async def _watch(self) -> None:
        is_in = False
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS if self._moves_on else None) as until:
                while True:
                    event = await self._event()
                    if event == zmq.EVENT_DISCONNECTED and is_in:
                        break
                    if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                        is_in = True
                        until.reschedule(None)
                    elif event & _REFUSED:
                        self._say_refused()
                    elif self._moves_on:
                        await asyncio.sleep(CLOSED_SECONDS if event == zmq.EVENT_DISCONNECTED else PAUSE_SECONDS)
                        break
        except TimeoutError:
            pass
        self._on_lost()

    def _say_refused(self) -> None:
        """Log the refusal. libzmq keeps retrying, so a key that is created later is accepted."""
        metrics.REFUSED_HANDSHAKES.inc()
        if time.monotonic() >= self._tell_at:
            self._tell_at = time.monotonic() + TELL_SECONDS
            log.warning("key_refused", key="none" if self._key is None else self._key.name, remedy="set ingestor.key")

    async def _event(self) -> int:
        message = cast("Awaitable[dict[str, Any]]", recv_monitor_message(self._monitor))
        return int((await message)["event"])


def _count_unsent(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled() and future.exception() is not None:
        metrics.DROPPED_FRAMES.inc()
