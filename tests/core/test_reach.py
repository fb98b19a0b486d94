"""Finds services that do not answer."""

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from core import reach, table_files
from core.reach import away, locked
from core.settings import Settings
from core.table_files import CatalogLocked, catalog_file, check_not_moved


class Catalog(BaseHTTPRequestHandler):
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code if self.path == "/v1/config" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def catalog() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Catalog)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def closed() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


def found(where: Path, **groups: Any) -> list[str]:
    return list(away(Settings.model_validate({"data_dir": where, **groups})))


def test_the_embedded_defaults_need_no_service(tmp_path: Path) -> None:
    assert found(tmp_path) == []


def test_a_catalog_that_answers_is_available_and_a_failing_one_is_not(
    tmp_path: Path, catalog: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"iceberg": {"catalog": "rest", "uri": catalog}}
    assert found(tmp_path, **settings) == []
    monkeypatch.setattr(Catalog, "code", 401)
    assert found(tmp_path, **settings) == []
    monkeypatch.setattr(Catalog, "code", 500)
    assert found(tmp_path, **settings) == [f"the catalog {catalog}: it answers 500"]


def test_each_unreachable_service_is_named_without_its_password(tmp_path: Path, closed: int) -> None:
    properties = {"s3.endpoint": f"http://127.0.0.1:{closed}"}
    names = found(
        tmp_path,
        iceberg={
            "catalog": "jdbc",
            "uri": f"postgresql+psycopg2://me:secret@127.0.0.1:{closed}/db",
            "warehouse": "s3://lake/",
            "properties": properties,
        },
        spark={"master": f"spark://127.0.0.1:{closed}"},
    )
    assert [name.split(":")[0].rsplit(" ", 1)[0] for name in names] == [
        "the catalog",
        "the object store",
        "the Spark master",
    ]
    assert "secret" not in "".join(names) and all("refused" in name for name in names)


def test_one_reachable_master_of_several_suffices(tmp_path: Path, catalog: str, closed: int) -> None:
    there = catalog.removeprefix("http://")
    assert found(tmp_path, spark={"master": f"spark://127.0.0.1:{closed},{there}"}) == []


@pytest.mark.parametrize("kind", ["IMMEDIATE", "EXCLUSIVE"])
def test_a_locked_catalog_is_away_until_its_writer_has_finished(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit first locks out other writers, and then readers."""
    monkeypatch.setattr(reach, "SECONDS", 0.1)
    file = catalog_file(Settings(data_dir=tmp_path))
    with closing(sqlite3.connect(file, isolation_level=None)) as writer:
        writer.execute("CREATE TABLE iceberg_tables (metadata_location TEXT)")
        assert found(tmp_path) == []
        writer.execute(f"BEGIN {kind}")
        assert found(tmp_path) == [f"the catalog {file}: another process has locked it"]
        writer.execute("COMMIT")
        assert found(tmp_path) == []


def test_a_file_that_is_not_a_catalog_is_not_taken_for_a_locked_one(tmp_path: Path) -> None:
    catalog_file(Settings(data_dir=tmp_path)).write_text("not a database, but long enough to be read as one" * 100)
    assert found(tmp_path) == []


def test_an_operation_that_met_a_lock_is_distinguished_from_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "LOCK_SECONDS", 0.1)
    settings = Settings(data_dir=tmp_path)
    with closing(sqlite3.connect(catalog_file(settings), isolation_level=None)) as writer:
        writer.execute("CREATE TABLE iceberg_tables (metadata_location TEXT)")
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(CatalogLocked) as raised:
            check_not_moved(settings)
    assert locked(settings, raised.value) == f"the catalog {catalog_file(settings)}: another process has locked it"
    assert locked(settings, ValueError("no such table")) == ""
