"""From an event on the bus to the webhook at its receiver: latency, and deliveries per second.

The setup is a separate Redis with `bus.fsync = always`, the process `alerts`, and a receiver on loopback. First
`--events` events come one by one: `p50_ms` and `p99_ms` are the times from publish to receipt. Then `--burst` events of
100 triggers come at once: `per_second` until the last outcome is on the bus. `floor_*`: the same from a loop that posts
to the receiver without bus, order or state; `ratio_*` compares the two. `delivery_us` is the processor time of `alerts`
for each event.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from benchmarks.measuring.process_tree import cpu_seconds_of
from bus import topics
from bus.api import Record
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, FieldValue

IN_FLIGHT = 16


class Receiver:
    """Records when each event arrived."""

    def __init__(self) -> None:
        self.came: dict[str, float] = {}

    async def take(self, request: web.Request) -> web.Response:
        await request.read()
        self.came[request.headers["webhook-id"]] = time.perf_counter()
        return web.Response(status=204)


def event(name: str, trigger: str) -> Record:
    message = CEPTriggerEvent(trigger_id=trigger, timestamp=time.time_ns())
    message.schema.column_names.append("price")
    message.schema.column_types.append("DOUBLE")
    message.rows.add().values.append(FieldValue(double_val=41.5).SerializeToString())
    message.context.update({"event_id": name, "ticker": "BTC/USDT.BINANCE"})
    return Record(message.SerializeToString(), key=trigger.encode())


async def wait_for(count: int, found: dict[str, float]) -> None:
    while len(found) < count:
        await asyncio.sleep(0.001)


async def through_alerts(bus: RedisBus, receiver: Receiver, events: int, *, burst: int) -> dict[str, float]:
    delays = []
    for number in range(events):
        name, at = f"one-{number}", time.perf_counter()
        bus.publish(topics.TRIGGER_EVENTS, [event(name, "t")])
        await wait_for(number + 1, receiver.came)
        delays.append(receiver.came[name] - at)
        await asyncio.sleep(0.01)
    records = [event(f"many-{number}", f"t{number % 100}") for number in range(burst)]
    at = time.perf_counter()
    bus.publish(topics.TRIGGER_EVENTS, records)
    while bus.state(topics.DELIVERIES)[0].end < events + burst:
        await asyncio.sleep(0.01)
    return {**_delays(delays), "per_second": burst / (time.perf_counter() - at)}


async def floor(url: str, receiver: Receiver, events: int, *, burst: int) -> dict[str, float]:
    body = json.dumps({"type": "event", "data": {"row": {"price": 41.5}}}).encode()
    async with aiohttp.ClientSession() as session:

        async def post(name: str) -> float:
            at = time.perf_counter()
            async with session.post(url, data=body, headers={"webhook-id": name}):
                return receiver.came[name] - at

        delays = []
        for number in range(events):
            delays.append(await post(f"floor-{number}"))
            await asyncio.sleep(0.01)
        names = iter(range(burst))

        async def worker() -> None:
            for number in names:
                await post(f"burst-{number}")

        at = time.perf_counter()
        await asyncio.gather(*(worker() for _ in range(IN_FLIGHT)))
        return {**_delays(delays), "per_second": burst / (time.perf_counter() - at)}


def _delays(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {"p50_ms": statistics.median(ordered) * 1e3, "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3}


async def run(folder: Path, events: int, burst: int) -> dict[str, float]:
    receiver = Receiver()
    app = web.Application()
    app.router.add_post("/", receiver.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/"
    redis = EmbeddedRedis(folder, fsync="always").start()
    bus = RedisBus(redis.url, 4)
    environment = {
        **os.environ,
        "CANDLEWRIGHT_BUS__URL": redis.url,
        "CANDLEWRIGHT_DATA_DIR": str(folder / "data"),
        "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        "CANDLEWRIGHT_ALERTS__HOOK__URL": url,
        "CANDLEWRIGHT_ALERTS__HOOK__ALLOW_PRIVATE": "true",
    }
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "alerts", env=environment)
    try:
        while not bus.items(topics.TABLE_ALERTS):
            await asyncio.sleep(0.05)
        before = cpu_seconds_of([process.pid])
        ours = await through_alerts(bus, receiver, events, burst=burst)
        used = cpu_seconds_of([process.pid]) - before
        least = await floor(url, receiver, events, burst=burst)
    finally:
        process.terminate()
        await process.wait()
        bus.close()
        redis.stop()
        await runner.cleanup()
    return {
        **ours,
        "delivery_us": used / (events + burst) * 1e6,
        **{f"floor_{name}": value for name, value in least.items()},
        "ratio_p50": ours["p50_ms"] / least["p50_ms"],
        "ratio_per_second": ours["per_second"] / least["per_second"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=300)
    parser.add_argument("--burst", type=int, default=10_000)
    parser.add_argument("--output", choices=("json",), default="json")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(run(Path(folder), arguments.events, arguments.burst))
    print(json.dumps({name: round(value, 3) for name, value in found.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
