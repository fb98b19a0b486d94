"""The ingestor on real sockets: a ROUTER in place of the broker, a loopback exchange, an empty bus."""

import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pytest
import zmq
import zmq.asyncio
from google.protobuf.message import Message

from bus import Position, Record
from bus.topics import HISTORY, TABLE_VENUES
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.errors import BusFull
from candlewright.wire.grid import SECOND
from core.http import StatusServer
from core.metrics import REGISTRY
from core.settings import Settings
from ingestor.server import IngestorServer
from ingestor.settings import IngestorConfig
from protobuf import records_pb2 as records
from tests.fresh_bus import FreshBus
from tests.ingestor.venues_on_loopback import Loopback, binance_kline, loopback, minute_rows, serve_binance

T0 = 1_700_000_040
ROWS = minute_rows(T0, 2_500)
NOW = T0 + 60 * 2_600
Found = TypeVar("Found", bound=Message)


class FakeBroker:
    """A ROUTER that keeps the received messages."""

    def __init__(self, port: int | None = None) -> None:
        self._context = zmq.asyncio.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.setsockopt(zmq.LINGER, 0)
        if port is None:
            self.port = self._socket.bind_to_random_port("tcp://127.0.0.1")
        else:
            self.port = port
            self._socket.bind(f"tcp://127.0.0.1:{port}")
        self.heard: list[tuple[bytes, Message]] = []
        self._news = asyncio.Condition()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            connection, *parts = await self._socket.recv_multipart()
            message = frames.decode(parts, frames.INGESTOR_TO_BROKER)
            async with self._news:
                self.heard.append((connection, message))
                self._news.notify_all()

    def of(self, kind: type[Found]) -> list[Found]:
        return [message for _, message in self.heard if isinstance(message, kind)]

    async def until(self, condition: Callable[[], Any], seconds: float = 20) -> Any:
        """Wait until `condition` returns something true, and return that."""
        async with asyncio.timeout(seconds), self._news:
            await self._news.wait_for(condition)
        return condition()

    async def slots(self, count: int, after: int = 0, seconds: float = 20) -> bytes:
        """Wait for `count` offers after the first `after`; the connection of the newest."""
        await self.until(lambda: len(self.of(ing.WorkerReady)) >= after + count, seconds)
        return [connection for connection, message in self.heard if isinstance(message, ing.WorkerReady)][-1]

    async def completed(self, job_id: str, seconds: float = 20) -> ing.WorkComplete:
        found = await self.until(
            lambda: [message for message in self.of(ing.WorkComplete) if message.job_id == job_id], seconds
        )
        assert isinstance(found[0], ing.WorkComplete)
        return found[0]

    def send(self, connection: bytes, message: Message, type_id: int | None = None) -> None:
        self._socket.send_multipart([connection, *frames.encode(message, type_id)])

    def send_raw(self, connection: bytes, *parts: bytes) -> None:
        self._socket.send_multipart([connection, *parts])

    def dispatch(self, connection: bytes, job_id: str, **changes: Any) -> None:
        request = ing.DataRequest(request_id="r1#0", ticker="BTC/USDT.BINANCE", job_id=job_id)
        request.historical.start_time = T0 * SECOND
        request.historical.end_time = (T0 + 60 * 2_500) * SECOND
        request.historical.period_seconds = 60
        request.MergeFrom(ing.DataRequest(**changes))
        self.send(connection, request, frames.DISPATCH)

    async def close(self) -> None:
        self._reader.cancel()
        await asyncio.gather(self._reader, return_exceptions=True)
        self._socket.close(0)
        self._context.term()


class FullBus(FreshBus):
    """Refuses the first `refusals` publishes of pages."""

    refusals = 0

    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        if topic == HISTORY and self.refusals > 0:
            self.refusals -= 1
            raise BusFull(topic, 10, 10)
        return super().publish(topic, records, lease=lease)


@dataclass
class Stage:
    broker: FakeBroker
    bus: FullBus
    exchange: Loopback
    config: IngestorConfig
    settings: Settings
    ingestor: IngestorServer
    task: "asyncio.Task[None]" = field(init=False)

    def start(self) -> None:
        self.task = asyncio.create_task(self.ingestor.run())

    def pages(self, job_id: str) -> list[records.HistoryPage]:
        found = []
        for partition in range(self.bus.partitions(HISTORY)):
            for stored in self.bus.read(HISTORY, partition, 0):
                page = records.HistoryPage.FromString(stored.value)
                if page.job_id == job_id:
                    found.append(page)
        return found


