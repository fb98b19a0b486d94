"""Messages a second through the RocketMQ gateway on a real Redis, against a gRPC server that does nothing.

A client process keeps so many calls under way: first it sends messages, each answered once it is durable, then it
receives them, 32 a call, and acknowledges each by a call of its own. The floor is the same client and calls with a
server of the same library that answers a send at once. Plaintext, so that it is not TLS that is measured. Rounds of
floor and gateway take turns; rates are medians.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bus.embedded import EmbeddedRedis
from bus.redis_bus import RedisBus
from gateways.rocketmq.status import common
from gateways.service import handlers_of
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service

ROOT = Path(__file__).resolve().parent.parent
TOPIC, GROUP = definition.Resource(name="bench"), definition.Resource(name="bench")
SERVICE = service.DESCRIPTOR.services_by_name["MessagingService"]
TIMEOUT_SECONDS = 60.0
_RECEIVERS, _BATCH = 8, 32


def run(messages: int = 4_000, calls: int = 200, size: int = 100, rounds: int = 3) -> dict[str, Any]:
    """`rows`: messages sent, in all rounds; `result_rows`: messages that were received exactly once."""
    rates: dict[str, list[float]] = {"floor": [], "send": [], "receive": []}
    used = {"gateway": 0.0, "redis": 0.0, "floor": 0.0}
    seen: list[int] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        bus = RedisBus(redis.url)
        stack.callback(bus.close)
        bus.create_group(TOPIC.name, GROUP.name, at_end=True)
        environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": redis.url,
            "CANDLEWRIGHT_DATA_DIR": str(folder / "data"),
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__ENABLED": "true",
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__TLS": "false",
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(folder / "gateways.http"),
            "CANDLEWRIGHT_LOG__LEVEL": "error",
        }
        gateway = stack.enter_context(_process(["-m", "gateways"], environment))
        floor = stack.enter_context(_process(["-m", "benchmarks.rocketmq", "--floor"], environment))
        assert floor.stdout is not None
        addresses = {"gateway": _address(folder / "gateways.http"), "floor": floor.stdout.readline().decode().strip()}
        pids = {"gateway": gateway.pid, "redis": redis.pid or 0, "floor": floor.pid}
        for number in range(rounds):
            before = {part: _cpu_seconds(pid) for part, pid in pids.items()}
            rates["floor"].append(messages / _timed(addresses["floor"], "send", messages, calls, size, number)[0])
            for method in ("send", "receive"):
                seconds, found = _timed(addresses["gateway"], method, messages, calls, size, number)
                rates[method].append(messages / seconds)
                seen += found
            for part, pid in pids.items():
                used[part] += _cpu_seconds(pid) - before[part]
    total = messages * rounds
    median = {name: statistics.median(own) for name, own in rates.items()}
    return {
        "rows": total,
        "seconds": round(sum(messages / rate for name in ("send", "receive") for rate in rates[name]), 4),
        "rows_per_second": round(median["send"]),
        "result_rows": len(set(seen)) if len(seen) == len(set(seen)) else 0,
        "received_per_second": round(median["receive"]),
        "floor_rows_per_second": round(median["floor"]),
        "ratio": round(median["send"] / median["floor"], 3),
        "receive_ratio": round(median["receive"] / median["floor"], 3),
        "calls": calls,
        # Of the gateway and Redis for a message sent, received and acknowledged; of the floor for one call.
        "cpu_microseconds": {part: round(seconds / total * 1e6, 1) for part, seconds in used.items()},
    }


def _timed(address: str, method: str, messages: int, calls: int, size: int, number: int) -> tuple[float, list[int]]:
    """Seconds between the first call and the last answer, and the numbers of the messages that came."""
    arguments = [address, method, *map(str, (messages, calls, size, number * messages))]
    command = [sys.executable, "-m", "benchmarks.rocketmq", "--client", *arguments]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_SECONDS * 2)
    seconds, found = json.loads(done.stdout)
    return seconds, found


class _Calls:
    def __init__(self, channel: grpc.aio.Channel) -> None:
        prefix = f"/{SERVICE.full_name}/"
        self.send = channel.unary_unary(
            f"{prefix}SendMessage",
            service.SendMessageRequest.SerializeToString,
            service.SendMessageResponse.FromString,
        )
        self.receive = channel.unary_unary(
            f"{prefix}ReceiveMessage",
            service.ReceiveMessageRequest.SerializeToString,
            service.ReceiveMessageResponse.FromString,
        )
        self.acknowledge = channel.unary_unary(
            f"{prefix}AckMessage", service.AckMessageRequest.SerializeToString, service.AckMessageResponse.FromString
        )


async def _client(address: str, method: str, messages: int, calls: int, size: int, first: int) -> None:
    found: list[int] = []
    async with grpc.aio.insecure_channel(address, [("grpc.max_receive_message_length", -1)]) as channel:
        made = _Calls(channel)
        numbers = iter(range(first, first + messages))

        async def send() -> None:
            for number in numbers:
                request = service.SendMessageRequest(
                    message=definition.Message(
                        topic=TOPIC,
                        body=b"%d " % number + bytes(size),
                        system_attribute=definition.SystemAttribute(message_id=str(number), partition_id=number % 4),
                    )
                )
                assert (await made.send(request)).common.status.code == 0

        async def receive() -> None:
            request = service.ReceiveMessageRequest(
                group=GROUP,
                client_id="bench",
                partition=definition.Partition(topic=TOPIC, id=-1),
                batch_size=_BATCH,
            )
            request.await_time.FromMilliseconds(100)
            while len(found) < messages:
                batch = (await made.receive(request)).messages
                found.extend(int(message.body.partition(b" ")[0]) for message in batch)
                await asyncio.gather(*(acknowledge(message.system_attribute.receipt_handle) for message in batch))

        async def acknowledge(handle: str) -> None:
            request = service.AckMessageRequest(group=GROUP, topic=TOPIC, receipt_handle=handle)
            assert (await made.acknowledge(request)).common.status.code == 0

        await channel.channel_ready()
        started = time.perf_counter()
        work = [send() for _ in range(calls)] if method == "send" else [receive() for _ in range(_RECEIVERS)]
        await asyncio.gather(*work)
        seconds = time.perf_counter() - started
    sys.stdout.write(json.dumps([seconds, found]))


async def _floor() -> None:
    async def answer(request: service.SendMessageRequest, context: Any) -> service.SendMessageResponse:
        return service.SendMessageResponse(common=common(), message_id=request.message.system_attribute.message_id)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handlers_of(SERVICE, {"SendMessage": answer}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"127.0.0.1:{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


def _address(port_file: Path) -> str:
    until = time.monotonic() + TIMEOUT_SECONDS
    while time.monotonic() < until:
        if port_file.exists() and (port := port_file.read_text()):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status") as answer:
                status = json.load(answer)
            if status["ready"]:
                return str(status["rocketmq"]["address"])
        time.sleep(0.05)
    raise TimeoutError("the gateway did not start")


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _process(arguments: list[str], environment: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    process = subprocess.Popen([sys.executable, *arguments], env=environment, cwd=ROOT, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=60)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--output", choices=["json"], default="json")
    parser.add_argument("--messages", type=int, default=4_000, help="of a round")
    parser.add_argument("--calls", type=int, default=200, help="sends under way at the same time")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--client", nargs=6, help=argparse.SUPPRESS)
    parser.add_argument("--floor", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        address, method, *numbers = arguments.client
        asyncio.run(_client(address, method, *map(int, numbers)))
    elif arguments.floor:
        asyncio.run(_floor())
    else:
        print(json.dumps(run(arguments.messages, arguments.calls, arguments.size, arguments.rounds)))


if __name__ == "__main__":
    main()
