"""Keeps the tables quick: retention of ticks, compaction, snapshot expiry, orphan files. The only owner of these tasks.

Each step takes the driver's table lock for itself, so that the history writer waits for one step at most.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyiceberg.catalog import Catalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from core import metrics
from core.errors import CandlewrightError
from core.log import get_logger
from flink_replacement_spark.watched import gist_of
from iceberg import SPARK_CATALOG, TABLES, TICKS, TableDefinition, drop_old_snapshots, load_table

log = get_logger()

#: A table with more snapshots is trimmed at the next look: each makes the next commit slower. Files of forgotten ones
#: stay, so that only who is about to ask for one by its number needs it for a while.
MANY_SNAPSHOTS = 150
KEPT_SNAPSHOTS = 20
TRIMMED_AGE_SECONDS = 60.0
#: Expiry deletes files: a scan that began this long ago may still need those of its snapshot.
MIN_SNAPSHOT_AGE_SECONDS = 600.0
_MANY_SMALL_FILES = 5
_LOOK_SECONDS = 5.0

_STEPS = metrics.Counter(
    "candlewright_spark_maintenance_total",
    "Maintenance steps.",
    ["table", "step", "result"],
    registry=metrics.REGISTRY,
)


@dataclass
class Maintenance:
    """`minutes` 0 switches all but the trimming of snapshots off; `ticks_retention_days` 0 keeps all ticks."""

    session: SparkSession
    catalog: Catalog
    table_lock: threading.Lock
    minutes: float
    min_snapshot_age_seconds: float = MIN_SNAPSHOT_AGE_SECONDS
    ticks_retention_days: int = 0
    last_run_at: float = field(default_factory=time.monotonic)
    #: Of steps whose last attempt failed, by step and table.
    problems: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def last_problem(self) -> str:
        """Of the steps that fail the one that did so last."""
        return next(reversed(self.problems.values()), "")

    def run_until(self, stopping: threading.Event) -> None:
        """The maintenance thread's loop."""
        while not stopping.wait(_LOOK_SECONDS):
            self._guarded("trim", self.trim_snapshots)
            if self.minutes and time.monotonic() - self.last_run_at > self.minutes * 60:
                self.run_all(stopping)

    def run_all(self, stopping: threading.Event) -> None:
        """Every step on every table; a step that fails is counted and told, the others go on."""
        if self.ticks_retention_days:
            self._guarded("drop_old_ticks", self.drop_old_ticks, TICKS.name)
        for definition in TABLES:
            for step in (self.compact, self.expire, self.remove_orphans):
                if stopping.is_set():
                    return
                self._guarded(step.__name__, partial(step, definition), definition.name)
        self._guarded("give_memory_back", self.give_memory_back)
        self.last_run_at = time.monotonic()

    def _guarded(self, name: str, step: Callable[[], None], table: str = "") -> None:
        try:
            with self.table_lock:
                step()
        except (PySparkException, Py4JError, OSError, CandlewrightError) as error:
            self.problems.pop((name, table), None)
            self.problems[name, table] = f"maintenance ({name} {table}): {gist_of(str(error))}"
            _STEPS.labels(table, name, "failed").inc()
            log.warning("maintenance_failed", table=table, step=name, error=gist_of(str(error)))
        else:
            self.problems.pop((name, table), None)
            _STEPS.labels(table, name, "done").inc()

    def trim_snapshots(self) -> None:
        """Forget snapshots of tables that have very many, between the full runs."""
        for definition in TABLES:
            table = load_table(self.catalog, definition)
            if len(table.metadata.snapshots) > MANY_SNAPSHOTS:
                drop_old_snapshots(table, keep=KEPT_SNAPSHOTS, min_age_seconds=TRIMMED_AGE_SECONDS)

    def drop_old_ticks(self) -> None:
        """Delete the days (UTC) of `market.ticks` whose last trade is older than the retention.

        A day is a partition, so that this drops files and rewrites none. They go with the snapshots that name them.
        """
        first_kept = datetime.now(UTC).date() - timedelta(days=self.ticks_retention_days)
        table = f"{SPARK_CATALOG}.{'.'.join(TICKS.identifier)}"
        old = f"SELECT 1 FROM {table}.partitions WHERE partition.ts_day < DATE '{first_kept}' LIMIT 1"
        if self.session.sql(old).toArrow().num_rows:
            self.session.sql(f"DELETE FROM {table} WHERE ts < TIMESTAMP '{first_kept} 00:00:00+00:00'")

    def compact(self, definition: TableDefinition) -> None:
        """Merge small files into few sorted ones."""
        if not load_table(self.catalog, definition).current_snapshot():
            return
        self._call(
            "rewrite_data_files",
            definition,
            f"strategy => 'sort', options => map('min-input-files', '{_MANY_SMALL_FILES}', "
            "'partial-progress.enabled', 'false')",
        )
        self._call("rewrite_manifests", definition)

    def expire(self, definition: TableDefinition) -> None:
        """Drop old snapshots and the files that only they name."""
        if not load_table(self.catalog, definition).current_snapshot():
            return
        oldest_ms = int((time.time() - self.min_snapshot_age_seconds) * 1_000)
        self._call(
            "expire_snapshots",
            definition,
            f"older_than => TIMESTAMP_MILLIS({oldest_ms}), retain_last => {KEPT_SNAPSHOTS}",
        )

    def remove_orphans(self, definition: TableDefinition) -> None:
        """Delete files that no snapshot names and that are over three days old: an unknown commit is long decided."""
        in_object_store = load_table(self.catalog, definition).location().startswith("s3")
        # Hadoop, by which files are found otherwise, has no such file system: the table's own reader lists them.
        self._call("remove_orphan_files", definition, "prefix_listing => true" if in_object_store else "")

    def give_memory_back(self) -> None:
        """Sorting a table takes all the heap there may be, and small requests make too little garbage to return it."""
        self.session.sparkContext._jvm.System.gc()  # type: ignore[union-attr]

    def _call(self, procedure: str, definition: TableDefinition, arguments: str = "") -> None:
        table = f"table => '{'.'.join(definition.identifier)}'"
        self.session.sql(f"CALL {SPARK_CATALOG}.system.{procedure}({', '.join(filter(None, (table, arguments)))})")
