"""The catalog of compose.yaml over an S3 server, both real, used by `doctor` and by two simultaneous writers."""

import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException

from candlewright_platform.cli.machine.services import Trial, try_services
from core.settings import Settings
from iceberg import open_catalog
from tests.cluster.lake import Lake
from tests.cluster.services import Services

WRITERS, COMMITS = 4, 25

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    folder = tmp_path_factory.mktemp("lake")
    with ExitStack() as running:
        yield running.enter_context(Lake(folder, Services(folder, running)))


def settings_for(folder: Path, lake: Lake, **different: str) -> Settings:
    """`different`: settings of the group `iceberg`, with underscores for the dots of its properties."""
    group: dict[str, Any] = lake.iceberg
    for name, value in different.items():
        if name in group:
            group[name] = value
        else:
            group["properties"][name.replace("__", ".").replace("_", "-")] = value
    return Settings.model_validate({"data_dir": folder, "iceberg": group})


def test_doctor_writes_and_deletes_an_object_and_a_table(tmp_path: Path, lake: Lake) -> None:
    settings = settings_for(tmp_path, lake)
    assert list(try_services(settings)) == [
        Trial("objects", True, "an object was written, read and deleted in the object store"),
        Trial("tables", True, "a table was made, written, read and dropped in the rest catalog"),
    ]
    assert open_catalog(settings).list_tables("market") == []


@pytest.mark.parametrize(
    ("different", "text"),
    [
        ({"s3__secret_access_key": "wrong"}, "refuses the secret of this access key: see s3.secret-access-key in"),
        ({"s3__access_key_id": "nobody"}, "does not know the access key: see s3.access-key-id in"),
        ({"warehouse": "s3://missing/"}, "has no bucket 'missing': create it, or correct iceberg.warehouse"),
    ],
)
def test_doctor_names_the_refusal_of_the_store(
    tmp_path: Path, lake: Lake, different: dict[str, str], text: str
) -> None:
    (found,) = try_services(settings_for(tmp_path, lake, **different))
    assert not found.is_good
    assert found.text.startswith(f"the object store {lake.store} {text}")


def test_doctor_names_an_address_that_is_not_a_store_or_not_a_catalog(tmp_path: Path, lake: Lake) -> None:
    (found,) = try_services(settings_for(tmp_path, lake, s3__endpoint=lake.catalog))
    assert found.text.startswith(f"the object store {lake.catalog} does not answer like an S3 store")
    *_, found = try_services(settings_for(tmp_path, lake, uri=lake.store))
    assert found.text.startswith(f"the rest catalog {lake.store} cannot be opened: ")


def test_parallel_commits_of_several_writers_all_succeed(tmp_path: Path, lake: Lake) -> None:
    """A catalog with two connections to SQLite used to lock itself, and then answered every commit with 500."""
    settings = settings_for(tmp_path, lake)
    row = pa.table({"n": pa.array([1], pa.int64())})
    catalog = open_catalog(settings)
    catalog.create_namespace_if_not_exists("parallel")
    names = [("parallel", f"t{number % 2}") for number in range(WRITERS)]
    for name in set(names):
        catalog.create_table(name, row.schema)
    faults: list[BaseException] = []

    def write(name: tuple[str, str]) -> None:
        own = open_catalog(settings)
        done = 0
        while done < COMMITS and not faults:
            try:
                own.load_table(name).append(row)
            except CommitFailedException:
                continue  # Another writer of this table committed first.
            except Exception as error:
                faults.append(error)
                return
            done += 1

    threads = [threading.Thread(target=write, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults, faults
    counts = [catalog.load_table(name).scan().to_arrow().num_rows for name in sorted(set(names))]
    assert counts == [COMMITS * WRITERS // 2] * 2


def test_doctor_reports_a_catalog_that_fails(tmp_path: Path, lake: Lake) -> None:
    """Its database is locked for longer than it waits."""
    lake.kill_catalog()
    lake.start_catalog(CATALOG_URI=f"jdbc:sqlite:{lake.catalog_file}?busy_timeout=100")
    with closing(sqlite3.connect(lake.catalog_file)) as other:
        other.execute("BEGIN IMMEDIATE")
        *_, found = try_services(settings_for(tmp_path, lake))
    assert found.what == "tables" and not found.is_good
    assert re.match(
        rf"the rest catalog {lake.catalog} failed while (creating|committing) a \w+; see its log: \w", found.text
    )
