"""Packs parts of a state into bytes."""

import struct

import pyarrow as pa

__all__ = ["packed_rows", "squeezed", "unpacked_rows", "unsqueezed"]

_ZSTD = pa.Codec("zstd", compression_level=1)
_LENGTH = 8


def squeezed(data: bytes) -> bytes:
    packed: bytes = _ZSTD.compress(data, asbytes=True)
    return struct.pack("<Q", len(data)) + packed


def unsqueezed(data: bytes) -> bytes:
    """Raises ValueError for invalid bytes."""
    if len(data) < _LENGTH:
        raise ValueError("a part of a state is truncated")
    try:
        found: bytes = _ZSTD.decompress(data[_LENGTH:], struct.unpack_from("<Q", data)[0], asbytes=True)
    except OSError as error:
        raise ValueError("a part of a state cannot be read") from error
    return found


def packed_rows(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked_rows(written: bytes) -> pa.Table:
    return pa.ipc.open_stream(written).read_all()
