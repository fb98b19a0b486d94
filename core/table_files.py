"""Where the tables of a data directory are, and whether it was moved. Works on paths only: no catalog is opened."""

import sqlite3
from contextlib import closing
from pathlib import Path

from candlewright.wire.errors import ConfigurationError, DirectoryMoved
from core.settings import Settings

__all__ = ["CatalogLocked", "catalog_file", "check_not_moved", "is_lock", "local_path", "moved_from", "warehouse_of"]

#: How long (s) a reader waits for another process to finish its commit.
LOCK_SECONDS = 10.0


class CatalogLocked(ConfigurationError):
    """Another process holds a `sqlite` catalog's lock: it is in a commit, or was stopped in one."""


def is_lock(error: Exception) -> bool:
    """Whether an operation failed because a SQLite file is locked, as Python's and Java's libraries say it."""
    return any(said in str(error) for said in ("database is locked", "SQLITE_BUSY"))


def warehouse_of(settings: Settings) -> str:
    """Where tables live, as `file://...` or another URL."""
    given = settings.iceberg.warehouse
    if not given:
        return f"file://{settings.data_dir / 'warehouse'}"
    return given if "://" in given else f"file://{Path(given).absolute()}"


def catalog_file(settings: Settings) -> Path:
    """The file of a `sqlite` catalog."""
    uri = settings.iceberg.uri
    for prefix in ("jdbc:sqlite:", "sqlite:///"):
        uri = uri.removeprefix(prefix)
    return Path(uri).absolute() if uri else settings.data_dir / "catalog.db"


def local_path(location: str) -> Path | None:
    """`file:///a`, `file:/a` or `/a` as a path; None if it is not a local file."""
    path = location.removeprefix("file://") if location.startswith("file://") else location.removeprefix("file:")
    return Path(path) if path.startswith("/") else None


def moved_from(settings: Settings) -> Path | None:
    """The warehouse that the catalog names, if the files are in the settings' warehouse instead.

    Raises ConfigurationError if the catalog cannot be read, and CatalogLocked if that may pass.
    """
    warehouse = local_path(warehouse_of(settings))
    if settings.iceberg.catalog != "sqlite" or warehouse is None:
        return None
    for location in _metadata_locations(catalog_file(settings)):
        known = local_path(location)
        if known is None or (known.is_relative_to(warehouse) and known.is_file()):
            continue
        for depth, folder in enumerate(known.parents):
            if depth and _is_copy(known, warehouse / known.relative_to(folder)):
                return folder
    return None


def check_not_moved(settings: Settings) -> None:
    """Raises DirectoryMoved, ConfigurationError if the catalog cannot be read, and CatalogLocked if that may pass."""
    before = moved_from(settings)
    if before is not None:
        raise DirectoryMoved(str(settings.data_dir), str(before))


def _is_copy(known: Path, here: Path) -> bool:
    """Whether `here` is a file different from `known`: a directory may have two names."""
    return here.is_file() and not (known.is_file() and known.samefile(here))


def _metadata_locations(file: Path) -> list[str]:
    if not file.is_file():
        return []
    try:
        # Reading may write here: if a process died in a commit, its journal has to be rolled back first.
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=LOCK_SECONDS)) as catalog:
            tables = catalog.execute("SELECT name FROM sqlite_master WHERE name = 'iceberg_tables'").fetchall()
            rows = catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchall() if tables else []
    except sqlite3.Error as error:
        kind = CatalogLocked if is_lock(error) else ConfigurationError
        raise kind(f"the catalog {file} cannot be read: {error}") from error
    return [location for (location,) in rows if location]
