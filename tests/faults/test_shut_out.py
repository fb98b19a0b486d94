"""Redis no longer accepts the platform's user: the password was changed, the user was removed, or lost a permission.

A part that runs waits, says why, and continues once it is accepted again; nothing is lost.
"""

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import redis

from bus import topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.ports import free_port
from sandbox import SandboxThread
from tests.broker.harness import START, Client, eventually
from tests.faults.link import Link
from tests.faults.process import Process

TICKER = "BTC/USDT.BINANCE"
USER = "platform"
RULES = ("+@all", "-@admin", "-@dangerous", "+info")
#: Longer than any call waits: each part has then met the refusal as an error.
OUTAGE_SECONDS = 18.0
pytestmark = pytest.mark.timeout(240)


def accept(admin: redis.Redis) -> None:
    admin.acl_setuser(USER, enabled=True, reset=True, passwords=["+right"], keys=["cw:*"], commands=list(RULES))


def change_password(admin: redis.Redis) -> None:
    admin.acl_setuser(USER, enabled=True, passwords=["-right", "+another"])
    admin.client_kill_filter(_type="normal", skipme=True)


def remove(admin: redis.Redis) -> None:
    admin.acl_deluser(USER)


def forbid_scripts(admin: redis.Redis) -> None:
    admin.acl_setuser(USER, enabled=True, commands=["-evalsha", "-eval"])


class Stage:
    """A broker, a relay, and an ingestor of a sandbox exchange, which streams one ticker."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        server = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.admin = stack.enter_context(redis.Redis.from_url(server.url))
        accept(self.admin)
        url = f"redis://{USER}:right@127.0.0.1:{server.port}/0"
        exchange = stack.enter_context(SandboxThread(seed=11, rate_limit=False, speed=4.0))
        self.bus = RedisBus(server.url)
        stack.callback(self.bus.close)
        self.client = Client(self.bus)
        broker, *relay = (f"tcp://127.0.0.1:{free_port()}" for _ in range(3))
        environment = {
            "CANDLEWRIGHT_DATA_DIR": str(folder),
            "CANDLEWRIGHT_BROKER__BIND": broker,
            "CANDLEWRIGHT_RELAY__REQUESTS_BIND": relay[0],
            "CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND": relay[1],
            "CANDLEWRIGHT_INGESTOR__BROKER": broker,
            "CANDLEWRIGHT_INGESTOR__VENUES": '["BINANCE"]',
            "CANDLEWRIGHT_EXCHANGE": json.dumps({"BINANCE": {"url": exchange.url}}),
        }
        self.parts: list[Process] = []
        for name in ("broker", "relay", "ingestor"):
            part = Process(name, folder, stack.enter_context(Link(url)), **environment)
            stack.callback(part.end)
            eventually(part.is_ready, 60)
            self.parts.append(part)
        self.client.ask(ing.DataRequest(request_id="live", ticker=TICKER, type=ing.DataRequest.REALTIME_TICKS))
        eventually(lambda: len(self.trade_ids()) > 20, 60)

    def trade_ids(self) -> list[int]:
        found: list[int] = []
        for partition in range(self.bus.partitions(topics.TICKS)):
            offset = 0
            while records := self.bus.read(topics.TICKS, partition, offset):
                offset = records[-1].offset + 1
                found += [
                    int(number) for record in records for number in cw.TickBatch.FromString(record.value).trade_id
                ]
        return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path_factory.mktemp("shut-out"), stack)


@pytest.mark.parametrize(
    ("shut_out", "reason"),
    [
        (change_password, "Redis refuses the user or password of bus.url (WRONGPASS)"),
        (remove, "Redis refuses the user or password of bus.url (WRONGPASS)"),
        (forbid_scripts, "the user of bus.url may not do everything that the platform does: "),
    ],
)
def test_parts_that_are_shut_out_wait_and_lose_nothing(
    stage: Stage, shut_out: Callable[[redis.Redis], None], reason: str
) -> None:
    """Each part used to end, and was restarted until the user was accepted again."""
    name = stage.client.submit(rows=12_000, ticker=TICKER, start=START)
    shut_out(stage.admin)
    broker, relay, _ = stage.parts
    for part in (broker, relay):
        eventually(lambda part=part: any(reason in problem for problem in part.status().get("problems", ())), 60)
    with pytest.raises(subprocess.TimeoutExpired):
        broker.process.wait(OUTAGE_SECONDS)
    assert all(part.process.poll() is None for part in stage.parts)
    accept(stage.admin)
    ids = stage.trade_ids()
    eventually(lambda: len(stage.trade_ids()) > len(ids) + 20, 60)
    eventually(lambda: bool(stage.client.ends(name)), 90)
    (end,) = stage.client.ends(name)
    assert (end.status, end.rows) == (ing.HistoryReadyNotification.OK, 12_000)
    for part in stage.parts:
        eventually(lambda part=part: part.is_ready() and not part.status()["problems"], 60)
        assert part.process.poll() is None
    ids = stage.trade_ids()
    assert ids == list(range(ids[0], ids[0] + len(ids)))
