"""Clients that send what no stock client sends, send too much, or never answer."""

import asyncio
import base64
import gzip
import json
import random
import time
import zlib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bus.api import Bus, Record, StoredRecord
from bus.messaging import ORDER_HEADER, Claim, Half
from candlewright.wire.candlewright_pb2 import Tick
from candlewright.wire.errors import BusUnavailable, ConfigurationError
from core.metrics import REGISTRY
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.calls import sending
from gateways.rocketmq.clients import clients
from gateways.rocketmq.clients.clients import TABLE_CLIENTS, TABLE_REPORTS
from gateways.rocketmq.messages import handles, messages
from gateways.rocketmq.server import RocketMQGateway
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service
from tests.gateways.rocketmq.client import SERVICE, Client, bodies, code
from tests.gateways.rocketmq.conftest import Start
from tests.rounds import rounds

INVALID_ARGUMENT, NOT_FOUND, UNAVAILABLE, UNAUTHENTICATED = 3, 5, 14, 16


@pytest.fixture
async def client(start: Start) -> Client:
    return await start()


def forged(*fields: object) -> str:
    body = json.dumps(fields).encode()
    return base64.urlsafe_b64encode(zlib.crc32(body).to_bytes(4, "big") + body).decode().rstrip("=")


@pytest.mark.parametrize(
    "handle",
    [
        handles.text_of(Claim("t", "g", 0, 5, 1), 0),
        handles.text_of(Claim("t", "g", 9, 0, 1), 0),
        handles.text_of(Claim("t", "g", 0, 0, 2), 0),
        forged("t", 0, -1, "g", 1, 0),
        forged("t", 10**30, 0, "g", 1, 0),
        forged("t", 0, 10**300, "g", 1, 0),
        forged("t", 0, 0.5, "g", 1, 0),
        forged("t", 0, 0, "g", 1),
        forged("requests", 0, 0, "g", 1, 0),
        "[" * 5_000,
        forged() + "A" * 100_000,
    ],
)
async def test_a_forged_handle_settles_nothing(client: Client, handle: str) -> None:
    await client.send("t", b"1", 0)
    (message,) = (await client.receive("t", hide=600)).messages
    own = message.system_attribute.receipt_handle
    message.system_attribute.receipt_handle = handle
    for call in (client.ack, client.nack, client.forward):
        assert code(await call(message, "t")) == INVALID_ARGUMENT
    message.system_attribute.receipt_handle = own
    assert code(await client.ack(message, "t")) == 0


async def test_internal_topics_are_unknown_to_every_call(client: Client) -> None:
    topic = definition.Resource(name="requests")
    group, place = definition.Resource(name="g"), definition.Partition(topic=topic)
    asked = {
        "QueryRoute": service.QueryRouteRequest(topic=topic, endpoints=client.endpoints()),
        "QueryAssignment": service.QueryAssignmentRequest(topic=topic, group=group, endpoints=client.endpoints()),
        "ReceiveMessage": service.ReceiveMessageRequest(group=group, partition=place),
        "PullMessage": service.PullMessageRequest(group=group, partition=place),
        "QueryOffset": service.QueryOffsetRequest(partition=place),
        "SendMessage": service.SendMessageRequest(message=definition.Message(topic=topic)),
        "Heartbeat": service.HeartbeatRequest(client_id="c"),
    }
    data = asked["Heartbeat"].consumer_data  # type: ignore[union-attr]
    data.group.name = "g"
    data.subscriptions.add().topic.name = "requests"
    for method, request in asked.items():
        assert code(await client.call(method, request)) == NOT_FOUND, method
    handle = handles.text_of(Claim("requests", "g", 0, 0, 1), 0)
    for method in ("AckMessage", "NackMessage", "ForwardMessageToDeadLetterQueue"):
        request_class = SERVICE.methods_by_name[method].input_type._concrete_class
        request = request_class(group=group, topic=topic, receipt_handle=handle)
        assert code(await client.call(method, request)) == NOT_FOUND, method


