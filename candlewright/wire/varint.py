"""Varints of protobuf; `bus/redis/lua/publish.lua` writes the same inside Redis."""

__all__ = ["varint"]


def varint(number: int) -> bytes:
    """Base-128 encoding of a number >= 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
