"""`candlewright relocate` as a function."""

from candlewright.wire.errors import ConfigurationError
from candlewright_platform.supervisor.lock import DataDirectoryLock
from candlewright_platform.supervisor.up import remove_left_behind
from core.settings import Settings
from core.table_files import catalog_file
from iceberg import Relocated, relocate


def run_relocate(settings: Settings) -> Relocated | None:
    """None if nothing was moved. Raises ConfigurationError, for example while a platform runs there."""
    if settings.iceberg.catalog != "sqlite":
        raise ConfigurationError(
            f"the {settings.iceberg.catalog} catalog is not part of the data directory: tables in it move with that"
            " catalog's own tools"
        )
    if not catalog_file(settings).is_file():
        raise ConfigurationError(f"found no tables in {settings.data_dir}: name the data directory with --data-dir")
    lock = DataDirectoryLock.acquire(settings.data_dir)
    try:
        remove_left_behind(lock)
        return relocate(settings)
    finally:
        lock.release()
