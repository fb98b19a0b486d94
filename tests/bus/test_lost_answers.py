"""Calls that Redis executed, and whose answers were lost with the connection."""

from collections.abc import Iterator

import pytest
import redis

from bus.api import Record
from bus.redis.redis_bus import RedisBus
from bus.redis.store import Store


@pytest.fixture
def bus(redis_url: str) -> Iterator[RedisBus]:
    found = RedisBus(redis_url, partitions=2)
    yield found
    found.close()


def lose_one_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    exchange = Store._exchange

    def lost(store: Store, packed: bytes, replies: int) -> list[object]:
        monkeypatch.setattr(Store, "_exchange", exchange)
        store._exchange(packed, replies)
        raise redis.ConnectionError("the connection is lost")

    monkeypatch.setattr(Store, "_exchange", lost)


def test_a_group_gets_its_records_again_after_a_lost_answer(bus: RedisBus, monkeypatch: pytest.MonkeyPatch) -> None:
    bus.create_group("t", "g", at_end=True)
    # The script is known, and the group's use is noted.
    assert bus.read_group("t", "g", "c") == []
    bus.publish("t", [Record(b"%d" % n, partition=n % 2) for n in range(10)])
    lose_one_answer(monkeypatch)
    first = bus.read_group("t", "g", "c", max_records=6)
    places = sorted((each.record.partition, each.record.offset, each.record.value) for each in first)
    assert places == [
        (partition, offset, b"%d" % (2 * offset + partition)) for partition in (0, 1) for offset in range(3)
    ]
    assert {each.deliveries for each in first} == {1}
    assert sorted(each.record.value for each in bus.read_group("t", "g", "c")) == [b"6", b"7", b"8", b"9"]
    assert bus.pending("t", "g") == {0: 5, 1: 5}
