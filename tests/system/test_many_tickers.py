"""Many tickers on one ingestor, hundreds in the long form, with an exchange, broker, relay, Redis and a subscriber."""

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from bus.redis.embedded import EmbeddedRedis
from candlewright.wire.candlewright_pb2 import TickBatch

pytestmark = pytest.mark.timeout(700)

TICKERS, LONG_TICKERS = 60, 200
TICK_BATCH = 0x42
PATIENCE_SECONDS = 300.0


def free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


class Platform:
    """`notifications`, `exchange`: where the relay publishes, and the exchange's URL, which has these `pairs`."""

    def __init__(self, folder: Path, redis_url: str, tickers: int) -> None:
        self.pairs = [f"T{number}/USDT" for number in range(tickers)]
        broker, requests, notifications, exchange = free_ports(4)
        self.notifications = f"tcp://127.0.0.1:{notifications}"
        self.exchange = f"http://127.0.0.1:{exchange}"
        settings = {
            "DATA_DIR": str(folder),
            "BUS__URL": redis_url,
            "BROKER__LEASE_SECONDS": "2",
            "BROKER__HEARTBEAT_SECONDS": "0.5",
            "BROKER__BIND": f"tcp://127.0.0.1:{broker}",
            "RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{requests}",
            "RELAY__NOTIFICATIONS_BIND": self.notifications,
            "INGESTOR__VENUES": '["BINANCE"]',
            "INGESTOR__RATE_LIMIT": "false",
            "INGESTOR__REQUEST_TIMEOUT_SECONDS": "60",
            "INGESTOR__SLOTS_REALTIME": str(tickers),
            "EXCHANGE": json.dumps({"BINANCE": {"url": self.exchange}}),
            "HTTP__BIND": "127.0.0.1:0",
            "SANDBOX__PORT": str(exchange),
            "SANDBOX__SEED": "3",
            "SANDBOX__CLOCK": "2024-03-05T12:34:20",
            "SANDBOX__RATE_LIMIT": "false",
            # With this many tickers, the rarest one needs twice the time.
            "SANDBOX__SPEED": "3",
            "SANDBOX__SYMBOLS": json.dumps(self.pairs),
        }
        self._environment = {**os.environ, **{f"CANDLEWRIGHT_{name}": value for name, value in settings.items()}}
        self._log = folder / "parts.log"
        self._processes: list[subprocess.Popen[bytes]] = []
        for part in ("sandbox", "broker", "relay", "ingestor"):
            self.start(part)

    def start(self, part: str) -> None:
        with self._log.open("ab") as log:
            command = [sys.executable, "-m", part]
            self._processes.append(subprocess.Popen(command, env=self._environment, stdout=log, stderr=log))

    def replace_the_ingestor(self) -> None:
        """Replace the ingestor, as the supervisor does after a crash."""
        self._processes[-1].kill()
        self._processes[-1].wait(20)
        self.start("ingestor")

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.exchange}{path}", timeout=60) as answer:
            return json.load(answer)

    def streams(self) -> list[list[str]]:
        """The streams of each connection at the exchange."""
        connections: list[list[str]] = self.ask("/sandbox/state")["connections"]
        return connections

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(20)


@pytest.fixture(params=[TICKERS, pytest.param(LONG_TICKERS, marks=pytest.mark.long)])
def platform(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Platform]:
    with EmbeddedRedis(tmp_path / "redis") as redis:
        made = Platform(tmp_path, redis.url, request.param)
        try:
            yield made
        finally:
            made.close()


class Subscriber:
    """A subscriber; `batches` are by topic."""

    def __init__(self, address: str, topics: list[str]) -> None:
        self.batches: dict[str, list[TickBatch]] = defaultdict(list)
        self._context = zmq.Context()
        self._topics = topics
        self._socket = self._context.socket(zmq.SUB)
        self._socket.setsockopt(zmq.RCVHWM, 0)
        self._socket.connect(address)
        for topic in topics:
            self._socket.subscribe(topic)

    def take(self, trades: int) -> None:
        """Receive until this many more trades have arrived, and some on every topic."""
        give_up = time.monotonic() + PATIENCE_SECONDS
        count = 0
        heard: set[bytes] = set()
        while len(heard) < len(self._topics) or count < trades:
            assert time.monotonic() < give_up, f"{count} trades of {len(heard)} tickers only"
            if self._socket.poll(1_000):
                name, _, body = self._socket.recv_multipart()
                assert body[0] == TICK_BATCH
                batch = TickBatch.FromString(body[1:])
                self.batches[name.decode()].append(batch)
                heard.add(name)
                count += len(batch.timestamp)

    def unsubscribe(self) -> None:
        for topic in self._topics:
            self._socket.unsubscribe(topic)

    def close(self) -> None:
        self._context.destroy(linger=0)


def test_one_ingestor_streams_many_tickers_and_another_continues_without_losing_a_trade(
    platform: Platform,
) -> None:
    pairs = platform.pairs
    subscriber = Subscriber(platform.notifications, [f"TICKS:{pair}.BINANCE" for pair in pairs])
    try:
        subscriber.take(5 * len(pairs))
        assert sum(map(len, platform.streams())) == len(pairs)
        platform.replace_the_ingestor()
        subscriber.take(2 * len(pairs))
        for pair in pairs:
            told = _numbered(subscriber.batches[f"TICKS:{pair}.BINANCE"])
            newest = platform.ask(f"/api/v3/trades?symbol={pair.replace('/', '')}&limit=1000")
            by_id = {str(row["id"]): (row["time"] * 10**6, float(row["price"]), float(row["qty"])) for row in newest}
            assert told == [(name, *by_id[name]) for name, *_ in told]
            first = int(told[0][0])
            assert [int(name) for name, *_ in told] == list(range(first, first + len(told)))
        subscriber.unsubscribe()
        give_up = time.monotonic() + PATIENCE_SECONDS
        while any(platform.streams()):
            assert time.monotonic() < give_up, "streams without subscribers continue"
            time.sleep(0.2)
    finally:
        subscriber.close()


def _numbered(batches: list[TickBatch]) -> list[tuple[str, int, float, float]]:
    """(id, time, price, size) of all trades; their numbers have no hole."""
    trades: list[tuple[str, int, float, float]] = []
    number = batches[0].first_sequence
    for batch in batches:
        assert batch.first_sequence == number
        number += len(batch.timestamp)
        trades += zip(batch.trade_id, batch.timestamp, batch.price, batch.size, strict=True)
    return trades
