"""A Spark master, workers without the product, and a driver, as compose.yaml starts them."""

import json
import os
import subprocess
import sys
import sysconfig
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import redis

from bus.api import Bus
from bus.redis.embedded import EmbeddedRedis
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.ports import free_port
from core.settings import Settings
from flink_replacement_spark.spark.java import java_home
from gateways.rocketmq.door.certificate import key_and_certificate
from tests.cluster.services import Services, command, listens
from tests.flink_replacement_spark.harness import Feed, final_of


def is_ready(port_file: Path) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port_file.read_text()}/ready", timeout=5) as reply:
            return bool(reply.status == 200)
    except (OSError, ValueError):
        return False


def bare_python(folder: Path) -> Path:
    """A Python with everything but the product: a worker's machine has only what it needs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = Path(sysconfig.get_paths()["purelib"])
    own = next((folder / "lib").glob("python3*")) / "site-packages"
    # A folder in this variable is searched, but its own .pth files, such as the product's, are not read.
    (own / "shared.pth").write_text(f"{packages}\n")
    python = folder / "bin" / "python"
    known = subprocess.run([python, "-c", "import pyarrow, pyspark"], cwd=folder, capture_output=True, check=False)
    assert known.returncode == 0, known.stderr
    lacks = subprocess.run(
        [python, "-c", "import flink_replacement_spark"], cwd=folder, capture_output=True, check=False
    )
    assert b"No module named 'flink_replacement_spark'" in lacks.stderr
    return python


def _variables(groups: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    return {
        f"CANDLEWRIGHT_{group}__{key}".upper(): value if isinstance(value, str) else json.dumps(value)
        for group, entries in groups.items()
        for key, value in entries.items()
    }


class Cluster:
    """`groups` are settings of all parts. `private`: each part has its own empty data directory."""

    def __init__(
        self, folder: Path, running: ExitStack, groups: Mapping[str, Any] | None = None, *, private: bool = False
    ) -> None:
        self.folder = folder
        self.data_dir = folder / "data" if private else folder
        self.data_dir.mkdir(exist_ok=True)
        self.master = free_port()
        self.redis = running.enter_context(EmbeddedRedis(folder / "redis", fsync="no"))
        self.services = Services(folder, running, self.data_dir if private else None)
        self._python = bare_python(folder / "python")
        self._page = free_port()
        #: Further variables of all parts.
        self.environment: dict[str, str] = {}
        self._groups: dict[str, dict[str, Any]] = {
            "bus": {"url": self.redis.url},
            "spark": {
                "master": f"spark://127.0.0.1:{self.master}",
                # Leaves cores for doctor.
                "max_cores": 8,
                "connect_bind": f"127.0.0.1:{free_port()}",
                "conf": self._conf(),
            },
            **(groups or {}),
        }

    @property
    def settings(self) -> Settings:
        return Settings.model_validate({"data_dir": self.data_dir, **self._groups})

    def add(self, **groups: dict[str, Any]) -> None:
        """Adds settings for the parts that start from now on."""
        self._groups |= groups

    def guard_the_bus(self) -> None:
        """Parts that start from now on reach it as the user of docs/cluster.md, and over TLS if the server has it."""
        port, password = free_port(), "a-password-of-this-test"
        key_and_certificate(self.folder, "", "", hosts=("127.0.0.1",))
        certificate, key = self.folder / "rocketmq.crt", self.folder / "rocketmq.key"
        address = f"rediss://candlewright:{password}@127.0.0.1:{port}/0?ssl_ca_certs={certificate}"
        with redis.Redis.from_url(self.redis.url) as admin:
            commands = ["+@all", "-@admin", "-@dangerous", "+info"]
            admin.acl_setuser(
                "candlewright", enabled=True, passwords=[f"+{password}"], keys=["cw:*"], commands=commands
            )
            try:
                for name, value in (
                    ("cert-file", certificate),
                    ("key-file", key),
                    ("auth-clients", "no"),
                    ("port", port),
                ):
                    admin.config_set(f"tls-{name}", str(value))
            except redis.ResponseError:
                address = f"redis://candlewright:{password}@127.0.0.1:{self.redis.port}/0"
        self.add(bus={"url": address})

    def start_master(self) -> None:
        names = {"spark-master": "127.0.0.1", "7077": str(self.master)}
        words = [*command("spark-master", names), "--webui-port", str(self._page)]
        self.services.start("master", words, self._java("master"))
        self.services.wait_until(lambda: listens(self.master), "a master")

    def start_worker(self, name: str, *, without_java: bool = False) -> None:
        """Without Java, as if it had been removed since, no executor starts on it."""
        page = free_port()
        names = {"spark-master": "127.0.0.1", "7077": str(self.master), "8082": str(page)}
        environment = self._java(name) | {"SPARK_WORKER_CORES": "6", "SPARK_WORKER_MEMORY": "1g"}
        java = self.folder / f"{name}.java"
        java.symlink_to(environment["JAVA_HOME"])
        environment["JAVA_HOME"] = str(java)
        self.services.start(name, [*command("spark-worker", names), "--host", "127.0.0.1"], environment)
        self.services.wait_until(lambda: listens(page), "a worker")
        if without_java:
            java.unlink()

    def start_pipeline(self) -> None:
        self.start_part("pipeline", "pipeline")

    def start_part(self, service: str, name: str) -> None:
        """A service of compose.yaml; returns once it is ready."""
        port_file = self._port_file(name)
        port_file.unlink(missing_ok=True)
        own = {"CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0", "CANDLEWRIGHT_HTTP_PORT_FILE": str(port_file)}
        self.services.start(name, command(service, {}), self.variables() | own)
        self.services.wait_until(lambda: is_ready(port_file), f"a ready {name}")

    def variables(self) -> dict[str, str]:
        """The settings as environment variables."""
        return self.environment | {"CANDLEWRIGHT_DATA_DIR": str(self.data_dir)} | _variables(self._groups)

    def doctor(self, **groups: dict[str, Any]) -> dict[str, str]:
        """The verdict of each of `doctor`'s checks. `groups` replace entries of the settings."""
        different = {"CANDLEWRIGHT_DATA_DIR": str(self.folder / "doctor"), "CANDLEWRIGHT_SPARK__MAX_CORES": "2"}
        different |= _variables(groups)
        program = str(Path(sys.executable).with_name("candlewright"))
        done = subprocess.run(
            [program, "doctor", "--output", "json"],
            env={**os.environ, **self.variables(), **different}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        return {row["what"]: f"{row['verdict']}: {row['text']}" for row in rows}

    def executors(self) -> dict[str, list[int]]:
        """The processes that run tasks, by the worker that started them."""
        found: dict[str, list[int]] = defaultdict(list)
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                folder = (process / "cwd").readlink()
                is_below = folder.is_relative_to(self.folder)
                if is_below and b"CoarseGrainedExecutorBackend" in (process / "cmdline").read_bytes():
                    found[folder.relative_to(self.folder).parts[0]].append(int(process.name))
        return found

    def executor_of(self, worker: str) -> int:
        (process, *_) = self.executors()[worker]
        return process

    def executor_logs(self) -> str:
        """What executors have written so far."""
        return "".join(log.read_text() for log in sorted(self.folder.glob("worker-*/app-*/*/std*")))

    def status(self) -> dict[str, Any]:
        port = self._port_file("pipeline").read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=5) as reply:
            page: dict[str, Any] = json.load(reply)
        return page

    def request(self, bus: Bus, name: str) -> None:
        """A thousand candles, requested and written."""
        Feed(bus, "CLUSTER/USDT.BINANCE").request(name, range(1_000))
        final = self.services.wait_until(lambda: final_of(bus, name), "a final")
        assert (final.status, final.row_count) == (ing.HistoryReadyNotification.OK, 1_000)

    def _port_file(self, name: str) -> Path:
        return self.folder / f"{name}.http"

    def _conf(self) -> dict[str, str]:
        own = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        own["spark.master.ui.port"] = str(self._page)
        return own | {"spark.executor.memory": "512m", "spark.pyspark.python": str(self._python)}

    def _java(self, name: str) -> dict[str, str]:
        return {
            "JAVA_HOME": str(java_home(os.environ)),
            "SPARK_WORKER_DIR": str(self.folder / name),
            # As in the image: Spark's scripts look for the Python that has it.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
