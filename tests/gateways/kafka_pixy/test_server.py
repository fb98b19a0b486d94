"""The service as a client sees it, on a bus."""

import asyncio
import time

import grpc
import pytest

from bus.api import Bus
from candlewright.wire.candlewright_pb2 import Tick
from core.settings_gateways import KafkaPixySettings
from gateways.kafka_pixy import server
from gateways.kafka_pixy.metrics import DROPPED
from protobuf import kafkapixy_pb2 as pixy
from tests.fresh_bus import FreshBus
from tests.gateways.kafka_pixy.conftest import Client, Serve, refused, served

Code = grpc.StatusCode


def test_the_defaults_are_those_of_later_releases_on_loopback() -> None:
    found = KafkaPixySettings()
    assert (found.enabled, found.bind, found.cluster) == (False, "127.0.0.1:19091", "default")
    assert (found.long_polling_seconds, found.ack_timeout_seconds, found.max_retries) == (3.0, 300.0, -1)
    assert (found.channel_buffer_size, found.max_pending_messages) == (64, 300)


def test_a_synchronous_message_gets_its_real_place_and_offsets_are_dense(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        places = [await client.produce("t", b"%d" % number, b"bar") for number in range(5)]
        assert [(place.partition, place.offset) for place in places] == [(2, number) for number in range(5)]

    serve(scenario)
    assert [record.value for record in bus.read("t", 2, 0)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize(
    ("partitions", "places"),
    [
        (4, {b"": 3, b"A": 0, b"B": 3, b"C": 2, b"D": 1, b"bar": 2, b"0": 3, b"1": 0, b"5": 0, b"9": 0}),
        (1, {b"": 0, b"BTC/USDT": 0, b"ETH/USDT": 0, b"\xff\x00\x80": 0, b"bar": 0}),
        (3, {b"": 0, b"BTC/USDT": 2, b"ETH/USDT": 0, b"\xff\x00\x80": 1, b"bar": 2}),
        (8, {b"": 3, b"BTC/USDT": 7, b"ETH/USDT": 3, b"\xff\x00\x80": 2, b"bar": 2}),
        (12, {b"": 3, b"BTC/USDT": 11, b"ETH/USDT": 3, b"\xff\x00\x80": 10, b"bar": 2}),
    ],
)
def test_the_key_decides_the_partition_by_the_known_hash(
    serve: Serve, partitions: int, places: dict[bytes, int]
) -> None:
    async def scenario(client: Client) -> None:
        found = {key: (await client.produce("t", b"x", key)).partition for key in places}
        assert found == places

    serve(scenario, partitions=partitions)


def test_an_undefined_key_is_distinguished_from_an_empty_one(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        await refused(client.consume("t", "g", no_ack=True))
        request = pixy.ProdRq(topic="t", message=b"none", key_undefined=True, key_value=b"ignored")
        await client.call("Produce", request)
        await client.produce("t", b"empty", b"")
        await client.produce("t", b"some", b"k")
        found = [await client.consume("t", "g", auto_ack=True) for _ in range(3)]
        assert {answer.message: (answer.key_undefined, answer.key_value) for answer in found} == {
            b"none": (True, b""), b"empty": (False, b""), b"some": (False, b"k"),
        }  # fmt: skip

    serve(scenario)


def test_messages_without_a_key_go_to_any_partition_and_those_with_the_empty_one_to_one(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        found = {key: {(await client.produce("t", b"x", key)).partition for _ in range(8)} for key in (None, b"")}
        assert found == {None: {0, 1, 2, 3}, b"": {3}}

    serve(scenario)


def test_asynchronous_messages_are_answered_at_once_and_written_before_the_end(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        answers = [await client.produce("t", b"%d" % number, b"bar", async_mode=True) for number in range(50)]
        assert {(answer.partition, answer.offset) for answer in answers} == {(-1, -1)}

    serve(scenario)
    assert [record.value for record in bus.read("t", 2, 0)] == [b"%d" % number for number in range(50)]


def test_a_group_begins_at_the_newest_offset_of_its_first_call_and_stays_there(serve: Serve) -> None:
    async def before(client: Client) -> None:
        await client.produce("t", b"before", b"bar")
        nothing = await refused(client.consume("t", "g", auto_ack=True))
        assert (nothing.code, nothing.text) == (Code.NOT_FOUND, "long polling timeout")
        await client.produce("t", b"after", b"bar")

    async def after_a_restart(client: Client) -> None:
        answer = await client.consume("t", "g", auto_ack=True)
        assert (answer.partition, answer.offset, answer.message) == (2, 1, b"after")
        assert (await refused(client.consume("t", "other", auto_ack=True))).code is Code.NOT_FOUND

    serve(before)
    serve(after_a_restart)


def test_a_missing_topic_reads_as_empty_and_later_messages_are_seen(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        began = time.monotonic()
        assert (await refused(client.consume("new", "g"))).code is Code.NOT_FOUND
        assert time.monotonic() - began >= 0.3
        await client.produce("new", b"x")
        assert (await client.consume("new", "g")).message == b"x"

    serve(scenario)


def test_a_call_that_waits_gets_a_message_as_it_comes(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        await refused(client.consume("t", "g"))
        waiting = client.consume("t", "g", auto_ack=True)
        await asyncio.sleep(0)
        await client.produce("t", b"x", None)
        assert (await waiting).message == b"x"

    serve(scenario)


async def until_pending(bus: Bus, partition: int, count: int) -> None:
    """Acknowledgements reach the bus after the answer; the scenario's own time limit ends the wait."""
    while bus.pending("t", "g")[partition] != count:
        await asyncio.sleep(0.01)


def test_a_call_acknowledges_the_previous_message_and_unacknowledged_ones_are_delivered_again(
    serve: Serve, bus: Bus
) -> None:
    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        for number in range(3):
            await client.produce("t", b"%d" % number, b"bar")
        first = await client.consume("t", "g")
        second = await client.consume("t", "g", ack_partition=first.partition, ack_offset=first.offset)
        third = await client.consume("t", "g", no_ack=True, auto_ack=True, ack_offset=second.offset)
        assert [first.offset, second.offset, third.offset] == [0, 1, 2]
        # If several flags are given, only the first applies.
        await until_pending(bus, third.partition, 2)
        await client.ack("t", "g", third.partition, offset=third.offset)
        # A second time, and below: no effect.
        await client.ack("t", "g", third.partition, offset=third.offset)
        again = await client.consume("t", "g", auto_ack=True)
        assert again.offset == 1
        await until_pending(bus, third.partition, 0)

    serve(scenario, ack_timeout_seconds=0.5, long_polling_seconds=3)


def test_expired_records_are_offered_before_newer_ones(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        await refused(client.consume("t", "g", no_ack=True))
        for number in range(4):
            await client.produce("t", b"%d" % number, b"bar")
        taken = [(await client.consume("t", "g", no_ack=True)).offset for _ in range(2)]
        await asyncio.sleep(0.6)
        rest = [(await client.consume("t", "g", auto_ack=True)).offset for _ in range(4)]
        assert (taken, rest) == ([0, 1], [0, 1, 2, 3])

    serve(scenario, ack_timeout_seconds=0.5)


def test_a_message_offered_often_enough_is_dropped_to_the_dead_letters(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        await client.produce("t", b"x", b"bar")
        for _ in range(2):
            assert (await client.consume("t", "g", no_ack=True)).message == b"x"
        assert (await refused(client.consume("t", "g", no_ack=True))).code is Code.NOT_FOUND

    serve(scenario, ack_timeout_seconds=0.3, max_retries=1, long_polling_seconds=1)
    (dead,) = bus.read("t.g.dead", 2, 0)
    assert (dead.value, dead.key) == (b"x", b"bar")
    assert dict(dead.headers) == {"topic": "t", "group": "g", "partition": "2", "offset": "0", "offers": "2"}
    assert not any(bus.pending("t", "g").values())


def test_no_new_message_of_a_partition_while_too_many_are_not_acknowledged(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        await refused(client.consume("t", "g", no_ack=True))
        for number in range(4):
            await client.produce("t", b"%d" % number, b"bar")
        await client.produce("t", b"other", b"A")
        found = [await client.consume("t", "g", no_ack=True) for _ in range(4)]
        assert sorted(answer.message for answer in found) == [b"0", b"1", b"2", b"other"]
        assert (await refused(client.consume("t", "g", no_ack=True))).code is Code.NOT_FOUND
        assert (await client.consume("t", "g", ack_partition=2, ack_offset=1)).message == b"3"

    serve(scenario, max_pending_messages=3)


def test_too_many_calls_for_one_group_and_topic_are_refused_and_no_other_is(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        calls = [asyncio.ensure_future(refused(client.consume("t", "g"))) for _ in range(8)]
        other = asyncio.ensure_future(refused(client.consume("t", "other")))
        codes = [found.code for found in await asyncio.gather(*calls)]
        assert sorted(code.name for code in codes if code) == ["NOT_FOUND"] * 5 + ["RESOURCE_EXHAUSTED"] * 3
        assert (await other).code is Code.NOT_FOUND

    serve(scenario, channel_buffer_size=4)


def test_hundreds_of_calls_get_each_message_once(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        calls = [asyncio.ensure_future(client.consume("t", "g", auto_ack=True)) for _ in range(300)]
        await asyncio.gather(*(client.produce("t", b"%d" % number, None) for number in range(300)))
        found = await asyncio.gather(*calls)
        assert sorted(int(answer.message) for answer in found) == list(range(300))
        assert not any(bus.pending("t", "g").values())

    serve(scenario, channel_buffer_size=300, long_polling_seconds=10)


def test_a_cancelled_call_consumes_no_message(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        for number in range(20):
            calls = [client.consume("t", "g", auto_ack=True) for _ in range(3)]
            await asyncio.sleep(0.01)
            for call in calls:
                call.cancel()
            await client.produce("t", b"%d" % number, b"bar")
            assert (await client.consume("t", "g", auto_ack=True)).message == b"%d" % number

    serve(scenario, long_polling_seconds=5)


@pytest.mark.parametrize("method", ["Produce", "ConsumeNAck", "Ack"])
def test_an_unknown_cluster_is_an_invalid_argument(serve: Serve, method: str) -> None:
    async def scenario(client: Client) -> None:
        kind = {"Produce": pixy.ProdRq, "ConsumeNAck": pixy.ConsNAckRq, "Ack": pixy.AckRq}[method]
        found = await refused(client.call(method, kind(cluster="other", topic="t")))
        assert (found.code, found.text) == (Code.INVALID_ARGUMENT, "proxy `other` does not exist")

    serve(scenario)


def test_the_cluster_may_be_named(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        assert (await client.produce("t", b"x", b"bar", cluster="kafka")).offset == 0

    serve(scenario, cluster="kafka")


def test_acknowledgements_below_zero_are_invalid_and_of_unknown_partitions_internal_errors(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        for fields in ({"ack_partition": -1}, {"ack_offset": -1}):
            found = await refused(client.consume("t", "g", **fields))
            assert found.code is Code.INVALID_ARGUMENT
            assert str(found.text).startswith("invalid ack")
        # With either flag the numbers mean nothing.
        assert (await refused(client.consume("t", "g", no_ack=True, ack_offset=-1))).code is Code.NOT_FOUND
        assert (await refused(client.ack("t", "g", -1, offset=0))).code is Code.INVALID_ARGUMENT
        assert (await refused(client.ack("t", "g", 0, offset=-1))).code is Code.INVALID_ARGUMENT
        assert (await refused(client.ack("t", "g", 0, offset=5))).code is Code.OK
        for topic, group, partition in (("t", "g", 4), ("t", "unknown", 0), ("unknown", "g", 0), ("requests", "g", 0)):
            assert (await refused(client.ack(topic, group, partition, offset=0))).code is Code.INTERNAL

    serve(scenario)


def test_internal_topics_are_hidden(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        assert (await refused(client.produce("requests", b"x"))).code is Code.INVALID_ARGUMENT
        assert (await refused(client.consume("requests", "g"))).code is Code.NOT_FOUND

    serve(scenario)
    assert bus.topics() == []


def test_a_topic_of_the_platform_takes_its_own_messages_only(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        found = await refused(client.produce("ticks", b"x"))
        assert found.code is Code.INVALID_ARGUMENT
        assert "TickBatch" in str(found.text)
        asynchronous = await refused(client.produce("ohlc", b"x", async_mode=True))
        assert asynchronous.code is Code.INVALID_ARGUMENT

    serve(scenario)
    assert bus.topics() == []


def test_the_sender_of_a_tick_dated_ahead_is_sent_the_bound(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        ahead = time.time_ns() + 60_000_000_000
        tick = Tick(ticker="GATE/USDT.NOWHERE", trade_id="1", timestamp=ahead, price=1.0, size=1.0)
        for async_mode in (False, True):
            found = await refused(client.produce("ticks", tick.SerializeToString(), async_mode=async_mode))
            assert found.code is Code.INVALID_ARGUMENT
            assert str(found.text).endswith("ahead of the platform's clock, more than ticks.max_ahead_seconds = 5")

    serve(scenario)
    assert bus.topics() == []


def test_clients_cannot_set_the_number_of_partitions_of_platform_topics(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        tick = Tick(ticker="GATE/USDT.NOWHERE", trade_id="1", timestamp=1_700_000_000_000_000_000, price=1.0, size=1.0)
        await client.produce("ticks", tick.SerializeToString())
        await refused(client.consume("ohlc", "g"))
        await client.produce("orders", b"x")
        await refused(client.consume("bills", "g"))

    serve(scenario, partitions=8)
    counts = {topic: bus.partitions(topic) for topic in bus.topics()}
    assert counts == {"ticks": 4, "tick_marks": 4, "ohlc": 4, "orders": 8, "bills": 8}


def test_two_groups_that_ask_in_turn_are_given_messages_of_all_partitions(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        for group in "gh":
            bus.create_group("t", group, at_end=True)
        for key in (b"A", b"B", b"C", b"D") * 8:
            await client.produce("t", b"x", key)
        found = [(await client.consume("t", group, auto_ack=True)).partition for _ in range(8) for group in "gh"]
        assert set(found[::2]) == set(found[1::2]) == {0, 1, 2, 3}

    serve(scenario)


def test_a_message_that_is_too_large_is_refused_or_dropped(serve: Serve, bus: Bus) -> None:
    async def scenario(client: Client) -> None:
        assert (await refused(client.produce("t", bytes(1_000_000)))).code is Code.INTERNAL
        assert (await client.produce("t", bytes(1_000_000), async_mode=True)).offset == -1
        assert (await refused(client.produce("t", bytes(1 << 20)))).code is Code.RESOURCE_EXHAUSTED
        assert (await client.produce("t", b"x", bytes(999_000))).offset == 0

    before = DROPPED.labels("size")._value.get()
    serve(scenario)
    assert DROPPED.labels("size")._value.get() == before + 1
    assert sum(state.end for state in bus.state("t")) == 1


def test_a_full_topic_refuses_until_its_readers_have_read() -> None:
    bus = FreshBus(partitions=1, max_bytes=3_000)

    async def scenario(client: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        for _ in range(3):
            await client.produce("t", bytes(1_000))
        found = await refused(client.produce("t", bytes(1_000)))
        assert found.code is Code.INTERNAL
        assert "have not read" in str(found.text)
        for _ in range(3):
            await client.consume("t", "g", auto_ack=True)
        assert (await client.produce("t", bytes(1_000))).offset == 3

    asyncio.run(served(scenario, bus, [{}]))


def test_an_unused_line_ends_and_its_group_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_LINE_SECONDS", 0.05)
    monkeypatch.setattr(server, "BEAT_SECONDS", 0.05)
    bus = FreshBus(partitions=4)
    gateway = server.KafkaPixy(KafkaPixySettings(bind="127.0.0.1:0", long_polling_seconds=0.2), bus)

    async def scenario() -> None:
        await gateway.start()
        async with grpc.aio.insecure_channel(gateway.details()["address"]) as channel:
            client = Client(channel)
            await refused(client.consume("t", "g", no_ack=True))
            await client.produce("t", b"0", b"bar")
            assert (await client.consume("t", "g", no_ack=True)).offset == 0
            while gateway.details()["lines"]:
                await asyncio.sleep(0.01)
            await client.produce("t", b"1", b"bar")
            # Delivered messages remain delivered, and their acknowledgements count.
            assert (await client.consume("t", "g", no_ack=True)).offset == 1
            await client.ack("t", "g", 2, offset=0)
        await gateway.stop()
        assert bus.pending("t", "g")[2] == 1

    asyncio.run(scenario())


def test_methods_of_later_releases_are_not_implemented_and_their_fields_ignored(serve: Serve) -> None:
    async def scenario(client: Client) -> None:
        stub = client._channel.unary_unary("/KafkaPixy/GetOffsets")
        assert (await refused(stub(b""))).code is Code.UNIMPLEMENTED
        # Field 7 of a later ProdRq: headers.
        produce = client._channel.unary_unary("/KafkaPixy/Produce", response_deserializer=pixy.ProdRs.FromString)
        request = pixy.ProdRq(topic="t", key_value=b"bar", message=b"x").SerializeToString()
        assert (await produce(request + b"\x3a\x06\x0a\x01a\x12\x01b")).partition == 2

    serve(scenario)


def test_the_messages_of_one_group_go_through_any_of_several_gateways(serve: Serve, bus: Bus) -> None:
    async def scenario(one: Client, two: Client) -> None:
        bus.create_group("t", "g", at_end=True)
        await asyncio.gather(*(one.produce("t", b"%d" % number, None) for number in range(100)))
        found = []
        for _ in range(25):
            found += await asyncio.gather(*(c.consume("t", "g", auto_ack=True) for c in (one, two, one, two)))
        assert sorted(int(answer.message) for answer in found) == list(range(100))
        for number in range(10):
            await one.produce("t", b"%d" % number, b"bar")
            answer = await two.consume("t", "g")
            await one.ack("t", "g", answer.partition, offset=answer.offset)
        assert not any(bus.pending("t", "g").values())

    serve(scenario, {"long_polling_seconds": 5}, {"long_polling_seconds": 5})


def test_a_gateway_takes_over_records_of_a_stopped_one_at_once(serve: Serve, bus: Bus) -> None:
    async def first(client: Client) -> None:
        await refused(client.consume("t", "g", no_ack=True))
        for number in range(5):
            await client.produce("t", b"%d" % number, b"bar")
        assert [(await client.consume("t", "g", no_ack=True)).offset for _ in range(3)] == [0, 1, 2]

    async def second(client: Client) -> None:
        assert [(await client.consume("t", "g", auto_ack=True)).offset for _ in range(5)] == [0, 1, 2, 3, 4]

    serve(first)
    serve(second)
