"""Realtime jobs through the ingestor's server: a ROUTER in place of the broker, the sandbox, an empty bus."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from candlewright.wire import ingestor_pb2 as ing
from core.settings import Settings
from ingestor.server import IngestorServer
from ingestor.settings import IngestorConfig
from sandbox.serving.server import Sandbox
from tests.fresh_bus import FreshBus
from tests.ingestor.realtime.stage import ids, until
from tests.ingestor.test_server import FakeBroker

TICKER = "BTC/USDT.BINANCE"


@dataclass
class Stage:
    broker: FakeBroker
    bus: FreshBus
    ingestor: IngestorServer
    task: "asyncio.Task[None]"
    connection: bytes

    async def start(self, job_id: str) -> None:
        self.bus.grant({job_id: b""})
        self.broker.dispatch(self.connection, job_id, type=ing.DataRequest.REALTIME_TICKS, request_id="live")
        await until(lambda: ids(self.bus, TICKER))


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    broker, bus = FakeBroker(), FreshBus()
    async with Sandbox(seed=3, clock="2024-03-05T12:34:20", speed=30, rate_limit=False) as exchange:
        settings = Settings.model_validate(
            {
                "broker": {"bind": f"tcp://127.0.0.1:{broker.port}"},
                "ingestor": {"venues": ["BINANCE"], "slots_historical": 0, "slots_realtime": 2, "rate_limit": False},
                "exchange": {"BINANCE": {"url": exchange.url}},
            }
        )
        server = IngestorServer(settings, bus, replace(IngestorConfig.of(settings), heartbeat=0.5))
        task = asyncio.create_task(server.run())
        try:
            yield Stage(broker, bus, server, task, await broker.slots(2))
        finally:
            server.shut_down()
            await asyncio.wait_for(task, 15)
            await broker.close()


async def test_a_realtime_job_publishes_and_beats_and_ends_with_a_stop() -> None:
    async with staged() as stage:
        await stage.start("j1")
        await stage.broker.until(lambda: len(stage.broker.of(ing.WorkHeartbeat)) >= 3)
        began = time.monotonic()
        stage.broker.send(stage.connection, ing.WorkStop(job_id="j1"))
        complete = await stage.broker.completed("j1")
        assert time.monotonic() - began < 1.0
        assert not complete.success and complete.error_message.startswith("CANCELLED")
        # A stop without a cancellation means a lost lease. The slot is offered again on a connection that may get the
        # same piece, and the job continues the ticker where it stopped.
        lost, stage.connection = stage.connection, await stage.broker.slots(1, after=2)
        assert stage.connection != lost
        count = len(ids(stage.bus, TICKER))
        await stage.start("j2")
        await until(lambda: len(ids(stage.bus, TICKER)) > count)
        found = ids(stage.bus, TICKER)
        assert found == list(range(found[0], found[0] + len(found)))


async def test_a_cancelled_request_ends_its_job() -> None:
    async with staged() as stage:
        await stage.start("j1")
        stage.broker.send(stage.connection, ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="live"))
        complete = await stage.broker.completed("j1")
        assert not complete.success and complete.error_message.startswith("CANCELLED")


async def test_a_shutdown_hands_the_job_back() -> None:
    async with staged() as stage:
        await stage.start("j1")
        stage.broker.send(stage.connection, ing.IngestorControl(action=ing.IngestorControl.SHUTDOWN))
        complete = await stage.broker.completed("j1")
        assert complete.error_message.startswith("SHUTDOWN: ")
        await asyncio.wait_for(asyncio.shield(stage.task), 10)


async def test_a_fenced_job_sends_nothing_more() -> None:
    async with staged() as stage:
        await stage.start("j1")
        stage.bus.revoke(["j1"])
        await stage.broker.slots(1, after=2)
        assert not stage.broker.of(ing.WorkComplete)


async def test_a_ticker_that_the_exchange_does_not_have_is_a_final_failure() -> None:
    async with staged() as stage:
        stage.bus.grant({"j1": b""})
        stage.broker.dispatch(
            stage.connection, "j1", type=ing.DataRequest.REALTIME_TICKS, request_id="x", ticker="NO/SUCH.BINANCE"
        )
        complete = await stage.broker.completed("j1")
        assert complete.error_message.startswith("UNKNOWN_TICKER")
