"""Spark's configuration of the catalog, and facts that follow from its settings. Loads no library that opens one."""

from urllib.parse import urlsplit, urlunsplit

from candlewright.wire.errors import ConfigurationError
from core.settings import Settings
from core.table_files import catalog_file, warehouse_of

__all__ = ["NAMESPACE", "SPARK_CATALOG", "is_object_store", "required_uri", "spark_catalog_conf"]

#: Name of the catalog in Spark; the SQL catalogs also write it into each of their rows.
SPARK_CATALOG = "lake"
#: The namespace of all tables; Spark looks for names without one there.
NAMESPACE = "market"


def is_object_store(settings: Settings) -> bool:
    return warehouse_of(settings).startswith(("s3://", "s3a://"))


def spark_catalog_conf(settings: Settings) -> dict[str, str]:
    """Entries of Spark's configuration that define the catalog `lake`.

    Caching is off: with caching, another session of the same JVM may not see a commit for more than half a minute.
    """
    own: dict[str, str]
    match settings.iceberg.catalog:
        case "sqlite":
            own = {"type": "jdbc", "uri": f"jdbc:sqlite:{catalog_file(settings)}", "jdbc.schema-version": "V1"}
        case "jdbc":
            own = {"type": "jdbc", "jdbc.schema-version": "V1", **_jdbc_address(required_uri(settings))}
        case "rest":
            own = {"type": "rest", "uri": required_uri(settings)}
    if is_object_store(settings):
        own["io-impl"] = "org.apache.iceberg.aws.s3.S3FileIO"
        if region := settings.iceberg.properties.get("s3.region"):
            own["client.region"] = region  # the AWS SDK for Java's name for pyiceberg's s3.region
    own |= {"warehouse": warehouse_of(settings), "cache-enabled": "false", "default-namespace": NAMESPACE}
    own |= settings.iceberg.properties
    prefix = f"spark.sql.catalog.{SPARK_CATALOG}"
    return {prefix: "org.apache.iceberg.spark.SparkCatalog"} | {f"{prefix}.{key}": value for key, value in own.items()}


def required_uri(settings: Settings) -> str:
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
