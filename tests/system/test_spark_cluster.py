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

import pytest
import yaml

from bus.connect import connect
from bus.embedded import EmbeddedRedis
from candlewright.supervisor.ports import free_port
from core.settings import Settings
from flink_replacement_spark.java import java_home
from iceberg import read_ohlc
from protobuf import ingestor_pb2 as ing
from tests.conftest import ROOT
from tests.flink_replacement_spark.harness import MINUTE, Feed, final_of, wait_for

pytestmark = pytest.mark.timeout(300)

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


def _until(condition: Callable[[], bool], what: str, seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.2)


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
        start = [*_command("spark-master", names), "--webui-port", str(free_port())]
        running.enter_context(_running(start, tmp_path / "master.log", java))
        _until(lambda: _listens(master), "a master")
        start = [*_command("spark-worker", names), "--host", "127.0.0.1"]
        running.enter_context(_running(start, tmp_path / "worker.log", java))
        _until(lambda: _listens(worker_page), "a worker")
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
        running.enter_context(_running(_command("pipeline", {}), tmp_path / "pipeline.log", environment))
        _until(lambda: _is_ready(port_file), "a ready pipeline")
        settings = Settings.model_validate({"data_dir": tmp_path, "bus": {"url": redis.url}})
        bus = connect(settings.bus)
        running.callback(bus.close)
        Feed(bus, "CLUSTER/USDT.BINANCE").request("on-cluster", range(1_000))
        final = wait_for(lambda: final_of(bus, "on-cluster"), 120)
        assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 1_000)
        assert read_ohlc(settings, "CLUSTER/USDT.BINANCE", 60, 0, 10**6 * MINUTE).num_rows == 1_000
