"""Two ingestor processes, a real broker and a real Redis: a ticker outlives the ingestor that streams it."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bus import Bus, Record
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from bus.topics import REQUESTS, TICK_MARKS, TICKS
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire import tick_columns
from core.settings import BusSettings
from protobuf import records_pb2 as records
from sandbox.serving.thread import SandboxThread

TICKER = "BTC/USDT.BINANCE"


class Parts:
    """Processes over one Redis and one exchange; all are killed at the end."""

    def __init__(self, folder: Path, redis_url: str, exchange_url: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._environment = {
            **os.environ,
            "CANDLEWRIGHT_DATA_DIR": str(folder),
            "CANDLEWRIGHT_BUS__URL": redis_url,
            "CANDLEWRIGHT_BROKER__BIND": f"tcp://127.0.0.1:{port}",
            "CANDLEWRIGHT_BROKER__LEASE_SECONDS": "2",
            "CANDLEWRIGHT_INGESTOR__VENUES": '["BINANCE"]',
            "CANDLEWRIGHT_INGESTOR__RATE_LIMIT": "false",
            "CANDLEWRIGHT_EXCHANGE": f'{{"BINANCE": {{"url": "{exchange_url}"}}}}',
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, part: str) -> "subprocess.Popen[bytes]":
        process = subprocess.Popen([sys.executable, "-m", part], env=self._environment)
        self._processes.append(process)
        return process

    def close(self) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait(20)


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[tuple[Parts, Bus]]:
    with (
        EmbeddedRedis(tmp_path / "redis") as redis,
        SandboxThread(seed=3, rate_limit=False, clock="2024-03-05T12:34:20", speed=20) as exchange,
    ):
        parts = Parts(tmp_path, redis.url, exchange.url)
        bus = connect(BusSettings(url=redis.url))
        try:
            yield parts, bus
        finally:
            parts.close()
            bus.close()


def ask(bus: Bus, request_id: str) -> None:
    now = time.time_ns()
    request = records.Request(accepted_at=now, deadline=now + 10**12)
    request.data.request_id, request.data.ticker = request_id, TICKER
    request.data.type = ing.DataRequest.REALTIME_TICKS
    request.data.realtime.include_ticks = True
    bus.create_topic(REQUESTS, 1)
    bus.publish(REQUESTS, [Record(request.SerializeToString(), key=request_id.encode())])


def ids(bus: Bus) -> list[int]:
    found: list[int] = []
    for partition in range(bus.partitions(TICKS)):
        offset = 0
        while rows := bus.read(TICKS, partition, offset):
            offset = rows[-1].offset + 1
            for row in rows:
                found += [int(text) for text in tick_columns.decode(row.value).trade_id.tolist()]
    return found


def until(condition: Callable[[], Any], seconds: float = 40) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.1)
    return value


def test_a_killed_ingestor_s_ticker_continues_elsewhere_without_a_hole(platform: tuple[Parts, Bus]) -> None:
    parts, bus = platform
    parts.start("broker")
    running = parts.start("ingestor")
    ask(bus, "live")
    name = f"TICKS:{TICKER}"
    for _ in range(3):
        seen = bus.last_sequence(name)
        until(lambda seen=seen: bus.last_sequence(name) > seen + 30)  # type: ignore[misc]
        running.kill()
        running.wait(10)
        running = parts.start("ingestor")
    seen = bus.last_sequence(name)
    until(lambda: bus.last_sequence(name) > seen + 30)
    found = ids(bus)
    assert found == list(range(found[0], found[0] + len(found)))
    marks = [
        records.TickMark.FromString(row.value).WhichOneof("body")
        for partition in range(bus.partitions(TICK_MARKS))
        for row in bus.read(TICK_MARKS, partition, 0)
    ]
    assert marks.count("covered") == 1 and marks.count("gap") == 0
