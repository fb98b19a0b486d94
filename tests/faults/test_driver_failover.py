"""Two Spark drivers over one Redis and one catalog, each with a data directory of its own: one serves, one stands by.

The standby takes over from a driver that was killed, stopped or cut off, with the state and the positions of the first
one, and what the first one still does changes nothing.
"""

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bus import Record
from bus import topics as bus_topics
from bus.connect import connect
from bus.embedded import EmbeddedRedis
from bus.roles import DRIVER, Roles
from candlewright.wire.candlewright_pb2 import OHLCV
from core.settings import Settings
from flink_replacement_spark.cep import evaluate
from iceberg import OHLC, TRIGGER_EVENTS, load_table, open_catalog
from protobuf import records_pb2 as records
from tests.faults.link import Link
from tests.faults.process import Process
from tests.faults.take_overs import FAULTS, ROUNDS, Fault, assert_fast
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import Feed, final_of, wait_for
from tests.flink_replacement_spark.trigger_walks import table_of, walk
from tests.triggers.trigger_records import V_SHAPE, rows

#: What the contract allows from the fault to an event of a trade that came after it.
TAKE_OVER_SECONDS = 10.0
#: Of a machine with two processors, on which the test itself takes its share.
SLACK_SECONDS = 5.0
PATIENCE_SECONDS = 200.0
TICKER, OTHER = "WALK/USDT.BINANCE", "ANY/USDT.BINANCE"
pytestmark = pytest.mark.timeout(1_200)


class Stage:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self._stack = folder, stack
        self.redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.settings = Settings.model_validate(
            {
                "data_dir": folder,
                "bus": {"url": self.redis.url},
                "iceberg": {"uri": str(folder / "lake.db"), "warehouse": f"file://{folder / 'lake'}"},
            }
        )
        self.bus = connect(self.settings.bus)
        stack.callback(self.bus.close)
        self.roles = Roles(self.redis.url)
        stack.callback(self.roles.close)
        self.prices = walk(3, 20_000)
        self.trades, self.requests = 0, 0
        self.drivers = [self._driver("one")]
        wait_for(lambda: self.drivers[0].is_ready() or None, PATIENCE_SECONDS)
        self.drivers.append(self._driver("two"))
        feed.register(self.bus, "shape", V_SHAPE, TICKER)
        feed.register(self.bus, "any", "price > 0", OTHER)
        for number in range(48):
            feed.control(
                self.bus,
                records.TriggerControl(
                    register=records.TriggerRegistration(
                        trigger_id=f"more-{number}", sql=f"price > {1_000_000 + number}", tickers=[OTHER],
                        version=10_000 + number, registered_at=time.time_ns(),
                    )
                ),
            )  # fmt: skip
        for ticker in (TICKER, OTHER):
            wanted = records.TickMark(ticker=ticker, wanted=records.Wanted(period_seconds=[60]))
            covered = records.TickMark(ticker=ticker, covered=records.Covered(job_id="j", from_time=feed.T0))
            for mark in (wanted, covered):
                self.bus.publish(bus_topics.TICK_MARKS, [Record(mark.SerializeToString(), key=ticker.encode())])
        wait_for(lambda: self.drivers[1].is_standby() or None, PATIENCE_SECONDS)

    def _driver(self, name: str) -> Process:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        folder = self.folder / name
        folder.mkdir()
        made = Process(
            "flink_replacement_spark",
            folder,
            self._stack.enter_context(Link(self.redis.url)),
            CANDLEWRIGHT_DATA_DIR=str(folder),
            CANDLEWRIGHT_SPARK__CONNECT_BIND=f"127.0.0.1:{port}",
            CANDLEWRIGHT_SPARK__MASTER="local[2]",
            CANDLEWRIGHT_ICEBERG__URI=self.settings.iceberg.uri,
            CANDLEWRIGHT_ICEBERG__WAREHOUSE=self.settings.iceberg.warehouse,
        )
        self._stack.callback(made.end)
        return made

    def trade(self, count: int = 20) -> None:
        """The next trades of both tickers, one a second, with a clock so that minutes end."""
        prices = self.prices[self.trades : self.trades + count]
        for ticker in (TICKER, OTHER):
            feed.trades(self.bus, ticker, 1 + self.trades, prices)
            feed.clock(self.bus, ticker, self.trades + count, self.trades + count)
        self.trades += count

    def request(self) -> str:
        self.requests += 1
        name = f"request-{self.requests}"
        Feed(self.bus, "HISTORY/USDT.BINANCE").request(name, range(self.requests * 100, self.requests * 100 + 100))
        return name

    def bars(self) -> list[OHLCV]:
        found = []
        for partition in range(self.bus.partitions(bus_topics.OHLC)):
            found += [OHLCV.FromString(each.value) for each in self.bus.read(bus_topics.OHLC, partition, 0)]
        return sorted(found, key=lambda bar: (bar.ticker, bar.sequence))

    def count(self) -> int:
        return len(feed.events(self.bus, "any"))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def take_over(stage: Stage, fault: Fault) -> float:
    """One round under load; seconds from the fault until a trade that came after it has its event."""
    holder = next(driver for driver in stage.drivers if driver.is_ready())
    (standby,) = (driver for driver in stage.drivers if driver is not holder)
    wait_for(lambda: standby.is_standby() or None, PATIENCE_SECONDS)
    for _ in range(5):
        stage.trade()
    names = [stage.request() for _ in range(3)]
    threading.Event().wait(0.3)
    before = stage.trades
    began = time.monotonic()
    with fault(holder):
        stage.trade()
        names.append(stage.request())
        wait_for(lambda: stage.count() > before or None, PATIENCE_SECONDS)
        took = time.monotonic() - began
        for _ in range(5):
            stage.trade()
        wait_for(lambda: stage.count() >= stage.trades or None, PATIENCE_SECONDS)
        for name in names:
            wait_for(lambda name=name: final_of(stage.bus, name), PATIENCE_SECONDS)  # type: ignore[misc]
    holder.start()
    assert standby.is_ready()
    return took


