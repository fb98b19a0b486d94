"""A realtime ingestor in this process: stock ccxt.pro against a loopback exchange, an empty bus."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from bus.topics import TICK_MARKS, TICKS
from candlewright.wire import tick_columns
from candlewright.wire.tick_columns import TickColumns
from core.metrics import REGISTRY
from ingestor.events import Job, Kind
from ingestor.exchange import stock as exchange
from ingestor.exchange.budget import Budget
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.realtime.service import RealtimeService
from ingestor.settings import IngestorConfig
from ingestor.threads import BusThreads
from ingestor.trade import ORDER, Trade, trades_of
from ingestor.venues import venue_of
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus

CONFIG = IngestorConfig(
    brokers=("",),
    venues=("BINANCE",),
    slots_historical=0,
    slots_realtime=4,
    heartbeat=5.0,
    lease=15.0,
    silence=15.0,
    request_timeout=5.0,
    budget_share=0.7,
    rate_limit=False,
    bar_check_share=0.0,
    patience=10.0,
)


class Ingestor:
    """`client` talks REST, `service` runs jobs."""

    def __init__(self, bus: FreshBus, url: str, venue: str, *, config: IngestorConfig, patience: float) -> None:
        self.bus = bus
        self.venue = venue
        self._threads = BusThreads(2)
        description = venue_of(venue)
        stock = exchange.build(description, url=url, timeout_seconds=5)
        budget = Budget(
            bus,
            self._threads,
            venue=venue,
            limits=description.limits,
            exchange=stock,
            egress="test",
            share=0.7,
            is_limited=False,
            patience=10,
            on_blocked=lambda until: None,
        )
        self.client = VenueClient(description, stock, budget, request_timeout=5, patience=patience)
        self.service = RealtimeService(bus, self._threads, config, url_of=lambda venue: url)
        self.heartbeats: list[float] = []

    def start(self, ticker: str, job_id: str) -> "asyncio.Task[None]":
        self.bus.grant({job_id: b""})
        job = Job(
            job_id=job_id,
            request_id="r1",
            ticker=ticker,
            venue=self.venue,
            symbol=ticker.rpartition(".")[0],
            kind=Kind.REALTIME,
        )
        return asyncio.create_task(self.service.run(self.client, job, Progress(self.heartbeats.append)))

    async def close(self) -> None:
        await self.service.close()
        await self.client.exchange.close()
        self._threads.close()


@asynccontextmanager
async def ingestor(
    bus: FreshBus, url: str, *, venue: str = "BINANCE", config: IngestorConfig = CONFIG, patience: float = 10
) -> AsyncIterator[Ingestor]:
    made = Ingestor(bus, url, venue, config=config, patience=patience)
    try:
        await made.client.load_markets(Progress())
        yield made
    finally:
        await made.close()


def ticks(bus: FreshBus, ticker: str) -> list[Trade]:
    """Everything on the bus, in its order; also checks that sequence numbers are dense."""
    found: list[Trade] = []
    for partition in range(bus.partitions(TICKS)):
        offset = 0
        while rows := bus.read(TICKS, partition, offset):
            offset = rows[-1].offset + 1
            for row in rows:
                if row.key == ticker.encode():
                    assert row.sequence == len(found) + 1
                    found += trades_of(row.value)
    return found


def ids(bus: FreshBus, ticker: str) -> list[int]:
    return [trade[ORDER] for trade in ticks(bus, ticker)]


def batches(bus: FreshBus, ticker: str) -> list[TickColumns]:
    """The records of `ticks`, in the order of the bus."""
    found = []
    for partition in range(bus.partitions(TICKS)):
        offset = 0
        while rows := bus.read(TICKS, partition, offset):
            offset = rows[-1].offset + 1
            found += [tick_columns.decode(row.value) for row in rows if row.key == ticker.encode()]
    return found


def marks(bus: FreshBus, ticker: str, kind: str) -> list[Any]:
    found = []
    for partition in range(bus.partitions(TICK_MARKS)):
        offset = 0
        while rows := bus.read(TICK_MARKS, partition, offset):
            offset = rows[-1].offset + 1
            for row in rows:
                mark = records.TickMark.FromString(row.value)
                if mark.ticker == ticker and mark.WhichOneof("body") == kind:
                    found.append(getattr(mark, kind))
    return found


async def until(condition: Callable[[], Any], seconds: float = 30) -> Any:
    """Wait until `condition` returns something true, and return that."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to pass")
        await asyncio.sleep(0.02)
    return value


async def stopped(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def counted(what: str) -> float:
    return REGISTRY.get_sample_value(f"candlewright_ingestor_realtime_{what}_total", {"venue": "BINANCE"}) or 0.0
