"""Tables that are read from the data directory, or through Spark Connect if there is none."""

from collections.abc import Iterator
from contextlib import contextmanager

from candlewright.client import RowsUnavailable
from candlewright.wire.errors import CandlewrightError
from candlewright_platform.lake import are_near
from core.settings import Settings


def check_tables(settings: Settings) -> None:
    """Raises CandlewrightError if the data directory has no tables."""
    if settings.iceberg.catalog == "sqlite" and not (settings.data_dir / "catalog.db").exists():
        raise CandlewrightError(f"found no tables in {settings.data_dir}: name the platform's folder with --data-dir")


@contextmanager
def naming_the_folder(settings: Settings) -> Iterator[None]:
    """A command that fails here was usually run in the wrong folder."""
    try:
        yield
    except RowsUnavailable as error:
        if are_near(settings):
            raise
        raise RowsUnavailable(
            f"found no tables in {settings.data_dir}: name the platform's folder with --data-dir; {error}"
        ) from error
