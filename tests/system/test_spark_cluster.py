"""The commands of the Spark services in compose.yaml, and the pipeline on the cluster that they make."""

import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from bus.api import Bus
from bus.connect import connect
from bus.embedded import EmbeddedRedis
from bus.redis_bus import RedisBus
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.cli.services import try_services
from candlewright_platform.supervisor.ports import free_port
from core.settings import Settings
from flink_replacement_spark.engine.java import java_home
from flink_replacement_spark.vitals import LOST_SECONDS
from iceberg import read_ohlc
from tests.conftest import ROOT
from tests.flink_replacement_spark.harness import MINUTE, Feed, final_of

#: A busy machine takes minutes for what a quiet one does in seconds; an end is reported immediately.
PATIENCE_SECONDS = 600.0
#: Ten seconds of silence, the time between two looks, and what a busy machine adds.
SILENT_SECONDS = 20.0

pytestmark = pytest.mark.timeout(1_800)

T = TypeVar("T")

_SERVICES = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]


def _command(service: str, replaced: dict[str, str]) -> list[str]:
    """The command of the service with names and ports of this machine."""
    command = [str(word) for word in _SERVICES[service]["command"]]
    for old, new in replaced.items():
        command = [word.replace(old, new) for word in command]
    program = Path(sys.executable).with_name(command[0])
    return [str(program if command[0] != "python" else sys.executable), *command[1:]]


@contextmanager
def _running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env={**os.environ, **environment}, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


class _Services:
    """The processes that must live, by name; their logs are in `folder`."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> None:
        running = _running(command, self._folder / f"{name}.log", environment)
        self._processes[name] = self._stack.enter_context(running)

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def end_of(self, name: str) -> int:
        """The exit code of a service that ends by itself."""
        return self._processes.pop(name).wait(PATIENCE_SECONDS)

    def wait_until(self, condition: Callable[[], T | None], what: str) -> T:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            for name, process in self._processes.items():
                assert process.poll() is None, (name, (self._folder / f"{name}.log").read_text()[-2_000:])
            assert time.monotonic() < deadline, f"never: {what}"
            time.sleep(0.2)
        return found


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_ready(port_file: Path) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text()}/ready", timeout=5) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError):
        return False


def _bare_python(folder: Path) -> Path:
    """A Python with everything but the product: on a worker's machine only what it needs is installed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = Path(sysconfig.get_paths()["purelib"])
    own = next((folder / "lib").glob("python3*")) / "site-packages"
    # A folder that is named here is searched, and its own .pth files, the product's among them, are not read.
    (own / "shared.pth").write_text(f"{packages}\n")
    python = folder / "bin" / "python"
    known = subprocess.run([python, "-c", "import pyarrow, pyspark"], cwd=folder, capture_output=True, check=False)
    assert known.returncode == 0, known.stderr
    lacks = subprocess.run(
        [python, "-c", "import flink_replacement_spark"], cwd=folder, capture_output=True, check=False
    )
    assert b"No module named 'flink_replacement_spark'" in lacks.stderr
    return python


