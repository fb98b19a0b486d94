"""Varints of protobuf; `bus/redis/lua/publish.lua` writes the same inside Redis."""

from functools import lru_cache

__all__ = ["length", "read_varint", "varint"]


def varint(number: int) -> bytes:
    """Base-128 encoding of a number >= 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


#: `varint` of the lengths of fields, of which few differ.
length = lru_cache(maxsize=1_000)(varint)


def read_varint(data: bytes, at: int) -> tuple[int, int] | None:
    """The number (below 2^63) that begins at `at`, and the position after it; None if there is no such number."""
    if at + 1 < len(data):
        # Most numbers take one or two bytes.
        low, high = data[at], data[at + 1]
        if low < 0x80:
            return low, at + 1
        if high < 0x80:
            return low & 0x7F | high << 7, at + 2
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value, at) if value < 1 << 63 else None
        shift += 7
    return None
