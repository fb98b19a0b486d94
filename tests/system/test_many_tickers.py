"""Hundreds of tickers on one ingestor: an exchange, broker, relay and Redis around it, and one plain subscriber."""

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

from bus.embedded import EmbeddedRedis
from protobuf.candlewright_pb2 import TickBatch

pytestmark = pytest.mark.timeout(700)

TICKERS = 300
PAIRS = [f"T{number}/USDT" for number in range(TICKERS)]
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
    """`notifications`, `exchange`: where the relay publishes, and the exchange's URL."""

    def __init__(self, folder: Path, redis_url: str) -> None:
        broker, requests, notifications, exchange = free_ports(4)
        self.notifications = f"tcp://127.0.0.1:{notifications}"
        self.exchange = f"http://127.0.0.1:{exchange}"
        settings = {
            "DATA_DIR": str(folder),
            "BUS__URL": redis_url,
            "BROKER__BIND": f"tcp://127.0.0.1:{broker}",
            "RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{requests}",
            "RELAY__NOTIFICATIONS_BIND": self.notifications,
            "INGESTOR__VENUES": '["BINANCE"]',
            "INGESTOR__RATE_LIMIT": "false",
            "INGESTOR__REQUEST_TIMEOUT_SECONDS": "60",
            "INGESTOR__SLOTS_REALTIME": str(TICKERS),
            "EXCHANGE": json.dumps({"BINANCE": {"url": self.exchange}}),
            "HTTP__BIND": "127.0.0.1:0",
            "SANDBOX__PORT": str(exchange),
            "SANDBOX__SEED": "3",
            "SANDBOX__CLOCK": "2024-03-05T12:34:20",
            "SANDBOX__RATE_LIMIT": "false",
            "SANDBOX__SYMBOLS": json.dumps(PAIRS),
        }
        self._environment = {**os.environ, **{f"CANDLEWRIGHT_{name}": value for name, value in settings.items()}}
        parts = ("sandbox", "broker", "relay", "ingestor")
        parts = ("sandbox", "broker", "relay", "ingestor")
        with (folder / "parts.log").open("wb") as log:
            self._processes = [
                subprocess.Popen([sys.executable, "-m", part], env=self._environment, stdout=log, stderr=log)
                for part in parts
            ]

    def ask(self, path: str) -> Any:
        with urllib.request.urlopen(f"{self.exchange}{path}", timeout=60) as answer:
            return json.load(answer)

    def streams(self) -> list[list[str]]:
        """Of each connection that the exchange has."""
        connections: list[list[str]] = self.ask("/sandbox/state")["connections"]
        return connections

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(20)


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[Platform]:
    with EmbeddedRedis(tmp_path / "redis") as redis:
        made = Platform(tmp_path, redis.url)
        try:
            yield made
        finally:
            made.close()


def test_one_ingestor_streams_hundreds_of_tickers_without_losing_a_trade(platform: Platform) -> None:
    topics = [f"TICKS:{pair}.BINANCE" for pair in PAIRS]
    context = zmq.Context()
    socket = context.socket(zmq.SUB)
    try:
        socket.setsockopt(zmq.RCVHWM, 0)
        socket.connect(platform.notifications)
        for topic in topics:
            socket.subscribe(topic)
        batches: dict[str, list[TickBatch]] = defaultdict(list)
        give_up = time.monotonic() + PATIENCE_SECONDS
        count = 0
        while len(batches) < TICKERS or count < 10 * TICKERS:
            assert time.monotonic() < give_up, f"{count} trades of {len(batches)} tickers only"
            if socket.poll(1_000):
                name, _, body = socket.recv_multipart()
                assert body[0] == TICK_BATCH
                batches[name.decode()].append(TickBatch.FromString(body[1:]))
                count += len(batches[name.decode()][-1].timestamp)
        assert sorted(batches) == sorted(topics)
        for pair in PAIRS:
            told = _numbered(batches[f"TICKS:{pair}.BINANCE"])
            newest = platform.ask(f"/api/v3/trades?symbol={pair.replace('/', '')}&limit=1000")
            by_id = {str(row["id"]): (row["time"] * 10**6, float(row["price"]), float(row["qty"])) for row in newest}
            assert told == [(name, *by_id[name]) for name, *_ in told]
            first = int(told[0][0])
            assert [int(name) for name, *_ in told] == list(range(first, first + len(told)))
        assert sum(map(len, platform.streams())) == TICKERS
        for topic in topics:
            socket.unsubscribe(topic)
        give_up = time.monotonic() + PATIENCE_SECONDS
        while any(platform.streams()):
            assert time.monotonic() < give_up, "streams that nobody wants go on"
            socket.poll(200)
    finally:
        context.destroy(linger=0)


def _numbered(batches: list[TickBatch]) -> list[tuple[str, int, float, float]]:
    """(id, time, price, size) of all trades; their numbers have no hole."""
    trades: list[tuple[str, int, float, float]] = []
    number = batches[0].first_sequence
    for batch in batches:
        assert batch.first_sequence == number
        number += len(batch.timestamp)
        trades += zip(batch.trade_id, batch.timestamp, batch.price, batch.size, strict=True)
    return trades
