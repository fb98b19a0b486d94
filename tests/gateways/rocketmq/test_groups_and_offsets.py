"""Members of groups and their partitions, order, commands, and reading by offset."""

import asyncio
import gzip
import itertools
import time

import pytest

from bus.api import Bus, Record
from candlewright.wire.candlewright_pb2 import OHLCV, Tick
from core.metrics import REGISTRY
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.door import access
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from protobuf.apache.rocketmq.v1 import service_pb2 as service
from tests.gateways.rocketmq.client import Client, bodies, code
from tests.gateways.rocketmq.conftest import Start

INVALID_ARGUMENT, NOT_FOUND, OUT_OF_RANGE, RESOURCE_EXHAUSTED, UNAUTHENTICATED = 3, 5, 11, 8, 16


@pytest.fixture
async def client(start: Start) -> Client:
    return await start()


async def test_members_without_order_share_all_partitions(client: Client) -> None:
    await client.heartbeat("a", "g", "t")
    await client.heartbeat("b", "g", "t")
    assert await client.assigned("a", "g", "t") == await client.assigned("b", "g", "t") == [0, 1, 2, 3]


async def test_in_order_each_partition_has_one_reader_until_it_says_goodbye(client: Client) -> None:
    for name in ("a", "b", "c"):
        await client.heartbeat(name, "g", "t", fifo=True)
    found = [await client.assigned(name, "g", "t") for name in ("a", "b", "c")]
    assert sorted(itertools.chain(*found)) == [0, 1, 2, 3]
    assert all(found)
    gone = service.NotifyClientTerminationRequest(client_id="b")
    assert code(await client.call("NotifyClientTermination", gone)) == 0
    left = [await client.assigned(name, "g", "t") for name in ("a", "c")]
    assert left == [[0, 1], [2, 3]]


async def test_messages_of_one_group_share_a_partition_and_arrive_in_order(client: Client) -> None:
    for index in range(3):
        assert code(await client.send("t", b"%d" % index, None, message_group="A")) == 0
    # Java's "A".hashCode() is 65.
    (first,) = (await client.receive("t", partition=1, batch=1, fifo=True)).messages
    assert (first.body, first.system_attribute.message_group) == (b"0", "A")
    assert bodies(await client.receive("t", partition=1, fifo=True, client="other")) == []
    waiting = asyncio.create_task(client.receive("t", partition=1, fifo=True, hold=5))
    assert code(await client.ack(first, "t")) == 0
    assert bodies(await asyncio.wait_for(waiting, 5)) == [b"1", b"2"]


async def test_in_order_a_slow_reader_continues_with_the_handle_it_has(client: Client) -> None:
    for index in range(2):
        await client.send("t", b"%d" % index, None, message_group="A")
    first, _ = [(await client.receive("t", batch=1, hide=0.01, hold=5, fifo=True)).messages[0] for _ in range(2)]
    # Stock clients repeat the call every 100 ms until it is OK, and read nothing else of the partition meanwhile.
    assert code(await client.ack(first, "t")) == 0
    assert code(await client.ack(first, "t")) == 0
    assert bodies(await client.receive("t", fifo=True, hold=5)) == [b"1"]


async def test_the_partition_of_the_message_is_used_where_the_request_names_none(client: Client, bus: Bus) -> None:
    await client.send("t", b"1", None, partition_id=3)
    assert [state.end for state in bus.state("t")] == [0, 0, 0, 1]


async def test_a_new_group_starts_where_its_policy_says(client: Client) -> None:
    await client.send("t", b"old", 0)
    assert bodies(await client.receive("t", "resume", policy="RESUME")) == []
    assert bodies(await client.receive("t", "discard", policy="DISCARD")) == []
    assert bodies(await client.receive("t", "playback", policy="PLAYBACK")) == [b"old"]
    await client.send("t", b"new", 0)
    assert bodies(await client.receive("t", "resume", policy="PLAYBACK")) == [b"new"]


async def test_a_new_group_may_begin_at_a_time(client: Client) -> None:
    await client.send("t", b"old", 0)
    await asyncio.sleep(0.005)
    since = round(time.time() * 1_000)
    await client.send("t", b"new", 0)
    request = service.ReceiveMessageRequest(
        group=definition.Resource(name="g"),
        partition=definition.Partition(topic=definition.Resource(name="t"), id=0),
        consume_policy=definition.TARGET_TIMESTAMP,
        batch_size=9,
    )
    request.initialization_timestamp.FromMilliseconds(since)
    assert bodies(await client.call("ReceiveMessage", request)) == [b"new"]


