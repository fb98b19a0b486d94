"""The Numaflow source and the reader of sources, killed at any moment: real processes, a real Redis, real sockets."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import grpc
import grpc.aio
import pytest

from bus.api import Record
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from protobuf import source_superset_pb2 as source
from tests.gateways.numaflow.peer import Peer
from tests.gateways.numaflow_sources.source_server import SourceServer, result

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).resolve().parent.parent.parent
#: Reads, reports it, and waits to be killed.
CLIENT = """
import asyncio, sys
from pathlib import Path
from tests.gateways.numaflow.peer import Peer

async def main():
    found = await Peer(Path(sys.argv[1])).read(10, timeout_ms=30000)
    print(len(found), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Gateways:
    """The process `gateways`, serving the topic `mine` and reading the source `other` into `theirs`."""

    def __init__(self, url: str, folder: Path, mine: str = "mine", *, theirs: str = "theirs") -> None:
        self.socket = folder / "own" / "source.sock"
        self.info = folder / "own" / "sourcer-server-info"
        settings = {
            "BUS__URL": url,
            "DATA_DIR": str(folder / "data"),
            "HTTP__BIND": "127.0.0.1:0",
            "GATEWAYS__NUMAFLOW__ENABLED": "true",
            "GATEWAYS__NUMAFLOW__SOCKET": str(self.socket),
            "GATEWAYS__NUMAFLOW__SERVER_INFO": str(self.info),
            "GATEWAYS__NUMAFLOW__TOPIC": mine,
            "INGESTOR__NUMAFLOW__OTHER__SOCKET": str(folder / "other.sock"),
            "INGESTOR__NUMAFLOW__OTHER__SERVER_INFO": str(folder / "sourcer-server-info"),
            "INGESTOR__NUMAFLOW__OTHER__TOPIC": theirs,
            "INGESTOR__NUMAFLOW__OTHER__MAX_RECORDS": "20",
        }
        self._environment = {**os.environ, **{f"CANDLEWRIGHT_{name}": value for name, value in settings.items()}}
        self._process: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """A killed process leaves its files: the info file belongs to the new process once it names that one."""
        old = self.info.stat().st_mtime_ns if self.info.exists() else None
        self._process = subprocess.Popen([sys.executable, "-m", "gateways"], cwd=ROOT, env=self._environment)
        await until(lambda: self.info.exists() and self.info.stat().st_mtime_ns != old)

    def end(self, number: signal.Signals) -> int:
        if self._process is None:
            return 0
        self._process.send_signal(number)
        code = self._process.wait(60)
        self._process = None
        return code


@pytest.fixture(scope="module")
def bus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisBus]:
    with EmbeddedRedis(tmp_path_factory.mktemp("redis"), fsync="no") as server:
        bus = RedisBus(server.url)
        yield bus
        bus.close()


@pytest.fixture
async def gateways(bus: RedisBus, tmp_path: Path) -> AsyncIterator[Gateways]:
    found = Gateways(bus.url, tmp_path)
    yield found
    found.end(signal.SIGKILL)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def all_of(peer: Peer) -> list[source.ReadResponse.Result]:
    found: list[source.ReadResponse.Result] = []
    while batch := await peer.read(40, timeout_ms=200):
        found += batch
    return found


async def test_a_killed_client_and_a_killed_gateway_lose_and_acknowledge_nothing(
    bus: RedisBus, gateways: Gateways
) -> None:
    bus.publish("mine", [Record(b"%d" % n, key=b"key %d" % n) for n in range(30)])
    await gateways.start()
    child = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(gateways.socket)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    line = await asyncio.to_thread(child.stdout.readline)
    assert line == "10\n"
    child.kill()
    child.wait()
    child.stdout.close()

    peer = Peer(gateways.socket)
    before = {bytes(each.offset.offset): each.payload for each in await all_of(peer)}
    assert sorted(before.values()) == sorted(b"%d" % n for n in range(30))
    done, held = list(before)[:5], list(before)[5]
    await peer.ack(*(source.Offset(offset=offset) for offset in done))
    await peer.nack(source.Offset(offset=held), delay=600_000)
    await peer.read(5)
    gateways.end(signal.SIGKILL)
    await peer.close()
    assert gateways.info.exists()

    await gateways.start()
    peer = Peer(gateways.socket)
    after = {bytes(each.offset.offset): each.payload for each in await all_of(peer)}
    assert after == {offset: payload for offset, payload in before.items() if offset not in (*done, held)}
    await peer.ack(*(source.Offset(offset=offset) for offset in after))
    # Records that were given back for later are still to come.
    assert await peer.pending() == 1
    await peer.close()
    assert gateways.end(signal.SIGTERM) == 0
    assert not gateways.socket.exists()
    assert not gateways.info.exists()


async def test_kills_of_gateway_and_redis_between_a_source_and_its_reader_lose_and_invent_nothing(
    tmp_path: Path,
) -> None:
    """The platform reads a source and serves the same records as a source."""
    total = 1_200
    payloads = sorted(b"%d" % n for n in range(total))
    other = SourceServer(tmp_path)
    other.add([result(payload, payload) for payload in payloads])
    await other.start()
    with EmbeddedRedis(tmp_path / "redis", fsync="always") as server:
        gateways = Gateways(server.url, tmp_path, "chain", theirs="chain")
        seen: dict[bytes, bytes] = {}
        reading: asyncio.Task[None] | None = None
        try:
            await gateways.start()
            reading = asyncio.create_task(read_and_acknowledge(gateways.socket, seen, total))
            for enough, kills_redis in ((1, False), (250, True), (500, False), (750, True), (1_000, False)):
                await until(lambda enough=enough: len(seen) >= enough)  # type: ignore[misc]
                if kills_redis:
                    server.kill()
                    server.start()
                else:
                    gateways.end(signal.SIGKILL)
                    await gateways.start()
            await asyncio.wait_for(reading, 120)
            await until(lambda: len(set(other.acknowledged)) == total)
            bus = RedisBus(server.url)
            assert sum(bus.pending("chain", "numaflow").values()) == 0
            found = [record.value for p in range(bus.partitions("chain")) for record in read_all(bus, "chain", p)]
            bus.close()
            assert gateways.end(signal.SIGTERM) == 0
        finally:
            if reading is not None:
                reading.cancel()
            gateways.end(signal.SIGKILL)
            await other.stop()
    assert sorted(found) == payloads
    assert sorted(seen.values()) == payloads


async def read_and_acknowledge(socket: Path, seen: dict[bytes, bytes], total: int) -> None:
    """`seen`: payloads by offset, before they are acknowledged: if the answer is lost, the outcome is unknown."""
    waiting = total
    while waiting:
        peer = Peer(socket)
        try:
            while waiting:
                async with asyncio.timeout(20):
                    batch = await peer.read(20, timeout_ms=200)
                    for each in batch:
                        assert seen.setdefault(bytes(each.offset.offset), each.payload) == each.payload
                    await peer.ack(*(each.offset for each in batch))
                    waiting = total - len(seen) or await peer.pending()
        except (grpc.aio.AioRpcError, EOFError, TimeoutError, asyncio.InvalidStateError):
            await asyncio.sleep(0.05)
        finally:
            await peer.close()


def read_all(bus: RedisBus, topic: str, partition: int) -> list[Record]:
    found: list[Record] = []
    while records := bus.read(topic, partition, len(found)):
        found += [Record(record.value) for record in records]
    return found
