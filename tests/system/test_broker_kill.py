"""The broker as a process over a real Redis, killed repeatedly under load."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import ingestor_pb2 as ing
from tests.broker.harness import START, Client, eventually

ROOT = Path(__file__).resolve().parents[2]
KILLS = 6
REQUESTS = 24


class BrokerProcess:
    def __init__(self, folder: Path, bus_url: str) -> None:
        with socket.socket() as free:
            # Below the ports that the kernel gives to connections, which may take a free one before the broker does.
            free.bind(("127.0.0.1", random.randint(20_000, 30_000)))
            self.address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        self._port_file = folder / "broker.http"
        self._environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": bus_url,
            "CANDLEWRIGHT_BROKER__BIND": self.address,
            "CANDLEWRIGHT_BROKER__LEASE_SECONDS": "2",
            "CANDLEWRIGHT_BROKER__HEARTBEAT_SECONDS": "0.5",
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(self._port_file),
            "CANDLEWRIGHT_LOG__LEVEL": "error",
            # Started again only after its end, as by a supervisor.
            "CANDLEWRIGHT_SUPERVISED": "test/broker",
        }
        self.start()

    def start(self) -> None:
        self._port_file.unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, "-m", "broker"], env=self._environment, cwd=ROOT)
        eventually(self.is_ready)

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port_file.read_text()}/status", timeout=5) as page:
                return bool(json.load(page)["ready"])
        except OSError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "redis") as server:
        yield server


def test_every_accepted_request_ends_once_though_the_broker_is_killed(redis: EmbeddedRedis, tmp_path: Path) -> None:
    bus = RedisBus(redis.url)
    client = Client(bus)
    broker = BrokerProcess(tmp_path, redis.url)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(ROOT / "examples" / "ingestor.py"), broker.address, "EXAMPLE", "3"]
    workers = [subprocess.Popen(command, env=environment, cwd=ROOT) for _ in range(2)]
    pause, chance = threading.Event(), random.Random(7)
    try:
        names = []
        for _ in range(KILLS):
            for _ in range(REQUESTS // KILLS):
                names.append(client.submit(rows=12_000, ticker="BTC/USDT.EXAMPLE", start=START))
            pause.wait(chance.uniform(0.05, 0.8))
            broker.kill()
            broker.start()
            # An ingestor takes 15 silent seconds to notice; new ones come at once.
            workers.append(subprocess.Popen(command, env=environment, cwd=ROOT))
        eventually(lambda: sum(_ends(client).values()) >= len(names), seconds=100)
        assert _ends(client) == Counter(names)
        for name in names:
            [end] = client.ends(name)
            assert (end.status, end.rows) == (ing.HistoryReadyNotification.OK, 12_000)
            pieces = sorted((piece.start_time, piece.end_time, piece.rows) for piece in client.pieces(name))
            assert sum(rows for _, _, rows in pieces) == 12_000
            assert all(left[1] == right[0] for left, right in pairwise(pieces))
        broker.process.send_signal(signal.SIGTERM)
        assert broker.process.wait(20) == 0
    finally:
        for process in [broker.process, *workers]:
            process.kill()
            process.wait()
        bus.close()


def _ends(client: Client) -> Counter[str]:
    ended = [outcome.request for outcome in client.outcomes() if outcome.HasField("request")]
    return Counter(end.request_id for end in ended)