async def test_offsets_are_those_of_the_bus(client: Client, bus: Bus) -> None:
    bus.create_topic("t", 1)
    for index in range(4):
        await client.send("t", b"%d" % index, 0)
        await asyncio.sleep(0.003)
    times = [record.timestamp_ms for record in bus.read("t", 0, 0)]
    assert (await client.offset("t", definition.BEGINNING)).offset == 0
    assert (await client.offset("t", definition.END)).offset == 4
    assert (await client.offset("t", definition.TIME_POINT, at_ms=times[2])).offset == 2
    assert (await client.offset("t", definition.TIME_POINT, at_ms=times[3] + 60_000)).offset == 4
    assert (await client.offset("t", definition.TIME_POINT, at_ms=1)).offset == 0
    assert code(await client.offset("t", definition.TIME_POINT)) == INVALID_ARGUMENT
    assert code(await client.offset("t", definition.END, partition=7)) == NOT_FOUND
    assert code(await client.offset("history", definition.END)) == NOT_FOUND


async def test_pulling_needs_no_group_and_continues_over_filtered_messages(client: Client, bus: Bus) -> None:
    for index in range(4):
        await client.send("t", b"%d" % index, 0, tag="odd" if index % 2 else "even")
    reply = await client.pull("t", 0, tag="odd")
    assert bodies(reply) == [b"1", b"3"]
    assert (reply.min_offset, reply.next_offset, reply.max_offset) == (0, 4, 4)
    reply = await client.pull("t", 0, batch=1, tag="odd")
    assert (bodies(reply), reply.next_offset) == ([b"1"], 2)
    none = await client.pull("t", 0, tag="none")
    assert (bodies(none), none.next_offset) == ([], 4)
    assert bus.groups("t") == []
    waiting = asyncio.create_task(client.pull("t", 4, hold=5))
    await client.send("t", b"4", 0)
    assert bodies(await asyncio.wait_for(waiting, 5)) == [b"4"]


async def test_pulling_outside_the_kept_range_says_where_to_continue(client: Client, bus: Bus) -> None:
    for index in range(3):
        await client.send("t", b"%d" % index, 0)
    past = await client.pull("t", 9)
    assert (code(past), past.next_offset, past.min_offset, past.max_offset) == (OUT_OF_RANGE, 3, 0, 3)
    await asyncio.sleep(0.002)
    bus.trim("t", keep_seconds=0)
    before = await client.pull("t", 0)
    assert (code(before), before.next_offset) == (OUT_OF_RANGE, 3)


async def test_a_poll_for_commands_ends_with_a_noop_before_its_deadline(client: Client) -> None:
    reply = await client.poll("c", timeout=0.4)
    assert reply.WhichOneof("type") == "noop_command"


async def test_commands_reach_the_client_that_waits_and_reports_are_taken(client: Client) -> None:
    for method, request in (
        ("ReportThreadStackTrace", service.ReportThreadStackTraceRequest(command_id="1", thread_stack_trace="main")),
        ("ReportMessageConsumptionResult", service.ReportMessageConsumptionResultRequest(command_id="2")),
        ("HealthCheck", service.HealthCheckRequest()),
    ):
        assert code(await client.call(method, request)) == 0
    for method, request in (
        ("ReportThreadStackTrace", service.ReportThreadStackTraceRequest()),
        ("Heartbeat", service.HeartbeatRequest(client_id="c")),
        ("NotifyClientTermination", service.NotifyClientTerminationRequest()),
        ("QueryRoute", service.QueryRouteRequest(topic=definition.Resource(name="t"))),
        ("QueryAssignment", service.QueryAssignmentRequest(topic=definition.Resource(name="t"))),
        ("AckMessage", service.AckMessageRequest(offset=3)),
    ):
        assert code(await client.call(method, request)) == INVALID_ARGUMENT


async def test_a_client_that_says_goodbye_is_released_at_once_and_gets_nothing_more(client: Client) -> None:
    await client.heartbeat("c", "g", "t")
    held = [
        asyncio.create_task(call)
        for call in (
            client.poll("c", 60.0),
            client.receive("t", hold=60, hide=600, timeout=60.0),
            client.pull("t", 0, hold=60),
        )
    ]
    while REGISTRY.get_sample_value("candlewright_gateways_rocketmq_waiting_polls") != 2:
        await asyncio.sleep(0)
    await client.call("NotifyClientTermination", service.NotifyClientTerminationRequest(client_id="c"))
    await asyncio.wait_for(asyncio.gather(*held), 5)
    assert held[1].result().messages == []
    again = asyncio.create_task(client.poll("c", 60.0))
    assert (await asyncio.wait_for(again, 5)).WhichOneof("type") == "noop_command"
    await client.send("t", b"1", 0)
    assert bodies(await client.receive("t", client="c")) == []
    assert bodies(await client.receive("t", client="d")) == [b"1"]


async def test_too_many_held_calls_are_refused(start: Start) -> None:
    client = await start(max_waiting_polls=1)
    waiting = asyncio.create_task(client.receive("t", hold=5))
    while REGISTRY.get_sample_value("candlewright_gateways_rocketmq_waiting_polls") == 0:
        await asyncio.sleep(0)
    assert code(await client.receive("t", "other", hold=0.01)) == RESOURCE_EXHAUSTED
    await client.send("t", b"1", 0)
    assert bodies(await waiting) == [b"1"]


