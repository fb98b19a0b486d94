"""Access to the tables for calls, and the conversion of their rows to answers."""

import hashlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from candlewright.client import RowsUnavailable
from candlewright.wire.errors import CandlewrightError
from console.rows import MEDIA, Form, encoded
from core.background import start_thread
from core.settings import Settings

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from iceberg.tables import TableDefinition

__all__ = ["Tables", "row_answer"]

T = TypeVar("T")


class Tables:
    """pyiceberg is loaded by the first call that reads rows."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._catalog: Catalog | None = None
        self._is_warm = False

    def warm(self) -> None:
        """Load in a thread what the first call would load, for a page that is about to request rows."""
        if not self._is_warm:
            self._is_warm = True
            # An error here also occurs in a call, which reports it.
            start_thread("warm-tables", self._load, on_failure=lambda _: None)

    async def read(self, work: Callable[["Tables"], T]) -> T:
        """Run `work` in a thread, where it may import what reads tables. Raises RowsUnavailable if the tables cannot be
        read.
        """
        return await run_in_threadpool(self._guarded, work)

    def open(self, name: str) -> "Table | None":
        """For use in `work`. None if the table does not exist yet."""
        from iceberg.views import open_table

        return open_table(self._settings, self.definition(name), self.catalog)

    @property
    def catalog(self) -> "Catalog":
        """For use in `work`."""
        from iceberg.catalog import open_catalog

        if self._catalog is None:
            self._catalog = open_catalog(self._settings)
        return self._catalog

    @staticmethod
    def definition(name: str) -> "TableDefinition":
        from iceberg.views import definition_of

        found = definition_of(name)
        assert found is not None, name
        return found

    def _load(self) -> None:
        self._guarded(lambda tables: tables.open("ohlc"))

    def _guarded(self, work: Callable[["Tables"], T]) -> T:
        # As a whole, before any of its modules: threads that import different modules of it first block each other, and
        # Python resolves that by giving one of them a half-loaded module.
        import iceberg  # noqa: F401

        try:
            return work(self)
        except CandlewrightError:
            raise
        except (OSError, pa.ArrowException) as error:
            # For example, a file was compacted away while it was read, or an object store does not answer.
            raise RowsUnavailable(f"the tables cannot be read: {error}") from error


async def row_answer(
    request: Request,
    parts: Iterator[pa.Table],
    form: Form,
    *,
    version: str,
    more: Callable[[], Mapping[str, Any]] = dict,
) -> Response:
    """Streamed if it has more than one part. `version`: the same for the same rows."""
    etag = f'"{hashlib.sha256(f"{version} {form} {request.url.query}".encode()).hexdigest()[:24]}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    if etag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    pieces = encoded(parts, form, more)
    # An error before the first part is a problem; a later one cuts the connection, and never truncates the rows
    # silently.
    begun = await run_in_threadpool(lambda: [piece for _, piece in zip(range(3), pieces, strict=False)])
    if len(begun) < 3:
        return Response(b"".join(begun), headers=headers, media_type=MEDIA[form])
    return StreamingResponse(chain(begun, pieces), headers=headers, media_type=MEDIA[form])
