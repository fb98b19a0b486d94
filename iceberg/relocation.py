"""Repairs tables whose data directory was moved, by rewriting the paths in their files and in the catalog. Offline.

Each file is replaced atomically, manifests before the lists that hold their sizes. The catalog comes last, in one
transaction; until then it names the old directory, so after a kill the command can simply be run again. It skips files
that are already rewritten.
"""

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from candlewright.wire.errors import ConfigurationError
from core.settings import Settings
from core.table_files import catalog_file, local_path, moved_from, warehouse_of
from iceberg.avro_paths import BadAvro, is_manifest_list, with_paths

__all__ = ["Relocated", "relocate"]

T = TypeVar("T")

_UNFINISHED = ".relocating"
_CATALOG_COLUMNS = (
    ("iceberg_tables", "metadata_location"),
    ("iceberg_tables", "previous_metadata_location"),
    ("iceberg_namespace_properties", "property_value"),
)


@dataclass(frozen=True, slots=True)
class Relocated:
    """`before`: the tables' folder as the catalog named it; `files`: how many files were rewritten."""

    before: Path
    now: Path
    files: int


def relocate(settings: Settings) -> Relocated | None:
    """Rewrite every path that names the old folder; returns None if nothing was moved. No other process may have the
    tables open.

    Raises ConfigurationError if a file cannot be read or written; calling it again continues from there.
    """
    before, now = moved_from(settings), local_path(warehouse_of(settings))
    if before is None or now is None:
        return None
    paths = _Paths(before, now)
    replaced = [file for file, content in _rewritten(now, paths) if _replace(file, content)]
    for folder in {file.parent for file in replaced}:
        _settle(folder)
    _rewrite_catalog(catalog_file(settings), paths)
    return Relocated(before, now, len(replaced))


class _Paths:
    """Maps paths in `before` to paths in `now`, and keeps their form (URI or plain path)."""

    def __init__(self, before: Path, now: Path) -> None:
        self._prefixes = [
            (f"{scheme}{before}/", f"{scheme}{now}/", len(str(now)) > len(str(before)))
            for scheme in ("file://", "file:", "")
        ]

    def changed(self, path: str) -> str:
        for before, now, is_longer in self._prefixes:
            # One folder may be inside the other; paths that are already in the new one stay.
            if path.startswith(before) and not (is_longer and path.startswith(now)):
                return now + path.removeprefix(before)
        return path


def _rewritten(warehouse: Path, paths: _Paths) -> Iterator[tuple[Path, bytes]]:
    for left in warehouse.rglob(f"*{_UNFINISHED}"):
        left.unlink()
    manifests: list[Path] = []
    lists: list[Path] = []
    for file in sorted(warehouse.rglob("metadata/*.avro")):
        (lists if _read(file, is_manifest_list) else manifests).append(file)
    for file in manifests:
        yield file, _read(file, lambda content: with_paths(content, paths.changed, lambda _: None))
    for file in lists:
        yield file, _read(file, lambda content: with_paths(content, paths.changed, _size_of))
    for file in sorted(warehouse.rglob("metadata/*.metadata.json")):
        yield file, _read(file, lambda content: json.dumps(_changed(json.loads(content), paths)).encode())


def _read(file: Path, reading: Callable[[bytes], T]) -> T:
    try:
        return reading(file.read_bytes())
    except (OSError, BadAvro, ValueError, KeyError) as error:
        raise ConfigurationError(f"{file} cannot be rewritten: {error}") from error


def _size_of(manifest: str) -> int | None:
    path = local_path(manifest)
    return path.stat().st_size if path is not None and path.is_file() else None


def _changed(value: Any, paths: _Paths) -> Any:
    match value:
        case str():
            return paths.changed(value)
        case dict():
            return {key: _changed(item, paths) for key, item in value.items()}
        case list():
            return [_changed(item, paths) for item in value]
    return value


def _replace(file: Path, content: bytes) -> bool:
    """Replace the file atomically, even if power is lost; returns whether its content changed."""
    try:
        if content == file.read_bytes():
            return False
        new = file.with_name(file.name + _UNFINISHED)
        with new.open("wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        new.replace(file)
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
    return True


def _settle(folder: Path) -> None:
    """Make renames in the folder survive a power loss."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _rewrite_catalog(file: Path, paths: _Paths) -> None:
    try:
        with closing(sqlite3.connect(file, timeout=10)) as catalog, catalog:
            for table, column in _CATALOG_COLUMNS:
                for row, value in catalog.execute(f"SELECT rowid, {column} FROM {table}").fetchall():
                    if value and (changed := paths.changed(value)) != value:
                        catalog.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (changed, row))
    except sqlite3.Error as error:
        raise ConfigurationError(f"the catalog {file} cannot be written: {error}") from error
