"""The catalog as pyiceberg opens it; `core.catalog_conf` derives Spark's configuration from the same settings.

`sqlite` is one file, `<data_dir>/catalog.db`, which both Spark's JdbcCatalog (schema version V1) and pyiceberg's
SqlCatalog open. `jdbc` is any other SQL database, `rest` a REST catalog.
"""

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import RESTError
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from sqlalchemy.exc import SQLAlchemyError

from candlewright.wire.errors import ConfigurationError
from core.catalog_conf import SPARK_CATALOG, required_uri
from core.reach import shown
from core.settings import Settings
from core.table_files import catalog_file, check_not_moved, warehouse_of


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
            return {"type": "sql", "uri": required_uri(settings).removeprefix("jdbc:"), **shared}
        case "rest":
            return {"type": "rest", "uri": required_uri(settings), **shared}


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
