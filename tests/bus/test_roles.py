"""One holder per role, and nothing written under an epoch that has ended."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest
import redis

from bus.api import Record
from bus.redis.redis_bus import RedisBus
from bus.roles import BROKER, Keeper, Roles, RoleState, Term
from candlewright.wire.errors import BusError, RoleLost
from core.background import forget_failures, problems
from tests.faults.harness import until
from tests.faults.link import Link


@pytest.fixture
def roles(redis_url: str) -> Iterator[Roles]:
    made = Roles(redis_url)
    yield made
    made.close()


@pytest.fixture
def admin(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(redis_url) as client:
        yield client


def lapse(admin: redis.Redis) -> None:
    """The lease of the broker's holder expires."""
    admin.hset(f"cw:role:{BROKER}", "until", "0")


def test_a_role_has_one_holder_and_the_next_one_a_later_epoch(roles: Roles, admin: redis.Redis) -> None:
    first = roles.acquire(BROKER, "one", 60)
    assert first == Term(BROKER, 1)
    assert roles.acquire(BROKER, "two", 60) is None
    assert roles.all() == {BROKER: RoleState(1, "one", ("two",))}
    lapse(admin)
    second = roles.acquire(BROKER, "two", 60)
    assert second == Term(BROKER, 2)
    assert roles.all() == {BROKER: RoleState(2, "two", ())}
    assert not roles.renew(first, 60)
    roles.release(first)
    assert roles.all()[BROKER].holder == "two"


def test_an_expired_lease_that_no_one_took_is_renewed(roles: Roles, admin: redis.Redis) -> None:
    term = roles.acquire(BROKER, "one", 60)
    assert term is not None
    lapse(admin)
    assert roles.renew(term, 60)
    assert roles.acquire(BROKER, "two", 60) is None


def test_a_released_role_is_free_at_once(roles: Roles) -> None:
    term = roles.acquire(BROKER, "one", 60)
    assert term is not None
    roles.release(term)
    assert roles.all()[BROKER].holder == ""
    assert roles.acquire(BROKER, "two", 60) == Term(BROKER, 2)


def test_a_part_that_its_supervisor_started_again_does_not_wait_for_its_own_lease(roles: Roles) -> None:
    roles.acquire(BROKER, "one", 60, seat="run/broker")
    assert roles.acquire(BROKER, "other", 60, seat="another/broker") is None
    assert roles.acquire(BROKER, "one again", 60, seat="run/broker") == Term(BROKER, 2)


#: Calls that change something.
WRITES: dict[str, Callable[[RedisBus], object]] = {
    "publish": lambda bus: bus.publish("t", [Record(b"x")]),
    "publish as": lambda bus: bus.publish_as("t", [Record(b"x")], writer="w", number=1),
    "publish once": lambda bus: bus.publish_once(
        "t", Record(b"x"), registry="r", name="n", content=b"c", keep_seconds=9
    ),
    "create topic": lambda bus: bus.create_topic("other", 3),
    "hold": lambda bus: bus.hold("t", "reader", {0: 1}),
    "release": lambda bus: bus.release("held", "reader"),
    "trim": lambda bus: bus.trim("old", keep_seconds=0),
    "put": lambda bus: bus.put("table", {"a": b"1"}),
    "put new": lambda bus: bus.put_new("table", "new", b"1"),
    "replace": lambda bus: bus.replace("table", "replaced", None, new=b"1"),
    "delete": lambda bus: bus.delete("table", ["kept"]),
    "grant": lambda bus: bus.grant({"job": b""}, revoking=["lease"]),
    "revoke": lambda bus: bus.revoke(["lease"]),
    "acknowledge": lambda bus: bus.acknowledge("grouped", "g", 0, offsets=[0]),
    "read group": lambda bus: bus.read_group("grouped", "g", "c"),
    "claim": lambda bus: bus.claim_expired("grouped", "g", "d", min_idle_seconds=0),
}


