"""Compresses parts of a state."""

import struct

import pyarrow as pa

__all__ = ["squeezed", "unsqueezed"]

_ZSTD = pa.Codec("zstd", compression_level=1)
_LENGTH = 8
#: Shorter data is written as it is, with this bit set in the length: compressing it takes longer than writing it.
_SHORT_BYTES = 4_096
_PLAIN = 1 << 63


def squeezed(data: bytes) -> bytes:
    if len(data) < _SHORT_BYTES:
        return struct.pack("<Q", len(data) | _PLAIN) + data
    packed: bytes = _ZSTD.compress(data, asbytes=True)
    return struct.pack("<Q", len(data)) + packed


def unsqueezed(data: bytes) -> bytes:
    """Raises ValueError for invalid bytes."""
    if len(data) < _LENGTH:
        raise ValueError("a part of a state is truncated")
    length = struct.unpack_from("<Q", data)[0]
    if length & _PLAIN:
        if len(data) - _LENGTH != length ^ _PLAIN:
            raise ValueError("a part of a state is truncated")
        return data[_LENGTH:]
    try:
        found: bytes = _ZSTD.decompress(data[_LENGTH:], length, asbytes=True)
    except OSError as error:
        raise ValueError("a part of a state cannot be read") from error
    return found
