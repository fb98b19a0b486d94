"""Writes the messages of many calls together, and informs the platform of ticks."""

from bus.api import Position, Record
from gateways.rocketmq.calls.lanes import Lane, Room
from gateways.rocketmq.store import Store
from gateways.tick_clocks import TickClocks
from gateways.tick_storage import TickStorage


class Publisher:
    """One write per topic at a time, which keeps one sender's messages in order."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._room = Room()
        self._lanes: dict[str, Lane[Record, Position]] = {}
        self._tick_storage = TickStorage(store.bus)
        self.tick_clocks = TickClocks(store.bus)

    async def publish(self, topic: str, record: Record) -> None:
        """Returns when the record is durable. Raises BusError, and Refused if too much is waiting."""
        lane = self._lanes.get(topic)
        if lane is None:
            lane = self._lanes[topic] = Lane(lambda records: self._store.run(self._write, topic, records), self._room)
        try:
            await lane.do(record, len(record.value))
        finally:
            if lane.is_idle:
                self._lanes.pop(topic, None)

    def expect(self, topic: str, record: Record) -> None:
        """Call this, on a thread, before publishing a record by other means."""
        self._tick_storage.expect(topic, [record])

    def published(self, topic: str, record: Record) -> None:
        """Call this after publishing it."""
        self.tick_clocks.published(topic, [record])

    def _write(self, topic: str, records: list[Record]) -> list[Position]:
        """On a thread."""
        self._tick_storage.expect(topic, records)
        places = self._store.bus.publish(topic, records)
        self.tick_clocks.published(topic, records)
        return places