def content(admin: redis.Redis) -> dict[bytes, bytes | None]:
    return {key: admin.dump(key) for key in admin.keys("*") if not key.startswith(b"cw:role")}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_an_earlier_term_changes_nothing(
    redis_url: str, roles: Roles, admin: redis.Redis, name: str
) -> None:
    plain = RedisBus(redis_url)
    plain.publish("held", [Record(b"x")])
    plain.hold("held", "reader", {0: 0})
    plain.publish("old", [Record(b"x")])
    plain.put("table", {"kept": b"1"})
    plain.grant({"lease": b""})
    plain.create_group("grouped", "g", at_end=False)
    plain.publish("grouped", [Record(b"x", partition=0)])
    plain.publish("grouped", [Record(b"x", partition=0)])
    plain.read_group("grouped", "g", "c", max_records=1)
    first = roles.acquire(BROKER, "one", 60)
    assert first is not None
    sleeper = RedisBus(first.address(redis_url))
    sleeper.put("table", {"first": b"1"})
    lapse(admin)
    second = roles.acquire(BROKER, "two", 60)
    assert second is not None
    before = content(admin)
    with pytest.raises(RoleLost) as lost:
        WRITES[name](sleeper)
    assert (lost.value.role, lost.value.epoch, lost.value.newest) == (BROKER, 1, 2)
    assert content(admin) == before
    WRITES[name](RedisBus(second.address(redis_url)))
    assert content(admin) != before


def test_a_begun_write_of_an_earlier_term_changes_nothing(redis_url: str, roles: Roles, admin: redis.Redis) -> None:
    first = roles.acquire(BROKER, "one", 60)
    assert first is not None
    bus = RedisBus(first.address(redis_url))
    bus.grant({"before": b""})
    bus.publish("t", [Record(b"x", key=b"k")])
    lapse(admin)
    roles.acquire(BROKER, "two", 60)
    pending = bus.begin_grant({"job": b""})
    assert pending is not None
    with pytest.raises(Exception, match="FENCED"):
        while not pending.is_done():
            time.sleep(0.001)
    # The answer cost the connection.
    bus.partitions("another")
    publish = bus.begin_publish_as("t", [Record(b"x", key=b"k")], writer="w", number=1)
    assert publish is not None
    with pytest.raises(Exception, match="FENCED"):
        while not publish.is_done():
            time.sleep(0.001)
    assert set(bus.leases()) == {"before"}
    assert sum(state.end for state in bus.state("t")) == 1


def test_an_emptied_store_refuses_writes_of_the_former_term(redis_url: str, roles: Roles, admin: redis.Redis) -> None:
    term = roles.acquire(BROKER, "one", 60)
    assert term is not None
    admin.flushall()
    with pytest.raises(RoleLost):
        RedisBus(term.address(redis_url)).put("table", {"a": b"1"})


@pytest.mark.processes
def test_a_standby_takes_over_and_the_holder_that_wakes_is_notified(redis_url: str, admin: redis.Redis) -> None:
    lost: list[RoleLost] = []
    notified, waits = threading.Event(), threading.Event()

    def on_lost(error: RoleLost) -> None:
        lost.append(error)
        notified.set()

    holder = Keeper.of(redis_url, BROKER, 0.5)
    holder.on_lost = on_lost
    standby = Keeper.of(redis_url, BROKER, 0.5)
    stopping = threading.Event()
    assert holder.wait(stopping) == Term(BROKER, 1)
    found: list[Term | None] = []
    waiting = threading.Thread(target=lambda: found.append(standby.wait(stopping, waits.set)))
    waiting.start()
    try:
        assert waits.wait(10)
        assert standby.status() == {"name": BROKER, "epoch": None, "standby": True}
        # Between two renewals, as for a holder that sleeps; the test may have to retry.
        while waiting.is_alive():
            lapse(admin)
        assert found == [Term(BROKER, 2)]
        assert notified.wait(10)
        assert (lost[0].epoch, lost[0].newest) == (1, 2)
    finally:
        stopping.set()
        waiting.join()
        holder.close()
        standby.close()


