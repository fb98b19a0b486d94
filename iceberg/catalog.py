"""One catalog for two readers: the settings of pyiceberg and of Spark are derived here from the same source.

`sqlite` is one file, `<data_dir>/catalog.db`, that Spark's JdbcCatalog (schema version V1) and pyiceberg's SqlCatalog
both open. `jdbc` is any other SQL database, `rest` a REST catalog.
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
    """Properties for pyiceberg."""
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

    Caching is off: with it another session of the same JVM does not see a commit for half a minute and more.
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
            own["client.region"] = region  # what Java's client calls pyiceberg's s3.region
    own |= {"warehouse": warehouse_of(settings), "cache-enabled": "false", **settings.iceberg.properties}
    prefix = f"spark.sql.catalog.{SPARK_CATALOG}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": value for key, value in own.items()}


def open_catalog(settings: Settings) -> Catalog:
    """The catalog for this process; a SQL catalog's own tables are made when they are missing.

    Raises ConfigurationError when it cannot be opened, and DirectoryMoved where its tables' files are elsewhere now.
    """
    check_not_moved(settings)
    if settings.iceberg.catalog == "sqlite":
        catalog_file(settings).parent.mkdir(parents=True, exist_ok=True)
    try:
        catalog = load_catalog(SPARK_CATALOG, **catalog_properties(settings))
        if settings.iceberg.catalog == "rest":
            # The server deletes old metadata files itself: each would be deleted twice.
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
    """`postgresql+psycopg2://user:secret@host/db` as JDBC says it: user and password apart from the address."""
    parts = urlsplit(uri.removeprefix("jdbc:"))
    host = parts.hostname or ""
    if parts.port is not None:
        host += f":{parts.port}"
    address = urlunsplit((parts.scheme.partition("+")[0], host, parts.path, parts.query, ""))
    logins = {"jdbc.user": parts.username, "jdbc.password": parts.password}
    return {"uri": f"jdbc:{address}"} | {key: value for key, value in logins.items() if value}
