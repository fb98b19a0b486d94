"""Readers of one live topic over server-sent events: messages per second, and their delay.

The setup is a relay over a separate Redis, the process `console`, and readers in another process. For each number in
`--readers`, bars are published `--per-second` times a second for `--seconds`. `p50_ms` and `p99_ms` are the times from
publish until a message has reached each reader, `floor_p50_ms` those of one SUB of the relay itself at the same time,
and `ratio` is that of the two medians. `cores` is the processor time of the console per second, `delivery_us` per
message and reader, and `idle_cores` per second with readers but no messages.
"""

import argparse
import asyncio
import json
import os
import re
import resource
import selectors
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import zmq
import zmq.asyncio

from bus import topics
from bus.api import Record, SequenceStamp
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import streams
from candlewright.wire.frames import ON_TOPIC, decode
from candlewright.wire.times import to_nanoseconds

TICKER = "BTC/USDT.BINANCE"
TOPIC = streams.bars(TICKER, 60)
_OPEN_TIME = re.compile(rb'"open_time":"([^"]+)"')


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def publish(bus: RedisBus, number: int) -> None:
    """The bar's open time is the time of its publication."""
    bar = cw.OHLCV(ticker=TICKER, period_seconds=60, open_time=time.time_ns(), close=float(number), complete=True)
    key = TICKER.encode()
    stamp = SequenceStamp(TOPIC, tag=b"\x68")
    bus.publish(topics.OHLC, [Record(bar.SerializeToString(), key=key, partition_key=key, sequence=stamp)])


class Reader:
    """One connection. One process reads all of them, one after the other, so it does no more than note the time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.sendall(f"GET /api/v1/stream?topic={TOPIC} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        self.parts: list[tuple[int, bytes]] = []
        while not self.parts or b"id:" not in self.parts[-1][1]:
            self.receive()

    def receive(self) -> None:
        data = self.socket.recv(1 << 16)
        self.parts.append((time.time_ns(), data))
        if not data:
            raise ConnectionResetError("the console closed a stream")

    def delays(self) -> Iterator[float]:
        for at, data in self.parts:
            for opened in _OPEN_TIME.findall(data):
                yield (at - to_nanoseconds(opened.decode())) / 1e9


def readers(port: int, count: int) -> None:
    """Prints `open`, then reads until there is a line on stdin, and prints the delays."""
    selector = selectors.DefaultSelector()
    selector.register(sys.stdin, selectors.EVENT_READ)
    opened = [Reader(port) for _ in range(count)]
    for reader in opened:
        selector.register(reader.socket, selectors.EVENT_READ, reader)
    print("open", flush=True)
    while True:
        ready = [key.data for key, _ in selector.select()]
        if None in ready:
            break
        for reader in ready:
            reader.receive()
    print(json.dumps([delay for reader in opened for delay in reader.delays()]), flush=True)


async def direct(address: str, delays: list[float]) -> None:
    with zmq.asyncio.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.subscribe(TOPIC)
        subscriber.connect(address)
        while True:
            bar = decode((await subscriber.recv_multipart())[1:], ON_TOPIC)
            delays.append(time.time() - bar.open_time / 1e9)  # type: ignore[attr-defined]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


async def run(counts: Sequence[int], per_second: float, seconds: float) -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedRedis(Path(folder) / "redis", "no") as redis:
        port, requests, notifications = free_port(), free_port(), free_port()
        environment = {
            **os.environ,
            "CANDLEWRIGHT_DATA_DIR": folder,
            "CANDLEWRIGHT_BUS__URL": redis.url,
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_CONSOLE__BIND": f"127.0.0.1:{port}",
            "CANDLEWRIGHT_CONSOLE__REQUESTS_PER_SECOND": "10000",
            "CANDLEWRIGHT_RELAY__REQUESTS_BIND": f"tcp://127.0.0.1:{requests}",
            "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": f"tcp://127.0.0.1:{notifications}",
        }
        parts = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-m", part, env=environment, stderr=asyncio.subprocess.DEVNULL
            )
            for part in ("relay", "console")
        ]
        try:
            for count in counts:
                found = await _measure(redis.url, parts[1].pid, port, notifications, count, per_second, seconds)
                print(json.dumps(found), flush=True)
        finally:
            for part in parts:
                part.terminate()
                await part.wait()


async def _measure(
    url: str, pid: int, port: int, notifications: int, count: int, per_second: float, seconds: float
) -> dict[str, float]:
    await _listening(port)
    other = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.servers.sse",
        "--port",
        str(port),
        "--readers",
        str(count),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 28,
    )
    assert other.stdin is not None and other.stdout is not None
    await other.stdout.readline()
    floor: list[float] = []
    sub = asyncio.create_task(direct(f"tcp://127.0.0.1:{notifications}", floor))
    await asyncio.sleep(1.0)
    before, at = cpu_seconds(pid), time.monotonic()
    await asyncio.sleep(3.0)
    idle = (cpu_seconds(pid) - before) / (time.monotonic() - at)
    bus = RedisBus(url)
    before, at = cpu_seconds(pid), time.monotonic()
    sent = 0
    while (now := time.monotonic() - at) < seconds:
        await asyncio.to_thread(publish, bus, sent)
        sent += 1
        await asyncio.sleep(max(0.0, sent / per_second - now))
    await asyncio.sleep(1.0)
    used, elapsed = cpu_seconds(pid) - before, time.monotonic() - at
    memory = pss_mib(pid)
    other.stdin.write(b"\n")
    delays = json.loads(await other.stdout.readline())
    sub.cancel()
    await other.wait()
    bus.close()
    return {
        "readers": count,
        "rows": sent,
        "result_rows": len(delays),
        "seconds": seconds,
        "rows_per_second": round(len(delays) / seconds),
        "p50_ms": _ms(statistics.median(delays)),
        "p99_ms": _ms(statistics.quantiles(delays, n=100)[98]),
        "floor_p50_ms": _ms(statistics.median(floor)),
        "ratio": round(statistics.median(delays) / statistics.median(floor), 2),
        "cores": round(used / elapsed, 3),
        "delivery_us": round(used / len(delays) * 1e6),
        "idle_cores": round(idle, 3),
        "pss_mib": round(memory, 1),
    }


async def _listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


def _ms(seconds: float) -> float:
    return round(seconds * 1e3, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readers", type=int, nargs="+", default=[1, 10, 100, 1_000])
    parser.add_argument("--per-second", type=float, default=5.0, help="messages published a second")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--output", choices=("json",), default="json")
    options = parser.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard != resource.RLIM_INFINITY else max(soft, 65_536), hard))
    if options.port:
        readers(options.port, *options.readers)
        return
    asyncio.run(run(options.readers, options.per_second, options.seconds))


if __name__ == "__main__":
    main()
