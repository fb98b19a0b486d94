"""Two relays over one Redis: both serve, and the standby takes over the single duties, under load."""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import pytest
import zmq

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from bus.roles import REGISTRY, Roles
from candlewright.client import Client, connect
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.ports import free_port
from core.background import start_thread
from tests.faults.link import Link
from tests.faults.process import Process
from tests.faults.take_overs import FAULTS, ROUNDS, SUITE_ROUNDS, Fault, assert_fast, lease_of
from tests.relay import pipeline
from tests.relay.harness import Subscriber, finish
from tests.relay.test_live import cancels, eventually, list_markets, put_ticks, requests
from tests.relay.test_triggers import BTC

#: The contract's limit from the fault to the first registration by the next holder.
TAKE_OVER_SECONDS = 6.0
#: The limit on our machines, where other work may delay a process.
SLACK_SECONDS = 4.0
PATIENCE_SECONDS = 60.0
TRIGGERS = 50
pytestmark = pytest.mark.timeout(240)


class Market:
    """Trades of one ticker, numbered from 1, from now until `stop`."""

    def __init__(self, bus: RedisBus) -> None:
        self._bus = bus
        self._stopping = threading.Event()
        self.trades = 0
        self._thread = start_thread("market", self._run)

    def _run(self) -> None:
        while not self._stopping.wait(0.02):
            put_ticks(self._bus, BTC, str(self.trades + 1))
            self.trades += 1

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


class Stage:
    """Two relays, and for each a client that prefers it. The test plays ingestors and pipeline."""

    def __init__(self, folder: Path, stack: ExitStack, lease: dict[str, str]) -> None:
        self._folder, self._stack, self._lease = folder, stack, lease
        self.redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.bus = RedisBus(self.redis.url)
        stack.callback(self.bus.close)
        self.roles = Roles(self.redis.url)
        stack.callback(self.roles.close)
        list_markets(self.bus, "BTC/USDT")
        stack.enter_context(pipeline.running(self.bus))
        self.addresses: list[tuple[str, str]] = []
        self.relays = [self._relay(), self._relay()]
        self._context: zmq.Context[zmq.Socket[bytes]] = stack.enter_context(zmq.Context())
        self.clients = [stack.enter_context(connect(order)) for order in (self.addresses, self.addresses[::-1])]
        self.market = Market(self.bus)
        stack.callback(self.market.stop)
        self._numbers = count(1)
        self.triggers = [self.register(self.clients[0]) for _ in range(TRIGGERS)]
        self.seen: list[list[int]] = [[], []]
        for seen, client in zip(self.seen, self.clients, strict=True):
            self._follow(client, seen)
        eventually(lambda: all(len(seen) > 20 for seen in self.seen), PATIENCE_SECONDS)
        self.events = 0
        self.fired = [client.triggers.events(self.triggers[0], from_sequence=1) for client in self.clients]

    def _relay(self) -> Process:
        pair = tuple(f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        folder = self._folder / f"relay-{len(self.addresses)}"
        folder.mkdir()
        self.addresses.append((pair[0], pair[1]))
        made = Process(
            "relay",
            folder,
            self._stack.enter_context(Link(self.redis.url)),
            CANDLEWRIGHT_DATA_DIR=str(folder),
            CANDLEWRIGHT_RELAY__REQUESTS_BIND=pair[0],
            CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND=pair[1],
            **self._lease,
        )
        self._stack.callback(made.end)
        eventually(made.is_ready, PATIENCE_SECONDS)
        return made

    def _follow(self, client: Client, seen: list[int]) -> None:
        stopping = threading.Event()
        stream = client.ticks(BTC, from_sequence=1)

        def run() -> None:
            while not stopping.is_set():
                try:
                    seen.append(int(stream.next(timeout=0.2).trade_id))
                except TimeoutError:
                    pass

        thread = start_thread("subscriber", run)
        self._stack.callback(thread.join)
        self._stack.callback(stopping.set)

    def register(self, client: Client) -> str:
        number = next(self._numbers)
        client.triggers.add(f"price > {1_000_000 + number}", trigger_id=f"t{number}", tickers=[BTC])
        return f"t{number}"

    def subscriber(self, relay: int, *topics: str) -> Subscriber:
        subscriber = Subscriber(self._context.socket(zmq.SUB), self.addresses[relay][1], *topics)
        self._stack.callback(subscriber.socket.close)
        return subscriber

    def holder(self) -> int:
        """The index of the relay that has the registry."""
        (place,) = (place for place, relay in enumerate(self.relays) if _has_registry(relay))
        return place


def _has_registry(relay: Process) -> bool:
    return relay.status().get("role", {}).get("epoch") is not None


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("registries"), stack, lease_of(request.config))


