"""Spark's configuration: catalog `lake`, Spark Connect in the driver's JVM, small and quiet. Needs no PySpark."""

import os
import re
import socket
import time
from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path

from candlewright.wire.errors import ConfigurationError
from candlewright.wire.spark_connect import TOKEN
from core.catalog_conf import SPARK_CATALOG, spark_catalog_conf
from core.settings import Settings
from flink_replacement_spark.jars import fetch_jars, packages_of
from flink_replacement_spark.spark import shipping
from flink_replacement_spark.spark.class_archive import class_path, java_options

_FOLDER = Path(__file__).parent
#: A heap that begins small, whatever the memory of the machine, and is returned when idle; no jstat counters, which
#: wake a thread 20 times a second; and large stacks, because Spark searches errors from Python with a regular
#: expression that recurses several calls deep per character. Compilers work on code that runs five and ten times as
#: often as by default: they took half the processor time of a start, for code that hardly runs again.
JAVA_OPTIONS = (
    "-Xms128m -XX:+UseSerialGC -XX:-UsePerfData -XX:MinHeapFreeRatio=10 -XX:MaxHeapFreeRatio=30 -XX:-ShrinkHeapInSteps "
    "-Xss32m -Duser.timezone=UTC "
    "-XX:Tier3InvocationThreshold=1000 -XX:Tier3MinInvocationThreshold=500 -XX:Tier3CompileThreshold=5000 "
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 -XX:Tier4CompileThreshold=150000 "
    "-XX:Tier4BackEdgeThreshold=400000 "
    f"-Dlog4j2.configurationFile={(_FOLDER / 'log4j2.properties').as_uri()}"
)
#: Executors log warnings, and those of a standalone worker keep a few log files. Unless log4j has a level from the
#: start, Spark sets INFO, which neither `spark.log.level` nor `spark.executor.syncLogLevel.enabled` changes. A silent
#: executor (hung, or on a lost machine) loses its tasks after ten seconds instead of two minutes.
_CLUSTER = {
    "spark.executor.heartbeatInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.executor.extraJavaOptions": "-Dorg.apache.logging.log4j.level=WARN",
    "spark.executor.logs.rolling.strategy": "size",
    "spark.executor.logs.rolling.maxSize": str(16 << 20),
    "spark.executor.logs.rolling.maxRetainedFiles": "4",
}
#: The pool of the writing queries; Spark Connect's queries share the default one.
STREAMS_POOL = "streams"
#: How long (s) a cluster may take to start the first executor, and from then on to provide more cores than these. On a
#: busy machine Java takes half a minute, and without an executor nothing can be served anyway.
_EXECUTOR_SECONDS, _CORES_SECONDS = 60, 10


def spark_conf(settings: Settings) -> dict[str, str]:
    """The whole configuration; `spark.conf` of the settings overrides it."""
    host, port = connect_address(settings)
    if not _is_loopback(host) and not settings.spark.token:
        raise ConfigurationError(
            f"spark.connect_bind {settings.spark.connect_bind} is not loopback: Spark Connect runs any code, so set "
            "spark.connect_token"
        )
    conf = {
        "spark.app.name": "candlewright",
        "spark.master": settings.spark.master,
        "spark.driver.memory": settings.spark.driver_memory,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS,
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": port,
        **({TOKEN: settings.spark.token} if settings.spark.token else {}),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": (_FOLDER / "pools.xml").as_uri(),
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.defaultCatalog": SPARK_CATALOG,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.python.daemon.module": "flink_replacement_spark.spark.worker_daemon",
        # How long an interrupted task waits for its Python process, which it does in a loop without a pause.
        "spark.python.task.killTimeout": "100ms",
        "spark.sql.streaming.numRecentProgressUpdates": "10",
        "spark.sql.streaming.stopTimeout": "5s",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.warehouse.dir": f"file://{settings.data_dir / 'run' / 'spark-warehouse'}",
        "spark.local.dir": str(settings.data_dir / "run" / "spark-local"),
        **spark_catalog_conf(settings),
    }
    jars = fetch_jars(packages_of(settings))
    if (cores := _local_cores(settings.spark.master)) and settings.spark.mode == "continuous":
        # Tasks that serve mostly wait, and must not keep others from running.
        conf["spark.master"] = f"local[{2 * cores}]"
        conf["spark.default.parallelism"] = str(cores)
    if settings.spark.master.startswith("local"):
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        # Only classes on the initial class path can be loaded from the archive.
        first = class_path(jars)
        conf["spark.driver.extraClassPath"] = os.pathsep.join(map(str, first))
        conf["spark.driver.extraJavaOptions"] = f"{JAVA_OPTIONS} {java_options(first)}".rstrip()
    else:
        conf["spark.jars"] = ",".join(map(str, jars))
        conf |= _CLUSTER | shipping.shipped(settings)
        if settings.spark.max_cores:
            conf["spark.cores.max"] = str(settings.spark.max_cores)
    if checkpoint_of(settings, "").startswith("file:"):
        # The default runs programs (chmod, stat) for each file of a checkpoint, which takes longer than a small
        # micro-batch; this one also writes a temporary file and renames it.
        manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
        conf["spark.sql.streaming.checkpointFileManagerClass"] = manager
    return conf | dict(settings.spark.conf)


def leaves_a_core(settings: Settings, cores: Callable[[], int], wait: Callable[[float], object] = time.sleep) -> bool:
    """Whether the cluster has a core for history and tables besides those of tasks that do not end. Waits for executors
    that start a few seconds late. `cores` returns the number available now, 0 without an executor.
    """
    if settings.spark.master.startswith("local") or settings.spark.mode != "continuous":
        return True
    small_for = 0
    for _ in range(_EXECUTOR_SECONDS + _CORES_SECONDS):
        if (found := cores()) > 1:
            return True
        small_for = small_for + 1 if found else 0
        if small_for > _CORES_SECONDS:
            break
        wait(1.0)
    return False


def serving_tasks(settings: Settings, parallelism: int) -> int:
    """How many tasks may serve permanently; on a cluster, half of the tasks that run at once."""
    return _local_cores(settings.spark.master) or max(1, parallelism // 2)


def _local_cores(master: str) -> int:
    """The cores of `local`, `local[4]` or `local[*]`; 0 for any other address."""
    found = re.fullmatch(r"local(?:\[(\d+|\*)\])?", master)
    if found is None:
        return 0
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


def checkpoint_of(settings: Settings, query: str) -> str:
    """The URL of the query's checkpoint, which only the driver reads and writes."""
    folder = settings.spark.checkpoints or str(settings.data_dir / "checkpoints")
    base = folder if "://" in folder else f"file://{Path(folder).absolute()}"
    return f"{base.rstrip('/')}/{query}"


def connect_address(settings: Settings) -> tuple[str, str]:
    host, _, port = settings.spark.connect_bind.rpartition(":")
    return host.strip("[]") or "127.0.0.1", port


def is_listening(settings: Settings, timeout_seconds: float = 2.0) -> bool:
    """Whether Spark Connect's address accepts connections."""
    host, port = connect_address(settings)
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        with socket.create_connection((host, int(port)), timeout_seconds):
            return True
    except OSError:
        return False


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
