"""What `doctor` reports about a catalog and an object store, whatever they answer."""

from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from pyiceberg.table.metadata import MetadataLogEntry

from candlewright.wire.errors import ConfigurationError
from candlewright_platform.cli.machine.services import Trial, try_services
from core.settings import Settings
from iceberg import OHLC, create_tables, load_table, open_catalog
from iceberg.trial import try_objects, try_table


class Answer(BaseHTTPRequestHandler):
    """A catalog that serves its configuration, and the same answer to every other call."""

    code: ClassVar[int] = 500
    body: ClassVar[str] = ""

    def do_GET(self) -> None:
        if self.path.startswith("/v1/config"):
            self._send(200, '{"defaults": {}, "overrides": {}}')
        else:
            self._send(self.code, self.body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        self._send(self.code, self.body)

    def _send(self, code: int, body: str) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as serving:
        thread = Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def answer(monkeypatch: pytest.MonkeyPatch, code: int, body: str) -> None:
    monkeypatch.setattr(Answer, "code", code)
    monkeypatch.setattr(Answer, "body", body)


def settings_for(folder: Path, url: str, path: str = "") -> Settings:
    properties = {
        "s3.endpoint": url,
        "s3.region": "us-east-1",
        "s3.access-key-id": "me",
        "s3.secret-access-key": "secret",
    }
    lake = {"catalog": "rest", "uri": url + path, "warehouse": "s3://lake/", "properties": properties}
    return Settings.model_validate({"data_dir": folder, "iceberg": lake})


def test_old_metadata_is_deleted_once_by_the_server_of_a_catalog_where_there_is_one(
    tmp_path: Path, server: str
) -> None:
    """When both deleted it, a session logged a thousand lines "Failed to delete metadata file"."""
    own = open_catalog(Settings.model_validate({"data_dir": tmp_path}))
    create_tables(own)
    table = load_table(own, OHLC)
    old = tmp_path / "00000-old.metadata.json"
    log = [MetadataLogEntry(metadata_file=f"file://{old}", timestamp_ms=1)]
    before = table.metadata.model_copy(update={"metadata_log": log})
    for catalog, is_left in ((open_catalog(settings_for(tmp_path, server)), True), (own, False)):
        old.touch()
        catalog._delete_old_metadata(table.io, before, table.metadata)
        assert old.exists() is is_left


@pytest.mark.parametrize(
    ("code", "name", "text"),
    [
        (403, "SignatureDoesNotMatch", "refuses the secret of this access key: see s3.secret-access-key"),
        (403, "InvalidAccessKeyId", "does not know the access key: see s3.access-key-id"),
        (403, "AccessDenied", "denies this access key: see s3.access-key-id"),
        (404, "NoSuchBucket", "has no bucket 'lake': create it, or correct iceberg.warehouse"),
        (405, "", "does not answer like an S3 store (HTTP status 405): see s3.endpoint"),
    ],
)
def test_a_refusal_of_the_store_names_the_setting(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, *, code: int, name: str, text: str
) -> None:
    answer(monkeypatch, code, f"<Error><Code>{name}</Code><Message>No.</Message></Error>" if name else "")
    with pytest.raises(ConfigurationError) as refused:
        try_objects(settings_for(tmp_path, server))
    assert str(refused.value).startswith(f"the object store {server} {text}")


@pytest.mark.parametrize(
    ("code", "kind", "text"),
    [
        (
            500,
            "UncheckedSQLException",
            "failed while creating a namespace; see its log: UncheckedSQLException: locked",
        ),
        (
            401,
            "NotAuthorizedException",
            "refuses the credentials of iceberg.properties: NotAuthorizedException: locked",
        ),
        (404, "NotFound", "failed while creating a namespace: "),
    ],
)
def test_a_refusal_of_the_catalog_says_at_which_step(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch, *, code: int, kind: str, text: str
) -> None:
    answer(monkeypatch, code, f'{{"error": {{"message": "locked", "type": "{kind}", "code": {code}}}}}')
    with pytest.raises(ConfigurationError) as refused:
        try_table(settings_for(tmp_path, server))
    assert str(refused.value).startswith(f"the rest catalog {server} {text}")


def test_an_address_without_a_catalog_is_named(tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, 404, "")
    with pytest.raises(ConfigurationError, match=rf"^the rest catalog {server} cannot be opened: "):
        try_table(settings_for(tmp_path, server, "/other"))


def test_doctor_stops_at_the_store_and_reports_it_once(
    tmp_path: Path, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, 403, "<Error><Code>InvalidAccessKeyId</Code></Error>")
    (found,) = try_services(settings_for(tmp_path, server))
    assert not found.is_good and "does not know the access key" in found.text


def test_a_custom_warehouse_is_tested_with_a_table_that_is_dropped(tmp_path: Path) -> None:
    settings = Settings.model_validate({"data_dir": tmp_path, "iceberg": {"warehouse": f"file://{tmp_path / 'lake'}"}})
    text = "a table was made, written, read and dropped in the sqlite catalog"
    assert list(try_services(settings)) == [Trial("tables", True, text)]
    assert not [file for file in (tmp_path / "lake").rglob("*") if file.is_file()]
    assert open_catalog(settings).list_tables("market") == []
