"""A driver waits for a catalog that another process has locked, and reports it."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from core import reach, table_files
from core.settings import Settings
from flink_replacement_spark.engine import waiting
from flink_replacement_spark.engine.waiting import Awaited
from iceberg import create_tables, open_catalog


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reach, "SECONDS", 0.05)
    monkeypatch.setattr(table_files, "LOCK_SECONDS", 0.05)
    monkeypatch.setattr(waiting, "PAUSE_SECONDS", 0.05)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    made = Settings(data_dir=tmp_path)
    create_tables(open_catalog(made))
    return made


@pytest.fixture
def stopping() -> threading.Event:
    return threading.Event()


@pytest.fixture
def writer(settings: Settings) -> Iterator[sqlite3.Connection]:
    """A connection that has locked the catalog."""
    with closing(sqlite3.connect(table_files.catalog_file(settings), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        yield writer


def test_work_continues_when_the_lock_is_free(
    settings: Settings, stopping: threading.Event, writer: sqlite3.Connection
) -> None:
    awaited, seen = Awaited(settings, stopping), []

    def work() -> str:
        try:
            open_catalog(settings)
        finally:
            seen.append((awaited.names, awaited.problem))
            if len(seen) == 3:
                writer.execute("ROLLBACK")
        return "done"

    assert awaited.run(work) == "done"
    name = f"the catalog {table_files.catalog_file(settings)}: another process has locked it"
    assert seen[0] == ("", "") and {names for names, _ in seen[1:]} == {name}
    assert seen[1][1] == f"waits for {name} (for 0 s)"
    assert (awaited.names, awaited.problem, awaited.seconds) == ("", "", 0.0)


def test_a_lock_that_has_just_been_released_is_not_a_failure(
    settings: Settings, stopping: threading.Event, writer: sqlite3.Connection
) -> None:
    attempts = []

    def work() -> str:
        attempts.append(1)
        try:
            open_catalog(settings)
        finally:
            if len(attempts) == 1:
                writer.execute("ROLLBACK")
        return "done"

    assert Awaited(settings, stopping).run(work) == "done"
    assert len(attempts) == 2


def test_a_driver_that_is_asked_to_stop_does_not_wait_for_the_lock(
    settings: Settings, stopping: threading.Event, writer: sqlite3.Connection
) -> None:
    def work() -> None:
        stopping.set()
        open_catalog(settings)

    assert Awaited(settings, stopping).run(work) is None


def test_errors_that_waiting_cannot_fix_are_raised(settings: Settings, stopping: threading.Event) -> None:
    def work() -> None:
        raise ValueError("a column of another type")

    with pytest.raises(ValueError, match="another type"):
        Awaited(settings, stopping).run(work)
