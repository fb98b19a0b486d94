"""The pipeline on the cluster that compose.yaml makes."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from bus.connect import connect
from bus.redis.redis_bus import RedisBus
from flink_replacement_spark.driver.vitals import LOST_SECONDS
from iceberg import read_ohlc
from tests.cluster.cluster import Cluster
from tests.cluster.services import PATIENCE_SECONDS
from tests.flink_replacement_spark.harness import MINUTE

#: Ten seconds of silence, the interval of checks, and an allowance for a busy machine.
SILENT_SECONDS = 20.0

pytestmark = pytest.mark.timeout(1_800)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as running:
        made = Cluster(tmp_path, running)
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
        # Its worker kills it too, ten seconds after the driver has given it up.
        with suppress(ProcessLookupError):
            os.kill(frozen, signal.SIGKILL)


@pytest.mark.long
def test_a_driver_restarts_after_its_executors_are_gone_permanently(cluster: Cluster, bus: RedisBus) -> None:
    """A master that was killed and is back without its memory gives an old application no executors."""
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
