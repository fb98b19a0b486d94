"""Continuous reading of the bus, even of one that has lost records that were already read."""

import threading
import time
from collections.abc import Callable

from bus.api import Bus, Record
from core.metrics import REGISTRY
from relay.live.follower import Follower
from relay.store import RelayStore
from tests.fresh_bus import FreshBus
from tests.relay.harness import config

TOPIC = "read"


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 10
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.01)


class Reader(Follower):
    def __init__(self, bus: Bus, relay_store: RelayStore, offset: int) -> None:
        super().__init__("reader", bus, relay_store, publish=lambda batch, seconds: True)
        self.next = {(TOPIC, 0): offset}
        self.values: list[bytes] = []

    def _resume(self, stop: threading.Event) -> None:
        known = {partition: offset for (_, partition), offset in self.next.items()}
        self.next = {(TOPIC, p): offset for p, offset in self._kept(TOPIC, known, lambda state: state.end).items()}

    def _round(self, stop: threading.Event) -> None:
        for place in self._wait(self.next, 0.01):
            for record in self._read(*place, self.next[place]):
                self.values.append(record.value)
                self.next[place] = record.offset + 1


def test_a_store_that_lost_read_records_is_followed_from_its_end() -> None:
    bus = FreshBus()
    bus.create_topic(TOPIC, 1)
    bus.publish(TOPIC, [Record(b"kept")])
    reader = Reader(bus, RelayStore(bus, config()), offset=1)
    stop = threading.Event()
    thread = threading.Thread(target=reader.run, args=(stop,))
    thread.start()
    try:
        eventually(lambda: not reader.problem)
        # The store held ten more records before it came back with these.
        reader.next = {(TOPIC, 0): 11}
        eventually(lambda: reader.next == {(TOPIC, 0): 1})
        bus.publish(TOPIC, [Record(b"new")])
        eventually(lambda: reader.values == [b"new"])
    finally:
        stop.set()
        thread.join(10)


def test_records_that_were_trimmed_unread_are_counted() -> None:
    bus = FreshBus()
    bus.create_topic("short", 1)
    bus.publish("short", [Record(b"%d" % n) for n in range(4)])
    bus.trim("short", keep_seconds=1e9, keep_bytes=0)
    bus.publish("short", [Record(b"new")])
    reader = Reader(bus, RelayStore(bus, config()), offset=0)
    assert [record.value for record in reader._read("short", 0, 1)] == [b"new"]
    assert REGISTRY.get_sample_value("candlewright_relay_unread_records_total", {"topic": "short"}) == 3
