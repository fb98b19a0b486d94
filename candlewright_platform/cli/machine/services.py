"""The trials that `doctor` runs on external services: an object, a table made and dropped, a task on each worker."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from candlewright.settings import PREFIX
from candlewright.version import VERSION
from candlewright.wire.errors import CandlewrightError
from candlewright_platform.cli.machine.spark_page import free_workers, in_use, lost_workers
from core.reach import away
from core.settings import Settings

#: A cluster without a free core provides no executor: the trial ends after this time.
_CLUSTER_SECONDS = 240.0
#: The error of an executor's Python that failed to start, and the address of an executor whose task failed.
_WORKER_SAID = re.compile(r"^Error from python worker:\n((?: +\S.*\n)+)", re.MULTILINE)
_LOST_TASK = re.compile(r"Lost task \S+ in stage \S+ \(TID \d+\) \((\S+) executor ")


@dataclass(frozen=True, slots=True)
class Trial:
    """`is_good` is None if the service could not be tried because of another fault."""

    what: str
    is_good: bool | None
    text: str


def try_services(settings: Settings, config: Path | None = None) -> Iterator[Trial]:
    """No trials for the embedded catalog and a local Spark. Each trial cleans up."""
    missing = list(away(settings))
    for sentence in missing:
        yield Trial("service", False, f"not usable: {sentence}")
    if missing:
        return
    yield from _try_lake(settings)
    if not settings.spark.master.startswith("local"):
        if lost := lost_workers(settings):
            where = ", ".join(lost)
            text = f"the Spark master has lost {where}: start it again, unless another worker replaces it"
            yield Trial("workers", None, text)
        yield _try_cluster(settings, config)


def _try_lake(settings: Settings) -> Iterator[Trial]:
    """The store comes first: without it the catalog fails too, with a less precise reason."""
    from core.catalog_conf import is_object_store
    from iceberg.trial import try_objects, try_table

    try:
        if is_object_store(settings):
            try_objects(settings)
            yield Trial("objects", True, "an object was written, read and deleted in the object store")
        if settings.iceberg.catalog != "sqlite" or settings.iceberg.warehouse:
            try_table(settings)
            text = f"a table was made, written, read and dropped in the {settings.iceberg.catalog} catalog"
            yield Trial("tables", True, text)
    except CandlewrightError as error:
        yield Trial("tables", False, str(error))


def _try_cluster(settings: Settings, config: Path | None) -> Trial:
    from flink_replacement_spark.probe import executor_memory

    memory = executor_memory(settings)
    if (busy := in_use(settings, memory)) is not None:
        reason, is_ours = busy
        if not is_ours:
            return Trial("cluster", False, reason)
        return Trial("cluster", None, f"not tried: {reason}. Set spark.max_cores to leave one for others")
    environment = {**os.environ, f"{PREFIX}DATA_DIR": str(settings.data_dir)}
    if config is not None:
        environment[f"{PREFIX}CONFIG"] = str(config.absolute())
    free, full = free_workers(settings, memory)
    command = [sys.executable, "-m", "flink_replacement_spark.probe", str(len(free))]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_CLUSTER_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        text = f"no executor ran a task within {_CLUSTER_SECONDS:.0f} s: are there workers with free cores and memory?"
        return Trial("cluster", False, text)
    if done.returncode:
        return Trial("cluster", False, why_tasks_fail(done.stderr))
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    others = {row["version"] for row in rows} - {VERSION}
    if others:
        return Trial("cluster", False, f"executors import version {', '.join(others)} of the product, not {VERSION}")
    return tried({row["worker"] for row in rows}, free, full)


def tried(seen: set[str], free: list[str], full: list[str]) -> Trial:
    """The result of a probe that did not fail. `seen`: the workers whose executors ran tasks."""
    ran = "tasks ran with the product's code"
    if not seen <= set(free):
        # The master's page does not answer, or gives workers other addresses than they report.
        return Trial("cluster", True, ran)
    workers = len(free) + len(full)
    if idle := sorted(set(free) - seen):
        text = f"no executor started on {len(idle)} of {workers} workers: see the executors' logs at {', '.join(idle)}"
        return Trial("cluster", False, text)
    if full:
        text = f"not tried on {len(full)} of {workers} workers, which have no core or memory free: {', '.join(full)}"
        return Trial("cluster", None, f"{ran}; {text}")
    return Trial("cluster", True, f"{ran} on {f'each of {workers} workers' if workers > 1 else 'the only worker'}")


def why_tasks_fail(stderr: str) -> str:
    """A sentence made from the output of a failed probe."""
    from flink_replacement_spark.engine.watched import gist_of

    if (said := _WORKER_SAID.search(stderr)) is None:
        return f"tasks fail: {gist_of(stderr) or 'no reason given'}"
    lost = _LOST_TASK.search(stderr)
    where = f" on {lost[1]}" if lost else ""
    reason = said[1].splitlines()[-1].strip()
    return (
        f"the Python of the executors{where} does not start: {reason}; install requirements.lock there, "
        "or name a Python that has them in spark.conf (spark.pyspark.python)"
    )
