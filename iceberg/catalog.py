"""One catalog for two readers: derives pyiceberg's properties and Spark's configuration from the same settings.

`sqlite` is one file, `<data_dir>/catalog.db`, which both Spark's JdbcCatalog (schema version V1) and pyiceberg's
SqlCatalog open. `jdbc` is any other SQL database, `rest` a REST catalog.
"""

from urllib.parse import urlsplit, urlunsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import SQLAlchemyError

from candlewright.wire.errors import ConfigurationError
from core.reach import shown
from core.settings import Settings
from core.table_files import catalog_file, check_not_moved, warehouse_of

#: Name of the catalog in Spark; the SQL catalogs also write it into each of their rows.
SPARK_CATALOG = "lake"
NAMESPACE = "market"


def is_object_store(settings: Settings) -> bool:
    return warehouse_of(settings).startswith(("s3://", "s3a://"))


def is_shared(settings: Settings) -> bool:
    """Whether other data directories may use the same catalog."""
    return settings.iceberg.catalog != "sqlite" or bool(settings.iceberg.uri)


def catalog_properties(settings: Settings) -> dict[str, str]:
    """Properties of pyiceberg's catalog."""
    shared = {"warehouse": warehouse_of(settings), **settings.iceberg.properties}
    match settings.iceberg.catalog:
        case "sqlite":
            return {"type": "sql", "uri": f"sqlite:///{catalog_file(settings)}", **shared}
        case "jdbc":
            return {"type": "sql", "uri": _required_uri(settings).removeprefix("jdbc:"), **shared}
        case "rest":
            return {"type": "rest", "uri": _required_uri(settings), **shared}


def spark_catalog_conf(settings: Settings) -> dict[str, str]:
    """Entries of Spark's configuration that define the catalog `lake`.

    Caching is off: with caching, another session of the same JVM may not see a commit for more than half a minute.
    """
    own: dict[str, str]
    match settings.iceberg.catalog:
        case "sqlite":
            own = {"type": "jdbc", "uri": f"jdbc:sqlite:{catalog_file(settings)}", "jdbc.schema-version": "V1"}
        case "jdbc":
            own = {"type": "jdbc", "jdbc.schema-version": "V1", **_jdbc_address(_required_uri(settings))}
        case "rest":
            own = {"type": "rest", "uri": _required_uri(settings)}
    if is_object_store(settings):
        own["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
        if region := settings.iceberg.properties.get("s3.region"):
            own["client.region"] = region  # the AWS SDK for Java's name for pyiceberg's s3.region
    own |= {"warehouse": warehouse_of(settings), "cache-enabled": "false", **settings.iceberg.properties}
    prefix = f"spark.sql.catalog.{SPARK_CATALOG}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": value for key, value in own.items()}


def open_catalog(settings: Settings) -> Catalog:
    """The catalog for this process; a SQL catalog's own tables are created if they are missing.

    Raises ConfigurationError if it cannot be opened, and DirectoryMoved if the data directory was moved since its
    tables were created.
    """
    check_not_moved(settings)
    if settings.iceberg.catalog == "sqlite":
        catalog_file(settings).parent.mkdir(parents=True, exist_ok=True)
    try:
        catalog = load_catalog(SPARK_CATALOG, **catalog_properties(settings))
        if settings.iceberg.catalog == "rest":
            # The server deletes old metadata files itself; with this on, pyiceberg would try to delete them again.
            catalog._delete_old_metadata = _left_to_the_server  # type: ignore[method-assign]
        return catalog
    except (SQLAlchemyError, RESTError, OSError, ValueError) as error:
        where = f"the {settings.iceberg.catalog} catalog {shown(settings.iceberg.uri)}".rstrip()
        raise ConfigurationError(f"{where} cannot be opened: {error}") from error


def _left_to_the_server(io: FileIO, base: TableMetadata, metadata: TableMetadata) -> None: ...


def _required_uri(settings: Settings) -> str:
    if not settings.iceberg.uri:
        raise ConfigurationError(f"iceberg.uri is needed for iceberg.catalog = {settings.iceberg.catalog!r}")
    return settings.iceberg.uri


def _jdbc_address(uri: str) -> dict[str, str]:
    """The JDBC form of `postgresql+psycopg2://user:secret@host/db`, with user and password apart from the address."""
    parts = urlsplit(uri.removeprefix("jdbc:"))
    host = parts.hostname or ""
    if parts.port is not None:
        host += f":{parts.port}"
    address = urlunsplit((parts.scheme.partition("+")[0], host, parts.path, parts.query, ""))
    logins = {"jdbc.user": parts.username, "jdbc.password": parts.password}
    return {"uri": f"jdbc:{address}"} | {key: value for key, value in logins.items() if value}
