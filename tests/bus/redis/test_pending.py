"""Calls whose answer is polled for."""

import select
from collections.abc import Iterator

import pytest
import redis

from bus.api import Pending, Position, Record
from bus.redis.redis_bus import RedisBus
from candlewright.wire.errors import BusError, BusFull, BusUnavailable

PATIENCE_SECONDS = 20.0


@pytest.fixture
def bus(redis_url: str) -> Iterator[RedisBus]:
    connected = RedisBus(redis_url)
    connected.grant({"kept": b"0"})
    yield connected
    connected.close()


@pytest.fixture
def server(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client
        client.client_unpause()


def begun(bus: RedisBus, leases: dict[str, bytes], *revoking: str) -> Pending:
    pending = bus.begin_grant(leases, revoking=revoking)
    assert pending is not None
    return pending


def finish(pending: Pending) -> None:
    while not pending.is_done():
        assert select.select([pending], [], [], PATIENCE_SECONDS)[0], "no answer"


def test_a_begun_grant_takes_effect_once_it_is_done(bus: RedisBus) -> None:
    bus.grant({"old": b"1"})
    finish(begun(bus, {"new": b"2", "again": b"3"}, "old"))
    assert bus.leases() == {"kept": b"0", "new": b"2", "again": b"3"}
    finish(begun(bus, {}, "new", "again"))
    assert bus.leases() == {"kept": b"0"}


def test_a_pending_publish_returns_the_ends_once_it_is_done(bus: RedisBus) -> None:
    bus.create_topic("t", 2)
    bus.publish("t", [Record(b"before", partition=1)])
    records = [Record(b"a", partition=1), Record(b"b", partition=0), Record(b"c", partition=1)]
    pending = bus.begin_publish_as("t", records, writer="w", number=1)
    assert pending is not None
    finish(pending)
    assert pending.ends == {0: 1, 1: 3}
    assert [record.value for record in bus.read("t", 1, 0)] == [b"before", b"a", b"c"]


def test_a_publish_whose_answer_was_lost_is_in_the_log_once(bus: RedisBus, server: redis.Redis) -> None:
    bus.create_topic("t", 1)
    bus.publish("t", [Record(b"before")])
    server.client_pause(60_000, all=False)
    pending = bus.begin_publish_as("t", [Record(b"a")], writer="w", number=1)
    assert pending is not None
    server.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(BusUnavailable):
        finish(pending)
    server.client_unpause()
    for _ in range(2):
        assert bus.publish_as("t", [Record(b"a")], writer="w", number=1) == [Position(0, 1)]
    assert [record.value for record in bus.read("t", 0, 0)] == [b"before", b"a"]


def test_a_publish_that_was_not_taken_is_left_to_the_call_that_waits(redis_url: str) -> None:
    bus = RedisBus(redis_url, max_bytes=1)
    bus.create_topic("t", 1)
    assert bus.begin_publish_as("t", [], writer="w", number=1) is None
    bus.hold("t", "reader", {0: 0})
    bus.publish("t", [Record(b"full")])
    pending = bus.begin_publish_as("t", [Record(b"a")], writer="w", number=1)
    assert pending is not None
    with pytest.raises(BusUnavailable, match="F"):
        finish(pending)
    with pytest.raises(BusFull):
        bus.publish_as("t", [Record(b"a")], writer="w", number=1)
    bus.close()


def test_a_call_is_not_done_before_the_server_has_answered(bus: RedisBus, server: redis.Redis) -> None:
    server.client_pause(60_000, all=False)
    pending = begun(bus, {"new": b"1"})
    assert not pending.is_done()
    assert "new" not in bus.leases()
    server.client_unpause()
    finish(pending)
    assert bus.leases()["new"] == b"1"


def test_a_lost_connection_is_reported_and_the_grant_can_be_repeated(bus: RedisBus, server: redis.Redis) -> None:
    server.client_pause(60_000, all=False)
    pending = begun(bus, {"new": b"1"})
    server.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(BusUnavailable):
        finish(pending)
    server.client_unpause()
    bus.grant({"new": b"1"})
    assert bus.leases()["new"] == b"1"


def test_a_server_that_does_not_answer_in_time_is_reported(redis_url: str, server: redis.Redis) -> None:
    bus = RedisBus(redis_url, timeout_seconds=0.05)
    bus.grant({"kept": b"0"})
    server.client_pause(60_000, all=False)
    pending = begun(bus, {"new": b"1"})
    with pytest.raises(BusUnavailable, match="in time"):
        while not pending.is_done():
            select.select([pending], [], [], 0.01)
    bus.close()


def test_an_error_is_left_to_the_call_that_waits(bus: RedisBus, server: redis.Redis) -> None:
    server.set("cw:leases", "no table")
    with pytest.raises(BusUnavailable, match="WRONGTYPE"):
        finish(begun(bus, {"new": b"1"}))
    with pytest.raises(BusError, match="WRONGTYPE"):
        bus.grant({"new": b"1"})


def test_a_grant_that_cannot_be_sent_at_once_is_not_begun(bus: RedisBus) -> None:
    assert bus.begin_grant({"large": bytes(1 << 20)}) is None
    assert bus.begin_grant({}) is None
    assert bus.leases() == {"kept": b"0"}