@asynccontextmanager
async def staged(*, start: bool = True, venues: tuple[str, ...] = ("BINANCE",), **changes: Any) -> AsyncIterator[Stage]:
    broker = FakeBroker()
    async with loopback() as server:
        serve_binance(server, [binance_kline(row) for row in ROWS], now=NOW)
        settings = Settings.model_validate(
            {
                "broker": {"bind": f"tcp://127.0.0.1:{broker.port}"},
                "ingestor": {"venues": venues, "slots_historical": 2, "slots_realtime": 1, "rate_limit": False},
                "exchange": {"BINANCE": {"url": server.url}},
            }
        )
        config = replace(IngestorConfig.of(settings), **changes)
        bus = FullBus()
        stage = Stage(broker, bus, server, config, settings, IngestorServer(settings, bus, config))
        if start:
            stage.start()
        try:
            yield stage
        finally:
            if hasattr(stage, "task"):
                stage.ingestor.shut_down()
                await asyncio.wait_for(stage.task, 10)
            await stage.broker.close()


async def test_a_job_from_its_slot_to_its_pages() -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        kinds = sorted(ready.job_type for ready in stage.broker.of(ing.WorkerReady))
        assert kinds == [ing.HISTORICAL, ing.HISTORICAL, ing.REALTIME]
        stage.bus.grant({"j1": b""})
        stage.broker.dispatch(connection, "j1")
        assert (await stage.broker.completed("j1")).success
        await stage.broker.slots(1, after=3)
        (end,) = stage.broker.of(cw.HistoryEnd)
        assert (end.rows, end.expected, len(end.holes)) == (2_500, 2_500, 0)
        assert end.exchange_time == NOW * SECOND
        assert (end.first_open_time, end.last_open_time) == (T0 * SECOND, ROWS[-1][0] * SECOND)
        assert stage.broker.of(cw.WorkProgress)[-1].done_candles == 2_500
        rows: list[tuple[Any, ...]] = []
        for span in end.spans:
            count = span.last_offset - span.first_offset + 1
            for stored in stage.bus.read(HISTORY, end.partition, span.first_offset, max_records=count):
                page = records.HistoryPage.FromString(stored.value)
                assert (page.request_id, page.job_id, page.ticker) == ("r1", "j1", "BTC/USDT.BINANCE")
                assert (page.period_seconds, page.source) == (60, "exchange")
                rows += zip(page.open_time, page.open, page.volume, page.quote_volume, page.trade_count, strict=True)
        assert rows == [(row[0] * SECOND, float(row[1]), float(row[5]), 12.5, 7) for row in ROWS]


async def test_errors_that_the_broker_answers_with_are_counted() -> None:
    def counted() -> float:
        return REGISTRY.get_sample_value("candlewright_ingestor_refusals_total", {"code": "NO_SLOT"}) or 0.0

    before = counted()
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        stage.broker.send(connection, cw.Error(code="NO_SLOT", text="no such slot"))
        stage.bus.grant({"j1": b""})
        stage.broker.dispatch(connection, "j1")
        assert (await stage.broker.completed("j1")).success
    assert counted() - before == 1


async def test_a_snapshot_job_answers_with_one_frame() -> None:
    async with staged() as stage:
        stage.exchange.answers["/api/v3/ticker/24hr"] = lambda query: {
            "symbol": "BTCUSDT",
            "lastPrice": "100.5",
            "bidPrice": "100.4",
            "bidQty": "2",
            "askPrice": "100.6",
            "askQty": "3",
            "volume": "1234.5",
            "quoteVolume": "1",
            "closeTime": NOW * 1000,
            "openTime": 0,
        }
        connection = await stage.broker.slots(3)
        before = time.time_ns()
        stage.broker.dispatch(connection, "s1", type=ing.DataRequest.TICKER_SNAPSHOT)
        assert (await stage.broker.completed("s1")).success
        (snapshot,) = stage.broker.of(cw.Snapshot)
    assert (snapshot.ticker, snapshot.request_id) == ("BTC/USDT.BINANCE", "r1#0")
    assert (snapshot.last, snapshot.bid, snapshot.ask) == (100.5, 100.4, 100.6)
    assert (snapshot.bid_size, snapshot.ask_size, snapshot.volume_24h) == (2.0, 3.0, 1234.5)
    assert snapshot.exchange_time == NOW * SECOND
    assert before <= snapshot.received_at <= time.time_ns()


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"ticker": "NOPE/USDT.BINANCE"}, "UNKNOWN_TICKER: "),
        ({"ticker": "nonsense"}, "REFUSED: "),
        ({"historical": ing.HistoricalParams(period_seconds=45)}, "NOT_OFFERED: "),
        ({"historical": ing.HistoricalParams(end_time=1)}, "REFUSED: "),
    ],
)
async def test_a_job_that_cannot_be_done_says_why_and_costs_no_slot(changes: dict[str, Any], code: str) -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        stage.broker.dispatch(connection, "j1", **changes)
        complete = await stage.broker.completed("j1")
        assert not complete.success and complete.error_message.startswith(code)
        if changes.get("ticker") != "nonsense" and "end_time" not in str(changes):
            await stage.broker.slots(1, after=3)


