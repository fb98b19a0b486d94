"""Drops old snapshots of a table, and deletes the files that only they name."""

import contextlib
import time
from collections.abc import Sequence

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg.append import catalog_errors

__all__ = ["MAINTENANCE_NAME", "delete_files_of", "drop_old_snapshots"]

#: The entry in a snapshot's summary that marks it as made by maintenance.
MAINTENANCE_NAME = "candlewright.maintenance"
_NAMES = "candlewright."


def drop_old_snapshots(table: Table, *, keep: int, min_age_seconds: float) -> list[Snapshot]:
    """Drop all but the newest `keep` snapshots, but never one younger than `min_age_seconds`, and never a writer's
    newest, which the writer may look for by its name. Returns the dropped ones.

    Their files stay until `delete_files_of`, so running reads are not disturbed. Each snapshot that a table keeps slows
    down its commits. Raises OSError if the catalog cannot be written.
    """
    youngest_ms = (time.time() - min_age_seconds) * 1_000
    in_order = sorted(table.metadata.snapshots, key=lambda snapshot: snapshot.timestamp_ms)
    kept = {_writer(snapshot): snapshot.snapshot_id for snapshot in in_order}
    kept.pop((), None)
    staying = {*kept.values(), table.metadata.current_snapshot_id}
    old = [
        snapshot
        for snapshot in in_order[: -keep or None]
        if snapshot.timestamp_ms < youngest_ms and snapshot.snapshot_id not in staying
    ]
    if old:
        with catalog_errors(".".join(table.name())):
            table.maintenance.expire_snapshots().by_ids([snapshot.snapshot_id for snapshot in old]).commit()
    return old


def _writer(snapshot: Snapshot) -> tuple[str, ...]:
    """The summary keys under which its writer finds it; empty for maintenance and for unnamed snapshots."""
    summary = snapshot.summary
    entries = {} if summary is None else summary.additional_properties
    if MAINTENANCE_NAME in entries:
        return ()
    return tuple(sorted(key for key in entries if key.startswith(_NAMES)))


def delete_files_of(table: Table, dropped: Sequence[Snapshot]) -> int:
    """Delete the files that a snapshot in `dropped` named and no snapshot of `table` names; returns how many.

    `table` is a state without the dropped snapshots. Concurrent commits build on that state, so they name none of these
    files. A file that cannot be deleted is left as an orphan for a later round.
    """
    io = table.io
    kept = {manifest.manifest_path: manifest for one in table.metadata.snapshots for manifest in one.manifests(io)}
    gone: dict[str, ManifestFile] = {}
    for snapshot in dropped:
        with contextlib.suppress(FileNotFoundError):
            gone |= {manifest.manifest_path: manifest for manifest in snapshot.manifests(io)}
    unnamed = [manifest for path, manifest in gone.items() if path not in kept]
    files: set[str] = set()
    for manifest in unnamed:
        with contextlib.suppress(FileNotFoundError):
            files |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)}
    if files:
        for manifest in kept.values():
            files -= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(io, discard_deleted=True)}
    lists = {snapshot.manifest_list for snapshot in dropped} - {one.manifest_list for one in table.metadata.snapshots}
    deleted = 0
    # In this order, a kill in between leaves no file that names a deleted one.
    for path in (*lists, *(manifest.manifest_path for manifest in unnamed), *files):
        with contextlib.suppress(OSError):
            io.delete(path)
            deleted += 1
    return deleted