def check(stage: Stage) -> None:
    """Nothing lost, nothing doubled, no holes in any sequence, and tables equal to topics."""
    every = feed.events(stage.bus, "any")
    assert [int(event.context["sequence"]) for event in every] == list(range(1, stage.trades + 1))
    ids = [event.context["event_id"] for event in every]
    assert len(set(ids)) == len(ids)
    expected = evaluate(V_SHAPE, table_of(TICKER, 1, stage.prices[: stage.trades])).to_pylist()
    shapes = wait_for(lambda: feed.first_events(stage.bus, len(expected) - 1, "shape"), PATIENCE_SECONDS)
    assert [row for event in shapes for row in rows(event)] == expected[: len(shapes)]
    assert [int(event.context["sequence"]) for event in shapes] == list(range(1, len(shapes) + 1))
    ids += [event.context["event_id"] for event in shapes]
    bars = stage.bars()
    for _, own in itertools.groupby(bars, key=lambda bar: bar.ticker):
        mine = list(own)
        assert [bar.sequence for bar in mine] == list(range(1, len(mine) + 1))
        opens = [bar.open_time for bar in mine if bar.revision == 0]
        assert opens == sorted(set(opens))
        assert all(bar.complete and bar.trade_count == 60 for bar in mine[1:])
    assert bars
    catalog = open_catalog(stage.settings)

    def stored() -> list[str] | None:
        found = load_table(catalog, TRIGGER_EVENTS).scan().to_arrow()["event_id"].to_pylist()
        return sorted(found) if len(found) >= len(ids) else None

    assert wait_for(stored, PATIENCE_SECONDS) == sorted(ids)
    candles = load_table(catalog, OHLC).scan().to_arrow().to_pylist()
    keys = [(row["ticker"], row["period_seconds"], row["open_time"]) for row in candles]
    assert len(set(keys)) == len(keys)
    assert sum(row["ticker"].startswith("HISTORY") for row in candles) == 100 * stage.requests
    epochs = [
        int(snapshot.summary["candlewright.driver-epoch"] or 0)
        for snapshot in load_table(catalog, TRIGGER_EVENTS).metadata.snapshots
        if snapshot.summary is not None
    ]
    assert epochs == sorted(epochs)
    assert epochs[-1] == stage.roles.all()[DRIVER].epoch


def test_a_standby_takes_over_from_a_driver_that_was_killed_stopped_or_cut_off(stage: Stage) -> None:
    """Two drivers at once sent matches again under other event ids and bars twice."""
    for fault in FAULTS:
        take_over(stage, fault)
    check(stage)


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("fault", FAULTS)
def test_twenty_take_overs_of_each_kind(stage: Stage, fault: Fault) -> None:
    took = [take_over(stage, fault) for _ in range(ROUNDS)]
    check(stage)
    assert_fast(took, TAKE_OVER_SECONDS + SLACK_SECONDS)
