"""The pipeline on the cluster that compose.yaml makes, over a bus with TLS, user and password."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from benchmarks.measuring.process_tree import family
from bus.connect import connect
from bus.redis.redis_bus import RedisBus
from flink_replacement_spark.driver.vitals import LOST_SECONDS
from iceberg import read_ohlc
from tests.cluster.cluster import Cluster
from tests.cluster.many_tickers import ManyTickers
from tests.cluster.services import PATIENCE_SECONDS
from tests.flink_replacement_spark.harness import MINUTE

#: Ten seconds of silence, the interval of checks, and an allowance for a busy machine.
SILENT_SECONDS = 20.0
#: From the kill of a worker until every ticker has a bar and an event from trades that arrived since.
LOST_WORKER_SECONDS = 10.0
#: Trades of a ticker in the time that a busy machine takes for them.
BEHIND = 20

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        made = Cluster(tmp_path, running)
        made.guard_the_bus()
        made.start_master()
        for worker in ("worker-1", "worker-2"):
            made.start_worker(worker)
        yield made


@pytest.fixture
def bus(cluster: Cluster) -> Iterator[RedisBus]:
    with closing(connect(cluster.settings.bus)) as made:
        yield made


def test_history_is_written_on_a_cluster_whose_workers_lack_the_product(cluster: Cluster, bus: RedisBus) -> None:
    cluster.start_pipeline()
    cluster.request(bus, "on-cluster")
    assert read_ohlc(cluster.settings, "CLUSTER/USDT.BINANCE", 60, start_ns=0, end_ns=10**6 * MINUTE).num_rows == 1_000
    cluster.services.wait_until(lambda: cluster.status()["executors"] == 2, "two executors")
    assert " INFO " not in cluster.executor_logs()


@pytest.mark.long
def test_an_executor_that_falls_silent_holds_nothing_up(cluster: Cluster, bus: RedisBus) -> None:
    cluster.start_pipeline()
    cluster.request(bus, "before")
    cluster.services.wait_until(lambda: cluster.status()["executors"] == 2, "two executors")
    frozen = cluster.executor_of("worker-1")
    os.kill(frozen, signal.SIGSTOP)
    try:
        stopped_at = time.monotonic()
        cluster.services.wait_until(lambda: cluster.status()["executors"] < 2 or None, "one executor fewer")
        assert time.monotonic() - stopped_at < SILENT_SECONDS
        cluster.request(bus, "meanwhile")
    finally:
        # Its worker kills it too, ten seconds after the driver has given up on it.
        with suppress(ProcessLookupError):
            os.kill(frozen, signal.SIGKILL)


def kill_executor(cluster: Cluster, worker: str) -> None:
    for executor in cluster.executors()[worker]:
        os.kill(executor, signal.SIGKILL)


def kill_worker(cluster: Cluster, worker: str) -> None:
    """Its executors end when they notice."""
    cluster.services.kill_alone(worker)


def kill_both(cluster: Cluster, worker: str) -> None:
    cluster.services.kill(worker)


@pytest.mark.long
def test_a_lost_worker_takes_little_of_anyones_bars(cluster: Cluster, bus: RedisBus) -> None:
    """An executor that had run no task used to need a minute before it could take over those of a lost one."""
    cluster.start_pipeline()
    many, took = ManyTickers(bus), list[float]()
    with many.trading():
        for number, kill in enumerate((kill_both, kill_worker, kill_executor), 3):
            cluster.services.wait_until(lambda: has_two_warm_workers(cluster) and is_served(many), "two workers")
            executors = cluster.executors()
            worker = max(executors, key=lambda name: len(family(executors[name])))
            killed_at, trade = time.monotonic(), many.trades + 1
            kill(cluster, worker)
            wait_for_all(cluster, many, trade)
            took.append(time.monotonic() - killed_at)
            print(f"{kill.__name__}: {took[-1]:.1f} s, load {os.getloadavg()[0]:.0f}", flush=True)  # noqa: T201
            if kill is not kill_executor:
                cluster.start_worker(f"worker-{number}")
    wait_for_all(cluster, many, many.trades - 1)
    many.check()
    assert max(took) < LOST_WORKER_SECONDS


def wait_for_all(cluster: Cluster, many: ManyTickers, trade: int) -> None:
    """A bar and an event of every ticker, from trades since `trade`."""
    cluster.services.wait_until(lambda: not many.waits_for(trade), "bars and events of every ticker")


def has_two_warm_workers(cluster: Cluster) -> bool:
    status = cluster.status()
    warm = int(status["warm_executors"] or 0)
    return warm >= 2 and warm == int(status["executors"]) and len(cluster.executors()) == 2


def is_served(many: ManyTickers) -> bool:
    return many.trades > BEHIND and not many.waits_for(many.trades - BEHIND)


@pytest.mark.long
def test_a_driver_restarts_after_its_executors_are_gone_permanently(cluster: Cluster, bus: RedisBus) -> None:
    """A master that was killed and restarted without its state gives an old application no executors."""
    cluster.start_pipeline()
    cluster.request(bus, "before")
    assert cluster.doctor()["cluster"].startswith("ok: ")
    driver = cluster.services.release("pipeline")
    for name in ("master", "worker-1", "worker-2"):
        cluster.services.kill(name)
    lost_at = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: (driver.wait(PATIENCE_SECONDS), time.monotonic()))
        cluster.start_master()
        for worker in ("worker-3", "worker-4"):
            cluster.start_worker(worker)
        code, ended_at = ended.result()
    assert code == 1
    assert LOST_SECONDS <= ended_at - lost_at < 2 * LOST_SECONDS
    cluster.start_pipeline()
    cluster.request(bus, "after")
