"""The service if the bus or the address is not available, and when it stops."""

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc
import pytest

from bus.api import Bus, GroupRecord, Position, Record
from candlewright.wire.errors import BusUnavailable
from core.settings_gateways import KafkaPixySettings
from gateways.kafka_pixy import consumer, server
from gateways.kafka_pixy.metrics import DROPPED
from gateways.kafka_pixy.server import KafkaPixy
from tests.fresh_bus import FreshBus
from tests.gateways.kafka_pixy.conftest import Client, Serve, refused, served

Code = grpc.StatusCode


class Away(FreshBus):
    """A bus whose calls fail while they are named in `away`; reads report that and wait for `may_read`."""

    def __init__(self) -> None:
        super().__init__(partitions=4)
        self.away: set[str] = set()
        self.reads = threading.Event()
        self.may_read = threading.Event()
        self.may_read.set()

    def _check(self, name: str) -> None:
        if name in self.away:
            raise BusUnavailable("the bus does not answer")

    def publish(self, topic: str, records: Sequence[Record], *, lease: str | None = None) -> list[Position]:
        self._check("publish")
        return super().publish(topic, records, lease=lease)

    def create_topic(self, topic: str, partitions: int | None = None) -> int:
        self._check("create_topic")
        return super().create_topic(topic, partitions)

    def create_group(self, topic: str, group: str, *, at_end: bool) -> None:
        self._check("create_group")
        super().create_group(topic, group, at_end=at_end)

    def read_group(self, *arguments: Any, **options: Any) -> list[GroupRecord]:
        if "fault" in self.away:
            raise ValueError("a fault")
        self._check("read_group")
        found = super().read_group(*arguments, **options)
        if found:
            self.reads.set()
        assert self.may_read.wait(10)
        return found

    def acknowledge(self, topic: str, group: str, partition: int, *, offsets: Sequence[int], **options) -> int:  # type: ignore[no-untyped-def]
        self._check("acknowledge")
        return super().acknowledge(topic, group, partition, offsets=offsets, **options)


@pytest.fixture
def bus() -> Bus:
    return Away()


def test_a_failed_write_is_an_internal_error(serve: Serve, bus: Away) -> None:
    async def scenario(client: Client) -> None:
        bus.away = {"publish"}
        assert (await refused(client.produce("t", b"x"))).code is Code.INTERNAL
        bus.away = set()
        assert (await client.produce("t", b"x", b"bar")).offset == 0

    serve(scenario)


def test_an_asynchronous_message_is_answered_at_once_while_the_bus_is_down(serve: Serve, bus: Away) -> None:
    async def scenario(client: Client) -> None:
        bus.away = {"create_topic", "publish"}
        assert (await client.produce("t", b"x", async_mode=True)).offset == -1

    before = DROPPED.labels("BusUnavailable")._value.get()
    serve(scenario)
    assert DROPPED.labels("BusUnavailable")._value.get() == before + 1


