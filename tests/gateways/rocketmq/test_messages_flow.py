"""Sending, receiving and settling over gRPC."""

import asyncio
import stat
import zlib
from pathlib import Path

import pytest

from bus.api import Bus, Record
from candlewright.wire.errors import BusFull, BusUnavailable
from tests.gateways.rocketmq.client import Client, bodies, code
from tests.gateways.rocketmq.conftest import Start

INVALID_ARGUMENT, DEADLINE_EXCEEDED, NOT_FOUND, RESOURCE_EXHAUSTED, UNAVAILABLE = 3, 4, 5, 8, 14


@pytest.fixture
async def client(start: Start) -> Client:
    return await start()


async def test_tls_is_on_by_default_with_a_certificate_of_our_own(start: Start, tmp_path: Path) -> None:
    client = await start(tls=True)
    reply = await client.route("orders")
    assert code(reply) == 0
    key = tmp_path / "keys" / "rocketmq.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


async def test_a_route_names_all_partitions_and_the_address_that_the_client_came_with(client: Client) -> None:
    reply = await client.route("orders")
    assert [partition.id for partition in reply.partitions] == [0, 1, 2, 3]
    assert {partition.broker.name for partition in reply.partitions} == {"candlewright"}
    assert all(partition.broker.endpoints == client.endpoints() for partition in reply.partitions)
    assert {partition.permission for partition in reply.partitions} == {3}
    assert {partition.permission for partition in (await client.route("notifications")).partitions} == {1}


async def test_a_message_is_received_with_every_field(client: Client, bus: Bus) -> None:
    sent = await client.send(
        "orders", b"body", 2, message_id="m-1", tag="red", keys=["k1", "k2"], user={"size": "9"}, born_host="h"
    )
    assert (code(sent), sent.message_id, sent.transaction_id) == (0, "m-1", "")
    reply = await client.receive("orders", partition=2)
    (message,) = reply.messages
    system = message.system_attribute
    assert (message.body, dict(message.user_attribute)) == (b"body", {"size": "9"})
    assert (system.message_id, system.tag, list(system.keys), system.born_host) == ("m-1", "red", ["k1", "k2"], "h")
    assert (system.partition_id, system.partition_offset, system.delivery_attempt) == (2, 0, 1)
    assert (system.body_digest.type, system.body_digest.checksum) == (0, f"{zlib.crc32(b'body'):X}")
    assert system.invisible_period.seconds == 60
    assert code(await client.ack(message, "orders")) == 0
    assert bodies(await client.receive("orders", partition=2)) == []
    assert bus.pending("orders", "g") == {0: 0, 1: 0, 2: 0, 3: 0}


async def test_a_held_receive_returns_with_the_next_message(client: Client) -> None:
    waiting = asyncio.create_task(client.receive("orders", hold=10, partition=1))
    await asyncio.sleep(0)
    await client.send("orders", b"1", 1)
    assert bodies(await asyncio.wait_for(waiting, 5)) == [b"1"]


async def test_a_group_that_heartbeats_before_the_first_message_misses_none(client: Client) -> None:
    assert code(await client.heartbeat("c", "g", "orders")) == 0
    await client.send("orders", b"1", 0)
    assert bodies(await client.receive("orders", policy="RESUME", hold=5)) == [b"1"]


async def test_an_unanswered_message_is_delivered_again_and_its_old_handle_is_refused(client: Client) -> None:
    await client.send("orders", b"1", 0)
    (first,) = (await client.receive("orders", hide=0.01)).messages
    (second,) = (await client.receive("orders", hold=5)).messages
    assert second.system_attribute.delivery_attempt == 2
    assert code(await client.ack(first, "orders")) == INVALID_ARGUMENT
    assert code(await client.ack(second, "orders")) == 0
    assert code(await client.ack(second, "orders")) == 0


async def test_handles_hold_at_another_gateway(client: Client, start: Start) -> None:
    other = await start()
    await client.send("orders", b"1", 0)
    (message,) = (await client.receive("orders")).messages
    assert code(await other.ack(message, "orders")) == 0
    assert bodies(await client.receive("orders")) == []


async def test_a_refused_message_is_delivered_again_after_the_delay_of_its_attempt(start: Start) -> None:
    client = await start(nack_delays_seconds=(0.02, 60.0))
    await client.send("orders", b"1", 0)
    (first,) = (await client.receive("orders")).messages
    assert code(await client.nack(first, "orders")) == 0
    (second,) = (await client.receive("orders", hold=5)).messages
    assert second.system_attribute.delivery_attempt == 2
    assert code(await client.nack(second, "orders")) == 0
    assert bodies(await client.receive("orders", hold=0.1)) == []


