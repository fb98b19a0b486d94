"""What `doctor` reports about a Spark cluster whose cores or memory are used by others."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from candlewright_platform.cli.machine import services
from candlewright_platform.cli.machine.services import Trial, try_services
from candlewright_platform.cli.machine.spark_page import free_workers, in_use
from core.settings import Settings


def worker(used: int, memory_free: int = 4_096, *, state: str = "ALIVE", page: int = 8_082) -> dict[str, Any]:
    cores = {"cores": 8, "coresused": used, "coresfree": 8 - used, "memoryfree": memory_free}
    return {"host": "10.0.0.2", "port": 40_000, "webuiaddress": f"http://10.0.0.2:{page}", "state": state, **cores}


def app(name: str, cores: int) -> dict[str, Any]:
    return {"name": name, "cores": cores, "memoryperexecutor": 1_024}


class Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Master)
        body = json.dumps(self.server.page).encode()
        self.send_response(200 if self.path == "/json/" else 404)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...


class Master(ThreadingHTTPServer):
    """Its page and its port, to which `doctor` only connects."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Page)
        self.port = int(self.server_address[1])
        self.page: dict[str, Any] = {}

    def says(self, *workers: dict[str, Any], apps: list[dict[str, Any]] | None = None, status: str = "ALIVE") -> None:
        url = f"spark://master.example:{self.port}"
        self.page = {"url": url, "status": status, "workers": workers, "activeapps": apps or []}

    def settings(self, folder: Path, **conf: str) -> Settings:
        spark = {
            "master": f"spark://127.0.0.1:{self.port}",
            "conf": {"spark.master.ui.port": str(self.port), **conf},
        }
        return Settings.model_validate({"data_dir": folder, "spark": spark})


@pytest.fixture
def master() -> Iterator[Master]:
    with Master() as serving:
        thread = Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_cores_that_the_driver_has_are_named_and_no_fault(
    tmp_path: Path, master: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "_CLUSTER_SECONDS", 0.0)
    master.says(worker(8), worker(8), apps=[app("candlewright", 12), app("research", 4), app("waiting", 0)])
    text = (
        "not tried: no worker has a free core and 512m of memory; 16 of 16 cores are in use, by candlewright (12, 1024 "
        "MiB an executor), research (4, 1024 MiB an executor). Set spark.max_cores to leave one for others"
    )
    assert list(try_services(master.settings(tmp_path))) == [Trial("cluster", None, text)]


def test_cores_that_only_others_have_are_a_fault(tmp_path: Path, master: Master) -> None:
    master.says(worker(8), apps=[app("research", 8)])
    (found,) = try_services(master.settings(tmp_path))
    assert found.is_good is False
    assert found.text.endswith("8 of 8 cores are in use, by research (8, 1024 MiB an executor)")


@pytest.mark.parametrize("workers", [(), (worker(0, state="DEAD"),)])
def test_a_master_without_workers_is_a_fault(tmp_path: Path, master: Master, workers: tuple[dict[str, Any]]) -> None:
    master.says(*workers)
    *lost, found = try_services(master.settings(tmp_path))
    assert found == Trial("cluster", False, "the Spark master has no worker")
    text = "the Spark master has lost 10.0.0.2:40000: start it again, unless another worker replaces it"
    assert lost == [Trial("workers", None, text)] * len(workers)


@pytest.mark.parametrize(("memory", "has_room"), [("512m", True), ("1g", False), ("1025", False), ("1048576k", False)])
def test_a_free_core_needs_memory_for_an_executor(
    tmp_path: Path, master: Master, memory: str, *, has_room: bool
) -> None:
    master.says(worker(7, 1_023), worker(8))
    assert (in_use(master.settings(tmp_path), memory) is None) == has_room


def test_a_page_of_another_server_is_ignored(tmp_path: Path, master: Master) -> None:
    settings = master.settings(tmp_path)
    for page in ({}, [], {"status": "ALIVE", "url": "spark://master.example:1", "workers": []}):
        master.page = page  # type: ignore[assignment]
        assert in_use(settings, "512m") is None
    master.says(worker(8), status="STANDBY")
    assert in_use(settings, "512m") is None
    assert in_use(master.settings(tmp_path, **{"spark.master.ui.port": "none"}), "512m") is None


ONE, TWO, THREE = (f"10.0.0.{number}:8082" for number in (1, 2, 3))
RAN = "tasks ran with the product's code"


@pytest.mark.parametrize(
    ("ran_on", "free", "full", "expected"),
    [
        ([ONE, TWO], [ONE, TWO], [], Trial("cluster", True, f"{RAN} on each of 2 workers")),
        ([ONE], [ONE], [], Trial("cluster", True, f"{RAN} on the only worker")),
        (
            [ONE],
            [ONE, TWO],
            [THREE],
            Trial("cluster", False, f"no executor started on 1 of 3 workers: see the executors' logs at {TWO}"),
        ),
        (
            [ONE],
            [ONE],
            [TWO],
            Trial(
                "cluster",
                None,
                f"{RAN}; not tried on 1 of 2 workers, which have no core or memory free: {TWO}",
            ),
        ),
        # The master's page does not answer, or a proxy gives workers other addresses.
        ([ONE], [], [], Trial("cluster", True, RAN)),
        ([""], [ONE], [], Trial("cluster", True, RAN)),
    ],
)
def test_only_workers_that_ran_a_task_are_reported_as_tried(
    ran_on: list[str], free: list[str], full: list[str], expected: Trial
) -> None:
    """One executor, on any worker, used to be enough for `ok`."""
    assert services.tried(set(ran_on), free, full) == expected


def test_workers_with_room_for_an_executor_and_others_are_separate(tmp_path: Path, master: Master) -> None:
    master.says(worker(7, page=1), worker(8, page=2), worker(0, 511, page=3), worker(0, state="DEAD", page=4))
    assert free_workers(master.settings(tmp_path), "512m") == (["10.0.0.2:1"], ["10.0.0.2:2", "10.0.0.2:3"])


FAILED = """\
py4j.protocol.Py4JJavaError: An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.2 executor 1): org.apache.spark.SparkException: \

Error from python worker:
  {said}
PYTHONPATH was:
  /somewhere/pyspark.zip
org.apache.spark.SparkException: EOFException occurred while reading the port number from pyspark.daemon's stdout.
\tat org.apache.spark.util.SparkErrorUtils.tryWithSafeFinally$(SparkErrorUtils.scala:83)
"""


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("./python: 16: exec: /missing/python: not found", "./python: 16: exec: /missing/python: not found"),
        (
            "Traceback (most recent call last):\n    File \"x.py\", line 5\n  ModuleNotFoundError: No module named 'x'",
            "ModuleNotFoundError: No module named 'x'",
        ),
    ],
)
def test_a_python_that_does_not_start_on_an_executor_is_named_with_the_remedy(said: str, reason: str) -> None:
    """The reason used to be the last line with "Error" in it, which was from the JVM's stack trace."""
    text = services.why_tasks_fail(FAILED.format(said=said))
    assert text.startswith(
        f"the Python of the executors on 10.0.0.2 does not start: {reason}; install requirements.lock "
    )


def test_other_failures_of_tasks_are_reported_with_their_error() -> None:
    assert services.why_tasks_fail("a\n: java.io.IOException: no room\n\tat x.Error(y)\n").endswith(": no room")
