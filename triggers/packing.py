"""Compresses parts of a state."""

import struct

import pyarrow as pa

__all__ = ["squeezed", "unsqueezed"]

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
