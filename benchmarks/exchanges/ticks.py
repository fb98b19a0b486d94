"""Live trades from a websocket frame to the topic `ticks` and one ZeroMQ hop, against the bare path.

Latency: a loopback exchange sends a frame at a steady pace; timing runs from the send to the arrival of the trade at a
ZeroMQ subscriber of a reader of the bus. The bare path is stock ccxt.pro's `watch_trades`, one write and one read of
the same Redis, and the same hop. Rate: the exchange sends as fast as it is read; stock is `watch_trades` in a loop,
which loses what its cache drops, and only delivered trades count. The pace must leave the bare path idle between
frames, or its queue is measured instead, because each of its writes waits for the disk.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ccxt.pro
import redis
import zmq

from benchmarks.measuring.output import add_output, show
from bus import Bus
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from bus.topics import TICKS
from candlewright.wire import tick_columns
from core.log import configure_logging
from core.settings import BusSettings
from ingestor.events import Job, Kind
from ingestor.exchange import stock as exchange
from ingestor.exchange.budget import Budget
from ingestor.exchange.client import VenueClient
from ingestor.progress import Progress
from ingestor.realtime.service import RealtimeService
from ingestor.settings import IngestorConfig
from ingestor.threads import BusThreads
from ingestor.venues import venue_of

TICKER, SYMBOL = "BTC/USDT.BINANCE", "BTC/USDT"
FIRST_ID = 1_000
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
)


def run(
    rows: int = 60_000, latency_rows: int = 1_000, pace: float = 100.0, *, settle_seconds: float = 3.0
) -> dict[str, Any]:
    """`rows`: trades sent at full speed; `latency_rows`: trades sent at `pace` per second; `settle_seconds`: from a
    side's subscription to its first trade.
    """

    def measured(what: str, url: str, rows: int, pace: float) -> dict[str, Any]:
        with _exchange(rows, pace, settle_seconds) as exchange_url:
            return _measured(what, exchange_url, url, rows)

    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis") as server:
        bare = measured("bare", server.url, latency_rows, pace)
        ours = measured("ours", server.url, latency_rows, pace)
        stock_rate = measured("stock-rate", server.url, rows, 0.0)
        our_rate = measured("our-rate", server.url, rows, 0.0)
    return {
        "rows": rows,
        "seconds": our_rate["seconds"],
        "rows_per_second": our_rate["rows_per_second"],
        "result_rows": our_rate["result_rows"],
        "stock_rows_per_second": stock_rate["rows_per_second"],
        "stock_result_rows": stock_rate["result_rows"],
        "rate_ratio": round(our_rate["rows_per_second"] / stock_rate["rows_per_second"], 3),
        "latency_median_ms": ours["median_ms"],
        "latency_p99_ms": ours["p99_ms"],
        "bare_median_ms": bare["median_ms"],
        "bare_p99_ms": bare["p99_ms"],
        "median_ratio": round(ours["median_ms"] / bare["median_ms"], 3),
        "p99_ratio": round(ours["p99_ms"] / bare["p99_ms"], 3),
        "processors": os.cpu_count(),
    }


def _measured(what: str, url: str, redis_url: str, rows: int) -> dict[str, Any]:
    """One measurement of the side under test, in a separate process."""
    command = [sys.executable, "-m", "benchmarks.exchanges.ticks", "--side", what, "--url", url, "--redis", redis_url]
    done = subprocess.run([*command, "--rows", str(rows)], stdout=subprocess.PIPE, check=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@contextmanager
def _exchange(rows: int, pace: float, settle_seconds: float) -> Iterator[str]:
    options = (f"--rows={rows}", f"--pace={pace}", f"--settle={settle_seconds}")
    command = [sys.executable, "-m", "benchmarks.exchanges.ticks_exchange", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class _Hop:
    """PUB and SUB over TCP; `publish` is called by one thread, another takes the time of arrival."""

    def __init__(self, rows: int) -> None:
        self._context = zmq.Context()
        self._pub = self._context.socket(zmq.PUB)
        self._pub.setsockopt(zmq.SNDHWM, 0)
        port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        self._sub = self._context.socket(zmq.SUB)
        self._sub.setsockopt(zmq.RCVHWM, 0)
        self._sub.setsockopt(zmq.SUBSCRIBE, b"")
        self._sub.connect(f"tcp://127.0.0.1:{port}")
        while not self._sub.poll(20):
            self._pub.send(b"")
        self.latencies: list[int] = []
        self.arrived = 0
        self.first_sent, self.last_at = 0, 0
        self._rows = rows
        self.done = threading.Event()
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def publish(self, payload: bytes) -> None:
        self._pub.send(payload)

    def _receive(self) -> None:
        while self.arrived < self._rows:
            payload = self._sub.recv()
            now = time.time_ns()
            if not payload:
                continue
            times = _sent_at(payload)
            self.latencies.extend(now - sent for sent in times)
            self.first_sent, self.last_at = self.first_sent or times[0], now
            self.arrived += len(times)
        self.done.set()

    def summary(self) -> dict[str, float]:
        # The first ones include the cost of imports and connections.
        values = sorted(self.latencies[len(self.latencies) // 10 :])
        return {
            "median_ms": round(statistics.median(values) / 1e6, 3),
            "p99_ms": round(values[int(len(values) * 0.99)] / 1e6, 3),
        }


def _sent_at(payload: bytes) -> list[int]:
    """When the exchange sent each trade: its size holds it (microseconds past its exchange time, which is fixed)."""
    if payload[:1] == b"{":
        return [int(json.loads(payload)["q"])]
    return [int(size) for size in tick_columns.decode(payload).size.tolist()]


async def _ours(url: str, redis_url: str, rows: int, hop: _Hop) -> None:
    bus = connect(BusSettings(url=redis_url))
    start = dict.fromkeys(range(bus.create_topic(TICKS)), 0)
    for partition, state in enumerate(bus.state(TICKS)):
        start[partition] = state.end
    reader = threading.Thread(target=_forward, args=(connect(BusSettings(url=redis_url)), start, hop), daemon=True)
    reader.start()
    threads = BusThreads(2)
    description = venue_of("BINANCE")
    stock = exchange.build(description, url=url, timeout_seconds=5)
    budget = Budget(
        bus,
        threads,
        venue="BINANCE",
        limits=description.limits,
        exchange=stock,
        egress="bench",
        share=0.7,
        is_limited=False,
        patience=10,
        on_blocked=lambda until: None,
    )
    client = VenueClient(description, stock, budget, request_timeout=5, patience=10)
    await client.load_markets(Progress())
    service = RealtimeService(bus, threads, CONFIG, url_of=lambda venue: url)
    job_id = f"bench-{os.getpid()}"
    bus.grant({job_id: b""})
    task = asyncio.create_task(
        service.run(
            client,
            Job(
                job_id=job_id,
                request_id="r",
                ticker=f"{job_id}/{TICKER}",
                venue="BINANCE",
                symbol=SYMBOL,
                kind=Kind.REALTIME,
            ),
            Progress(),
        )
    )
    await asyncio.to_thread(hop.done.wait, 120)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await service.close()
    await client.exchange.close()
    threads.close()


def _forward(bus: Bus, offsets: dict[int, int], hop: _Hop) -> None:
    """The relay's work: wait for bus records, forward them."""
    while not hop.done.is_set():
        for topic, partition in bus.wait({(TICKS, p): offset for p, offset in offsets.items()}, 0.2):
            for record in bus.read(topic, partition, offsets[partition]):
                offsets[partition] = record.offset + 1
                hop.publish(record.value)