async def test_a_client_that_hangs_up_leaves_nothing_hidden(client: Client) -> None:
    waiting = asyncio.create_task(client.receive("t", hold=60, hide=600))
    while REGISTRY.get_sample_value("candlewright_gateways_rocketmq_waiting_polls") == 0:
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await client.send("t", b"1", 0)
    (message,) = (await client.receive("t", hold=5)).messages
    assert message.system_attribute.delivery_attempt == 1


async def test_a_call_without_deadline_is_held_no_longer_than_the_setting(start: Start) -> None:
    client = await start(poll_max_seconds=0.05)
    assert bodies(await client.receive("t", hold=0, timeout=None)) == []


async def test_with_access_keys_only_signed_calls_are_accepted(start: Start) -> None:
    time_text = "20260101T000000Z"
    right = access.signature("secret", time_text)
    header = "MQv2-HMAC-SHA1 Credential={}/cn/RocketMQ, SignedHeaders=x-mq-date-time, Signature={}"

    async def status(key: str | None, signature: str) -> int:
        metadata = [("x-mq-date-time", time_text)]
        if key is not None:
            metadata.append(("authorization", header.format(key, signature)))
        client = await start(tuple(metadata), access_keys={"key": "secret"})
        return code(await client.route("t"))

    assert await status("key", right) == 0
    assert await status("key", right[:-1] + ("0" if right[-1] != "0" else "1")) == UNAUTHENTICATED
    assert await status("other", right) == UNAUTHENTICATED
    assert await status(None, "") == UNAUTHENTICATED


async def test_bars_are_messages_that_can_be_filtered(client: Client, bus: Bus) -> None:
    for ticker in ("BTC/USDT.BINANCE", "ETH/USDT.BINANCE"):
        bar = OHLCV(
            ticker=ticker, period_seconds=60, open_time=1_700_000_040_000_000_000, open=1, high=1, low=1, close=1
        )
        bus.publish("ohlc", [Record(bar.SerializeToString(), key=ticker.encode())])
    (message,) = (await client.receive("ohlc", tag="BTC/USDT.BINANCE", hold=5)).messages
    assert OHLCV.FromString(message.body).ticker == "BTC/USDT.BINANCE"
    assert list(message.system_attribute.keys) == ["BTC/USDT.BINANCE"]
    assert message.user_attribute["period_seconds"] == "60"
    assert message.system_attribute.body_digest.checksum
    found = await client.receive("ohlc", "sql", sql="venue = 'BINANCE' AND ticker <> 'BTC/USDT.BINANCE'", hold=5)
    assert [OHLCV.FromString(body).ticker for body in bodies(found)] == ["ETH/USDT.BINANCE"]


async def test_a_tick_is_published_as_the_platform_does_gzip_or_not(client: Client, bus: Bus) -> None:
    tick = Tick(ticker="BTC/USDT.BINANCE", trade_id="1", timestamp=1_700_000_000_000_000_000, price=1, size=1)
    assert code(await client.send("ticks", tick.SerializeToString(), 3)) == 0
    tick.trade_id = "2"
    packed = gzip.compress(tick.SerializeToString())
    assert code(await client.send("ticks", packed, 0, body_encoding=definition.GZIP)) == 0
    assert code(await client.send("ticks", packed[:-5], 0, body_encoding=definition.GZIP)) == INVALID_ARGUMENT
    assert bus.last_sequence("TICKS:BTC/USDT.BINANCE") == 2
    # The pipeline has been asked to store them.
    assert sum(state.end for state in bus.state("tick_marks")) == 1
    found = await client.receive("ticks", hold=5)
    assert {Tick.FromString(body).trade_id for body in bodies(found)} == {"1", "2"}
    assert {message.system_attribute.tag for message in found.messages} == {"BTC/USDT.BINANCE"}
    assert len({message.system_attribute.partition_id for message in found.messages}) == 1


async def test_clients_are_sent_to_the_advertised_address(start: Start) -> None:
    client = await start(advertise="broker.example:443")
    endpoints = (await client.route("t")).partitions[0].broker.endpoints
    assert endpoints.scheme == definition.DOMAIN_NAME
    assert [(address.host, address.port) for address in endpoints.addresses] == [("broker.example", 443)]


async def test_namespaces_are_part_of_names(client: Client, bus: Bus) -> None:
    request = service.SendMessageRequest(
        message=definition.Message(
            topic=definition.Resource(resource_namespace="ns", name="t"),
            system_attribute=definition.SystemAttribute(message_id="m"),
        )
    )
    assert code(await client.call("SendMessage", request)) == 0
    assert "ns%t" in bus.topics()


def test_settings_have_the_defaults_of_the_contract() -> None:
    settings = RocketMQSettings()
    assert (settings.bind, settings.tls, settings.transaction_check_max, settings.client_expiry_seconds) == (
        "127.0.0.1:8081",
        True,
        15,
        120.0,
    )