@pytest.mark.processes
def test_a_keeper_renews_its_lease_and_leaves_the_role_when_it_is_closed(redis_url: str, roles: Roles) -> None:
    keeper = Keeper.of(redis_url, BROKER, 0.5)
    keeper.wait(threading.Event())
    until = time.monotonic() + 1.2
    while time.monotonic() < until:
        assert roles.all()[BROKER].holder == keeper.holder
        time.sleep(0.05)
    keeper.close()
    assert roles.all()[BROKER].holder == ""


def test_a_standby_that_stops_is_not_shown_any_more(redis_url: str, roles: Roles) -> None:
    roles.acquire(BROKER, "one", 60)
    keeper = Keeper.of(redis_url, BROKER, 60)
    stopping = threading.Event()
    assert keeper.wait(stopping, stopping.set) is None
    assert roles.all()[BROKER].standbys == (keeper.holder,)
    keeper.close()
    assert roles.all()[BROKER].standbys == ()


@pytest.mark.processes
def test_a_holder_knows_whether_it_is_cut_off(redis_url: str) -> None:
    with Link(redis_url) as link, closing(Keeper.of(link.url, BROKER, 0.5)) as holder:
        assert holder.wait(threading.Event()) == Term(BROKER, 1)
        assert not holder.is_cut_off
        link.cut()
        until(lambda: holder.is_cut_off, 10, "a renewal that fails")
        link.mend()
        until(lambda: not holder.is_cut_off, 10, "a renewal that works")
        assert holder.term == Term(BROKER, 1)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_holder_whose_loop_hangs_releases_the_role_and_fails(redis_url: str, roles: Roles) -> None:
    with closing(Keeper.of(redis_url, BROKER, 0.5)) as holder:
        moves = True
        holder.hang_seconds, holder.moved_at = 1.0, lambda: time.monotonic() if moves else 0.0
        assert holder.wait(threading.Event()) == Term(BROKER, 1)
        time.sleep(2 * holder.hang_seconds)
        assert problems() == () and roles.all()[BROKER].holder
        moves = False
        until(problems, 10, "the failure")
        assert roles.all()[BROKER].holder == ""
    (problem,) = problems()
    assert "the holder of the role broker hangs: its loop has not moved for 1 s" in problem
    forget_failures()


def test_a_bus_that_refuses_the_password_is_reported_once(redis_url: str) -> None:
    """Closing the keeper used to meet the same refusal, whose traceback hid the first one."""
    url = re.sub(r":[^:@]*@", ":wrong@", redis_url)
    with closing(Keeper.of(url, BROKER, 0.5)) as keeper, pytest.raises(BusError, match="invalid username-password"):
        keeper.wait(threading.Event())


def test_a_clock_that_was_put_back_lengthens_no_lease(roles: Roles, admin: redis.Redis) -> None:
    """A holder that died just before would have kept the role for as long as the clock went back."""
    assert roles.acquire(BROKER, "one", 0.5) == Term(BROKER, 1)
    admin.hincrby(f"cw:role:{BROKER}", "until", 3_600_000)
    assert roles.acquire(BROKER, "two", 0.5) is None
    until(lambda: roles.acquire(BROKER, "two", 0.5), 10, "the lease ends")


@pytest.mark.parametrize("stopped_seconds", [4, 3_600])
def test_a_holder_may_renew_first_after_redis_stopped_or_its_clock_was_put_forward(
    roles: Roles, admin: redis.Redis, stopped_seconds: int
) -> None:
    """A standby's call that Redis received while it was stopped ran before the holder's renewal, and took the role."""
    first = roles.acquire(BROKER, "one", 5)
    assert first is not None
    assert roles.acquire(BROKER, "two", 5) is None
    lapse(admin)
    admin.zincrby(f"cw:standbys:{BROKER}", -1_000 * stopped_seconds, "two")
    assert roles.acquire(BROKER, "two", 5) is None
    assert roles.all()[BROKER].holder == "one"
    assert roles.renew(first, 5)
    lapse(admin)
    assert roles.acquire(BROKER, "two", 5) == Term(BROKER, 2)
