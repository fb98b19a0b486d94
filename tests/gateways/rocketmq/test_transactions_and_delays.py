"""Messages that become visible later: at a time, or by their sender's decision."""

import asyncio
import time

import pytest

from bus.api import Bus
from bus.connect import messaging_of
from candlewright.wire.errors import BusUnavailable
from core.settings_gateways import RocketMQSettings
from gateways.rocketmq.calls.sending import QUEUE, Sending
from gateways.rocketmq.messages.messages import timestamp
from gateways.rocketmq.store import Store
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from tests.gateways.rocketmq.client import bodies, code
from tests.gateways.rocketmq.conftest import Start

INVALID_ARGUMENT = 3
TRANSACTION = definition.TRANSACTION


async def test_a_timed_message_is_nowhere_until_its_time_and_gets_its_offset_then(start: Start, bus: Bus) -> None:
    client = await start()
    due = round(time.time() * 1_000) + 1_500
    sent = await client.send("t", b"later", 0, message_type=definition.DELAY, delivery_timestamp=timestamp(due))
    assert code(sent) == 0
    await client.send("t", b"now", 0)
    assert (await client.offset("t", definition.END)).offset == 1
    assert bodies(await client.receive("t")) == [b"now"]
    (message,) = (await client.receive("t", hold=5)).messages
    assert (message.body, message.system_attribute.partition_offset) == (b"later", 1)
    assert message.system_attribute.delivery_timestamp == timestamp(due)
    assert message.system_attribute.store_timestamp.ToMilliseconds() >= due


async def test_a_time_that_has_passed_means_now(start: Start) -> None:
    client = await start()
    await client.send("t", b"1", 0, message_type=definition.DELAY, delivery_timestamp=timestamp(1_000))
    assert bodies(await client.receive("t")) == [b"1"]


async def test_a_delay_level_is_a_time_from_now(start: Start, bus: Bus) -> None:
    client = await start()
    assert code(await client.send("t", b"1", 0, message_type=definition.DELAY, delay_level=3)) == 0
    assert bodies(await client.receive("t")) == []


async def test_a_time_too_far_ahead_is_refused(start: Start) -> None:
    client = await start(max_delay_hours=1)
    due = timestamp(round(time.time() * 1_000) + 7_200_000)
    assert code(await client.send("t", delivery_timestamp=due)) == INVALID_ARGUMENT


async def test_a_half_message_is_invisible_until_it_is_committed(start: Start) -> None:
    client = await start()
    sent = await client.send("t", b"half", 0, message_type=TRANSACTION, message_id="m")
    assert (sent.message_id, len(sent.transaction_id)) == ("m", 32)
    assert bodies(await client.receive("t")) == []
    assert (await client.offset("t", definition.END)).offset == 0
    assert code(await client.end(sent.transaction_id)) == 0
    assert code(await client.end(sent.transaction_id)) == 0
    (message,) = (await client.receive("t")).messages
    assert (message.body, message.system_attribute.message_id) == (b"half", "m")
    assert bodies(await client.receive("t")) == []
    assert code(await client.end(sent.transaction_id, "ROLLBACK")) == INVALID_ARGUMENT


async def test_a_rolled_back_message_never_appears(start: Start) -> None:
    client = await start()
    id = (await client.send("t", b"half", 0, message_type=TRANSACTION)).transaction_id
    assert code(await client.end(id, "ROLLBACK")) == 0
    assert code(await client.end(id, "ROLLBACK")) == 0
    assert code(await client.end(id)) == INVALID_ARGUMENT
    assert code(await client.end("unknown")) == INVALID_ARGUMENT
    assert code(await client.end("")) == INVALID_ARGUMENT
    assert bodies(await client.receive("t", hold=0.2)) == []


async def test_a_silent_sender_is_asked_and_any_producer_of_its_group_may_answer(start: Start) -> None:
    client = await start(transaction_check_seconds=0.1)
    await client.heartbeat("other", "group")
    waiting = asyncio.create_task(client.poll("other"))
    group = definition.Resource(name="group")
    id = (await client.send("t", b"half", 0, message_type=TRANSACTION, producer_group=group)).transaction_id
    command = (await asyncio.wait_for(waiting, 5)).recover_orphaned_transaction_command
    assert command.transaction_id == id
    message = command.orphaned_transactional_message
    assert (message.body, message.topic.name) == (b"half", "t")
    assert message.system_attribute.body_digest.checksum
    assert code(await client.end(command.transaction_id)) == 0
    assert bodies(await client.receive("t")) == [b"half"]


async def test_a_check_without_a_producer_is_not_sent_and_does_not_count(start: Start, bus: Bus) -> None:
    client = await start(transaction_check_seconds=0.05, transaction_check_max=1)
    group = definition.Resource(name="group")
    id = (await client.send("t", b"half", 0, message_type=TRANSACTION, producer_group=group)).transaction_id
    assert bodies(await client.receive("TRANS_CHECK_MAX_TIME_TOPIC", hold=0.4)) == []
    assert code(await client.end(id)) == 0


async def test_undecided_messages_are_moved_away_after_the_last_query(start: Start) -> None:
    client = await start(transaction_check_seconds=0.02, transaction_check_max=2)
    await client.heartbeat("p", "group")
    group = definition.Resource(name="group")
    id = (await client.send("t", b"half", 0, message_type=TRANSACTION, producer_group=group)).transaction_id
    (message,) = (await client.receive("TRANS_CHECK_MAX_TIME_TOPIC", hold=5)).messages
    assert (message.body, message.user_attribute["REAL_TOPIC"]) == (b"half", "t")
    for _ in range(2):
        assert (await client.poll("p")).recover_orphaned_transaction_command.transaction_id == id
    assert code(await client.end(id)) == INVALID_ARGUMENT


async def test_a_repeated_send_is_stored_once_within_the_window(start: Start) -> None:
    client = await start(deduplication_seconds=60)
    for _ in range(2):
        assert code(await client.send("t", b"1", 0, message_id="same")) == 0
    assert bodies(await client.receive("t")) == [b"1"]
    again = await start()
    for _ in range(2):
        await again.send("t", b"2", 0, message_id="other")
    assert bodies(await again.receive("t")) == [b"2", b"2"]


async def test_several_gateways_publish_a_timed_message_once(start: Start, bus: Bus) -> None:
    client = await start()
    await start()
    due = timestamp(round(time.time() * 1_000) + 150)
    for index in range(20):
        await client.send("t", b"%d" % index, index % 4, delivery_timestamp=due)
    seen: list[bytes] = []
    while len(seen) < 20:
        seen += bodies(await client.receive("t", hold=5))
    assert sorted(seen) == sorted(b"%d" % index for index in range(20))
    assert sum(state.end for state in bus.state("t")) == 20


async def test_a_kill_between_publishing_and_removing_leaves_nothing_to_publish_twice(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*arguments: object, **options: object) -> None:
        raise BusUnavailable("no server")

    store = Store(bus, messaging_of(bus))
    sending = Sending(RocketMQSettings(), store, 4)
    message = definition.Message(topic=definition.Resource(name="t"), body=b"1")
    message.system_attribute.message_id = "m"
    payload = message.SerializeToString()
    store.queue.add(QUEUE, "id", payload, delay_seconds=0)
    with monkeypatch.context() as patch:
        patch.setattr(store.queue, "remove", away)
        await sending.release("id", payload)
    assert store.queue.next_due(QUEUE) == 0
    await sending.release("id", payload)
    assert store.queue.next_due(QUEUE) is None
    assert sum(state.end for state in bus.state("t")) == 1
    await store.stop()
