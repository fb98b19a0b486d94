"""Replaces old data files with new ones through Iceberg's own library, whose commit takes a fraction of a second.

pyiceberg reads and writes each manifest entry in Python, which takes seconds if a table has thousands of files.
"""

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from iceberg import MAINTENANCE_NAME, Piece, TableDefinition

__all__ = ["Replacement"]

#: Errors of a commit that found files of the piece missing, or another commit; nothing was written.
_LOST = ("org.apache.iceberg.exceptions.ValidationException", "org.apache.iceberg.exceptions.CommitFailedException")


class Replacement:
    """The replacement of one piece, prepared without holding the table. `table`: the state for which the piece was
    planned.

    Raises Py4JJavaError, for example if a written file is missing.
    """

    _is_warm = False

    def __init__(
        self,
        session: SparkSession,
        name: str,
        definition: TableDefinition,
        *,
        table: Table,
        piece: Piece,
        written: Sequence[DataFile],
    ) -> None:
        jvm: Any = session._jvm
        # A thread that has not run a query has no catalog.
        jvm.SparkSession.setActiveSession(session._jsparkSession)
        self._session = session
        self._jvm = jvm
        self._name = f"{name}.{'.'.join(definition.identifier)}"
        self._snapshot_id = table.metadata.current_snapshot_id
        loaded = self._load()
        config = jvm.org.apache.iceberg.MetricsConfig.forTable(loaded)
        self._old, self._new = jvm.java.util.HashSet(), jvm.java.util.HashSet()
        for task in piece.tasks:
            builder = self._builder(loaded, table, task.file)
            self._old.add(builder.withRecordCount(task.file.record_count).build())
        for file in written:
            footer = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(
                loaded.io().newInputFile(file.file_path), config
            )
            self._new.add(self._builder(loaded, table, file).withMetrics(footer).build())
        if not Replacement._is_warm:
            # The first use takes seconds to load classes, so do it here, where no writer waits. It leaves manifests as
            # orphans.
            with contextlib.suppress(Py4JJavaError):
                self._update().apply()
            Replacement._is_warm = True

    def commit(self, summary: Mapping[str, str]) -> bool:
        """Commit while holding the table. False, with nothing changed, if an old file is no longer part of the
        table.
        """
        try:
            update = self._update()
            for name, value in summary.items():
                update = update.set(name, value)
            update.commit()
        except Py4JJavaError as error:
            if error.java_exception.getClass().getName() not in _LOST:
                raise
            return False
        return True

    def _update(self) -> Any:
        update = self._load().newRewrite().validateFromSnapshot(self._snapshot_id)
        update.rewriteFiles(self._old, self._new)
        return update.set(MAINTENANCE_NAME, "compact")

    def _load(self) -> Any:
        return self._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(
            self._session._jsparkSession,
            self._name,
        )

    def _builder(self, loaded: Any, table: Table, file: DataFile) -> Any:
        builder = self._jvm.org.apache.iceberg.DataFiles.builder(loaded.spec())
        builder = builder.withPath(file.file_path).withFormat("PARQUET").withFileSizeInBytes(file.file_size_in_bytes)
        spec = table.spec()
        return builder if spec.is_unpartitioned() else builder.withPartitionPath(_path(table, file))


def _path(table: Table, file: DataFile) -> str:
    return str(table.spec().partition_to_path(file.partition, table.schema()))
