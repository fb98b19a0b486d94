"""The ingestor as a separate process over a real Redis: signals, and a stop past its lease."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from bus.topics import HISTORY
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as records
from tests.ingestor.test_server import NOW, ROWS, FakeBroker
from tests.ingestor.venues_on_loopback import Loopback, binance_kline, loopback, serve_binance

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.timeout(180)


@asynccontextmanager
async def ingestor(redis: EmbeddedRedis, broker: FakeBroker, exchange: Loopback, **more: str) -> AsyncIterator[Process]:
    environment = {
        **os.environ,
        "CANDLEWRIGHT_BUS__URL": redis.url,
        "CANDLEWRIGHT_BROKER__BIND": f"tcp://127.0.0.1:{broker.port}",
        "CANDLEWRIGHT_INGESTOR__VENUES": '["BINANCE"]',
        "CANDLEWRIGHT_INGESTOR__SLOTS_REALTIME": "1",
        "CANDLEWRIGHT_EXCHANGE": json.dumps({"BINANCE": {"url": exchange.url}}),
        "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        **more,
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "ingestor", cwd=ROOT, env=environment)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def stage(folder: Path) -> AsyncIterator[tuple[EmbeddedRedis, RedisBus, FakeBroker, Loopback]]:
    async with loopback() as exchange:
        serve_binance(exchange, [binance_kline(row) for row in ROWS], now=NOW)
        with EmbeddedRedis(folder) as redis:
            bus, broker = RedisBus(redis.url), FakeBroker()
            try:
                yield redis, bus, broker, exchange
            finally:
                await broker.close()
                bus.close()


def rows_of(bus: RedisBus, job_id: str) -> int:
    found = 0
    for partition in range(bus.partitions(HISTORY)):
        for stored in bus.read(HISTORY, partition, 0):
            page = records.HistoryPage.FromString(stored.value)
            found += len(page.open_time) if page.job_id == job_id else 0
    return found


async def test_sigterm_hands_the_job_back_and_exits_0(tmp_path: Path) -> None:
    async with stage(tmp_path) as (redis, bus, broker, exchange), ingestor(redis, broker, exchange) as process:
        connection = await broker.slots(5, seconds=60)
        bus.grant({"j1": b"", "j2": b""})
        broker.dispatch(connection, "j1")
        assert (await broker.completed("j1")).success
        assert rows_of(bus, "j1") == len(ROWS)
        exchange.hangs = True
        broker.dispatch(connection, "j2")
        asked = len(exchange.requests)
        async with asyncio.timeout(20):
            while len(exchange.requests) == asked:
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        complete = await broker.completed("j2")
        assert not complete.success and complete.error_message.startswith("SHUTDOWN: ")
        assert await asyncio.wait_for(process.wait(), 10) == 0


async def test_a_job_stopped_past_its_lease_changes_nothing_and_its_ingestor_offers_slots_again(
    tmp_path: Path,
) -> None:
    lease = {"CANDLEWRIGHT_BROKER__LEASE_SECONDS": "1.5", "CANDLEWRIGHT_BROKER__HEARTBEAT_SECONDS": "30"}
    async with stage(tmp_path) as (redis, bus, broker, exchange), ingestor(redis, broker, exchange, **lease) as process:
        first = await broker.slots(5, seconds=60)
        bus.grant({"j1": b""})
        exchange.hangs = True
        asked = len(exchange.requests)
        broker.dispatch(first, "j1")
        async with asyncio.timeout(20):
            while len(exchange.requests) == asked:
                await asyncio.sleep(0.02)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.5)
        bus.revoke(["j1"])
        broker.send(first, ing.WorkStop(job_id="j1"))
        exchange.hangs = False
        exchange.is_over.set()
        process.send_signal(signal.SIGCONT)
        second = await broker.slots(5, after=5)
        assert second != first
        assert rows_of(bus, "j1") == 0
        bus.grant({"j2": b""})
        broker.dispatch(second, "j2")
        assert (await broker.completed("j2")).success
        assert rows_of(bus, "j2") == len(ROWS)