async def test_a_job_that_is_stopped_before_it_could_begin_is_given_back() -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        # In one turn of the loop, as after a pause of the broker's bus, so that the job's task has not run yet.
        dispatch = ing.DataRequest(request_id="r1#0", ticker="BTC/USDT.BINANCE", job_id="j1")
        end = (T0 + 60 * 2_500) * SECOND
        dispatch.historical.CopyFrom(ing.HistoricalParams(start_time=T0 * SECOND, end_time=end, period_seconds=60))
        (number,) = stage.ingestor._connections
        for message, type_id in ((dispatch, frames.DISPATCH), (ing.WorkStop(job_id="j1"), None)):
            stage.ingestor._frames_came(number, frames.encode(message, type_id))
        complete = await stage.broker.completed("j1", seconds=5)
        assert not complete.success
        assert not stage.ingestor.status().details["running_jobs"]
        # The broker gives the piece only to another connection.
        assert await stage.broker.slots(3, after=3, seconds=5) != connection


@pytest.mark.parametrize("by", ["WorkStop", "CANCEL"])
async def test_a_stop_interrupts_a_fetch_that_hangs_within_a_second(by: str) -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        stage.exchange.hangs = True
        stage.bus.grant({"j1": b""})
        stage.broker.dispatch(connection, "j1")
        await _asked(stage.exchange, "/api/v3/time")
        began = time.monotonic()
        if by == "WorkStop":
            stage.broker.send(connection, ing.WorkStop(job_id="j1"))
        else:
            cancel = ing.IngestorControl(action=ing.IngestorControl.CANCEL, request_id="r1")
            stage.broker.send(connection, cancel)
        complete = await stage.broker.completed("j1")
        assert time.monotonic() - began < 1
        assert not complete.success and complete.error_message.startswith("CANCELLED: ")
        await stage.broker.slots(1, after=3)


async def _asked(exchange: Loopback, path: str) -> None:
    async with asyncio.timeout(10):
        while not exchange.asked(path):
            await asyncio.sleep(0.01)


async def test_heartbeats_while_the_bus_is_full_and_the_pages_come_when_it_is_not() -> None:
    async with staged(heartbeat=0.2) as stage:
        connection = await stage.broker.slots(3)
        stage.bus.grant({"j1": b""})
        stage.bus.refusals = 10_000
        stage.broker.dispatch(connection, "j1")
        await stage.broker.until(lambda: len(stage.broker.of(ing.WorkHeartbeat)) >= 3)
        assert {beat.job_id for beat in stage.broker.of(ing.WorkHeartbeat)} == {"j1"}
        stage.bus.refusals = 0
        assert (await stage.broker.completed("j1")).success
        assert sum(len(page.open_time) for page in stage.pages("j1")) == 2_500


async def test_a_fenced_job_writes_and_sends_nothing() -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        stage.broker.dispatch(connection, "j1")  # never granted
        await stage.broker.slots(1, after=3)
        assert stage.pages("j1") == []
        assert stage.broker.of(ing.WorkComplete) == []


async def test_silence_of_the_broker_brings_a_new_socket_that_names_the_running_job() -> None:
    async with staged(silence=1.0) as stage:
        first = await stage.broker.slots(3)
        stage.bus.grant({"j1": b""})
        stage.bus.refusals = 10_000
        stage.broker.dispatch(first, "j1")
        second = await stage.broker.slots(2, after=3)
        assert second != first
        beats = await stage.broker.until(
            lambda: [c for c, message in stage.broker.heard if isinstance(message, ing.WorkHeartbeat)]
        )
        assert beats[-1] != first
        stage.bus.refusals = 0
        assert (await stage.broker.completed("j1")).success


async def test_a_broker_that_is_heard_keeps_its_socket() -> None:
    async with staged(silence=1.0) as stage:
        connection = await stage.broker.slots(3)
        for _ in range(8):
            stage.broker.send(connection, ing.IngestorControl(action=ing.IngestorControl.HEARTBEAT))
            await asyncio.sleep(0.2)
        assert len(stage.broker.of(ing.WorkerReady)) == 3


async def test_a_restarted_broker_gets_the_slots_and_the_running_job_at_once() -> None:
    async with staged(silence=60.0) as stage:
        connection = await stage.broker.slots(3)
        stage.bus.grant({"j1": b""})
        stage.bus.refusals = 10_000
        stage.broker.dispatch(connection, "j1")
        await stage.broker.until(lambda: stage.exchange.asked("/api/v3/klines") or True)
        port = stage.broker.port
        await stage.broker.close()
        stage.broker = FakeBroker(port)
        await stage.broker.slots(2)
        await stage.broker.until(lambda: stage.broker.of(ing.WorkHeartbeat))
        stage.bus.refusals = 0
        assert (await stage.broker.completed("j1")).success


