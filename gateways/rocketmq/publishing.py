"""Messages of many calls written together: what waits while a write is under way is the next one."""

import asyncio
from collections import deque

from bus import topics
from bus.api import Record
from core.errors import CandlewrightError
from gateways.rocketmq.status import RESOURCE_EXHAUSTED, Refused
from gateways.rocketmq.store import Store
from gateways.tick_clocks import TickClocks
from gateways.tick_storage import TickStorage

_BATCH_RECORDS = 500
_BATCH_BYTES = 4 << 20
#: Calls beyond these are refused.
_MAX_WAITING = 20_000
_MAX_WAITING_BYTES = 256 << 20

_Waiting = tuple[Record, "asyncio.Future[None]"]


class Publisher:
    """One write at a time for each topic, so that messages of one sender stay in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lanes: dict[str, deque[_Waiting]] = {}
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._waiting = 0
        self._waiting_bytes = 0
        self._tick_storage = TickStorage(store.bus)
        self.tick_clocks = TickClocks(store.bus)

    async def publish(self, topic: str, record: Record) -> None:
        """Returns when the record is durable. Raises BusError, Refused when too much waits."""
        size = len(record.value)
        if self._waiting >= _MAX_WAITING or self._waiting_bytes + size > _MAX_WAITING_BYTES:
            raise Refused(RESOURCE_EXHAUSTED, f"{self._waiting} messages wait to be written already")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._lanes.setdefault(topic, deque()).append((record, future))
        if topic not in self._flights:
            self._flights[topic] = asyncio.create_task(self._fly(topic))
        self._waiting += 1
        self._waiting_bytes += size
        try:
            await future
        finally:
            self._waiting -= 1
            self._waiting_bytes -= size

    def expect(self, topic: str, record: Record) -> None:
        """To be called, on a thread, before a record is published otherwise."""
        if topic == topics.TICKS and record.key is not None:
            self._tick_storage.want([record.key.decode()])

    def published(self, topic: str, record: Record) -> None:
        """To be called after that."""
        if topic == topics.TICKS:
            self.tick_clocks.published([record])

    async def _fly(self, topic: str) -> None:
        lane = self._lanes[topic]
        batch: list[_Waiting] = []
        try:
            while lane:
                batch = _batch(lane)
                try:
                    await self._store.run(self._write, topic, [record for record, _ in batch])
                except CandlewrightError as error:
                    for _, future in batch:
                        if not future.done():
                            future.set_exception(error)
                for _, future in batch:
                    if not future.done():
                        future.set_result(None)
        finally:
            # Whatever ends this early, nobody is left waiting.
            for _, future in (*batch, *lane):
                future.cancel()
            del self._lanes[topic], self._flights[topic]

    def _write(self, topic: str, records: list[Record]) -> None:
        """On a thread."""
        if not records:
            return
        if topic == topics.TICKS:
            self._tick_storage.want([record.key.decode() for record in records if record.key is not None])
        self._store.bus.publish(topic, records)
        if topic == topics.TICKS:
            self.tick_clocks.published(records)


def _batch(lane: deque[_Waiting]) -> list[_Waiting]:
    """Take the next ones out; of a call that was given up nothing is written."""
    batch: list[_Waiting] = []
    size = 0
    while lane and len(batch) < _BATCH_RECORDS and size < _BATCH_BYTES:
        record, future = lane.popleft()
        if not future.done():
            batch.append((record, future))
            size += len(record.value)
    return batch
