"""The RocketMQ gateway as a process of its own over a real Redis, called over TLS, and killed at any moment."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest

from bus.embedded import EmbeddedRedis
from gateways.rocketmq.messages import timestamp
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from tests.gateways.rocketmq.client import Client, bodies, code

pytestmark = pytest.mark.timeout(180)

START_SECONDS = 60.0


class Gateway:
    def __init__(self, url: str, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": url,
            "CANDLEWRIGHT_DATA_DIR": str(folder),
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(folder / "port"),
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__ENABLED": "true",
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__TRANSACTION_CHECK_SECONDS": "1",
        }
        self.start()

    def start(self) -> None:
        (self._folder / "port").unlink(missing_ok=True)
        self.process = subprocess.Popen([sys.executable, "-m", "gateways"], env=self._environment)
        give_up = time.monotonic() + START_SECONDS
        while not self.status.get("ready"):
            assert self.process.poll() is None, "the gateway ended"
            assert time.monotonic() < give_up, "the gateway did not start"
            time.sleep(0.05)

    @property
    def status(self) -> dict[str, Any]:
        try:
            port = (self._folder / "port").read_text()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as reply:
                found: dict[str, Any] = json.loads(reply.read())
                return found
        except OSError:
            return {}

    def client(self) -> Client:
        certificate = (self._folder / "keys" / "rocketmq.crt").read_bytes()
        return Client(self.status["rocketmq"]["address"], certificate)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("rocketmq")
    with EmbeddedRedis(folder / "redis", fsync="no") as server:
        gateway = Gateway(server.url, folder)
        yield gateway
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(30) == 0


async def test_what_was_acknowledged_to_a_sender_outlives_a_kill_and_nothing_else_appears(gateway: Gateway) -> None:
    stored: set[str] = set()
    tried: set[str] = set()

    async def send(client: Client, sender: int) -> None:
        for number in range(10_000):
            id = f"{sender}-{number}"
            tried.add(id)
            if code(await client.send("killed", id.encode(), sender % 4, message_id=id)) == 0:
                stored.add(id)

    async with gateway.client() as client:
        senders = [asyncio.create_task(send(client, sender)) for sender in range(8)]
        while len(stored) < 200:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(gateway.kill)
        outcomes = await asyncio.gather(*senders, return_exceptions=True)
    assert all(isinstance(outcome, grpc.aio.AioRpcError) for outcome in outcomes)
    await asyncio.to_thread(gateway.start)
    seen: list[str] = []
    async with gateway.client() as client:
        while messages := (await client.receive("killed", hold=0.2)).messages:
            seen += [message.system_attribute.message_id for message in messages]
            for message in messages:
                assert code(await client.ack(message, "killed")) == 0
    assert len(seen) == len(set(seen))
    assert stored <= set(seen) <= tried


async def test_handles_times_and_half_messages_outlive_a_kill(gateway: Gateway) -> None:
    async with gateway.client() as client:
        for body in (b"acked later", b"comes again"):
            await client.send("kept", body, 0)
        held, _ = (await client.receive("kept", "g", batch=2, hide=600)).messages
        (again,) = (await client.receive("kept", "short", batch=1, hide=0.01)).messages
        due = timestamp(round(time.time() * 1_000) + 500)
        await client.send("timed", b"timed", 0, message_type=definition.DELAY, delivery_timestamp=due)
        group = definition.Resource(name="producers")
        options: dict[str, Any] = {"message_type": definition.TRANSACTION, "producer_group": group}
        decided = (await client.send("decided", b"decided", 0, **options)).transaction_id
        await client.send("asked", b"asked", 0, **options)
        await client.send("dead", b"dead", 0)
        (dead,) = (await client.receive("dead")).messages
        await asyncio.to_thread(gateway.kill)
    await asyncio.to_thread(gateway.start)
    async with gateway.client() as client:
        assert code(await client.ack(held, "kept")) == 0
        assert bodies(await client.receive("kept", "short", hold=5)) == [again.body, b"comes again"]
        assert bodies(await client.receive("kept")) == []
        assert bodies(await client.receive("timed", hold=10)) == [b"timed"]
        assert code(await client.end(decided)) == 0
        assert bodies(await client.receive("decided")) == [b"decided"]
        await client.heartbeat("p", "producers")
        while (command := await client.poll("p", timeout=20)).WhichOneof("type") == "noop_command":
            pass
        orphan = command.recover_orphaned_transaction_command
        assert orphan.orphaned_transactional_message.body == b"asked"
        assert code(await client.end(orphan.transaction_id)) == 0
        for _ in range(2):
            assert code(await client.forward(dead, "dead")) == 0
        assert bodies(await client.receive("%DLQ%g", "auditor", hold=5)) == [b"dead"]
        assert bodies(await client.receive("%DLQ%g", "auditor")) == []


async def test_order_is_kept_between_receivers(gateway: Gateway) -> None:
    groups = ("A", "B", "C")
    seen: dict[str, list[int]] = {group: [] for group in groups}
    async with gateway.client() as client:
        for number in range(12):
            for group in groups:
                await client.send("ordered", b"%d" % number, None, message_group=group)

        async def consume(name: str) -> None:
            while sum(map(len, seen.values())) < 12 * len(groups):
                reply = await client.receive("ordered", fifo=True, batch=2, hold=0.1, client=name)
                for message in reply.messages:
                    seen[message.system_attribute.message_group].append(int(message.body))
                    assert code(await client.ack(message, "ordered")) == 0

        await asyncio.gather(*(consume(f"c{index}") for index in range(3)))
    assert seen == {group: list(range(12)) for group in groups}


async def test_counts_are_on_the_status_page(gateway: Gateway) -> None:
    async with gateway.client() as client:
        await client.send("counted", b"x", 0)
        await client.receive("counted")
    assert gateway.status["rocketmq"]["tls"] is True
    port = (gateway._folder / "port").read_text()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as reply:
        page = reply.read().decode()
    for name in ("sent_total", "delivered_total", "calls_total", "waiting_polls", "settled_total"):
        assert f"candlewright_gateways_rocketmq_{name}" in page
