"""Old snapshots of a table, and the files that only they name."""

import contextlib
import time
from collections.abc import Sequence

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from iceberg.append import catalog_errors

__all__ = ["MAINTENANCE_NAME", "delete_files_of", "drop_old_snapshots"]

#: The entry of a snapshot's summary that says that maintenance made it.
MAINTENANCE_NAME = "candlewright.maintenance"
_NAMES = "candlewright."


def drop_old_snapshots(table: Table, *, keep: int, min_age_seconds: float) -> list[Snapshot]:
    """Forget all but the newest `keep` snapshots, never one younger than `min_age_seconds`, and never the newest of a
    writer, which may look for it by its name; returns those that went.

    Their files stay until `delete_files_of`, so a reader that is under way is not disturbed. Every snapshot that a
    table remembers makes its next commit slower. Raises OSError when the catalog cannot be written.
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
    """The kinds of names that its writer gives; empty for maintenance and for what has no name."""
    summary = snapshot.summary
    entries = {} if summary is None else summary.additional_properties
    if MAINTENANCE_NAME in entries:
        return ()
    return tuple(sorted(key for key in entries if key.startswith(_NAMES)))


def delete_files_of(table: Table, dropped: Sequence[Snapshot]) -> int:
    """Delete the files that no snapshot of `table` names and one of `dropped` did; returns how many.

    `table`: a state without them. What writers commit meanwhile builds on that state, so it names none of these files.
    What cannot be deleted is an orphan for a later round.
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
    # In this order, so that a kill in between leaves nothing that names what is gone.
    for path in (*lists, *(manifest.manifest_path for manifest in unnamed), *files):
        with contextlib.suppress(OSError):
            io.delete(path)
            deleted += 1
    return deleted
