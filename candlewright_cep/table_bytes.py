"""A table as bytes: one Arrow stream, as parts of a state are kept and rows are handed on."""

from functools import lru_cache

import pyarrow as pa

__all__ = ["bytes_of", "bytes_of_batch", "table_of"]

_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def bytes_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def bytes_of_batch(batch: pa.RecordBatch) -> bytes:
    """The same of one batch without dictionaries. The schema is not encoded again each time, which takes longer than
    encoding a few rows.
    """
    return b"".join((_schema_bytes(batch.schema), batch.serialize().to_pybytes(), _END_OF_STREAM))


@lru_cache(maxsize=256)
def _schema_bytes(schema: pa.Schema) -> bytes:
    found: bytes = schema.serialize().to_pybytes()
    return found


def table_of(data: bytes) -> pa.Table:
    """Raises pyarrow.ArrowInvalid."""
    return pa.ipc.open_stream(data).read_all()
