"""The process that runs queries: a line of JSON in, a line of JSON and an Arrow stream out, one query at a time."""

import contextlib
import resource
import threading
from typing import Any, BinaryIO

import orjson
import pyarrow as pa

from candlewright.wire.errors import CandlewrightError, TriggerRejected
from console.sql.engine import Limits, run
from core.background import start_thread
from core.settings import Settings
from iceberg.catalog import open_catalog
from iceberg.scan import as_dataset
from iceberg.views import definition_of, open_table

__all__ = ["serve"]

#: Address space beyond a query's limit: for libraries, and for the files that are read.
_OWN_BYTES = 4 << 30


def serve(settings: Settings, source: BinaryIO, sink: BinaryIO) -> None:
    """Runs until `source` ends."""
    bound = _OWN_BYTES + 2 * settings.console.sql_memory_bytes
    resource.setrlimit(resource.RLIMIT_AS, (bound, bound))
    # No other output may get between the answers.
    for line in source:
        answer, body = _answered(settings, orjson.loads(line))
        sink.write(orjson.dumps({**answer, "size": len(body)}) + b"\n")
        sink.write(body)
        sink.flush()


def _answered(settings: Settings, asked: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    limits = Limits(min(asked["limit"], settings.console.sql_rows), settings.console.sql_memory_bytes)
    catalog = None

    def table_of(name: str) -> Any:
        nonlocal catalog
        catalog = catalog or open_catalog(settings)
        definition = definition_of(name)
        table = open_table(settings, definition, catalog) if definition is not None else None
        return as_dataset(table, definition) if table is not None and definition is not None else None

    try:
        with _stopped_after(settings.console.sql_seconds) as deliver:
            found = run(asked["sql"], table_of, limits, deliver=deliver, is_for_text=asked["is_for_text"])
    except TriggerRejected as error:
        told = {"message": error.message, "line": error.line, "column": error.column, "hint": error.hint}
        return {"rejected": told}, b""
    except CandlewrightError as error:
        return {"refused": str(error)}, b""
    except (MemoryError, pa.ArrowMemoryError):
        return {"refused": "the query needs more memory than console.sql_memory_bytes"}, b""
    except (OSError, pa.ArrowException) as error:
        return {"unavailable": f"the tables cannot be read: {error}"}, b""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, found.table.schema) as writer:
        writer.write_table(found.table)
    return {"truncated": found.is_truncated}, buffer.getvalue().to_pybytes()


@contextlib.contextmanager
def _stopped_after(seconds: float) -> Any:
    """Yields a function that takes the connection to interrupt after the time limit."""
    done = threading.Event()
    connections: list[Any] = []

    def watch() -> None:
        if not done.wait(seconds):
            for connection in connections:
                connection.interrupt()

    start_thread("sql-time", watch)
    try:
        yield connections.append
    finally:
        done.set()