async def test_names_have_up_to_255_characters_and_dead_letters_of_the_longest_group_arrive(client: Client) -> None:
    topic, group = "t" * 255, "g" * 255
    assert code(await client.send(topic, b"1", 0)) == 0
    assert code(await client.send(topic + "t", b"1", 0)) == INVALID_ARGUMENT
    (message,) = (await client.receive(topic, group)).messages
    assert code(await client.receive(topic, group + "g")) == INVALID_ARGUMENT
    assert code(await client.forward(message, topic, group)) == 0
    assert bodies(await client.receive(f"%DLQ%{group}", "auditor", hold=5)) == [b"1"]


async def test_a_body_of_the_largest_size_may_grow_by_the_overhead_of_gzip(client: Client) -> None:
    body = random.Random(1).randbytes(messages.MAX_BODY_BYTES)
    packed = gzip.compress(body, 1)
    assert len(packed) > len(body)
    assert code(await client.send("t", packed, 0, body_encoding=definition.GZIP)) == 0
    assert code(await client.send("t", body + b"x", 0)) == INVALID_ARGUMENT
    (message,) = (await client.receive("t")).messages
    assert message.system_attribute.body_encoding == definition.GZIP
    assert gzip.decompress(message.body) == body


@pytest.mark.parametrize("body", [b"", b"hello", b"\x00" * 10, b"89"])
@pytest.mark.parametrize("kind", [definition.CRC32, definition.MD5, definition.SHA1])
async def test_the_digest_of_the_sender_is_checked_and_its_kind_kept(client: Client, body: bytes, kind: int) -> None:
    digest = {"type": kind, "checksum": messages.checksum(kind, body).lower()}
    assert code(await client.send("t", body, 0, body_digest=digest)) == 0
    (message,) = (await client.receive("t")).messages
    found = message.system_attribute.body_digest
    assert (found.type, found.checksum) == (kind, messages.checksum(kind, body))
    assert code(await client.send("t", body + b"!", 0, body_digest=digest)) == INVALID_ARGUMENT


def test_the_check_sum_has_no_leading_zeros() -> None:
    assert messages.checksum(definition.CRC32, b"89") == "943260C"


@pytest.mark.parametrize(
    "change", [{"user": {"k": "v" * 70_000}}, {"tag": "t" * 70_000}, {"keys": ["k" * 10] * 7_000}, {"tag": "a|b"}]
)
async def test_everything_besides_the_body_is_bounded(client: Client, change: dict[str, object]) -> None:
    assert code(await client.send("t", b"1", 0, **change)) == INVALID_ARGUMENT


async def test_notifications_have_no_partition_that_can_be_written_to(client: Client) -> None:
    assert code(await client.send("notifications", b"1", 0)) == NOT_FOUND


async def test_a_failed_pull_says_where_to_continue(client: Client, bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*arguments: object, **options: object) -> None:
        raise BusUnavailable("no server")

    await client.send("t", b"1", 0)
    monkeypatch.setattr(bus, "state", away)
    reply = await client.pull("t", 7)
    assert (code(reply), reply.next_offset) == (UNAVAILABLE, 7)


async def test_a_dead_letter_policy_below_zero_is_none(client: Client) -> None:
    await client.heartbeat("c", "g", "t", most=-1)
    await client.send("t", b"1", 0)
    assert bodies(await client.receive("t", hold=5)) == [b"1"]


async def test_too_many_subscriptions_and_too_long_ids_are_refused(client: Client, bus: Bus) -> None:
    request = service.HeartbeatRequest(client_id="c")
    request.consumer_data.group.name = "g"
    for number in range(1_001):
        request.consumer_data.subscriptions.add().topic.name = f"t{number}"
    assert code(await client.call("Heartbeat", request)) == INVALID_ARGUMENT
    assert code(await client.heartbeat("c" * 1_025, "g")) == INVALID_ARGUMENT
    assert bus.topics() == []


async def test_unrequested_reports_are_not_kept(client: Client, bus: Bus) -> None:
    report = service.ReportThreadStackTraceRequest(command_id="x" * 1_000, thread_stack_trace="main")
    assert code(await client.call("ReportThreadStackTrace", report)) == 0
    assert bus.items(TABLE_REPORTS) == {}


