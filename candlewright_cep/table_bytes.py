"""A table as bytes: one Arrow stream, as parts of a state are kept and rows are handed on."""

import pyarrow as pa

__all__ = ["bytes_of", "table_of"]


def bytes_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def table_of(data: bytes) -> pa.Table:
    """Raises pyarrow.ArrowInvalid."""
    return pa.ipc.open_stream(data).read_all()
