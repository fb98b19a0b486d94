"""The common part of the gateway benchmarks: a gRPC gateway on a real Redis, and a server that does nothing, in
alternation.

Clients are separate processes that keep a fixed number of calls under way. Rounds of floor and gateway alternate; rates
are medians.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from core.log import configure_logging

ROOT = Path(__file__).resolve().parents[2]
TOPIC = GROUP = "bench"
TIMEOUT_SECONDS = 60.0

#: A client's work: address, method, messages, calls, bytes of a message, number of the first message.
Client = Callable[[str, str, int, int, int, int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Subject:
    """`name`: the gateway's in the settings; `module`: its command line runs the client and the floor; `write`, `read`:
    the names of the client's two methods, and of their figures in the result.
    """

    name: str
    module: str
    write: str
    read: str
    done: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)

    def compare(self, messages: int, calls: int, size: int, *, rounds: int) -> dict[str, Any]:
        """`rows`: messages written in all rounds; `result_rows`: messages read exactly once."""
        write, read = self.write, self.read
        rates: dict[str, list[float]] = {"floor": [], write: [], read: []}
        used = {"gateway": 0.0, "redis": 0.0, "floor": 0.0}
        seen: list[int] = []
        with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
            folder = Path(name)
            redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
            bus = RedisBus(redis.url)
            stack.callback(bus.close)
            bus.create_group(TOPIC, GROUP, at_end=True)
            port_file = folder / "gateways.http"
            environment = self._environment(redis.url, folder / "data", port_file)
            gateway = stack.enter_context(process(["-m", "gateways"], environment))
            floor = stack.enter_context(process(["-m", self.module, "--floor"], environment))
            assert floor.stdout is not None
            floor_address, address = floor.stdout.readline().decode().strip(), self._address(port_file)
            pids = {"gateway": gateway.pid, "redis": redis.pid or 0, "floor": floor.pid}
            for number in range(rounds):
                sizes = (messages, calls, size, number * messages)
                before = {part: cpu_seconds(pid) for part, pid in pids.items()}
                rates["floor"].append(messages / self._timed(floor_address, write, *sizes)[0])
                for method in (write, read):
                    seconds, found = self._timed(address, method, *sizes)
                    rates[method].append(messages / seconds)
                    seen += found
                for part, pid in pids.items():
                    used[part] += cpu_seconds(pid) - before[part]
        total = messages * rounds
        median = {method: statistics.median(own) for method, own in rates.items()}
        return {
            "rows": total,
            "seconds": round(sum(messages / rate for method in (write, read) for rate in rates[method]), 4),
            "rows_per_second": round(median[write]),
            "result_rows": len(set(seen)) if len(seen) == len(set(seen)) else 0,
            f"{self.done[read]}_per_second": round(median[read]),
            "floor_rows_per_second": round(median["floor"]),
            "ratio": round(median[write] / median["floor"], 3),
            f"{read}_ratio": round(median[read] / median["floor"], 3),
            "calls": calls,
            # CPU time of the gateway and Redis per message written and read; of the floor per call.
            "cpu_microseconds": {part: round(seconds / total * 1e6, 1) for part, seconds in used.items()},
        }

    def _environment(self, url: str, data: Path, port_file: Path) -> dict[str, str]:
        own = {"ENABLED": "true", "BIND": "127.0.0.1:0", **self.settings}
        return {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": url,
            "CANDLEWRIGHT_DATA_DIR": str(data),
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(port_file),
            "CANDLEWRIGHT_LOG__LEVEL": "error",
            **{f"CANDLEWRIGHT_GATEWAYS__{self.name.upper()}__{key}": value for key, value in own.items()},
        }

    def _address(self, port_file: Path) -> str:
        until = time.monotonic() + TIMEOUT_SECONDS
        while time.monotonic() < until:
            if port_file.exists() and (port := port_file.read_text()):
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
                    status = json.load(answer)
                if status["ready"]:
                    return str(status[self.name]["address"])
            time.sleep(0.05)
        raise TimeoutError("the gateway did not start")

    def _timed(self, address: str, method: str, *sizes: int) -> tuple[float, list[int]]:
        """Seconds from the first call to the last answer, and the numbers of the received messages."""
        command = [sys.executable, "-m", self.module, "--client", address, method, *map(str, sizes)]
        done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_SECONDS * 2)
        seconds, found = json.loads(done.stdout)
        return seconds, found

    def main(self, summary: str, client: Client, floor: grpc.GenericRpcHandler) -> None:
        """The command line of the benchmark, of its clients and of its floor."""
        parser = argparse.ArgumentParser(description=summary.splitlines()[0])
        parser.add_argument("--output", choices=["json"], default="json")
        parser.add_argument("--messages", type=int, default=4_000, help="of a round")
        parser.add_argument("--calls", type=int, default=200, help="under way at the same time")
        parser.add_argument("--size", type=int, default=100, help="bytes of a message")
        parser.add_argument("--rounds", type=int, default=3)
        parser.add_argument("--client", nargs=6, help=argparse.SUPPRESS)
        parser.add_argument("--floor", action="store_true", help=argparse.SUPPRESS)
        asked = parser.parse_args()
        if asked.client:
            address, method, *sizes = asked.client
            messages, calls, size, first = map(int, sizes)
            asyncio.run(_awaited(client(address, method, messages, calls, size, first)))
        elif asked.floor:
            asyncio.run(_serve(floor))
        else:
            configure_logging("bench", "warning")
            print(json.dumps(self.compare(asked.messages, asked.calls, asked.size, rounds=asked.rounds)))


async def timed_work(channel: grpc.aio.Channel, work: Sequence[Awaitable[None]], found: list[int]) -> None:
    """Do all of `work` at the same time, and report to the benchmark how long it took and what was `found`."""
    await channel.channel_ready()
    started = time.perf_counter()
    await asyncio.gather(*work)
    sys.stdout.write(json.dumps([time.perf_counter() - started, found]))


async def _awaited(work: Awaitable[None]) -> None:
    await work


async def _serve(handler: grpc.GenericRpcHandler) -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def process(arguments: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)