async def test_a_silent_client_after_goodbye_is_served_after_a_while(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.send("t", b"1", 0)
    for name in ("a", "b", "c"):
        await client.call("NotifyClientTermination", service.NotifyClientTerminationRequest(client_id=name))
    assert bodies(await client.receive("t")) == []
    monkeypatch.setattr(clients, "_GONE_SECONDS", 0.0)
    assert bodies(await client.receive("t")) == [b"1"]


async def test_a_client_that_is_silent_for_too_long_is_forgotten(
    start: Start, bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_FRESH_SECONDS", 0.0)
    client = await start(client_expiry_seconds=0.2)
    await client.heartbeat("a", "g", "t", fifo=True)
    await client.heartbeat("b", "g", "t", fifo=True)
    assert await client.assigned("a", "g", "t") == [0, 1]
    while bus.items(TABLE_CLIENTS):
        await asyncio.sleep(0.01)
    assert await client.assigned("a", "g", "t") == [0, 1, 2, 3]


async def test_a_consumer_that_names_its_group_as_a_producers_is_not_asked(start: Start) -> None:
    client = await start(transaction_check_seconds=0.02)
    await client.heartbeat("consumer", "group", "t")
    group = definition.Resource(name="group")
    waiting = asyncio.create_task(
        client.call("PollCommand", service.PollCommandRequest(client_id="consumer", producer_group=group), 1.0)
    )
    await client.send("t", b"half", 0, message_type=definition.TRANSACTION, producer_group=group)
    assert (await waiting).WhichOneof("type") == "noop_command"


async def test_a_broadcasting_consumer_makes_no_group(client: Client, bus: Bus) -> None:
    request = service.HeartbeatRequest(client_id="c")
    request.consumer_data.group.name = "g"
    request.consumer_data.consume_model = definition.BROADCASTING
    request.consumer_data.subscriptions.add().topic.name = "t"
    assert code(await client.call("Heartbeat", request)) == 0
    await client.send("t", b"1", 0)
    assert bodies(await client.pull("t", 0)) == [b"1"]
    assert bus.groups("t") == []


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just(10**30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
FIELDS = ("group", "gzip", "born_host", "trace", "producer_group", "born_ms", "due_ms", "delay_level", "keys", "digest")


@settings(max_examples=rounds(40), deadline=None)
@given(st.dictionaries(st.sampled_from(FIELDS), anything) | anything, st.text(max_size=5))
def test_a_record_with_any_headers_is_a_message(rest: object, kind: str) -> None:
    headers = {ORDER_HEADER: json.dumps(rest), "MSG_TYPE": kind, "KEYS": kind, "UNIQ_KEY": kind}
    record = StoredRecord(
        topic="t", partition=0, offset=0, timestamp_ms=1_700_000_000_000, key=b"k", value=b"body", headers=headers
    )
    assert messages.from_record(record, definition.Resource(name="t"), "h").body == b"body"


async def test_invalid_times_are_refused_or_skipped(client: Client, bus: Bus) -> None:
    for seconds in (-(10**18), 10**18):
        message = definition.Message(topic=definition.Resource(name="t"), body=b"1")
        system = message.system_attribute
        system.message_id = "m"
        system.born_timestamp.seconds = seconds
        request = service.SendMessageRequest(message=message)
        assert code(await client.call("SendMessage", request)) in (0, INVALID_ARGUMENT)
        request.message.system_attribute.delivery_timestamp.seconds = seconds
        assert code(await client.call("SendMessage", request)) in (0, INVALID_ARGUMENT)
    found = await client.receive("t")
    assert set(bodies(found)) <= {b"1"}


@pytest.mark.parametrize("address", ["0.0.0.0:8081", "[::]:8081", "example:0", "example", ":8081"])
def test_an_address_that_no_client_can_reach_is_not_advertised(bus: Bus, tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigurationError):
        RocketMQGateway(RocketMQSettings(advertise=address), bus, keys=tmp_path, partitions=1)


def test_a_gateway_that_has_not_started_yet_is_described(bus: Bus, tmp_path: Path) -> None:
    gateway = RocketMQGateway(RocketMQSettings(), bus, keys=tmp_path, partitions=1)
    assert (gateway.problems(), gateway.details()["clients"]) == ((), 0)


async def test_a_large_batch_of_large_messages_costs_no_more_than_its_answer(client: Client, bus: Bus) -> None:
    bus.publish("t", [Record(bytes(1 << 20), partition=0) for _ in range(24)])
    first = await client.receive("t", batch=256, partition=0)
    assert 1 <= len(first.messages) <= 5
    # Messages read beyond the answer are given back, and do not count as an attempt.
    second = await client.receive("t", batch=256, partition=0)
    assert {message.system_attribute.delivery_attempt for message in second.messages} == {1}


async def test_messages_of_permanently_gone_senders_are_checked_occasionally(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "_CLAIM", 1)
    client = await start(transaction_check_seconds=0.01)
    claim, looks = client.queue.claim_unresolved, 0

    def counted(*arguments: Any, **options: Any) -> list[Half]:
        nonlocal looks
        looks += 1
        return claim(*arguments, **options)

    monkeypatch.setattr(client.queue, "claim_unresolved", counted)
    for _ in range(20):
        await client.send("t", b"half", 0, message_type=definition.TRANSACTION)
    before, began = looks, time.monotonic()
    while looks < before + 4:
        await asyncio.sleep(0.01)
    assert time.monotonic() - began > 0.14


async def test_clients_that_wait_without_mail_cause_no_calls(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "_COLLECT_SECONDS", 0.01)
    client, other = await start(), await start()
    collect, asked = client.queue.collect, Counter[str]()

    def counted(addresses: Sequence[str]) -> list[bytes | None]:
        asked.update(addresses)
        return collect(addresses)

    monkeypatch.setattr(client.queue, "collect", counted)
    waiting = asyncio.create_task(client.poll("c"))
    await asyncio.sleep(0.3)
    # The loop has run twenty times.
    assert asked[clients.mailbox("c")] == 1
    command = service.PollCommandResponse()
    command.print_thread_stack_trace_command.command_id = "1"
    other.queue.post(clients.mailbox("c"), command.SerializeToString(), 60)
    assert (await asyncio.wait_for(waiting, 5)).WhichOneof("type") == "print_thread_stack_trace_command"


async def test_a_sender_that_asks_another_gateway_for_commands_is_asked_there(start: Start) -> None:
    client, other = await start(transaction_check_seconds=0.05), await start(transaction_check_seconds=60)
    await other.heartbeat("p", "group")
    waiting = asyncio.create_task(other.poll("p"))
    group = definition.Resource(name="group")
    sent = await client.send("t", b"half", 0, message_type=definition.TRANSACTION, producer_group=group)
    command = (await asyncio.wait_for(waiting, 5)).recover_orphaned_transaction_command
    assert command.transaction_id == sent.transaction_id
    assert code(await other.end(command.transaction_id)) == 0


async def test_where_topics_are_not_made_an_unknown_one_is_not_found(start: Start, bus: Bus) -> None:
    client = await start(create_topics=False)
    for reply in (
        await client.route("t"),
        await client.send("t", b"1", 0),
        await client.receive("t"),
        await client.pull("t", 0),
        await client.heartbeat("c", "g", "t"),
    ):
        assert code(reply) == NOT_FOUND
    bus.create_topic("t", 1)
    assert code(await client.send("t", b"1", 0)) == 0


async def test_without_its_key_a_poll_for_commands_ends_with_a_status_of_grpc(start: Start) -> None:
    client = await start(access_keys={"key": "secret"})
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await client.poll("c")
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert code(await client.send("t", b"1", 0)) == UNAUTHENTICATED


async def test_members_that_name_different_filters_are_counted(client: Client) -> None:
    name = "candlewright_gateways_rocketmq_subscription_conflicts_total"
    before = REGISTRY.get_sample_value(name) or 0
    for member, tag in (("a", "x"), ("b", "x"), ("c", "y"), ("c", "y")):
        assert code(await client.heartbeat(member, "g", "t", tag=tag)) == 0
    assert REGISTRY.get_sample_value(name) == before + 1


async def test_the_sender_of_a_tick_dated_ahead_is_sent_the_bound(client: Client, bus: Bus) -> None:
    tick = Tick(ticker="GATE/USDT.NOWHERE", trade_id="1", timestamp=time.time_ns() + 60 * 10**9, price=1.0, size=1.0)
    message = definition.Message(topic=definition.Resource(name="ticks"), body=tick.SerializeToString())
    message.system_attribute.message_id = "m"
    answer = await client.call("SendMessage", service.SendMessageRequest(message=message))
    assert code(answer) == INVALID_ARGUMENT
    assert "more than ticks.max_ahead_seconds = 5" in answer.common.status.message
    assert not any(bus.read("ticks", partition, 0) for partition in range(4))
