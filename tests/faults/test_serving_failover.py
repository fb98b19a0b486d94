"""Take-overs between two processes that serve like drivers, without Spark: what they publish is exact, however the
previous one ended. Two of them are ready within a second, so that many rounds are cheap.
"""
# ruff: noqa: T201

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from flink_replacement_spark.driver.topics import prepare_topics
from tests.faults.harness import until
from tests.faults.link import Link
from tests.faults.live_trades import TRADES, LiveTrades
from tests.faults.process import Process
from tests.faults.take_overs import FAULTS, ROUNDS, SEED, SUITE_ROUNDS, Fault

PATIENCE_SECONDS = 60.0


class Stage:
    def __init__(self, folder: Path, stack: ExitStack) -> None:
        redis = stack.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.bus = RedisBus(redis.url)
        stack.callback(self.bus.close)
        prepare_topics(self.bus)
        self.holder = self._part(folder, redis.url, stack)
        self.live = LiveTrades(self.bus, SEED)
        self.standby = self._part(folder, redis.url, stack)

    def _part(self, folder: Path, url: str, stack: ExitStack) -> Process:
        made = Process("tests.faults.serving", folder, stack.enter_context(Link(url)))
        stack.callback(made.end)
        return made


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as stack:
        yield Stage(tmp_path, stack)


def take_over(stage: Stage, fault: Fault) -> None:
    assert stage.standby.said() == b"standby\n"
    with fault(stage.holder):
        # More than the former holder could still have taken.
        until(partial(_is_served, stage, stage.live.trades + 2 * TRADES), PATIENCE_SECONDS, "events of the next term")
    stage.holder.start()
    stage.holder, stage.standby = stage.standby, stage.holder


def _is_served(stage: Stage, trades: int) -> bool:
    return stage.live.events() > trades


def run(stage: Stage, rounds: int) -> None:
    with stage.live.trading():
        for fault in rounds * FAULTS:
            take_over(stage, fault)
            print(f"take-over, {fault.__name__}: {stage.live.trades} trades", flush=True)
    until(lambda: stage.live.events() >= stage.live.trades, PATIENCE_SECONDS, "an event for each trade")
    stage.live.check()


@pytest.mark.timeout(240)
def test_three_take_overs_of_each_kind(stage: Stage) -> None:
    run(stage, SUITE_ROUNDS)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_twenty_take_overs_of_each_kind(stage: Stage) -> None:
    run(stage, ROUNDS)
