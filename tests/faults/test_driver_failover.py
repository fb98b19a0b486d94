"""Two Spark drivers over one Redis and one catalog, each with its own data directory: one serves, one stands by.

The standby takes over from a driver that was killed, stopped or cut off, with the state and the positions of the first
one, whose later actions have no effect.
"""

# ruff: noqa: T201

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.measuring.process_tree import cpu_seconds_of, family
from bus.connect import connect
from bus.redis.embedded import EmbeddedRedis
from bus.roles import DRIVER, Roles
from candlewright.wire.grid import SECOND
from core.settings import Settings
from iceberg import COVERAGE, OHLC, OHLC_REVISIONS, TICKS, TRIGGER_EVENTS, load_table, open_catalog
from tests.faults.link import Link
from tests.faults.live_trades import OTHER, PATIENCE_SECONDS, TICKER, TRADES, VALUES, LiveTrades
from tests.faults.process import Process
from tests.faults.take_overs import FAULTS, ROUNDS, SEED, SUITE_ROUNDS, Fault, assert_fast, killed
from tests.flink_replacement_spark import trigger_feed as feed
from tests.flink_replacement_spark.harness import Feed, final_of, wait_for

#: The contract's limit from the fault to an event of a later trade.
TAKE_OVER_SECONDS = 10.0
#: The limit on a machine with two processors, of which the test itself uses a share.
SLACK_SECONDS = 5.0
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
        self.requests = 0
        self.drivers = [self._driver("one")]
        wait_for(lambda: self.drivers[0].is_ready() or None, PATIENCE_SECONDS)
        self.drivers.append(self._driver("two"))
        self.live = LiveTrades(self.bus, SEED)
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

    def epoch(self) -> int:
        return self.roles.all()[DRIVER].epoch

    def request(self) -> str:
        self.requests += 1
        name = f"request-{self.requests}"
        Feed(self.bus, "HISTORY/USDT.BINANCE").request(name, range(self.requests * 100, self.requests * 100 + 100))
        return name


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Seconds from the fault until the standby has the role, and from then until a trade that came since has its event;
    the standby's CPU time in that, and the load of the machine.
    """

    detection: float
    after: float
    processor: float
    load: float

    def __str__(self) -> str:
        cost = f"{self.processor:.1f} s of CPU time, load {self.load:.0f}"
        return f"{self.detection:.1f} + {self.after:.1f} s ({cost})"


def holder_and_standby(stage: Stage) -> tuple[Process, Process] | None:
    """Once both are there. A driver that has ended is started again: it held the role until the last round, or lost it
    on a machine too busy to run it for the time of its lease.
    """
    for driver in stage.drivers:
        if driver.process.poll() is not None:
            driver.start()
    holder = next((driver for driver in stage.drivers if driver.is_ready()), None)
    standby = next((driver for driver in stage.drivers if driver.is_standby()), None)
    return (holder, standby) if holder and standby else None


def take_over(stage: Stage, fault: Fault) -> TakeOver:
    """One round with live data and histories."""
    holder, standby = wait_for(partial(holder_and_standby, stage), PATIENCE_SECONDS)
    epoch = stage.epoch()
    with stage.live.trading():
        names = [stage.request() for _ in range(3)]
        threading.Event().wait(1.0)
        began = time.monotonic()
        with fault(holder):
            names.append(stage.request())
            wait_for(lambda: stage.epoch() > epoch or None, PATIENCE_SECONDS)
            # What was published until now may have come from tasks of the former holder.
            taken, newest = time.monotonic(), stage.live.trades + TRADES
            processor = cpu_seconds_of([standby.process.pid])
            wait_for(lambda: stage.live.events() > newest or None, PATIENCE_SECONDS)
            took = TakeOver(
                taken - began,
                time.monotonic() - taken,
                cpu_seconds_of([standby.process.pid]) - processor,
                os.getloadavg()[0],
            )
        # A driver that was stopped in a commit keeps the catalog's lock, and history waits until it continues.
        for name in names:
            wait_for(partial(final_of, stage.bus, name), PATIENCE_SECONDS)
    wait_for(lambda: stage.live.events() >= stage.live.trades or None, PATIENCE_SECONDS)
    # It serves before each of its tasks has begun.
    wait_for(lambda: standby.is_ready() or None, PATIENCE_SECONDS)
    print(f"take-over, {fault.__name__}: {took}", flush=True)
    return took


@contextmanager
def locked(file: str) -> Iterator[None]:
    """Another process holds the catalog's lock, like one that was stopped in a commit."""
    code = (
        "import sqlite3, sys; catalog = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None); "
        "catalog.execute('BEGIN EXCLUSIVE'); print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        yield
        # `Popen` closes its input, upon which it ends.


def take_over_while_the_catalog_is_locked(stage: Stage) -> None:
    """Topics and triggers need no table; what starts meanwhile waits, and rows wait on the bus."""
    holder = next(driver for driver in stage.drivers if driver.is_ready())
    (standby,) = (driver for driver in stage.drivers if driver is not holder)
    wait_for(lambda: standby.is_standby() or None, PATIENCE_SECONDS)
    epoch = stage.epoch()
    with stage.live.trading():
        with locked(stage.settings.iceberg.uri), killed(holder):
            wait_for(lambda: stage.epoch() > epoch or None, PATIENCE_SECONDS)
            newest = stage.live.trades + TRADES
            wait_for(lambda: stage.live.events() > newest or None, PATIENCE_SECONDS)
            holder.start()
            name = stage.request()
            for driver in stage.drivers:
                waits_for = wait_for(partial(_waits_for, driver), PATIENCE_SECONDS)
                assert waits_for == f"the catalog {stage.settings.iceberg.uri}: another process has locked it"
            assert final_of(stage.bus, name) is None
        wait_for(partial(final_of, stage.bus, name), PATIENCE_SECONDS)
    wait_for(lambda: standby.is_ready() or None, PATIENCE_SECONDS)
    wait_for(lambda: stage.live.events() >= stage.live.trades or None, PATIENCE_SECONDS)
    assert standby.process.poll() is None and holder.process.poll() is None


def _waits_for(driver: Process) -> str | None:
    return driver.status().get("waits_for") or None


def check(stage: Stage) -> None:
    """Nothing lost or duplicated, no holes in any sequence, and tables equal to topics."""
    ids = stage.live.check()
    catalog = open_catalog(stage.settings)

    def stored() -> list[str] | None:
        found = load_table(catalog, TRIGGER_EVENTS).scan().to_arrow()["event_id"].to_pylist()
        return sorted(found) if len(found) >= len(ids) else None

    assert wait_for(stored, PATIENCE_SECONDS) == sorted(ids)

    def stored_trades() -> list[tuple[str, int]] | None:
        found = load_table(catalog, TICKS).scan(selected_fields=("ticker", "trade_id")).to_arrow().to_pylist()
        trades = sorted((row["ticker"], int(row["trade_id"])) for row in found)
        return trades if len(trades) >= 2 * stage.live.trades else None

    expected_trades = [(ticker, number) for ticker in (OTHER, TICKER) for number in range(1, stage.live.trades + 1)]
    assert wait_for(stored_trades, PATIENCE_SECONDS) == expected_trades

    def stored_bars() -> list[dict[str, Any]] | None:
        found = load_table(catalog, OHLC).scan().to_arrow().to_pylist()
        return found if sum(not row["ticker"].startswith("HISTORY") for row in found) >= bars else None

    bars = len(stage.live.bars())
    candles = wait_for(stored_bars, PATIENCE_SECONDS)
    keys = [(row["ticker"], row["period_seconds"], row["open_time"]) for row in candles]
    assert len(set(keys)) == len(keys)
    for row in candles:
        number = round(row["open_time"].timestamp() - feed.T0 / SECOND) // 60
        if row["ticker"] in (TICKER, OTHER) and number:
            assert tuple(row[name] for name in VALUES) == stage.live.bar(number)[1:]
    assert sum(row["ticker"].startswith("HISTORY") for row in candles) == 100 * stage.requests
    for table in (TRIGGER_EVENTS, OHLC, OHLC_REVISIONS, TICKS, COVERAGE):
        summaries = [snapshot.summary or {} for snapshot in load_table(catalog, table).metadata.snapshots]
        epochs = [int(summary["candlewright.driver-epoch"] or 0) for summary in summaries]
        assert epochs == sorted(epochs), table
        assert 0 < epochs[0] <= epochs[-1] <= stage.epoch(), table
        assert table != TRIGGER_EVENTS or epochs[-1] == stage.epoch()


def test_a_standby_takes_over_from_a_driver_that_was_killed_stopped_or_cut_off(stage: Stage) -> None:
    """Two simultaneous drivers used to send matches again under other event ids, and bars twice."""
    take_over_while_the_catalog_is_locked(stage)
    # Together with that one, three kills.
    for fault in (SUITE_ROUNDS * FAULTS)[1:]:
        take_over(stage, fault)
    check(stage)


@pytest.mark.long
@pytest.mark.timeout(7_200)
def test_twenty_take_overs_of_each_kind(stage: Stage) -> None:
    took = [take_over(stage, fault) for fault in ROUNDS * FAULTS]
    check(stage)
    assert_fast([each.detection + each.after for each in took], TAKE_OVER_SECONDS + SLACK_SECONDS)
    # A standby that could not take over ends.
    next(driver for driver in stage.drivers if not driver.is_ready()).start()
    standby = wait_for(lambda: next((each for each in stage.drivers if each.is_standby()), None), PATIENCE_SECONDS)
    (jvm,) = (pid for pid in family([standby.process.pid]) if Path(f"/proc/{pid}/comm").read_text() == "java\n")
    os.kill(jvm, signal.SIGKILL)
    assert standby.process.wait(PATIENCE_SECONDS) == 1
