"""Messages on their way to the bus: those that arrive during a write go out together in the next one.

Each topic has at most one write under way, which keeps the order of one client's messages.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from bus.api import Bus, Position, Record
from candlewright.wire.errors import BusError, BusFull
from core.background import start_task
from core.log import get_logger
from gateways.kafka_pixy import metrics
from gateways.kafka_pixy.bus_calls import BusCalls, make_topic
from gateways.tick_clocks import TickClocks
from gateways.tick_storage import TickStorage

_BATCH_RECORDS = 1_000
_BATCH_BYTES = 4 << 20
#: Asynchronous messages that may wait; a further call waits for room.
_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 64 << 20
#: How long asynchronous messages wait for readers of a full topic.
_FULL_SECONDS = 30.0
_FULL_PAUSE_SECONDS = 0.25
log = get_logger()


@dataclass(slots=True)
class _Message:
    """`written` is None if no caller waits for the outcome."""

    record: Record
    written: asyncio.Future[Position] | None

    @property
    def size(self) -> int:
        return len(self.record.value) + len(self.record.key or b"")


class Producer:
    """`partitions`: for topics that a write makes, 0 for the bus's default; `on_written` gets each write's topic."""

    def __init__(
        self, bus: Bus, calls: BusCalls, partitions: int = 0, *, on_written: Callable[[str], None] = lambda topic: None
    ) -> None:
        self._bus = bus
        self._partitions = partitions
        self._on_written = on_written
        self._calls = calls
        self._lanes: dict[str, deque[_Message]] = {}
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._storage = TickStorage(bus)
        self.clocks = TickClocks(bus)
        self._waiting = 0
        self._waiting_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    @property
    def waiting(self) -> int:
        """Messages not written yet."""
        return self._waiting

    async def write(self, topic: str, record: Record) -> Position:
        """Returns when the record is durable. Raises BusError."""
        future: asyncio.Future[Position] = asyncio.get_running_loop().create_future()
        self._add(topic, _Message(record, future))
        return await future

    async def accept(self, topic: str, record: Record) -> None:
        """Returns when there is room for the record; it is written later."""
        while self._waiting >= _MAX_WAITING or self._waiting_bytes >= _MAX_WAITING_BYTES:
            self._room.clear()
            await self._room.wait()
        self._add(topic, _Message(record, None))

    async def flush(self, timeout_seconds: float) -> int:
        """Write what is waiting; returns how many messages were not written in time."""
        until = time.monotonic() + timeout_seconds
        while self._flights and (left := until - time.monotonic()) > 0:
            await asyncio.wait(list(self._flights.values()), timeout=left)
        for flight in self._flights.values():
            flight.cancel()
        return self._waiting

    def _add(self, topic: str, message: _Message) -> None:
        self._lanes.setdefault(topic, deque()).append(message)
        self._count(1, message.size)
        if topic not in self._flights:
            self._flights[topic] = start_task(lambda: self._run(topic), "kafka-pixy producer")

    def _count(self, messages: int, size: int) -> None:
        self._waiting += messages
        self._waiting_bytes += size
        metrics.WAITING_MESSAGES.set(self._waiting)
        if messages < 0:
            self._room.set()

    async def _run(self, topic: str) -> None:
        lane = self._lanes[topic]
        try:
            while lane:
                await self._write(topic, _batch(lane))
        finally:
            del self._flights[topic]
            if not lane:
                del self._lanes[topic]

    async def _write(self, topic: str, batch: list[_Message]) -> None:
        give_up = time.monotonic() + _FULL_SECONDS
        while batch:
            records = [message.record for message in batch]
            try:
                positions = await self._calls.run(lambda records=records: self._publish(topic, records))  # type: ignore[misc]
            except (
                Exception
            ) as error:  # The outermost loop of a topic: callers get any error, and later messages proceed.
                metrics.BUS_FAILURES.labels("publish").inc()
                log.warning("publish_failed", topic=topic, messages=len(batch), error=repr(error))
                batch = self._failed(batch, error, has_time=time.monotonic() < give_up)
                if batch:
                    await asyncio.sleep(_FULL_PAUSE_SECONDS)
                continue
            self._on_written(topic)
            metrics.PUBLISHES.inc()
            metrics.PRODUCED.inc(len(batch))
            self._count(-len(batch), -sum(message.size for message in batch))
            for message, position in zip(batch, positions, strict=True):
                if message.written is not None and not message.written.done():
                    message.written.set_result(position)
            return

    def _publish(self, topic: str, records: list[Record]) -> list[Position]:
        """On a thread."""
        make_topic(self._bus, topic, self._partitions)
        self._storage.expect(topic, records)
        positions = self._bus.publish(topic, records)
        self.clocks.published(topic, records)
        return positions

    def _failed(self, batch: list[_Message], error: Exception, *, has_time: bool) -> list[_Message]:
        """The part of the batch to retry: a full topic takes none of its records, so a retry repeats none."""
        again = [message for message in batch if message.written is None] if isinstance(error, BusFull) else []
        if not has_time:
            again = []
        for message in batch:
            if message.written is not None and not message.written.done():
                message.written.set_exception(error if isinstance(error, BusError) else BusError(repr(error)))
            elif message.written is None and not again:
                metrics.DROPPED.labels(type(error).__name__).inc()
        self._count(len(again) - len(batch), sum(m.size for m in again) - sum(m.size for m in batch))
        return again


def _batch(lane: deque[_Message]) -> list[_Message]:
    taken = [lane.popleft()]
    size = taken[0].size
    while lane and len(taken) < _BATCH_RECORDS and (size := size + lane[0].size) <= _BATCH_BYTES:
        taken.append(lane.popleft())
    return taken
