"""Records per second read and acknowledged through the Numaflow source on a real Redis, compared with an empty source.

A client process takes numa's role: it reads a batch, acknowledges it, reads the next. The floor uses the same client,
streams and message sizes with a server of the same library that makes up its records and acknowledges immediately.
`--acks single`: one offset per request, as in the published dialect.
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
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.gateways.gateway_rounds import ROOT, TIMEOUT_SECONDS, TOPIC, cpu_seconds, process
from bus.api import Record
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from core.log import configure_logging
from gateways.service import handlers_of
from protobuf import source_superset_pb2 as source

SERVICE = source.DESCRIPTOR.services_by_name["Source"]
SOT = source.Handshake(sot=True)
_LIMITS = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]


def run(
    messages: int = 5_000, batch: int = 500, size: int = 100, *, rounds: int = 3, acks: str = "list"
) -> dict[str, Any]:
    """`rows`: records on the topic in all rounds; `result_rows`: those received exactly once. Rates are medians."""
    rates: dict[str, list[float]] = {"floor": [], "gateway": []}
    used = {"gateway": 0.0, "redis": 0.0, "floor": 0.0}
    seen: list[int] = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        bus = RedisBus(redis.url)
        stack.callback(bus.close)
        sockets = {part: folder / f"{part}.sock" for part in rates}
        floor = stack.enter_context(
            process(["-m", "benchmarks.gateways.numaflow", "--floor", str(sockets["floor"]), str(size)], {**os.environ})
        )
        gateway = stack.enter_context(process(["-m", "gateways"], _environment(redis.url, folder)))
        _until_they_listen(sockets)
        pids = {"gateway": gateway.pid, "redis": redis.pid or 0, "floor": floor.pid}
        for number in range(rounds):
            first = number * messages
            bus.publish(
                TOPIC, [Record(b"%d " % n + bytes(size), key=b"%d" % n) for n in range(first, first + messages)]
            )
            before = {part: cpu_seconds(pid) for part, pid in pids.items()}
            for part, socket in sockets.items():
                seconds, found = _timed(socket, messages, batch, acks)
                rates[part].append(messages / seconds)
                seen += found if part == "gateway" else []
            for part, pid in pids.items():
                used[part] += cpu_seconds(pid) - before[part]
        pending = sum(bus.pending(TOPIC, "numaflow").values())
    total = messages * rounds
    median = {part: statistics.median(own) for part, own in rates.items()}
    return {
        "rows": total,
        "seconds": round(sum(messages / rate for rate in rates["gateway"]), 4),
        "rows_per_second": round(median["gateway"]),
        "result_rows": len(set(seen)) if len(seen) == len(set(seen)) else 0,
        "pending": pending,
        "floor_rows_per_second": round(median["floor"]),
        "ratio": round(median["gateway"] / median["floor"], 3),
        "round_ratios": [round(ours / empty, 3) for ours, empty in zip(rates["gateway"], rates["floor"], strict=True)],
        "batch": batch,
        "acks": acks,
        "cpu_microseconds": {part: round(seconds / total * 1e6, 1) for part, seconds in used.items()},
    }


def _environment(url: str, folder: Path) -> dict[str, str]:
    settings = {
        "BUS__URL": url,
        "DATA_DIR": str(folder / "data"),
        "HTTP__BIND": "127.0.0.1:0",
        "LOG__LEVEL": "error",
        "GATEWAYS__NUMAFLOW__ENABLED": "true",
        "GATEWAYS__NUMAFLOW__SOCKET": str(folder / "gateway.sock"),
        "GATEWAYS__NUMAFLOW__SERVER_INFO": str(folder / "sourcer-server-info"),
        "GATEWAYS__NUMAFLOW__TOPIC": TOPIC,
    }
    return {**os.environ, **{f"CANDLEWRIGHT_{key}": value for key, value in settings.items()}}


def _until_they_listen(sockets: dict[str, Path]) -> None:
    for socket in sockets.values():
        with grpc.insecure_channel(f"unix:{socket}") as channel:
            grpc.channel_ready_future(channel).result(timeout=TIMEOUT_SECONDS)


def _timed(socket: Path, messages: int, batch: int, acks: str) -> tuple[float, list[int]]:
    """Seconds from the first read to the last acknowledgement, and the numbers of the received records."""
    module = "benchmarks.gateways.numaflow"
    command = [sys.executable, "-m", module, "--client", str(socket), str(messages), str(batch), acks]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=TIMEOUT_SECONDS * 2)
    seconds, found = json.loads(done.stdout)
    return seconds, found


async def _client(socket: str, messages: int, batch: int, acks: str) -> None:
    async with grpc.aio.insecure_channel(f"unix:{socket}", _LIMITS) as channel:
        reads = await _stream(channel, "ReadFn", source.ReadRequest, source.ReadResponse)
        acknowledgements = await _stream(channel, "AckFn", source.AckRequest, source.AckResponse)
        found: list[bytes] = []
        started = time.perf_counter()
        while len(found) < messages:
            count = min(batch, messages - len(found))
            request = source.ReadRequest.Request(num_records=count, timeout_in_ms=1_000)
            await reads.write(source.ReadRequest(request=request))
            offsets = []
            while not (answer := await reads.read()).status.eot:
                found.append(answer.result.payload)
                offsets.append(answer.result.offset)
            groups = [offsets] if acks == "list" else [[offset] for offset in offsets]
            writing = asyncio.create_task(_write_all(acknowledgements, groups if offsets else []))
            for _ in groups if offsets else []:
                assert (await acknowledgements.read()).result.HasField("success")
            await writing
        seconds = time.perf_counter() - started
        sys.stdout.write(json.dumps([seconds, [int(payload.partition(b" ")[0]) for payload in found]]))


async def _write_all(stream: Any, groups: list[list[source.Offset]]) -> None:
    for offsets in groups:
        await stream.write(source.AckRequest(request=source.AckRequest.Request(offsets=offsets)))


async def _stream(channel: grpc.aio.Channel, method: str, request: Any, response: Any) -> Any:
    stream: Any = channel.stream_stream(
        f"/{SERVICE.full_name}/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )()
    await stream.write(request(handshake=SOT))
    assert (await stream.read()).handshake.sot
    return stream


async def _serve_floor(socket: str, size: int) -> None:
    async def read(requests: AsyncIterator[source.ReadRequest], context: Any) -> AsyncIterator[source.ReadResponse]:
        await anext(requests)
        yield source.ReadResponse(handshake=SOT)
        number = 0
        async for message in requests:
            for _ in range(message.request.num_records):
                answer = source.ReadResponse()
                answer.result.payload = b"%d " % number + bytes(size)
                answer.result.offset.offset = b"0:%d" % number
                answer.result.event_time.seconds = number
                answer.result.keys.append(str(number))
                answer.result.headers["topic"] = TOPIC
                number += 1
                yield answer
            yield source.ReadResponse(status=source.ReadResponse.Status(eot=True))

    async def acknowledge(
        requests: AsyncIterator[source.AckRequest], context: Any
    ) -> AsyncIterator[source.AckResponse]:
        await anext(requests)
        answer = source.AckResponse(handshake=SOT)
        answer.result.success.SetInParent()
        yield answer
        answer.ClearField("handshake")
        async for _ in requests:
            yield answer

    server = grpc.aio.server(options=_LIMITS)
    behaviours: dict[str, Callable[..., Any]] = {"ReadFn": read, "AckFn": acknowledge}
    server.add_generic_rpc_handlers((handlers_of(SERVICE, behaviours),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", choices=["json"], default="json")
    parser.add_argument("--messages", type=int, default=5_000, help="of a round")
    parser.add_argument("--batch", type=int, default=500, help="records of a read")
    parser.add_argument("--size", type=int, default=100, help="bytes of a message")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--acks", choices=["list", "single"], default="list", help="offsets of a request")
    parser.add_argument("--client", nargs=4, help=argparse.SUPPRESS)
    parser.add_argument("--floor", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.client:
        socket, messages, batch, acks = asked.client
        asyncio.run(_client(socket, int(messages), int(batch), acks))
    elif asked.floor:
        asyncio.run(_serve_floor(asked.floor[0], int(asked.floor[1])))
    else:
        configure_logging("bench", "warning")
        print(json.dumps(run(asked.messages, asked.batch, asked.size, rounds=asked.rounds, acks=asked.acks)))


if __name__ == "__main__":
    main()
