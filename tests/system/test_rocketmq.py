"""The RocketMQ gateway as a separate process over a real Redis, called over TLS, and killed at any moment."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
import redis

from bus.connect import messaging_of
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright_platform.supervisor.ports import free_port
from gateways.rocketmq.calls.sending import QUEUE
from gateways.rocketmq.messages.messages import timestamp
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from tests.gateways.rocketmq.client import Client, bodies, code

pytestmark = pytest.mark.timeout(180)

START_SECONDS = 60.0


class Gateway:
    def __init__(self, redis: EmbeddedRedis, folder: Path) -> None:
        self._folder = folder
        self.redis = redis
        self._environment = {
            **os.environ,
            "CANDLEWRIGHT_BUS__URL": redis.url,
            "CANDLEWRIGHT_DATA_DIR": str(folder),
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(folder / "port"),
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__ENABLED": "true",
            "CANDLEWRIGHT_GATEWAYS__ROCKETMQ__BIND": f"127.0.0.1:{free_port()}",
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
        gateway = Gateway(server, folder)
        yield gateway
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(30) == 0


#: The outcome of a message, by the last digit of its number.
PLANS = {0: "dead", 1: "timed", 2: "COMMIT", 3: "ROLLBACK", 4: "asked"}
FAILED = (grpc.aio.AioRpcError, AssertionError)


class Users:
    """They send each message once, whether or not it succeeds, and repeat all other calls until they are answered."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.tried: set[str] = set()
        self.stored: set[str] = set()
        self.ended: dict[str, str] = {}
        self._decisions: dict[str, str] = {}
        self.is_over = asyncio.Event()

    @property
    def read(self) -> int:
        return sum(end != "rolled back" for end in self.ended.values())

    async def send(self, numbers: range) -> None:
        for number in numbers:
            id, plan = str(number), PLANS.get(number % 10, "plain")
            options: dict[str, Any] = {}
            if plan == "timed":
                options["delivery_timestamp"] = timestamp(round(time.time() * 1_000) + 300)
            if plan in ("COMMIT", "ROLLBACK", "asked"):
                group = definition.Resource(name="killers")
                options |= {"message_type": definition.TRANSACTION, "producer_group": group}
            self.tried.add(id)
            try:
                reply = await self._client.send(
                    "killed", id.encode(), number % 4, message_id=id, user={"plan": plan}, **options
                )
                assert code(reply) == 0
            except FAILED:
                continue
            self.stored.add(id)
            if plan in ("COMMIT", "ROLLBACK"):
                # Its sender may have been asked before, and have answered that it was not stored.
                decision = self._decisions.setdefault(reply.transaction_id, plan)
                await self._until_answered(self._client.end, reply.transaction_id, decision)
                if decision == "ROLLBACK":
                    self.ended[id] = "rolled back"
            elif plan == "asked":
                self._decisions.setdefault(reply.transaction_id, "COMMIT")

    async def answer_questions(self) -> None:
        while not self.is_over.is_set():
            try:
                assert code(await self._client.heartbeat("k", "killers")) == 0
                asked = (await self._client.poll("k", timeout=3.0)).recover_orphaned_transaction_command
            except FAILED:
                continue
            if asked.transaction_id:
                id, plan = asked.transaction_id, asked.orphaned_transactional_message.user_attribute["plan"]
                decision = self._decisions.setdefault(id, "ROLLBACK" if plan == "ROLLBACK" else "COMMIT")
                await self._until_answered(self._client.end, id, decision)

    async def consume(self) -> None:
        while not self.is_over.is_set():
            ended = set(self.ended)
            try:
                messages = (
                    await self._client.receive("killed", "readers", hide=3.0, hold=0.3, batch=8, timeout=20)
                ).messages
            except FAILED:
                continue
            for message in messages:
                id, is_dead = message.body.decode(), message.user_attribute["plan"] == "dead"
                assert id not in ended, "it was given out after its end"
                if is_dead:
                    last = partial(self._client.nack, attempt=9, most=9)
                    outcome = await self._until_answered(last, message, "killed", "readers")
                else:
                    outcome = await self._until_answered(self._client.ack, message, "killed", "readers")
                if outcome == 0:
                    self.ended[id] = "dead" if is_dead else "consumed"

    async def _until_answered(self, call: Callable[..., Awaitable[Any]], *arguments: Any) -> int:
        while True:
            try:
                found = code(await call(*arguments))
            except grpc.aio.AioRpcError:
                continue
            # Any other code means that the bus is down; 3, that the message was given to another consumer in the
            # meantime.
            if found in (0, 3):
                return found


async def test_kills_of_the_gateway_and_of_redis_lose_and_invent_nothing(gateway: Gateway) -> None:
    count = 150
    bus = RedisBus(gateway.redis.url)
    queue = messaging_of(bus)

    halves = redis.Redis.from_url(gateway.redis.url)

    def is_settled(users: Users) -> bool:
        return (
            users.stored <= users.ended.keys()
            and not halves.zcard(f"cw:half:{QUEUE}")
            and queue.next_due(QUEUE) is None
            and sum(state.end for state in bus.state("killed")) == users.read
            and not any(bus.pending("killed", "readers").values())
        )

    async with gateway.client() as client:
        await client.heartbeat("c", "readers", "killed")
        users = Users(client)
        senders = [asyncio.create_task(users.send(range(n, count, 4))) for n in range(4)]
        others = [asyncio.create_task(users.consume()) for _ in range(3)]
        others.append(asyncio.create_task(users.answer_questions()))
        for killed in ("redis", "both"):
            until = len(users.tried) + random.randint(count // 8, count // 3)
            while len(users.tried) < until:
                await asyncio.sleep(0.005)
            gateway.redis.kill()
            if killed == "both":
                gateway.kill()
            await asyncio.to_thread(gateway.redis.start)
            if killed == "both":
                await asyncio.to_thread(gateway.start)
        await asyncio.gather(*senders)
        give_up = time.monotonic() + 60
        while not await asyncio.to_thread(is_settled, users):
            assert not any(task.done() for task in others), "a consumer saw what must not be"
            assert time.monotonic() < give_up, users.stored - users.ended.keys()
            await asyncio.sleep(0.05)
        users.is_over.set()
        await asyncio.gather(*others)
    written = [record for p in range(4) for record in bus.read("killed", p, 0)]
    dead = [record.value.decode() for p in range(4) for record in bus.read("%DLQ%readers", p, 0)]
    ids = [record.value.decode() for record in written]
    assert len(ids) == len(set(ids))
    assert len(dead) == len(set(dead))
    assert set(dead) == {id for id, end in users.ended.items() if end == "dead"}
    assert {id for id, end in users.ended.items() if end != "rolled back"} == set(ids) <= users.tried
    assert {PLANS.get(int(id) % 10) for id in users.stored} == {*PLANS.values(), None}
    halves.close()
    queue.close()
    bus.close()


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
