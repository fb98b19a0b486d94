"""`doctor` on a healthy cluster, and on clusters with one fault each: one line, with what to do."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.lake import Lake

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_800)]

TRIED = ("bus", "objects", "tables", "cluster")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Cluster, Lake]]:
    with ExitStack() as stack:
        cluster = Cluster(tmp_path, stack)
        cluster.guard_the_bus()
        lake = stack.enter_context(Lake(tmp_path, cluster.services))
        cluster.add(iceberg=lake.iceberg)
        cluster.start_master()
        for worker in ("worker-1", "worker-2"):
            cluster.start_worker(worker)
        yield cluster, lake


def test_doctor_finds_what_is_broken_on_a_cluster(running: tuple[Cluster, Lake], tmp_path: Path) -> None:
    cluster, lake = running
    well = cluster.doctor()
    assert {what: well[what].partition(":")[0] for what in TRIED} == dict.fromkeys(TRIED, "ok")
    assert well["cluster"] == "ok: tasks ran with the product's code on each of 2 workers"
    assert "workers" not in well

    properties = lake.iceberg["properties"] | {"s3.secret-access-key": "wrong"}
    found = cluster.doctor(iceberg={"properties": properties})
    assert found["tables"].startswith(f"missing: the object store {lake.store} refuses the secret of this access key")

    url = cluster.settings.bus.url.replace("a-password-of-this-test", "another")
    found = cluster.doctor(bus={"url": url})
    assert found["bus"].startswith("missing: bus.url: Redis refuses its user or password: ")

    conf = cluster.settings.spark.conf
    found = cluster.doctor(spark={"conf": conf | {"spark.pyspark.python": "/missing/python"}})
    does_not_start = "missing: the Python of the executors on 127.0.0.1 does not start: "
    assert found["cluster"].startswith(does_not_start) and "/missing/python: not found; install" in found["cluster"]
    bare = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(bare)], check=True)
    found = cluster.doctor(spark={"conf": conf | {"spark.pyspark.python": str(bare / "bin" / "python")}})
    assert found["cluster"].startswith(f"{does_not_start}ModuleNotFoundError: No module named 'pyspark'; install")

    cluster.start_worker("worker-3", without_java=True)
    found = cluster.doctor()
    assert found["cluster"].startswith("missing: no executor started on 1 of 3 workers: see the executors' logs at ")
    cluster.services.kill("worker-3")

    cluster.services.kill("worker-2")
    found = cluster.services.wait_until(
        lambda: seen if "workers" in (seen := cluster.doctor()) else None, "a lost worker"
    )
    assert found["workers"].startswith("note: the Spark master has lost 127.0.0.1:")
    assert found["cluster"] == "ok: tasks ran with the product's code on the only worker"

    cluster.services.kill("worker-1")
    assert cluster.doctor()["cluster"] == "missing: the Spark master has no worker"

    lake.kill_catalog()
    assert cluster.doctor()["service"] == f"missing: not usable: the catalog {lake.catalog}: Connection refused"

    lake.start_catalog()
    cluster.services.kill("master")
    master = cluster.settings.spark.master
    assert cluster.doctor()["service"] == f"missing: not usable: the Spark master {master}: Connection refused"
