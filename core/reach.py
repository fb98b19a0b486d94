"""Whether the services that the platform needs answer: catalog, object store, Spark master. Each check is short."""

import contextlib
import socket
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from core.settings import Settings
from core.table_files import catalog_file, is_lock, warehouse_of

SECONDS = 3.0
_LOCKED = "another process has locked it"
_PORTS = {"postgresql": 5432, "mysql": 3306, "https": 443, "http": 80}


def away(settings: Settings) -> Iterator[str]:
    """A sentence for each configured service that does not answer, which a restart of a part cannot fix."""
    for what, look in (
        (_catalog_name(settings), _catalog),
        (f"the object store {store_endpoint(settings)}", _store),
        (f"the Spark master {settings.spark.master}", _master),
    ):
        if reason := look(settings):
            yield f"{what}: {reason}"


def locked(settings: Settings, error: Exception) -> str:
    """What `away` says of a locked catalog, if that is why an operation failed; else empty."""
    return f"{_catalog_name(settings)}: {_LOCKED}" if settings.iceberg.catalog == "sqlite" and is_lock(error) else ""


def _catalog_name(settings: Settings) -> str:
    is_file = settings.iceberg.catalog == "sqlite"
    return f"the catalog {catalog_file(settings) if is_file else shown(settings.iceberg.uri)}"


def _catalog(settings: Settings) -> str:
    if settings.iceberg.catalog == "sqlite":
        return _sqlite(catalog_file(settings))
    if settings.iceberg.catalog == "rest" and settings.iceberg.uri:
        return _http(f"{settings.iceberg.uri.rstrip('/')}/v1/config")
    if settings.iceberg.catalog == "jdbc" and settings.iceberg.uri:
        return _tcp(settings.iceberg.uri.removeprefix("jdbc:"))
    return ""


def _sqlite(file: Path) -> str:
    """Only the lock of a process that was stopped in a commit counts: other faults of a file need a person."""
    if not file.is_file():
        return ""
    try:
        catalog = sqlite3.connect(f"{file.as_uri()}?mode=rw", uri=True, timeout=SECONDS, isolation_level=None)
        with contextlib.closing(catalog):
            # At some moments of a commit others can read, but not write.
            catalog.execute("BEGIN IMMEDIATE")
            catalog.execute("ROLLBACK")
    except sqlite3.Error as error:
        return _LOCKED if is_lock(error) else ""
    return ""


def _store(settings: Settings) -> str:
    """Amazon's own store has no `s3.endpoint`, and is not checked."""
    endpoint = _endpoint(settings)
    return _tcp(endpoint) if endpoint else ""


def store_endpoint(settings: Settings) -> str:
    """Without secrets; empty for Amazon's own store and for files."""
    return shown(_endpoint(settings))


def _endpoint(settings: Settings) -> str:
    is_used = warehouse_of(settings).startswith(("s3://", "s3a://"))
    return settings.iceberg.properties.get("s3.endpoint", "") if is_used else ""


def _master(settings: Settings) -> str:
    """One of several masters suffices."""
    master = settings.spark.master
    if not master.startswith("spark://"):
        return ""
    reasons = [_tcp(f"spark://{address}") for address in master.removeprefix("spark://").split(",")]
    return reasons[0] if all(reasons) else ""


def _http(url: str) -> str:
    """Any answer except a server error suffices, because the caller may need to log in."""
    try:
        urllib.request.urlopen(url, timeout=SECONDS).close()
    except urllib.error.HTTPError as error:
        return f"it answers {error.code}" if error.code >= 500 else ""
    except (OSError, ValueError) as error:
        return _reason(error)
    return ""


def _tcp(url: str) -> str:
    parts = urlsplit(url)
    if parts.hostname is None:
        return ""
    try:
        port = parts.port or _PORTS.get(parts.scheme.partition("+")[0], 80)
        with contextlib.closing(socket.create_connection((parts.hostname, port), SECONDS)):
            return ""
    except (OSError, ValueError) as error:
        return _reason(error)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason) or type(error).__name__


def shown(url: str) -> str:
    """Without a password."""
    parts = urlsplit(url.removeprefix("jdbc:"))
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else url
