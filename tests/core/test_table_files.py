"""The catalog's file is read as of its last whole commit, even if a process died in the next one."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from core.settings import Settings
from core.table_files import catalog_file, moved_from


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


def _cut_commit(file: Path, known: Path) -> None:
    """A catalog that names `known`, left by a process that died while it committed other locations."""
    work = file.with_name("before.db")
    with closing(sqlite3.connect(work, isolation_level=None)) as catalog:
        catalog.execute("CREATE TABLE iceberg_tables (metadata_location TEXT)")
        catalog.executemany("INSERT INTO iceberg_tables VALUES (?)", [(str(known),)] * 1_000)
        # With such a small cache, the changed pages reach the file before the end of the transaction.
        catalog.execute("PRAGMA cache_size = 1")
        catalog.execute("BEGIN")
        catalog.execute("UPDATE iceberg_tables SET metadata_location = '/elsewhere/' || metadata_location")
        shutil.copy(work, file)
        shutil.copy(f"{work}-journal", f"{file}-journal")
        catalog.execute("ROLLBACK")


def test_a_catalog_whose_writer_died_in_a_commit_is_read(settings: Settings) -> None:
    here = settings.data_dir / "warehouse" / "market" / "ticks" / "metadata" / "1.metadata.json"
    here.parent.mkdir(parents=True)
    here.write_text("{}")
    known = settings.data_dir / "other" / "warehouse" / here.relative_to(settings.data_dir / "warehouse")
    file = catalog_file(settings)
    _cut_commit(file, known)
    assert moved_from(settings) == settings.data_dir / "other" / "warehouse"
    with closing(sqlite3.connect(file)) as catalog:
        assert catalog.execute("SELECT DISTINCT metadata_location FROM iceberg_tables").fetchall() == [(str(known),)]
    assert not Path(f"{file}-journal").exists()


def test_reading_makes_no_catalog(settings: Settings) -> None:
    assert moved_from(settings) is None
    assert not catalog_file(settings).exists()
