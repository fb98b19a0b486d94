"""`python -m flink_replacement_spark.probe`: runs a task on each executor of the cluster, and prints JSON lines.

A line for each executor: {"host", "executor", "python", "version"}, where `version` is that of the product as the
executor imports it. `candlewright doctor` runs this as a child, with a limit on its time.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator

from pyspark import SparkConf, SparkContext, SparkFiles, TaskContext

from core.settings import Settings, load_settings
from flink_replacement_spark import shipping
from flink_replacement_spark.engine.java import java_home
from flink_replacement_spark.engine.worker_python import worker_python

_MAX_CORES = 16
_MEMORY = "512m"
_TASKS_PER_CORE = 4
#: Long enough (s) that no executor takes another one's task.
_TASK_SECONDS = 0.2


def look(_: Iterable[int]) -> Iterator[tuple[str, str, str, str]]:
    """A task: describe the executor that it runs in."""
    time.sleep(_TASK_SECONDS)
    from candlewright.version import VERSION
    from flink_replacement_spark.live import rows  # noqa: F401  (everything that live tasks need)

    context = TaskContext.get()
    assert context is not None
    yield platform.node(), SparkFiles.getRootDirectory(), platform.python_version(), VERSION


def executor_memory(settings: Settings) -> str:
    return settings.spark.conf.get("spark.executor.memory", _MEMORY)


def run(settings: Settings) -> list[dict[str, str]]:
    """The description of each executor. Raises Spark's own errors."""
    conf = {
        "spark.master": settings.spark.master,
        "spark.app.name": "candlewright doctor",
        "spark.executor.cores": "1",
        "spark.executor.memory": executor_memory(settings),
        "spark.cores.max": str(settings.spark.max_cores or _MAX_CORES),
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        **shipping.shipped(settings),
        **{name: value for name, value in settings.spark.conf.items() if not name.startswith("spark.connect")},
    }
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ["PYSPARK_PYTHON"] = worker_python(settings.data_dir / "run", settings.spark.master)
    with SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items()))) as context:
        context.parallelize(range(1), 1).count()
        cores = max(1, context.defaultParallelism)
        found = set(
            context.parallelize(range(cores * _TASKS_PER_CORE), cores * _TASKS_PER_CORE).mapPartitions(look).collect()
        )
    names = ("host", "executor", "python", "version")
    return [dict(zip(names, each, strict=True)) for each in sorted(found)]


if __name__ == "__main__":
    for row in run(load_settings()):
        sys.stdout.write(json.dumps(row) + "\n")
