"""One platform per data directory, and finding the processes that belong to a directory."""

import shutil
from pathlib import Path

import pytest

from candlewright.wire.errors import ConfigurationError
from candlewright_platform.supervisor.lock import DataDirectoryLock
from candlewright_platform.supervisor.relocate import run_relocate
from core.settings import IcebergSettings, Settings


def lived(folder: Path) -> None:
    lock = DataDirectoryLock.acquire(folder)
    lock.announce("run-1")
    lock.release()


def previous_run(folder: Path) -> str:
    lock = DataDirectoryLock.acquire(folder)
    lock.release()
    return lock.previous_run


def test_a_moved_directory_names_the_run_before(tmp_path: Path) -> None:
    lived(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "moved")
    assert previous_run(tmp_path / "moved") == "run-1"


def test_a_copy_does_not_name_the_processes_of_the_original(tmp_path: Path) -> None:
    lived(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert previous_run(tmp_path / "copy") == ""
    assert previous_run(tmp_path / "data") == "run-1"


def test_relocate_refuses_a_directory_in_use_one_without_tables_and_a_catalog_elsewhere(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with pytest.raises(ConfigurationError, match=f"found no tables in {tmp_path}"):
        run_relocate(settings)
    (tmp_path / "catalog.db").touch()
    lock = DataDirectoryLock.acquire(tmp_path)
    try:
        with pytest.raises(ConfigurationError, match="another `candlewright up`"):
            run_relocate(settings)
    finally:
        lock.release()
    elsewhere = IcebergSettings(catalog="rest", uri="http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="rest catalog is not part of the data directory"):
        run_relocate(settings.model_copy(update={"iceberg": elsewhere}))