def test_more_messages_than_memory_may_hold_are_refused(
    serve: Serve, bus: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_PRODUCE_BYTES", 200)

    async def scenario(client: Client) -> None:
        for offset in range(3):
            assert (await client.produce("t", bytes(150), b"bar")).offset == offset
            assert (await refused(client.produce("t", bytes(200), b"bar"))).code is Code.RESOURCE_EXHAUSTED

    serve(scenario)


def test_a_read_failure_is_reported_and_does_not_end_the_line(serve: Serve, bus: Away) -> None:
    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        bus.away = {"fault"}
        while (found := await refused(client.consume("t", "g"))).code is Code.NOT_FOUND:
            pass
        assert (found.code, "a fault" in str(found.text)) == (Code.INTERNAL, True)
        bus.away = set()
        await client.produce("t", b"x")
        while (found := await refused(client.consume("t", "g", auto_ack=True))).code is not Code.OK:
            assert found.code is Code.INTERNAL

    serve(scenario)


def test_a_group_that_cannot_be_made_promises_nothing(serve: Serve, bus: Away) -> None:
    async def scenario(client: Client) -> None:
        bus.away = {"create_group"}
        assert (await refused(client.consume("t", "g"))).code is Code.INTERNAL
        bus.away = set()
        while (found := await refused(client.consume("t", "g"))).code is Code.INTERNAL:
            pass
        assert found.code is Code.NOT_FOUND
        await client.produce("t", b"x")
        assert (await client.consume("t", "g")).message == b"x"

    serve(scenario)


def test_consumers_continue_when_the_bus_is_back(serve: Serve, bus: Away) -> None:
    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        await client.produce("t", b"x", b"bar")
        bus.away = {"read_group"}
        waiting = client.consume("t", "g")
        await asyncio.sleep(0.1)
        bus.away = {"acknowledge"}
        assert (await waiting).message == b"x"
        assert (await refused(client.ack("t", "g", 2, offset=0))).code is Code.INTERNAL
        await client.produce("t", b"y", b"bar")
        # An acknowledgement that fails does not fail the call.
        assert (await client.consume("t", "g", auto_ack=True)).message == b"y"
        bus.away = set()
        assert {(await client.consume("t", "g", auto_ack=True)).offset for _ in range(2)} == {0, 1}

    serve(scenario, ack_timeout_seconds=0.5, long_polling_seconds=5)


def test_a_group_that_was_deleted_is_made_again(serve: Serve, bus: Away, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer, "_QUIET_LOOK_SECONDS", 0.1)

    async def scenario(client: Client) -> None:
        await client.produce("t", b"x", b"bar")
        await refused(client.consume("t", "g"))
        bus.delete_group("t", "g")
        await refused(client.consume("t", "g"))
        while not bus.groups("t"):
            await refused(client.consume("t", "g"))
        await client.produce("t", b"y", b"bar")
        assert (await client.consume("t", "g", auto_ack=True)).message == b"y"

    serve(scenario)


def test_an_address_that_is_taken_is_an_error(bus: Away) -> None:
    async def scenario(client: Client) -> None:
        taken = client.address
        with pytest.raises(OSError, match="cannot listen"):
            await KafkaPixy(KafkaPixySettings(bind=taken), bus).start()

    asyncio.run(served(scenario, bus, [{}]))


def test_a_stop_ends_waiting_calls_and_gives_back_undelivered_records(bus: Away) -> None:
    async def scenario() -> None:
        gateway = KafkaPixy(KafkaPixySettings(bind="127.0.0.1:0", long_polling_seconds=30), bus)
        await gateway.start()
        channel = grpc.aio.insecure_channel(gateway.details()["address"])
        client = Client(channel)
        bus.create_group("t", "g", at_end=True)
        waiting = asyncio.ensure_future(refused(client.consume("u", "g")))
        for number in range(3):
            await client.produce("t", b"%d" % number, b"bar")
        assert (await client.consume("t", "g", auto_ack=True)).offset == 0
        await gateway.stop()
        assert (await waiting).code in (Code.NOT_FOUND, Code.UNAVAILABLE)
        await channel.close()
        # Whether or not they were read ahead, the next call gets them in order, as first deliveries.
        left = bus.pending_by_consumer("t", "g")[2]
        assert set(left) <= {"nobody"}

    asyncio.run(scenario())


def test_a_first_call_acknowledges_nothing_that_it_is_given_itself(
    serve: Serve, bus: Away, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request with all defaults acknowledges offset 0 of partition 0, as stock clients' first calls do."""
    acknowledge = bus.acknowledge

    def late(*arguments: Any, **options: Any) -> int:
        time.sleep(0.1)
        return acknowledge(*arguments, **options)

    async def scenario(client: Client) -> None:
        bus.create_topic("t", 1)
        bus.create_group("t", "g", at_end=True)
        await client.produce("t", b"x")
        monkeypatch.setattr(bus, "acknowledge", late)
        assert (await client.consume("t", "g")).offset == 0
        await asyncio.sleep(0.2)
        assert sum(bus.pending_by_consumer("t", "g")[0].values()) == 1
        # The next one acknowledges it.
        await refused(client.consume("t", "g"))
        assert bus.pending_by_consumer("t", "g") == {0: {}}

    serve(scenario)


def test_records_read_during_a_stop_are_given_back_as_undelivered(bus: Away) -> None:
    async def scenario() -> None:
        gateway = KafkaPixy(KafkaPixySettings(bind="127.0.0.1:0", long_polling_seconds=30), bus)
        await gateway.start()
        bus.create_group("t", "g", at_end=True)
        bus.publish("t", [Record(b"x")])
        bus.may_read.clear()
        async with grpc.aio.insecure_channel(gateway.details()["address"]) as channel:
            waiting = asyncio.ensure_future(refused(Client(channel).consume("t", "g")))
            assert await asyncio.to_thread(bus.reads.wait, 10)
            stopping = asyncio.ensure_future(gateway.stop())
            assert (await waiting).code in (Code.NOT_FOUND, Code.UNAVAILABLE)
            bus.may_read.set()
            await stopping
        assert [each.deliveries for each in bus.claim_expired("t", "g", "next", min_idle_seconds=0)] == [1]

    asyncio.run(scenario())