class _Cluster:
    """A master, two workers and a driver, as compose.yaml starts them."""

    def __init__(self, folder: Path, running: ExitStack) -> None:
        self.folder = folder
        self.master = free_port()
        self.redis = running.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.services = _Services(folder, running)
        self._port_file = folder / "pipeline.http"
        self._python = _bare_python(folder / "python")
        self._page, self._connect = free_port(), free_port()
        self.settings = Settings.model_validate(
            {
                "data_dir": folder,
                "bus": {"url": self.redis.url},
                "spark": {"master": f"spark://127.0.0.1:{self.master}", "conf": self._conf()},
            }
        )

    def start_master(self) -> None:
        names = {"spark-master": "127.0.0.1", "7077": str(self.master)}
        command = [*_command("spark-master", names), "--webui-port", str(self._page)]
        self.services.start("master", command, self._java("master"))
        self.services.wait_until(lambda: _listens(self.master), "a master")

    def start_worker(self, name: str) -> None:
        page = free_port()
        names = {"spark-master": "127.0.0.1", "7077": str(self.master), "8082": str(page)}
        environment = self._java(name) | {"SPARK_WORKER_CORES": "6", "SPARK_WORKER_MEMORY": "1g"}
        self.services.start(name, [*_command("spark-worker", names), "--host", "127.0.0.1"], environment)
        self.services.wait_until(lambda: _listens(page), "a worker")

    def start_pipeline(self) -> None:
        self._port_file.unlink(missing_ok=True)
        environment = {
            "CANDLEWRIGHT_DATA_DIR": str(self.folder),
            "CANDLEWRIGHT_BUS__URL": self.redis.url,
            "CANDLEWRIGHT_SPARK__MASTER": self.settings.spark.master,
            "CANDLEWRIGHT_SPARK__CONNECT_BIND": f"127.0.0.1:{self._connect}",
            "CANDLEWRIGHT_SPARK__CONF": json.dumps(self._conf()),
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(self._port_file),
        }
        self.services.start("pipeline", _command("pipeline", {}), environment)
        self.services.wait_until(lambda: _is_ready(self._port_file), "a ready pipeline")

    def executor_of(self, worker: str) -> int:
        """The process that runs tasks below this worker's folder."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                is_below = (process / "cwd").readlink().is_relative_to(self.folder / worker)
                if is_below and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                    return int(process.name)
        raise AssertionError(f"no executor of {worker}")

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port_file.read_text()}/status", timeout=5) as reply:
            page: dict[str, Any] = json.load(reply)
        return page

    def request(self, bus: Bus, name: str) -> None:
        """A thousand candles, asked for and written."""
        Feed(bus, "CLUSTER/USDT.BINANCE").request(name, range(1_000))
        final = self.services.wait_until(lambda: final_of(bus, name), "a final")
        assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 1_000)

    def _conf(self) -> dict[str, str]:
        own = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        return own | {"spark.executor.memory": "512m", "spark.pyspark.python": str(self._python)}

    def _java(self, name: str) -> dict[str, str]:
        return {
            "JAVA_HOME": str(java_home(os.environ)),
            "SPARK_WORKER_DIR": str(self.folder / name),
            # As in the image: Spark's scripts look for the Python that has it.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[_Cluster]:
    with ExitStack() as running:
        made = _Cluster(tmp_path, running)
        made.start_master()
        for worker in ("worker-1", "worker-2"):
            made.start_worker(worker)
        yield made


@pytest.fixture
def bus(cluster: _Cluster) -> Iterator[RedisBus]:
    with closing(connect(cluster.settings.bus)) as made:
        yield made


def test_history_is_written_on_a_cluster_whose_workers_lack_the_product(cluster: _Cluster, bus: RedisBus) -> None:
    cluster.start_pipeline()
    cluster.request(bus, "on-cluster")
    assert read_ohlc(cluster.settings, "CLUSTER/USDT.BINANCE", 60, start_ns=0, end_ns=10**6 * MINUTE).num_rows == 1_000
    cluster.services.wait_until(lambda: cluster.status()["executors"] == 2, "two executors")


@pytest.mark.long
def test_an_executor_that_falls_silent_holds_nothing_up(cluster: _Cluster, bus: RedisBus) -> None:
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
        os.kill(frozen, signal.SIGKILL)


@pytest.mark.long
def test_a_driver_whose_executors_are_gone_for_good_begins_anew(cluster: _Cluster, bus: RedisBus) -> None:
    """A master that was killed and is back without its memory gives an old application no executors."""
    cluster.start_pipeline()
    cluster.request(bus, "before")
    assert [trial for trial in try_services(cluster.settings) if not trial.is_good] == []
    for name in ("master", "worker-1", "worker-2"):
        cluster.services.kill(name)
    cluster.start_master()
    for worker in ("worker-3", "worker-4"):
        cluster.start_worker(worker)
    lost_at = time.monotonic()
    assert cluster.services.end_of("pipeline") == 1
    assert time.monotonic() - lost_at < 2 * LOST_SECONDS
    cluster.start_pipeline()
    cluster.request(bus, "after")
