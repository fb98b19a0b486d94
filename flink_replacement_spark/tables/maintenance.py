"""Keeps the tables fast: retention of ticks, compaction, snapshot expiry and orphan files. No other part does these
tasks.

Each step works without a lock, and holds a table only for its commit, when no writer holds or waits for it. The pieces
of a compaction are bounded by rows; a piece whose files a writer has changed meanwhile is dropped.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import SparkSession

from core import metrics
from core.catalog_conf import SPARK_CATALOG
from core.log import get_logger
from flink_replacement_spark.engine.watched import gist_of
from flink_replacement_spark.tables.locks import TableLocks
from flink_replacement_spark.tables.replacement import Replacement
from iceberg import (
    MAINTENANCE_NAME,
    TABLES,
    TICKS,
    Piece,
    TableDefinition,
    delete_files_of,
    discard,
    drop_old_snapshots,
    load_table,
    plan_pieces,
    rewrite,
)
from iceberg.append import catalog_errors
from iceberg.compaction import PIECE_ROWS
from iceberg.filters import below
from iceberg.scan import scan_table

log = get_logger()

#: A table with more snapshots is trimmed at the next check, because each one slows down commits. Files of dropped
#: snapshots stay for a while, so only readers that name a snapshot by its id are affected.
MANY_SNAPSHOTS = 80
KEPT_SNAPSHOTS = 20
TRIMMED_AGE_SECONDS = 60.0
#: Expiry deletes files, and a scan that began this long ago (s) may still need those of its snapshot.
MIN_SNAPSHOT_AGE_SECONDS = 600.0
#: How long (s) a commit of maintenance waits for a moment without writers before it is left to the next round.
PATIENCE_SECONDS = 10.0
#: The most dropped snapshots of a table whose files are still to be deleted; files of further ones become orphans.
_FORGOTTEN = 10_000
#: How often (s) the snapshots of all tables are counted, which reads their metadata. Writers add one a second at most.
_LOOK_SECONDS = 20.0

_STEPS = metrics.Counter(
    "candlewright_spark_maintenance_total",
    "Maintenance steps.",
    ["table", "step", "result"],
    registry=metrics.REGISTRY,
)
_PIECES = metrics.Counter(
    "candlewright_spark_compaction_pieces_total",
    "Groups of small files: merged, changed by a writer meanwhile, left as writers kept the table busy, or failed.",
    ["table", "result"],
    registry=metrics.REGISTRY,
)


@dataclass(kw_only=True)
class Maintenance:
    """`minutes` = 0 switches everything off except the trimming of snapshots; `ticks_retention_days` = 0 keeps all
    ticks.
    """

    session: SparkSession
    catalog: Catalog
    locks: TableLocks
    minutes: float
    min_snapshot_age_seconds: float = MIN_SNAPSHOT_AGE_SECONDS
    ticks_retention_days: int = 0
    piece_rows: int = PIECE_ROWS
    spark_catalog: str = SPARK_CATALOG
    stopping: threading.Event = field(default_factory=threading.Event)
    last_run_at: float = field(default_factory=time.monotonic)
    #: Dropped snapshots by table, each with the time (monotonic) of its drop.
    _forgotten: dict[str, list[tuple[float, Snapshot]]] = field(default_factory=lambda: defaultdict(list))
    #: The errors of steps whose last attempt failed, by step and table.
    problems: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def last_problem(self) -> str:
        """The most recent error among the failing steps. May be called from any thread."""
        return next(reversed(list(self.problems.values())), "")

    def run_until(self, stopping: threading.Event) -> None:
        """The maintenance thread's loop."""
        self.stopping = stopping
        while not stopping.wait(_LOOK_SECONDS):
            self.trim_all()
            if self.minutes and time.monotonic() - self.last_run_at > self.minutes * 60:
                self.run_all(stopping)

    def run_all(self, stopping: threading.Event) -> None:
        """Run every step on every table; a failed step is counted and reported, and the others continue."""
        self.stopping = stopping
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
            step()
        except Exception as error:  # The outermost loop of this thread: other steps and later attempts may work.
            self.problems.pop((name, table), None)
            self.problems[name, table] = f"maintenance ({name} {table}): {gist_of(str(error))}"
            _STEPS.labels(table, name, "failed").inc()
            log.warning(
                "maintenance_failed", table=table, step=name, error=gist_of(str(error)), kind=type(error).__name__
            )
        else:
            self.problems.pop((name, table), None)
            _STEPS.labels(table, name, "done").inc()

    def trim_all(self) -> None:
        """Between full runs, drop snapshots of tables that have very many."""
        for definition in TABLES:
            self._guarded("trim", partial(self._trim, definition), definition.name)

    def _trim(self, definition: TableDefinition) -> None:
        if len(load_table(self.catalog, definition).metadata.snapshots) > MANY_SNAPSHOTS:
            self._forget(definition, KEPT_SNAPSHOTS, TRIMMED_AGE_SECONDS)

    def drop_old_ticks(self) -> None:
        """Delete the days (UTC) of `market.ticks` whose last trade is older than the retention.

        A day is a partition, so this only drops files, which are deleted with the snapshots that name them.
        """
        first_kept = datetime.now(UTC).date() - timedelta(days=self.ticks_retention_days)
        old = below("ts", f"{first_kept}T00:00:00+00:00")
        table = load_table(self.catalog, TICKS)
        if not any(True for _ in scan_table(table, old).plan_files()):
            return
        with self.locks.maintaining(TICKS, PATIENCE_SECONDS) as is_held, catalog_errors(TICKS.name):
            if is_held:
                summary = self.locks.sign({MAINTENANCE_NAME: "retention"})
                load_table(self.catalog, TICKS).delete(old, snapshot_properties=summary)

    def compact(self, definition: TableDefinition) -> None:
        """Merge small files into fewer sorted ones. Pieces that writers changed meanwhile, and pieces that fail, are
        left to the next round; the last failure is raised once the others are merged.
        """
        table = load_table(self.catalog, definition)
        failure: Exception | None = None
        for piece in plan_pieces(table, self.piece_rows) if table.current_snapshot() else ():
            if self.stopping.is_set():
                return
            try:
                result = self._compact_piece(definition, table, piece)
            except Exception as error:  # A file that cannot be read must not keep the others from being merged.
                result, failure = "failed", error
            _PIECES.labels(definition.name, result).inc()
        if failure is not None:
            raise failure

    def _compact_piece(self, definition: TableDefinition, table: Table, piece: Piece) -> str:
        try:
            written = rewrite(table, definition, piece)
        except FileNotFoundError:
            return "changed"
        # A commit whose outcome is unknown may name the files.
        is_ours = True
        try:
            replacement = Replacement(
                self.session, self.spark_catalog, definition, table=table, piece=piece, written=written
            )
            with self.locks.maintaining(definition, PATIENCE_SECONDS) as is_held:
                if not is_held:
                    return "gave_way"
                summary = self.locks.sign({})
                is_ours = False
                is_ours = not replacement.commit(summary)
        finally:
            if is_ours:
                discard(table, written)
        return "changed" if is_ours else "merged"

    def expire(self, definition: TableDefinition) -> None:
        """Drop old snapshots, and delete files that only snapshots dropped a while ago name."""
        self._forget(definition, KEPT_SNAPSHOTS, self.min_snapshot_age_seconds)
        now, known = time.monotonic(), self._forgotten[definition.name]
        due = [snapshot for since, snapshot in known if now - since >= self.min_snapshot_age_seconds]
        if due:
            delete_files_of(load_table(self.catalog, definition), due)
            self._forgotten[definition.name] = known[len(due) :]

    def _forget(self, definition: TableDefinition, keep: int, min_age_seconds: float) -> None:
        if len(load_table(self.catalog, definition).metadata.snapshots) <= keep:
            return
        with self.locks.maintaining(definition, PATIENCE_SECONDS) as is_held:
            if is_held:
                table = load_table(self.catalog, definition)
                dropped = drop_old_snapshots(table, keep=keep, min_age_seconds=min_age_seconds)
                known = self._forgotten[definition.name]
                known += [(time.monotonic(), snapshot) for snapshot in dropped]
                del known[:-_FORGOTTEN]

    def remove_orphans(self, definition: TableDefinition) -> None:
        """Delete files that no snapshot names and that are over three days old, when any commit with an unknown outcome
        has been decided.
        """
        in_object_store = load_table(self.catalog, definition).location().startswith("s3")
        # Hadoop, which lists files by default, does not support this file system, so the table's own FileIO lists them.
        self._call("remove_orphan_files", definition, "prefix_listing => true" if in_object_store else "")

    def give_memory_back(self) -> None:
        """Have the JVM return memory: sorting a table uses the whole heap, and small requests cause too few collections
        to return it.
        """
        self.session.sparkContext._jvm.System.gc()  # type: ignore[union-attr]

    def _call(self, procedure: str, definition: TableDefinition, arguments: str = "") -> None:
        table = f"table => '{'.'.join(definition.identifier)}'"
        self.session.sql(f"CALL {self.spark_catalog}.system.{procedure}({', '.join(filter(None, (table, arguments)))})")
