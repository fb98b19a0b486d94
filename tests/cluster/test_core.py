"""The platform on a cluster: history, live bars, a trigger and maintenance, with worker, driver and catalog killed.

Two Spark workers without the product, the REST catalog, an S3 server, a bus with TLS, user and password, and every part
with an empty data directory that no other part sees.
"""

import random
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

import candlewright as cw
from bus.connect import connect
from candlewright_platform.supervisor.ports import free_port
from iceberg import MAINTENANCE_NAME, TABLES, load_table, open_catalog
from iceberg.filters import equal
from sandbox import SandboxThread
from sandbox.recorded.files import Trade
from tests.cluster.cluster import Cluster
from tests.cluster.lake import Lake
from tests.cluster.services import PATIENCE_SECONDS
from tests.faults.harness import MINUTE_MS, Platform, until
from tests.faults.replay import PERIODS, check, replay, streamed
from tests.flink_replacement_spark import trigger_feed

TICKER, PAIR = "BTC/USDT.BINANCE", "CLUSTER/USDT"
DAY_MS = 86_400_000
HISTORY_MS, LIVE_MS = 1_704_067_200_000, 1_735_689_600_000
TRADES, LARGE = 4_000, 5.0
#: Trades on the bus before the trigger is registered, which must not see them.
UNSEEN = 200

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]


def trades_of(count: int) -> list[Trade]:
    """(id, price, size, ms, taker bought), about ten minutes of them."""
    numbers = random.Random(15)
    made: list[Trade] = []
    at, price = LIVE_MS, 40_000
    for number in range(1, count + 1):
        at += numbers.randrange(0, 300)
        price += numbers.randrange(-5, 6)
        size = numbers.randrange(1, 1_000) / 100
        made.append((number, f"{price / 100:.2f}", f"{size:.2f}", at, numbers.random() < 0.5))
    return made


class OnCluster(Platform):
    """The platform that the fault tests need, with its tables in the object store."""

    def __init__(self, cluster: Cluster, lake: Lake, exchange: SandboxThread) -> None:
        self.cluster, self.lake = cluster, lake
        self.exchange = exchange
        self.told = []
        self.up: Any = SimpleNamespace(settings=cluster.settings, data_dir=cluster.data_dir)

    def table(self, name: str, **equals: Any) -> pa.Table:
        scan = open_catalog(self.cluster.settings).load_table(("market", name)).scan()
        for column, value in equals.items():
            scan = scan.filter(equal(column, value))
        return scan.to_arrow()


@pytest.fixture
def platform(tmp_path: Path) -> Iterator[OnCluster]:
    with ExitStack() as running:
        exchange = running.enter_context(SandboxThread(seed=11, rate_limit=False))
        addresses = [f"tcp://127.0.0.1:{free_port()}" for _ in range(3)]
        groups: dict[str, dict[str, Any]] = {
            "broker": {"bind": addresses[0], "lease_seconds": 5},
            "relay": {"requests_bind": addresses[1], "notifications_bind": addresses[2]},
            "ingestor": {"broker": addresses[0], "venues": ["BINANCE"], "rate_limit": False},
        }
        cluster = Cluster(tmp_path, running, groups, private=True)
        cluster.environment["CANDLEWRIGHT_EXCHANGE__BINANCE__URL"] = exchange.url
        cluster.guard_the_bus()
        lake = running.enter_context(Lake(tmp_path, cluster.services))
        cluster.add(iceberg={**lake.iceberg, "maintenance_minutes": 0.5})
        cluster.start_master()
        for worker in ("worker-1", "worker-2"):
            cluster.start_worker(worker)
        yield OnCluster(cluster, lake, exchange)
        assert not any(cluster.data_dir.iterdir()), "a part wrote where others see it"


def test_history_bars_triggers_and_maintenance_are_exact_while_parts_are_killed(platform: OnCluster) -> None:
    cluster, services = platform.cluster, platform.cluster.services
    for service, name in (
        ("pipeline", "pipeline"),
        ("broker", "broker"),
        ("relay", "relay"),
        ("ingestor", "ingestor-1"),
        ("ingestor", "ingestor-2"),
    ):
        cluster.start_part(service, name)
    trades = trades_of(TRADES)
    large = [trade for trade in trades[UNSEEN:] if float(trade[2]) > LARGE]
    with ExitStack() as stack:
        bus = stack.enter_context(closing(connect(cluster.settings.bus)))
        client = stack.enter_context(cw.connect(settings=cluster.settings, timeout=PATIENCE_SECONDS))
        assert_history(platform, client, day=0)
        playing = replay(platform, bus, {PAIR: trades}, stack=stack, periods=PERIODS)
        until(lambda: PAIR.replace("/", "") in streamed(platform), 60, "it is streamed")
        # Trades that arrive as they happen are recognised by their position on the bus; the exchange's clock, which the
        # tape drives, does not matter.
        playing.play(UNSEEN)
        playing.finish()
        trigger = client.triggers.add(f"size > {LARGE}", tickers=[f"{PAIR}.BINANCE"], trigger_id="large")

        playing.play(TRADES // 4)
        services.kill("worker-1")
        playing.play(TRADES // 2)
        cluster.start_worker("worker-3")
        services.kill("pipeline")
        playing.play(TRADES * 3 // 4)
        # As if on another machine: a former driver's data directory is not there.
        cluster.start_part("pipeline", "pipeline-2")
        platform.lake.kill_catalog()
        playing.play(TRADES)
        platform.lake.start_catalog()
        playing.finish()
        playing.pass_time(6 * MINUTE_MS)

        check(platform, bus, PAIR, trades=trades, patience=PATIENCE_SECONDS)
        until(lambda: len(trigger_feed.events(bus, trigger.id)) >= len(large), PATIENCE_SECONDS, "an event for each")
        events = trigger_feed.events(bus, trigger.id)
        assert [int(event.context["sequence"]) for event in events] == list(range(1, len(large) + 1))
        assert [event.timestamp // 10**6 for event in events] == [trade[3] for trade in large]
        ids = sorted(event.context["event_id"] for event in events)
        assert len(set(ids)) == len(ids)
        until(lambda: len(stored_events(platform)) >= len(ids), PATIENCE_SECONDS, "the events in the table")
        assert_history(platform, client, day=1)
        until(lambda: is_maintained(platform), PATIENCE_SECONDS, "maintenance has merged files")
        check(platform, bus, PAIR, trades=trades, patience=PATIENCE_SECONDS)
        assert stored_events(platform) == ids


def stored_events(platform: OnCluster) -> list[str]:
    return sorted(platform.table("trigger_events")["event_id"].to_pylist())


def assert_history(platform: OnCluster, client: cw.Client, day: int) -> None:
    """A day from the exchange, in the table and in the answer."""
    start = HISTORY_MS + day * DAY_MS
    got = client.history(TICKER, period="1m", start=start * 10**6, end=(start + DAY_MS) * 10**6)
    assert got.row_count == got.to_arrow().num_rows == DAY_MS // MINUTE_MS
    assert platform.rows(TICKER, start, start + DAY_MS) == platform.exchange_rows("BTCUSDT", start, start + DAY_MS)


def is_maintained(platform: OnCluster) -> bool:
    """Whether small files of a table were merged."""
    catalog = open_catalog(platform.cluster.settings)
    snapshots = [each for definition in TABLES for each in load_table(catalog, definition).metadata.snapshots]
    summaries = [each.summary.additional_properties for each in snapshots if each.summary is not None]
    return any(MAINTENANCE_NAME in summary for summary in summaries)
