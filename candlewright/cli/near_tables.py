"""Tables that are read from the data directory, or where there is none through Spark Connect."""

from collections.abc import Iterator
from contextlib import contextmanager

from candlewright.client import RowsUnavailable
from core.settings import Settings


def are_near(settings: Settings) -> bool:
    """Whether the tables can be read without the platform."""
    return settings.iceberg.catalog != "sqlite" or (settings.data_dir / "catalog.db").exists()


@contextmanager
def naming_the_folder(settings: Settings) -> Iterator[None]:
    """What fails far from the platform's folder is mostly run in another one."""
    try:
        yield
    except RowsUnavailable as error:
        if are_near(settings):
            raise
        raise RowsUnavailable(
            f"no tables are in {settings.data_dir}: --data-dir names another folder; {error}"
        ) from error
