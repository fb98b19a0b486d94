"""The record of an acknowledgement, if the store gave its offset to another record."""

import pytest

from bus.api import GroupRecord, StoredRecord
from gateways.kafka_pixy import holders, metrics
from gateways.kafka_pixy.holders import Holders
from protobuf import kafkapixy_pb2 as pixy
from tests.fresh_bus import FreshBus
from tests.gateways.kafka_pixy.conftest import Client, Serve

TIMEOUT = 10.0


def offered(life: str, offset: int = 0) -> GroupRecord:
    return GroupRecord(
        StoredRecord(topic="t", partition=0, offset=offset, timestamp_ms=0, key=None, value=b"", headers={}), 1, life
    )


def test_a_record_delivered_once_or_again_is_acknowledged_as_itself() -> None:
    known = Holders(TIMEOUT)
    assert known.life_of(0, 0, 0.0) == ""
    known.given(offered("a"), 0.0)
    known.given(offered("a"), 1.0)
    assert known.life_of(0, 0, 1.0) == "a"
    known.acknowledged(0, 0)
    assert known.life_of(0, 0, 1.0) == ""


def test_while_the_lost_record_may_be_acknowledged_no_answer_counts() -> None:
    known = Holders(TIMEOUT)
    known.given(offered("a"), 0.0)
    known.given(offered("b"), 4.0)
    known.given(offered("b"), 5.0)
    assert known.life_of(0, 0, 9.9) is None
    assert known.life_of(0, 0, 10.0) == "b"


def test_the_oldest_records_beyond_the_limit_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders, "_MAX_KNOWN", 3)
    known = Holders(TIMEOUT)
    for offset in range(5):
        known.given(offered("a", offset), 0.0)
    assert [known.life_of(0, offset, 0.0) for offset in range(5)] == ["", "", "a", "a", "a"]


def test_a_consumer_of_a_lost_message_cannot_acknowledge_the_one_in_its_place(serve: Serve, bus: FreshBus) -> None:
    async def scenario(client: Client) -> None:
        lost = await emptied_and_filled(client)
        found = await client.consume("t", "g", no_ack=True)
        assert (lost.message, found.message) == (b"old", b"new")
        assert (lost.partition, lost.offset) == (found.partition, found.offset)
        before = metrics.DOUBTFUL_ACKS._value.get()
        await client.ack("t", "g", found.partition, offset=found.offset)
        assert metrics.DOUBTFUL_ACKS._value.get() == before + 1
        assert sum(bus.pending("t", "g").values()) == 1

    async def of_the_gateway_itself(client: Client) -> None:
        await emptied_and_filled(client)
        assert (await client.consume("t", "g", auto_ack=True)).message == b"new"
        assert sum(bus.pending("t", "g").values()) == 0

    async def emptied_and_filled(client: Client) -> pixy.ConsRs:
        bus.create_group("t", "g", at_end=True)
        await client.produce("t", b"old", b"key")
        lost = await client.consume("t", "g", no_ack=True)
        bus._store.call("FLUSHDB")
        bus.create_group("t", "g", at_end=True)
        await client.produce("t", b"new", b"key")
        return lost  # type: ignore[no-any-return]

    serve(scenario)
    bus._store.call("FLUSHDB")
    serve(of_the_gateway_itself)
