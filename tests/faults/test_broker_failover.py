"""Two brokers over one Redis: one serves, the other takes over, and late actions of the first have no effect."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import pytest

from bus import topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from bus.roles import BROKER, Roles
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.ports import free_port
from sandbox import SandboxThread
from tests.broker.harness import START, Client, Peer, eventually
from tests.faults.link import Link
from tests.faults.process import Process
from tests.faults.take_overs import FAULTS, ROUNDS, SUITE_ROUNDS, Fault, assert_fast, lease_of

ROOT = Path(__file__).resolve().parents[2]
TICKER = "BTC/USDT.BINANCE"
#: The exchange's clock runs faster by this factor, so that the test need not wait for trades.
SPEED = 4.0
#: The contract's limit from the fault to the next broker's open door.
TAKE_OVER_SECONDS = 6.0
#: The limit on our machines, where other work may delay a process.
SLACK_SECONDS = 4.0
pytestmark = pytest.mark.timeout(240)


class Stage:
    """Two brokers and an ingestor on real sockets, over one Redis and a sandbox exchange."""

    def __init__(self, folder: Path, stack: ExitStack, lease: dict[str, str]) -> None:
        self.folder, self._stack = folder, stack
        self.redis = stack.enter_context(EmbeddedRedis(folder / "redis"))
        exchange = stack.enter_context(SandboxThread(seed=11, rate_limit=False, speed=SPEED))
        self.bus = RedisBus(self.redis.url)
        stack.callback(self.bus.close)
        self.roles = Roles(self.redis.url)
        stack.callback(self.roles.close)
        self.client = Client(self.bus)
        addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(2)]
        self.addresses = addresses
        self.brokers = [self._part("broker", CANDLEWRIGHT_BROKER__BIND=addresses[0], **lease)]
        eventually(self.brokers[0].is_ready, 60)
        self.brokers.append(self._part("broker", CANDLEWRIGHT_BROKER__BIND=addresses[1], **lease))
        eventually(self.brokers[1].is_standby, 60)
        self.ingestor = self._part(
            "ingestor",
            CANDLEWRIGHT_INGESTOR__BROKER=json.dumps(addresses),
            CANDLEWRIGHT_INGESTOR__VENUES='["BINANCE"]',
            CANDLEWRIGHT_EXCHANGE=json.dumps({"BINANCE": {"url": exchange.url}}),
            **lease,
        )
        eventually(self.ingestor.is_ready, 60)
        self.client.ask(ing.DataRequest(request_id="live", ticker=TICKER, type=ing.DataRequest.REALTIME_TICKS))
        eventually(lambda: len(self.trade_ids()) > 40, 60)

    def _part(self, part: str, **environment: str) -> Process:
        link = self._stack.enter_context(Link(self.redis.url))
        made = Process(part, self.folder, link, **environment)
        self._stack.callback(made.end)
        return made

    def serving(self) -> int:
        """The epoch of the broker whose door is open."""
        return int(self.bus.get(topics.TABLE_BROKER, [topics.SERVING_KEY])[0] or 0)

    def numbers(self) -> list[tuple[int, int]]:
        """First and last number of each batch of live trades on the bus."""
        found = []
        for partition in range(self.bus.partitions(topics.TICKS)):
            offset = 0
            while records := self.bus.read(topics.TICKS, partition, offset):
                offset = records[-1].offset + 1
                batches = [cw.TickBatch.FromString(record.value) for record in records]
                found += [(each.first_sequence, each.first_sequence + len(each.trade_id) - 1) for each in batches]
        return found

    def trade_ids(self) -> list[int]:
        found = []
        for partition in range(self.bus.partitions(topics.TICKS)):
            offset = 0
            while records := self.bus.read(topics.TICKS, partition, offset):
                offset = records[-1].offset + 1
                for record in records:
                    found += map(int, cw.TickBatch.FromString(record.value).trade_id)
        return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("failover"), stack, lease_of(request.config))


def take_over(stage: Stage, fault: Fault) -> float:
    """One round under load; returns the seconds from the fault until the standby's door is open."""
    holder = next(broker for broker in stage.brokers if broker.is_ready())
    (standby,) = (broker for broker in stage.brokers if broker is not holder)
    eventually(standby.is_standby, 60)
    epoch = stage.serving()
    ids_before = stage.trade_ids()
    names = [stage.client.submit(rows=12_000, ticker=TICKER, start=START) for _ in range(3)]
    threading.Event().wait(0.3)
    began = time.monotonic()
    with fault(holder):
        eventually(lambda: stage.serving() > epoch, 60)
        took = time.monotonic() - began
        names.append(stage.client.submit(rows=2_000, ticker=TICKER, start=START))
        for name in names:
            eventually(lambda name=name: bool(stage.client.ends(name)), 90)
        eventually(lambda: len(stage.trade_ids()) > len(ids_before) + 20, 60)
    holder.start()
    eventually(holder.is_standby, 60)
    assert standby.is_ready()
    ends = Counter(outcome.request.request_id for outcome in stage.client.outcomes() if outcome.HasField("request"))
    for name in names:
        assert ends[name] == 1
        (end,) = stage.client.ends(name)
        assert end.status == ing.HistoryReadyNotification.OK
        pieces = sorted((piece.start_time, piece.end_time, piece.rows) for piece in stage.client.pieces(name))
        assert sum(rows for _, _, rows in pieces) == end.rows in (12_000, 2_000)
        assert all(left[1] == right[0] for left, right in pairwise(pieces))
    ids = stage.trade_ids()
    assert len(ids) == len(set(ids))
    numbers = sorted(stage.numbers())
    assert numbers[0][0] == 1
    assert all(left[1] + 1 == right[0] for left, right in pairwise(numbers))
    return took


