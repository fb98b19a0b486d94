"""Several relays over one bus: all serve, one has the registry, and another one takes it over."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
import zmq

from bus import topics as bus_topics
from bus.redis.redis_bus import RedisBus
from bus.roles import REGISTRY, Keeper, Roles
from candlewright.client import aconnect, connect
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.ports import free_port
from relay.server import Registry, Relay
from relay.settings import RelayLimits
from tests.fresh_bus import FreshBus
from tests.relay import pipeline
from tests.relay.harness import Platform, config, finish, no_rows, submit
from tests.relay.test_live import cancels, eventually, list_markets, put_ticks, requests
from tests.relay.test_triggers import BTC, LIMITS, send, state_of, trigger

pytestmark = pytest.mark.processes

Ack = ing.CEPTriggerAck
LEASE_SECONDS = 0.5


@dataclass(frozen=True)
class Member:
    """One relay of several; `stop` leaves the registry to the others."""

    platform: Platform
    keeper: Keeper
    stop: Callable[[], None]


@dataclass(frozen=True)
class Group:
    bus: FreshBus
    roles: Roles
    stack: ExitStack
    context: "zmq.Context[zmq.Socket[bytes]]"

    def start(self, limits: RelayLimits = LIMITS) -> Member:
        keeper = Keeper.of(self.bus.url, REGISTRY, LEASE_SECONDS)
        registry = Registry(keeper, lambda term: RedisBus(term.address(self.bus.url)))
        relay = Relay(config(limits=limits), self.bus, no_rows, read_stored=no_rows, registry=registry)
        relay.start()

        def stop() -> None:
            relay.close()
            keeper.close()

        own = ExitStack()
        own.callback(stop)
        self.stack.callback(own.close)
        eventually(lambda: relay.status().is_ready)
        eventually(lambda: keeper.term is not None or keeper.is_standby)
        return Member(Platform(self.bus, relay, self.stack, context=self.context), keeper, own.close)


@pytest.fixture
def group() -> Iterator[Group]:
    with ExitStack() as stack:
        context: zmq.Context[zmq.Socket[bytes]] = stack.enter_context(zmq.Context())
        bus = FreshBus()
        roles = Roles(bus.url)
        stack.callback(roles.close)
        yield Group(bus, roles, stack, context)


def test_every_relay_serves_with_the_same_numbers_and_finals(group: Group) -> None:
    list_markets(group.bus, "BTC/USDT")
    first, second = group.start(), group.start()
    role = group.roles.all()[REGISTRY]
    assert (role.epoch, role.holder, role.standbys) == (1, first.keeper.holder, (second.keeper.holder,))
    subscribers = [each.platform.ready_subscriber(f"TICKS:{BTC}", "HISTORY_READY:r") for each in (first, second)]
    assert second.platform.client().ask(submit("r")).status == ing.SubmitResponse.QUEUED
    assert first.platform.client().ask(submit("r")).status == ing.SubmitResponse.DUPLICATE
    finish(group.bus, "r")
    put_ticks(group.bus, BTC, "1")
    received = [dict(subscriber.next() for _ in range(2)) for subscriber in subscribers]
    assert received[0] == received[1]
    assert set(received[0]) == {f"TICKS:{BTC}", "HISTORY_READY:r"}


def test_triggers_are_registered_and_listed_at_any_relay(group: Group) -> None:
    first, second = group.start(), group.start()
    with pipeline.running(group.bus):
        assert second.platform.client().ask(trigger(tickers=[BTC])).status == Ack.REGISTERED
        assert first.platform.client().ask(trigger(tickers=[BTC])).status == Ack.ALREADY_REGISTERED
        assert state_of(second.platform.client()) == state_of(first.platform.client()) == [("active", "")]
        refused = second.platform.client().ask(trigger("bad", "prise > 1"))
        assert refused.status == Ack.INVALID_SQL
        assert second.platform.client().ask(cw.TriggerRemove(trigger_id="t")).status == Ack.REGISTERED
        assert state_of(first.platform.client()) == []


def test_a_second_relay_leaves_the_live_requests_of_the_first_one_alone(group: Group) -> None:
    """It used to mistake them for requests of an earlier run, and cancelled them."""
    list_markets(group.bus, "BTC/USDT")
    first = group.start()
    one = first.platform.ready_subscriber(f"TICKS:{BTC}")
    eventually(lambda: len(requests(group.bus)) == 1)
    second = group.start()
    # Longer than the grace period after which a relay cancels what none of its clients has requested.
    threading.Event().wait(LIMITS.grace_seconds + 1.0)
    assert cancels(group.bus) == []
    two = second.platform.ready_subscriber(f"TICKS:{BTC}")
    eventually(lambda: len(requests(group.bus)) == 2)
    two.socket.close()
    eventually(lambda: len(cancels(group.bus)) == 1)
    put_ticks(group.bus, BTC, "1")
    assert one.next()[0] == f"TICKS:{BTC}"
    assert len(cancels(group.bus)) == 1


def test_another_relay_takes_over_the_registry(group: Group) -> None:
    first, second = group.start(), group.start()
    with pipeline.running(group.bus):
        assert first.platform.client().ask(trigger(tickers=[BTC])).status == Ack.REGISTERED
        client = second.platform.client()
        first.stop()
        eventually(lambda: group.roles.all()[REGISTRY].holder == second.keeper.holder)
        assert group.roles.all()[REGISTRY].epoch == 2
        assert client.ask(trigger(tickers=[BTC])).status == Ack.ALREADY_REGISTERED
        assert client.ask(trigger("other", tickers=[BTC])).status == Ack.REGISTERED


def test_a_write_after_the_end_of_the_term_changes_nothing_and_ends_the_relay(group: Group) -> None:
    first = group.start()
    with pipeline.running(group.bus):
        assert first.platform.client().ask(trigger(tickers=[BTC])).status == Ack.REGISTERED
        # As while it was stopped.
        group.bus._store.call("HSET", f"cw:role:{REGISTRY}", "until", 0)
        while group.roles.acquire(REGISTRY, "another", 60.0) is None:
            group.bus._store.call("HSET", f"cw:role:{REGISTRY}", "until", 0)
        send(first.platform.client(), trigger("late", tickers=[BTC]))
        eventually(first.platform.relay.failed.is_set)
    assert list(group.bus.items(bus_topics.TABLE_TRIGGERS)) == ["t"]


def addresses(*members: Member) -> list[tuple[str, str]]:
    return [(each.platform.relay.requests_address, each.platform.relay.notifications_address) for each in members]


def test_a_client_moves_on_to_the_next_relay_and_misses_nothing(group: Group) -> None:
    list_markets(group.bus, "BTC/USDT")
    first, second = group.start(), group.start()
    with pipeline.running(group.bus), connect(addresses(first, second)) as client:
        ticks = client.ticks(BTC, from_sequence=1, timeout=30.0)
        put_ticks(group.bus, BTC, "1", "2")
        assert [ticks.next().trade_id for _ in range(2)] == ["1", "2"]
        first.stop()
        # While the client is connected to no relay.
        put_ticks(group.bus, BTC, "3", "4")
        client.triggers.add("price > 1", trigger_id="t", tickers=[BTC])
        assert list(group.bus.items(bus_topics.TABLE_TRIGGERS)) == ["t"]
        assert [ticks.next().trade_id for _ in range(2)] == ["3", "4"]
        put_ticks(group.bus, BTC, "5")
        assert ticks.next().trade_id == "5"
        assert group.roles.all()[REGISTRY].holder == second.keeper.holder


async def test_the_async_twin_skips_an_unreachable_relay(group: Group) -> None:
    list_markets(group.bus, "BTC/USDT")
    member = group.start()
    absent = f"tcp://127.0.0.1:{free_port()}", f"tcp://127.0.0.1:{free_port()}"
    async with aconnect([absent, *addresses(member)]) as client:
        ticks = client.ticks(BTC, from_sequence=1, timeout=30.0)
        put_ticks(group.bus, BTC, "1")
        assert (await anext(ticks)).trade_id == "1"
        assert await client.triggers.list() == []


def test_pairs_and_a_notifications_address_together_are_refused() -> None:
    with pytest.raises(ValueError, match="pairs"):
        connect([("tcp://127.0.0.1:1", "tcp://127.0.0.1:2")], "tcp://127.0.0.1:3")
