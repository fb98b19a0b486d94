"""Grants whose answer is polled for."""

import select
from collections.abc import Iterator

import pytest
import redis

from bus.api import PendingGrant
from bus.redis_bus import RedisBus
from core.errors import BusError, BusUnavailable

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


def begun(bus: RedisBus, leases: dict[str, bytes], *revoking: str) -> PendingGrant:
    pending = bus.begin_grant(leases, revoking=revoking)
    assert pending is not None
    return pending


def finish(pending: PendingGrant) -> None:
    while not pending.is_done():
        assert select.select([pending], [], [], PATIENCE_SECONDS)[0], "no answer"


def test_a_begun_grant_stands_once_it_is_done(bus: RedisBus) -> None:
    bus.grant({"old": b"1"})
    finish(begun(bus, {"new": b"2", "again": b"3"}, "old"))
    assert bus.leases() == {"kept": b"0", "new": b"2", "again": b"3"}
    finish(begun(bus, {}, "new", "again"))
    assert bus.leases() == {"kept": b"0"}


def test_it_is_not_done_before_the_server_has_answered(bus: RedisBus, server: redis.Redis) -> None:
    server.client_pause(60_000, all=False)
    pending = begun(bus, {"new": b"1"})
    assert not pending.is_done()
    assert "new" not in bus.leases()
    server.client_unpause()
    finish(pending)
    assert bus.leases()["new"] == b"1"


def test_a_lost_connection_is_told_and_the_grant_can_be_done_again(bus: RedisBus, server: redis.Redis) -> None:
    server.client_pause(60_000, all=False)
    pending = begun(bus, {"new": b"1"})
    server.client_kill_filter(_type="normal", skipme=True)
    with pytest.raises(BusUnavailable):
        finish(pending)
    server.client_unpause()
    bus.grant({"new": b"1"})
    assert bus.leases()["new"] == b"1"


def test_a_server_that_does_not_answer_in_time_is_told(redis_url: str, server: redis.Redis) -> None:
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


def test_what_does_not_fit_at_once_is_not_begun(bus: RedisBus) -> None:
    assert bus.begin_grant({"large": bytes(1 << 20)}) is None
    assert bus.begin_grant({}) is None
    assert bus.leases() == {"kept": b"0"}
