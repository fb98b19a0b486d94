"""The checks of the catalog and the object store that `doctor` makes; each failure is one sentence that names the
remedy.
"""

import contextlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ForbiddenError, OAuthError, RESTError, ServerError, UnauthorizedError
from pyiceberg.io import load_file_io

from candlewright.wire.errors import CandlewrightError, ConfigurationError
from core.catalog_conf import NAMESPACE
from core.reach import shown, store_endpoint
from core.settings import Settings
from core.table_files import warehouse_of
from iceberg.catalog import catalog_properties, open_catalog

__all__ = ["try_objects", "try_table"]

_CONTENT = b"candlewright doctor"
#: The form in which pyarrow reports an error of an S3 store.
_AWS_ERROR = re.compile(r"AWS Error (\w+)(?: \(HTTP status (\d+)\))?")
_REASONS = {
    "INVALID_ACCESS_KEY_ID": "does not know the access key: see s3.access-key-id in iceberg.properties",
    "SIGNATURE_DOES_NOT_MATCH": "refuses the secret of this access key: see s3.secret-access-key in iceberg.properties",
    "ACCESS_DENIED": "denies this access key: see s3.access-key-id in iceberg.properties, and its policy",
    "NO_SUCH_BUCKET": "has no bucket {bucket!r}: create it, or correct iceberg.warehouse",
    "NETWORK_CONNECTION": "does not answer: see s3.endpoint in iceberg.properties",
}
_NO_STORE = "does not answer like an S3 store{status}: see s3.endpoint in iceberg.properties"


def try_objects(settings: Settings) -> None:
    """Write, read and delete an object in the warehouse. Raises ConfigurationError if a step fails."""
    location = f"{warehouse_of(settings).rstrip('/')}/doctor-{secrets.token_hex(4)}"
    try:
        files = load_file_io(catalog_properties(settings), location)
        # The answer to a HEAD request has no body; a store gives a reason only when it refuses a write.
        with files.new_output(location).create(overwrite=True) as stream:
            stream.write(_CONTENT)
        try:
            with files.new_input(location).open() as stored:
                found = stored.read()
        finally:
            files.delete(location)
        is_left = files.new_input(location).exists()
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"the object store {store_endpoint(settings)} {_reason(settings, error)}") from error
    if found != _CONTENT or is_left:
        fault = "still has an object that was deleted" if is_left else "returned other bytes than were written"
        raise ConfigurationError(f"the object store {store_endpoint(settings)} {fault}")


def try_table(settings: Settings) -> None:
    """Create a table of one row, read it, and drop it. Raises ConfigurationError if a step fails."""
    name = f"{NAMESPACE}.doctor_{secrets.token_hex(4)}"
    row = pa.table({"n": pa.array([1], pa.int64())})
    with _step(settings, "connecting"):
        catalog = open_catalog(settings)
    with _step(settings, "creating a namespace"):
        catalog.create_namespace_if_not_exists(NAMESPACE)
    with _dropped_at_last(settings, catalog, name):
        with _step(settings, "creating a table"):
            table = catalog.create_table(name, row.schema)
        with _step(settings, "committing a row"):
            table.append(row)
        with _step(settings, "reading the row"):
            found = catalog.load_table(name).scan().to_arrow().num_rows
    if found != 1:
        raise ConfigurationError(f"one row was written, but {found} rows were read")


@contextmanager
def _dropped_at_last(settings: Settings, catalog: Catalog, name: str) -> Iterator[None]:
    """Drop the table at the end; if an earlier step failed too, that failure is the one reported."""
    try:
        yield
    except ConfigurationError:
        with contextlib.suppress(Exception):
            catalog.purge_table(name)
        raise
    with _step(settings, "dropping the table"):
        catalog.purge_table(name)


@contextmanager
def _step(settings: Settings, action: str) -> Iterator[None]:
    """Turn any error of a step into a finding, since catalogs and stores raise whatever their libraries define."""
    subject = f"the {settings.iceberg.catalog} catalog {shown(settings.iceberg.uri)}".rstrip()
    try:
        yield
    except CandlewrightError:
        raise
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        text = f"{subject} refuses the credentials of iceberg.properties: {_first_line(error)}"
        raise ConfigurationError(text) from error
    except ServerError as error:
        text = f"{subject} failed while {action}; see its log: {_first_line(error)}"
        raise ConfigurationError(text) from error
    except RESTError as error:
        text = f"{subject} failed while {action}: {type(error).__name__}: {_first_line(error)}"
        raise ConfigurationError(text) from error
    except Exception as error:
        if _AWS_ERROR.search(str(error)):
            store = f"the object store {store_endpoint(settings)}"
            raise ConfigurationError(f"{subject} failed while {action}: {store} {_reason(settings, error)}") from error
        raise ConfigurationError(
            f"{subject} failed while {action}: {type(error).__name__}: {_first_line(error)}"
        ) from error


def _reason(settings: Settings, error: Exception) -> str:
    found = _AWS_ERROR.search(str(error))
    if found is None:
        return f"fails: {type(error).__name__}: {_first_line(error)}"
    if reason := _REASONS.get(found[1]):
        return reason.format(bucket=urlsplit(warehouse_of(settings)).netloc)
    if found[1] == "UNKNOWN":
        return _NO_STORE.format(status=f" (HTTP status {found[2]})" if found[2] else "")
    return f"refuses: {_first_line(error)}"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
