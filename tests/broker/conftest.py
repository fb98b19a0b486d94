"""Brokers and peers for the tests of this folder, closed at the end of each test."""

from collections.abc import Iterator
from typing import Any

import pytest

from bus import topics
from candlewright.wire import candlewright_pb2 as cw
from tests.broker.harness import Client, Peer, RunningBroker
from tests.fresh_bus import FreshBus


class Stage:
    """One bus, and the brokers and peers of one test over it."""

    def __init__(self) -> None:
        self.bus = FreshBus()
        self.client = Client(self.bus)
        self._brokers: list[RunningBroker] = []
        self._peers: list[Peer] = []

    def broker(self, **settings: Any) -> RunningBroker:
        self._brokers.append(RunningBroker(self.bus, **settings))
        return self._brokers[-1]

    def peer(self, broker: RunningBroker) -> Peer:
        return self.add(Peer(broker.address))

    def add(self, peer: Peer) -> Peer:
        self._peers.append(peer)
        return peer

    def venue(self, name: str, candles_per_page: int, depth: int = 0) -> None:
        """Put a venue's record on the bus, as its ingestors do."""
        record = cw.Venue(venue=name, max_candles_per_request=candles_per_page, depth_candles=depth)
        self.bus.put(topics.TABLE_VENUES, {name: record.SerializeToString()})

    def close(self) -> None:
        for peer in self._peers:
            peer.close()
        for broker in self._brokers:
            broker.stop()
        self.bus.close()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()
