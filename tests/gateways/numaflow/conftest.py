"""The source over a bus, and clients on its socket."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from bus.api import Record
from candlewright.wire.errors import BusUnavailable
from core.metrics import REGISTRY
from core.settings_gateways import NumaflowSettings
from gateways.numaflow.server import NumaflowSource
from protobuf import source_superset_pb2 as source
from tests.fresh_bus import FreshBus
from tests.gateways.numaflow.peer import Peer

Serve = Callable[..., Awaitable[NumaflowSource]]
Connect = Callable[[NumaflowSource], Peer]


class ShakyBus(FreshBus):
    """A bus whose store can be down."""

    is_away = False
    waits = 0

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions=partitions)
        self.asked: list[int] = []
        self.acknowledged: list[int] = []
        self.forgotten: list[tuple[str, str, str]] = []

    def wait(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self.waits += 1
        return super().wait(*arguments, **options)

    def drop(self, topic: str, partition: int, records: int) -> None:
        """Drop records without the platform's knowledge, as an XTRIM by another program does."""
        self._store.call("XTRIM", f"cw:log:{topic}:{partition}", "MINID", f"{records}-1")
        self._store.call("HSET", f"cw:topic:{topic}", f"{partition}:first", records)

    def _check(self) -> None:
        if self.is_away:
            raise BusUnavailable("the store is down")

    def create_group(self, topic: str, group: str, *, at_end: bool) -> None:
        self._check()
        super().create_group(topic, group, at_end=at_end)

    def acknowledge(self, topic: str, group: str, partition: int, *, offsets: Sequence[int], **options) -> int:  # type: ignore[no-untyped-def]
        self._check()
        self.acknowledged.append(len(offsets))
        return super().acknowledge(topic, group, partition, offsets=offsets, **options)

    def read_group(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self._check()
        self.asked.append(options["max_records"])
        return super().read_group(*arguments, **options)

    def forget_consumer(self, topic: str, group: str, consumer: str) -> None:
        self._check()
        self.forgotten.append((topic, group, consumer))

    def groups(self, topic: str) -> list[str]:
        self._check()
        return super().groups(topic)

    def next_offsets(self, topic: str, group: str) -> dict[int, int]:
        self._check()
        return super().next_offsets(topic, group)

    def put(self, *arguments, **options):  # type: ignore[no-untyped-def]
        self._check()
        super().put(*arguments, **options)


@pytest.fixture
def bus() -> ShakyBus:
    return ShakyBus(partitions=2)


@pytest.fixture
async def serve(bus: ShakyBus, tmp_path: Path) -> AsyncIterator[Serve]:
    started: list[NumaflowSource] = []

    async def start(replica: str = "one", **settings: object) -> NumaflowSource:
        own = NumaflowSettings.model_validate(
            {
                "socket": str(tmp_path / f"{replica}.sock"),
                "server_info": str(tmp_path / replica / "sourcer-server-info"),
                "topic": "t",
                "replica": replica,
                "grace_seconds": 1.0,
                **settings,
            }
        )
        gateway = NumaflowSource(own, bus)
        await gateway.start()
        started.append(gateway)
        return gateway

    yield start
    for gateway in started:
        await gateway.stop()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    peers: list[Peer] = []

    def make(gateway: NumaflowSource) -> Peer:
        peers.append(Peer(Path(str(gateway.details()["socket"]))))
        return peers[-1]

    yield make
    for peer in peers:
        await peer.close()


def payloads(found: list[source.ReadResponse.Result]) -> list[bytes]:
    return [each.payload for each in found]


def publish(bus: FreshBus, *values: bytes, topic: str = "t", partition: int | None = 0) -> None:
    bus.publish(topic, [Record(value, partition=partition) for value in values])


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0
