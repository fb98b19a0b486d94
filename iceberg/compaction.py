"""Merges small data files into fewer, sorted ones, one piece at a time. Nothing here commits or needs a lock.

A piece holds files of one partition and becomes one file. Except for the last piece of a partition, that file is large
enough not to be merged again.
"""

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyiceberg.conversions import from_bytes
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import PrimitiveType

from iceberg.scan import scan_table
from iceberg.tables import TableDefinition

__all__ = ["PIECE_ROWS", "Piece", "discard", "plan_pieces", "rewrite"]

#: Limits of a piece, which is held in memory as a whole.
PIECE_ROWS = 500_000
PIECE_BYTES = 32 << 20
#: Partitions with fewer small files are not compacted.
MIN_FILES = 5


@dataclass(frozen=True, slots=True)
class Piece:
    tasks: tuple[FileScanTask, ...]

    @property
    def rows(self) -> int:
        return sum(task.file.record_count for task in self.tasks)


def plan_pieces(table: Table, max_rows: int = PIECE_ROWS, max_bytes: int = PIECE_BYTES) -> list[Piece]:
    """The pieces to merge in the table's current snapshot."""
    by_partition: dict[Any, list[FileScanTask]] = defaultdict(list)
    for task in scan_table(table).plan_files():
        file = task.file
        is_small = file.record_count < max_rows // 2 and file.file_size_in_bytes < max_bytes // 2
        if is_small and not task.delete_files and file.spec_id == table.metadata.default_spec_id:
            by_partition[file.partition].append(task)
    found: list[Piece] = []
    for tasks in by_partition.values():
        if len(tasks) >= MIN_FILES:
            found += _packed(sorted(tasks, key=_Order(table)), max_rows, max_bytes)
    return found


def rewrite(table: Table, definition: TableDefinition, piece: Piece) -> list[DataFile]:
    """Write the piece's rows, sorted, to new files that no snapshot names yet. Raises FileNotFoundError if a file of
    the piece no longer exists.
    """
    metadata = table.metadata
    rows = ArrowScan(metadata, table.io, table.schema(), AlwaysTrue()).to_table(piece.tasks)
    names = [table.schema().find_column_name(part.source_id) for part in definition.sort_order.fields]
    in_order = rows.sort_by([(str(name), "ascending") for name in names]).combine_chunks()
    # pyiceberg's limit counts bytes in memory, so it would split a piece into small files again.
    one_file = {**metadata.properties, "write.target-file-size-bytes": str(1 << 40)}
    return list(_dataframe_to_data_files(metadata.model_copy(update={"properties": one_file}), in_order, table.io))


def discard(table: Table, written: Sequence[DataFile]) -> None:
    """Delete files that were not committed. A file that cannot be deleted is left as an orphan for a later round."""
    for file in written:
        with contextlib.suppress(OSError):
            table.io.delete(file.file_path)


def _packed(tasks: Sequence[FileScanTask], max_rows: int, max_bytes: int) -> list[Piece]:
    found: list[list[FileScanTask]] = [[]]
    rows = size = 0
    for task in tasks:
        rows += task.file.record_count
        size += task.file.file_size_in_bytes
        if found[-1] and (rows > max_rows or size > max_bytes):
            found.append([])
            rows, size = task.file.record_count, task.file.file_size_in_bytes
        found[-1].append(task)
    return [Piece(tuple(own)) for own in found if len(own) > 1]


class _Order:
    """A sort key for files: the smallest values of the table's sort columns."""

    def __init__(self, table: Table) -> None:
        fields = [table.schema().find_field(part.source_id) for part in table.sort_order().fields]
        self._columns = [(field.field_id, field.field_type) for field in fields]

    def __call__(self, task: FileScanTask) -> tuple[Any, ...]:
        bounds = task.file.lower_bounds or {}
        return tuple(
            (True, from_bytes(kind, bounds[column]))
            if column in bounds and isinstance(kind, PrimitiveType)
            else (False, 0)
            for column, kind in self._columns
        )