async def test_the_last_refusal_makes_it_a_dead_letter_once(client: Client) -> None:
    await client.send("orders", b"1", 0, message_id="m", tag="t")
    (message,) = (await client.receive("orders")).messages
    assert code(await client.nack(message, "orders", attempt=3, most=3)) == 0
    assert code(await client.nack(message, "orders", attempt=3, most=3)) == 0
    assert code(await client.forward(message, "orders")) == 0
    (dead,) = (await client.receive("%DLQ%g", "auditor")).messages
    assert (dead.body, dead.system_attribute.message_id, dead.system_attribute.tag) == (b"1", "m", "t")
    assert dead.user_attribute["REAL_TOPIC"] == "orders"
    assert dead.user_attribute["ORIGIN_MESSAGE_ID"] == "m"
    assert bodies(await client.receive("orders")) == []


async def test_an_unanswered_delivery_becomes_a_dead_letter(client: Client) -> None:
    await client.heartbeat("c", "g", "orders", most=2)
    await client.send("orders", b"poison", 0)
    for _ in range(2):
        assert bodies(await client.receive("orders", hide=0.01, hold=5)) == [b"poison"]
    assert bodies(await client.receive("orders", hold=0.2)) == []
    assert bodies(await client.receive("%DLQ%g", "auditor")) == [b"poison"]


@pytest.mark.parametrize("handle", ["", "x", "AAAA", "bm90IGEgaGFuZGxl"])
async def test_text_that_is_not_a_handle_is_refused(client: Client, handle: str) -> None:
    await client.send("orders", b"1", 0)
    (message,) = (await client.receive("orders")).messages
    message.system_attribute.receipt_handle = handle
    assert code(await client.ack(message, "orders")) == INVALID_ARGUMENT
    assert code(await client.nack(message, "orders")) == INVALID_ARGUMENT
    assert code(await client.forward(message, "orders")) == INVALID_ARGUMENT


async def test_a_handle_is_valid_only_for_its_group_and_topic(client: Client) -> None:
    await client.send("orders", b"1", 0)
    (message,) = (await client.receive("orders")).messages
    assert code(await client.ack(message, "orders", "other")) == INVALID_ARGUMENT
    assert code(await client.ack(message, "others")) == INVALID_ARGUMENT


async def test_records_of_other_writers_are_messages(client: Client, bus: Bus) -> None:
    bus.publish("orders", [Record(b"raw", key=b"k\xff", headers={"h": "\udcff"})])
    (message,) = (await client.receive("orders")).messages
    assert message.body == b"raw"
    assert message.system_attribute.message_id.startswith("orders-")
    assert message.system_attribute.body_digest.checksum == f"{zlib.crc32(b'raw'):X}"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"message_id": ""}, INVALID_ARGUMENT),
        ({"user": {"KEYS": "x"}}, INVALID_ARGUMENT),
        ({"user": {"INNER_MULTI_QUEUE_OFFSET": "x"}}, INVALID_ARGUMENT),
        ({"body": b"x" * ((4 << 20) + 1)}, INVALID_ARGUMENT),
        ({"body_digest": {"type": 0, "checksum": "ABC"}}, INVALID_ARGUMENT),
        ({"delay_level": 19}, INVALID_ARGUMENT),
        ({"topic": "requests"}, NOT_FOUND),
        ({"topic": "no good"}, INVALID_ARGUMENT),
        ({"topic": ""}, INVALID_ARGUMENT),
        ({"topic": "ticks"}, INVALID_ARGUMENT),
        ({"partition": 99}, NOT_FOUND),
        ({"body_digest": {"type": 1, "checksum": "9DD4E461268C8034F5C8564E155C67A6"}}, 0),
        ({"body_digest": {"type": 0, "checksum": "8CDC1683"}}, 0),
    ],
)
async def test_an_invalid_message_gets_the_code_of_its_fault(
    client: Client, change: dict[str, object], expected: int
) -> None:
    options: dict[str, object] = {"topic": "orders", "body": b"x", **change}
    reply = await client.send(**options)  # type: ignore[arg-type]
    assert code(reply) == expected, reply.common.status.message


async def test_an_unreachable_bus_is_reported_as_a_status_and_a_problem(
    client: Client, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.send("orders", b"1", 0)

    def away(*arguments: object, **options: object) -> None:
        raise BusUnavailable("no server")

    with monkeypatch.context() as patch:
        patch.setattr(bus, "publish", away)
        patch.setattr(client.queue, "receive", away)
        patch.setattr(client.queue, "acknowledge", away)
        assert code(await client.send("orders", b"2", 0)) == UNAVAILABLE
        assert code(await client.receive("orders")) == DEADLINE_EXCEEDED
    (message,) = (await client.receive("orders", hold=5)).messages
    assert code(await client.ack(message, "orders")) == 0
    assert code(await client.send("orders", b"3", 0)) == 0


async def test_a_full_topic_is_reported(client: Client, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise BusFull("orders", 2, 1)

    await client.send("orders", b"1", 0)
    monkeypatch.setattr(bus, "publish", full)
    assert code(await client.send("orders", b"2", 0)) == RESOURCE_EXHAUSTED