async def _bare(url: str, redis_url: str, rows: int, hop: _Hop) -> None:
    """Stock ccxt.pro, one write, one read, one hop."""
    write, read = redis.Redis.from_url(redis_url), redis.Redis.from_url(redis_url)
    key = f"bench-{os.getpid()}"

    def forward() -> None:
        last = b"0"
        while not hop.done.is_set():
            reply: Any = read.xread({key: last}, block=200)
            for _, entries in reply or []:
                for number, fields in entries:
                    last = number
                    hop.publish(fields[b"v"])

    threading.Thread(target=forward, daemon=True).start()
    pro = _stock(url)
    pro.newUpdates = True
    try:
        await pro.load_markets()
        while not hop.done.is_set():
            for trade in await pro.watch_trades(SYMBOL):
                write.xadd(key, {"v": json.dumps({"t": trade["id"], "p": trade["price"], "q": trade["info"]["q"]})})
            if trade["info"]["t"] >= FIRST_ID + rows - 1:
                await asyncio.to_thread(hop.done.wait, 5)
                break
    finally:
        await pro.close()


async def _stock_rate(url: str, rows: int) -> dict[str, Any]:
    pro = _stock(url)
    pro.newUpdates = True
    got, first = 0, 0
    try:
        await pro.load_markets()
        while True:
            trades = await pro.watch_trades(SYMBOL)
            first = first or int(trades[0]["info"]["q"])
            got += len(trades)
            if int(trades[-1]["id"]) >= FIRST_ID + rows - 1:
                break
    finally:
        await pro.close()
    seconds = (time.time_ns() - first) / 1e9
    return {"rows_per_second": round(got / seconds), "result_rows": got, "seconds": round(seconds, 3)}


def _stock(url: str) -> Any:
    return ccxt.pro.binance(
        {
            "enableRateLimit": False,
            "options": {"fetchMarkets": {"types": ["spot"]}, "tradesLimit": 100_000},
            "urls": {"api": {"public": f"{url}/api/v3", "ws": {"spot": f"{url.replace('http', 'ws')}/ws"}}},
        }
    )


def _side(asked: argparse.Namespace) -> dict[str, Any]:
    if asked.side == "stock-rate":
        return asyncio.run(_stock_rate(asked.url, asked.rows))
    hop = _Hop(asked.rows)
    asyncio.run((_bare if asked.side == "bare" else _ours)(asked.url, asked.redis, asked.rows, hop))
    if asked.side != "our-rate":
        return hop.summary()
    seconds = (hop.last_at - hop.first_sent) / 1e9
    return {
        "rows_per_second": round(hop.arrived / seconds),
        "result_rows": hop.arrived,
        "seconds": round(seconds, 3),
    }


def main() -> None:
    configure_logging("bench", "warning")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=60_000)
    parser.add_argument("--latency-rows", type=int, default=1_000)
    parser.add_argument("--pace", type=float, default=100.0)
    add_output(parser)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--redis", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.side:
        print(json.dumps(_side(asked)))
        return
    result = run(asked.rows, asked.latency_rows, asked.pace)
    show(result, asked.output)


if __name__ == "__main__":
    main()
