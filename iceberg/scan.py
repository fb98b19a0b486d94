"""Scans of a table that read each manifest once, and its small files together.

A manifest never changes, and a small commit keeps most of them. pyiceberg reads them all for each scan, which takes
longer than reading the rows after some hundred small commits. It also opens each data file in Python, which costs more
than reading the rows of a small file.
"""

from collections.abc import Iterable, Sequence
from threading import Lock

import pyarrow as pa
import pyarrow.dataset as ds
from cachetools import LRUCache
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import PyArrowFileIO, expression_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, Table

from iceberg.tables import TableDefinition

#: Manifest entries that a process keeps, most recently used first: about 30 MB.
MAX_ENTRIES = 5_000


def scan_table(
    table: Table,
    row_filter: BooleanExpression | None = None,
    *,
    selected_fields: tuple[str, ...] = ("*",),
    limit: int | None = None,
) -> "_Scan":
    """Like `Table.scan`, but each manifest is read once per process."""
    return _Scan(
        table_metadata=table.metadata,
        io=table.io,
        row_filter=AlwaysTrue() if row_filter is None else row_filter,
        selected_fields=selected_fields,
        limit=limit,
        catalog=table.catalog,
        table_identifier=table.name(),
    )


def read_rows(
    table: Table, definition: TableDefinition, wanted: BooleanExpression, *, columns: Sequence[str] = ()
) -> pa.Table:
    """The matching rows, in no order, with these columns (all if empty). A column that the table does not have yet is
    NULL.
    """
    found = as_dataset(table, definition, wanted)
    names = list(columns or definition.arrow_schema.names)
    if isinstance(found, pa.Table):
        return found.select(names)
    filtered = expression_to_pyarrow(bind(definition.schema, wanted, case_sensitive=True))
    return found.to_table(columns=names, filter=filtered)


def as_dataset(
    table: Table, definition: TableDefinition, wanted: BooleanExpression | None = None
) -> ds.FileSystemDataset | pa.Table:
    """The files that may have matching rows, as of one state of the table, for a reader that pushes its columns and
    filters down into them.

    If the table has delete files, which the platform never writes, returns the rows themselves.
    """
    schema = definition.arrow_schema
    scan = scan_table(table, wanted)
    found = scan.files()
    if any(file.content != DataFileContent.DATA for file in found):
        return scan.to_arrow().select(schema.names).cast(schema)
    places = [PyArrowFileIO.parse_location(file.file_path) for file in found]
    scheme, netloc, _ = places[0] if places else PyArrowFileIO.parse_location(table.location())
    files = PyArrowFileIO(table.io.properties).fs_by_scheme(scheme, netloc)
    parquet = ds.ParquetFileFormat()
    return ds.FileSystemDataset([parquet.make_fragment(path, files) for _, _, path in places], schema, parquet, files)


class _Scan(DataScan):
    def plan_files(self) -> Iterable[FileScanTask]:
        if (planned := self._planned()) is None:
            return super().plan_files()
        planner, manifests = planned
        return planner.plan_files(manifests)

    def files(self) -> list[DataFile]:
        """The files of `plan_files`, and delete files. Skips the residual filter of each file, whose calculation takes
        most of the planning time.
        """
        if (planned := self._planned()) is None:
            tasks = list(super().plan_files())
            return [*(task.file for task in tasks), *(file for task in tasks for file in task.delete_files)]
        planner, manifests = planned
        return [entry.data_file for entries in planner.plan_manifest_entries(manifests) for entry in entries]

    def _planned(self) -> tuple[ManifestGroupPlanner, list[ManifestFile]] | None:
        """None if the table has no snapshot, or if the catalog plans scans itself."""
        snapshot = self.snapshot()
        if snapshot is None or (self.catalog is not None and self.catalog.supports_server_side_planning()):
            return None
        planner = ManifestGroupPlanner(self.table_metadata, self.io, self.row_filter)
        return planner, [_KnownManifest.of(each) for each in snapshot.manifests(self.io)]


class _KnownManifest(ManifestFile):
    @classmethod
    def of(cls, manifest: ManifestFile) -> "_KnownManifest":
        return cls(*(manifest[place] for place in range(len(manifest))))

    def fetch_manifest_entry(self, io: FileIO, discard_deleted: bool = True) -> list[ManifestEntry]:
        if not discard_deleted:
            return super().fetch_manifest_entry(io, discard_deleted)
        with _lock:
            entries = _entries.get(self.manifest_path)
        if entries is None:
            entries = super().fetch_manifest_entry(io)
            if len(entries) <= MAX_ENTRIES:
                with _lock:
                    _entries[self.manifest_path] = entries
        return entries


_lock = Lock()
_entries: LRUCache[str, list[ManifestEntry]] = LRUCache(MAX_ENTRIES, getsizeof=len)
