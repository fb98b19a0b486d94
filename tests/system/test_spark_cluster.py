"""The commands of the Spark services in compose.yaml, and the pipeline on the cluster that they make."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
import yaml

from bus.connect import connect
from bus.embedded import EmbeddedRedis
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.ports import free_port
from core.settings import Settings
from flink_replacement_spark.engine.java import java_home
from iceberg import read_ohlc
from tests.conftest import ROOT
from tests.flink_replacement_spark.harness import MINUTE, Feed, final_of

#: A busy machine takes minutes for what a quiet one does in seconds; what has ended is told at once.
PATIENCE_SECONDS = 600.0

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


def test_history_is_written_on_a_spark_cluster(tmp_path: Path) -> None:
    master, worker_page = free_port(), free_port()
    java = {
        "JAVA_HOME": str(java_home(os.environ)),
        "SPARK_WORKER_DIR": str(tmp_path / "worker"),
        # As in the image: Spark's scripts look for the Python that has it.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    names = {"spark-master": "127.0.0.1", "7077": str(master), "8082": str(worker_page)}
    with ExitStack() as running:
        redis = running.enter_context(EmbeddedRedis(tmp_path / "redis", fsync="no"))
        services = _Services(tmp_path, running)
        start = [*_command("spark-master", names), "--webui-port", str(free_port())]
        services.start("master", start, java)
        services.wait_until(lambda: _listens(master), "a master")
        services.start("worker", [*_command("spark-worker", names), "--host", "127.0.0.1"], java)
        port_file = tmp_path / "pipeline.http"
        environment = {
            "CANDLEWRIGHT_DATA_DIR": str(tmp_path),
            "CANDLEWRIGHT_BUS__URL": redis.url,
            "CANDLEWRIGHT_SPARK__MASTER": f"spark://127.0.0.1:{master}",
            "CANDLEWRIGHT_SPARK__CONNECT_BIND": f"127.0.0.1:{free_port()}",
            "CANDLEWRIGHT_SPARK__CONF": '{"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}',
            "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
            "CANDLEWRIGHT_HTTP_PORT_FILE": str(port_file),
        }
        # It finds a worker that comes up meanwhile.
        services.start("pipeline", _command("pipeline", {}), environment)
        services.wait_until(lambda: _listens(worker_page), "a worker")
        services.wait_until(lambda: _is_ready(port_file), "a ready pipeline")
        settings = Settings.model_validate({"data_dir": tmp_path, "bus": {"url": redis.url}})
        bus = connect(settings.bus)
        running.callback(bus.close)
        Feed(bus, "CLUSTER/USDT.BINANCE").request("on-cluster", range(1_000))
        final = services.wait_until(lambda: final_of(bus, "on-cluster"), "a final")
        assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 1_000)
        assert read_ohlc(settings, "CLUSTER/USDT.BINANCE", 60, 0, 10**6 * MINUTE).num_rows == 1_000
