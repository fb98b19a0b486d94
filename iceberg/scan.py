"""Scans of a table that read each manifest once.

A manifest never changes, and a small commit leaves most of them as they were. pyiceberg reads all of them anew for
each scan: after some hundred small commits that takes longer than the rows.
"""

from collections.abc import Iterable
from threading import Lock

from cachetools import LRUCache
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestEntry, ManifestFile
from pyiceberg.table import DataScan, FileScanTask, ManifestGroupPlanner, Table

#: Entries of manifests that a process remembers, of those that were read last: some 30 MB.
MAX_ENTRIES = 5_000


def scan_table(
    table: Table,
    row_filter: BooleanExpression | None = None,
    *,
    selected_fields: tuple[str, ...] = ("*",),
    limit: int | None = None,
) -> DataScan:
    """As `Table.scan`."""
    return _Scan(
        table_metadata=table.metadata,
        io=table.io,
        row_filter=AlwaysTrue() if row_filter is None else row_filter,
        selected_fields=selected_fields,
        limit=limit,
        catalog=table.catalog,
        table_identifier=table.name(),
    )


class _Scan(DataScan):
    def plan_files(self) -> Iterable[FileScanTask]:
        snapshot = self.snapshot()
        if snapshot is None or (self.catalog is not None and self.catalog.supports_server_side_planning()):
            return super().plan_files()
        planner = ManifestGroupPlanner(self.table_metadata, self.io, self.row_filter)
        return planner.plan_files(map(_KnownManifest.of, snapshot.manifests(self.io)))


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
