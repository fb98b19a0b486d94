"""Sequence numbers appended to serialised protobuf messages; `lua/publish.lua` does the same inside Redis."""

from bus.api import SequenceStamp

_KEY = b"\x0a\x08sequence\x12"


def varint(number: int) -> bytes:
    """Base-128 encoding of a number >= 0."""
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def stamped(value: bytes, stamp: SequenceStamp, sequence: int) -> bytes:
    """`value` with `sequence` appended in the fields that `stamp` names."""
    if stamp.tag:
        value += stamp.tag + varint(sequence)
    if stamp.context_tag:
        digits = str(sequence).encode()
        entry = _KEY + varint(len(digits)) + digits
        value += stamp.context_tag + varint(len(entry)) + entry
    return value
