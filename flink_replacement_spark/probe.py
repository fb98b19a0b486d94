"""`python -m flink_replacement_spark.probe WORKERS`: runs a task on an executor of each worker, and prints JSON lines.

A line for each worker: {"worker", "python", "version"}, where `worker` is the address of its page and `version` that of
the product as its executor imports it. `candlewright doctor` runs this as a child, with a limit on its time. WORKERS is
their number, or 0 if it is unknown: then as many executors are tried as `spark.max_cores` allows.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Iterable, Iterator
from urllib.parse import urlsplit

from pyspark import SparkConf, SparkContext, TaskContext

from core.settings import Settings, load_settings
from flink_replacement_spark.spark import shipping
from flink_replacement_spark.spark.java import java_home
from flink_replacement_spark.spark.worker_python import worker_python

_MAX_CORES = 16
_MEMORY = "512m"
_TASKS_PER_CORE = 4
#: How long tasks wait for an executor on each worker.
_START_SECONDS = 60
#: Long enough (s) that no executor takes another one's task.
_TASK_SECONDS = 0.2


def look(_: Iterable[int]) -> Iterator[tuple[str, str, str]]:
    """A task: describe the executor that it runs in."""
    time.sleep(_TASK_SECONDS)
    from candlewright.version import VERSION
    from flink_replacement_spark.live import rows  # noqa: F401  (everything that live tasks need)

    context = TaskContext.get()
    assert context is not None
    # The worker's page has the executor's log, and Spark names no other part of the worker here.
    yield urlsplit(os.environ.get("SPARK_LOG_URL_STDERR", "")).netloc, platform.python_version(), VERSION


def executor_memory(settings: Settings) -> str:
    return settings.spark.conf.get("spark.executor.memory", _MEMORY)


def run(settings: Settings, workers: int) -> list[dict[str, str]]:
    """A description of each worker. Raises Spark's own errors."""
    conf = {
        "spark.master": settings.spark.master,
        "spark.app.name": "candlewright doctor",
        "spark.executor.memory": executor_memory(settings),
        # Without a number, the most cores may be more than there are.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0" if workers else "0.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{_START_SECONDS}s",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        **shipping.shipped(settings),
        **{name: value for name, value in settings.spark.conf.items() if not name.startswith("spark.connect")},
        "spark.executor.cores": "1",
        "spark.cores.max": str(workers or settings.spark.max_cores or _MAX_CORES),
    }
    os.environ["JAVA_HOME"] = str(java_home(os.environ))
    os.environ["PYSPARK_PYTHON"] = worker_python(settings.data_dir / "run", settings.spark.master)
    with SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items()))) as context:
        context.parallelize(range(1), 1).count()
        cores = max(1, context.defaultParallelism)
        found = set(
            context.parallelize(range(cores * _TASKS_PER_CORE), cores * _TASKS_PER_CORE).mapPartitions(look).collect()
        )
    names = ("worker", "python", "version")
    return [dict(zip(names, each, strict=True)) for each in sorted(found)]


if __name__ == "__main__":
    for row in run(load_settings(), int(sys.argv[1])):
        sys.stdout.write(json.dumps(row) + "\n")