def take_over(stage: Stage, fault: Fault) -> float:
    """One round under load; returns the seconds from the fault until the next holder has registered a trigger."""
    place = stage.holder()
    holder, other = stage.relays[place], stage.relays[1 - place]
    eventually(lambda: len(stage.roles.all()[REGISTRY].standbys) == 1, PATIENCE_SECONDS)
    epoch = stage.roles.all()[REGISTRY].epoch
    client = stage.clients[1 - place]
    name = client.submit(BTC, "1m", start="2024-01-01", end="2024-01-02").request_id
    entries = pipeline.entries(stage.bus)
    began = time.monotonic()
    with fault(holder):
        stage.triggers.append(stage.register(client))
        took = time.monotonic() - began
        assert stage.roles.all()[REGISTRY].epoch == epoch + 1
        assert _has_registry(other)
        final = finish(stage.bus, name, status=ing.HistoryReadyNotification.OK, row_count=1_440)
        assert client.wait(name, timeout=PATIENCE_SECONDS).row_count == 1_440
        pipeline.fire(stage.bus, stage.triggers[0], stage.events + 1, ticker=BTC)
        stage.events += 1
        assert stage.fired[1 - place].next(timeout=PATIENCE_SECONDS).sequence == stage.events
    holder.start()
    eventually(holder.is_ready, PATIENCE_SECONDS)
    assert stage.fired[place].next(timeout=PATIENCE_SECONDS).sequence == stage.events
    late = stage.subscriber(place, f"HISTORY_READY:{name}")
    assert late.next() == (f"HISTORY_READY:{name}", final)
    kept = pipeline.entries(stage.bus)
    assert {each: kept[each].registration for each in entries} == {
        each: entry.registration for each, entry in entries.items()
    }
    return took


def check(stage: Stage) -> None:
    """Nothing lost, duplicated or overwritten, no holes, and as many live requests as subscribers need."""
    wanted = stage.market.trades
    eventually(lambda: all(len(seen) >= wanted for seen in stage.seen), PATIENCE_SECONDS)
    for seen in stage.seen:
        assert seen == list(range(1, len(seen) + 1))
    assert sorted(pipeline.entries(stage.bus)) == sorted(stage.triggers)
    registered = [trigger_id for trigger_id, _ in pipeline.registrations(stage.bus)]
    assert sorted(registered) == sorted(stage.triggers)
    # Each relay has one subscription to the ticker's trades, and so one live request that was not cancelled.
    live = [each.request_id for each in requests(stage.bus) if each.ticker == BTC]
    eventually(lambda: len(set(live) - set(cancels(stage.bus))) <= len(stage.relays), PATIENCE_SECONDS)
    assert set(live) - set(cancels(stage.bus))


def test_a_standby_takes_the_duties_over_from_a_relay_that_was_killed_stopped_or_cut_off(stage: Stage) -> None:
    for fault in SUITE_ROUNDS * FAULTS:
        take_over(stage, fault)
    check(stage)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("fault", FAULTS)
def test_twenty_take_overs_of_each_kind(stage: Stage, fault: Fault) -> None:
    took = [take_over(stage, fault) for _ in range(ROUNDS)]
    check(stage)
    assert_fast(took, TAKE_OVER_SECONDS + SLACK_SECONDS)