def test_two_brokers_do_no_harm_and_the_standby_reports_itself(stage: Stage) -> None:
    """Without roles, each broker would revoke the other's leases, and a client would get half of its trades twice."""
    holder, standby = stage.brokers
    assert standby.said() == b"standby\n"
    role = stage.roles.all()[BROKER]
    assert (role.epoch, bool(role.holder), len(role.standbys)) == (1, True, 1)
    (lease,) = stage.bus.leases()
    name = stage.client.submit(rows=5_000, ticker=TICKER, start=START)
    assert stage.client.end(name).rows == 5_000
    eventually(lambda: list(stage.bus.leases()) == [lease])
    ids = stage.trade_ids()
    assert len(ids) == len(set(ids))
    peer = Peer(stage.addresses[1])
    peer.offer()
    assert peer.receive(0.5, heartbeats=True) is None
    peer.close()
    assert holder.is_ready()


def test_a_standby_takes_over_from_a_broker_that_was_killed_stopped_or_cut_off(stage: Stage) -> None:
    for fault in SUITE_ROUNDS * FAULTS:
        take_over(stage, fault)


def test_a_broker_that_is_asked_to_stop_leaves_its_role_at_once(stage: Stage) -> None:
    holder = next(broker for broker in stage.brokers if broker.is_ready())
    (standby,) = (broker for broker in stage.brokers if broker is not holder)
    eventually(standby.is_standby, 60)
    epoch = stage.serving()
    holder.process.terminate()
    assert holder.process.wait(30) == 0
    eventually(lambda: stage.serving() == epoch + 1, 60)
    holder.start()
    eventually(holder.is_standby, 60)
    holder.process.terminate()
    assert holder.process.wait(30) == 0
    assert stage.roles.all()[BROKER].standbys == ()
    holder.start()


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("fault", FAULTS)
def test_twenty_take_overs_of_each_kind(stage: Stage, fault: Fault) -> None:
    assert_fast([take_over(stage, fault) for _ in range(ROUNDS)], TAKE_OVER_SECONDS + SLACK_SECONDS)