async def test_shutdown_by_the_broker_hands_the_job_back_and_ends_the_process() -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        stage.exchange.hangs = True
        stage.broker.dispatch(connection, "j1")
        await _asked(stage.exchange, "/api/v3/time")
        stage.broker.send(connection, ing.IngestorControl(action=ing.IngestorControl.SHUTDOWN))
        complete = await stage.broker.completed("j1")
        assert not complete.success and complete.error_message.startswith("SHUTDOWN: ")
        await asyncio.wait_for(asyncio.shield(stage.task), 5)


async def test_a_config_update_bounds_the_jobs_and_the_timeout() -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        update = ing.IngestorControl(action=ing.IngestorControl.CONFIG_UPDATE)
        update.config.timeout_seconds = 3
        update.config.max_concurrent = 2
        stage.broker.send(connection, update)
        stage.bus.grant({"j1": b""})
        stage.broker.dispatch(connection, "j1")
        assert (await stage.broker.completed("j1")).success
        assert stage.ingestor._clients["BINANCE"].exchange.timeout == 3_000
        await asyncio.sleep(0.6)
        assert sum(stage.ingestor._state.offered().values()) == 2


async def test_bytes_that_are_not_a_frame_cost_nothing() -> None:
    async with staged() as stage:
        connection = await stage.broker.slots(3)
        for parts in (
            (b"",),
            (b"\x01", b""),
            (b"\x01", b"\x24\xff\xff"),
            (b"\x02", b"x"),
            (b"\x01", b"\x12"),
            (b"a",) * 9,
        ):
            stage.broker.send_raw(connection, *parts)
        stage.broker.send(connection, ing.DataRequest(request_id="without a job"), frames.DISPATCH)
        stage.bus.grant({"j1": b""})
        stage.broker.dispatch(connection, "j1")
        assert (await stage.broker.completed("j1")).success


async def test_no_slot_is_offered_before_the_markets_are_loaded_and_the_status_page_reports_it() -> None:
    async with staged(start=False) as stage:
        answer = stage.exchange.answers.pop("/api/v3/exchangeInfo")
        stage.exchange.answers["/api/v3/exchangeInfo"] = lambda query: []
        stage.start()
        await _asked(stage.exchange, "/api/v3/exchangeInfo")
        http = StatusServer("127.0.0.1:0", stage.ingestor.status)
        try:
            async with asyncio.timeout(10):
                while "cannot be loaded" not in str((status := await _status(http.port))["problems"]):
                    await asyncio.sleep(0.05)
            # A restart would not help, and would end the jobs of other venues.
            assert status["waits_for"] == "BINANCE"
            assert stage.broker.of(ing.WorkerReady) == []
            assert not (await _status(http.port))["ready"]
            stage.exchange.answers["/api/v3/exchangeInfo"] = answer
            await stage.broker.slots(3)
            status = await _status(http.port)
        finally:
            http.close()
    assert status["ready"] and status["problems"] == [] and status["waits_for"] == ""
    assert status["slots_offered"] == {"BINANCE:historical": 2, "BINANCE:realtime": 1}


async def _status(port: int) -> dict[str, Any]:
    def get() -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as reply:
            found: dict[str, Any] = json.loads(reply.read())
            return found

    return await asyncio.to_thread(get)


async def test_venues_and_their_markets_are_on_the_bus() -> None:
    async with staged() as stage:
        await stage.broker.slots(3)
        async with asyncio.timeout(10):
            while len(stage.bus.items(TABLE_VENUES)) < 2:
                await asyncio.sleep(0.02)
        found = {name: cw.Venue.FromString(value) for name, value in stage.bus.items(TABLE_VENUES).items()}
    venue = found["BINANCE"]
    assert [market.symbol for market in venue.markets] == ["BTC/USDT"]
    assert venue.markets[0].market_id == "BTCUSDT"
    assert 60 in venue.period_seconds and venue.max_candles_per_request == 1_000 and venue.depth_candles == 0
    assert {"binance", "kraken", "coinbaseexchange"} <= {market.symbol for market in found["*"].markets}


async def test_a_venue_that_ccxt_does_not_have_is_named_and_the_others_are_served() -> None:
    async with staged(venues=("BINANCE", "ATLANTIS")) as stage:
        await stage.broker.slots(3)
        status = stage.ingestor.status()
        assert status.is_ready
        assert status.problems == () and "atlantis" in str(status.warnings)
