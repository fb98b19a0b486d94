"""Columns of values as the `values` entries of a serialised ResultRow, without a message object per value.

A cell is one entry in wire format: the field's tag, a length, a serialised FieldValue. A row is a sequence of cells.
Numbers whose varints have the same widths are rows of one byte matrix.
"""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from candlewright.wire.varint import varint

__all__ = ["NULL", "bare", "booleans", "doubles", "entry", "integers", "octets", "texts", "times", "varints"]

_STRING, _INT, _DOUBLE, _BOOL, _BYTES, _TIME = range(1, 7)
_CELL = 0x0A
#: So few values are encoded one by one, because building a matrix would take longer.
_FEW = 8
#: A FieldValue with no member set.
NULL = bytes((_CELL, 0))
#: Given rows of one width, and that width, returns the bytes that precede their varints.
_Heads = Callable[[NDArray[np.int64], int], NDArray[np.uint8]]
_LIMITS = np.array([1 << 7 * width for width in range(1, 10)], np.uint64)


def doubles(values: NDArray[np.float64]) -> list[bytes]:
    rows = np.empty((len(values), 11), np.uint8)
    rows[:, :3] = _CELL, 9, _DOUBLE << 3 | 1
    rows[:, 3:] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(len(values), 8)
    return _split(rows)


def integers(values: NDArray[np.int64]) -> list[bytes]:
    return _whole(values, np.full(len(values), _INT << 3, np.uint8))


def times(values: NDArray[np.int64]) -> list[bytes]:
    """The cells of these times (ns). Times before 1970 do not fit the unsigned member, and use the integer member."""
    return _whole(values, np.where(values < 0, _INT << 3, _TIME << 3).astype(np.uint8))


def booleans(values: NDArray[np.bool_]) -> list[bytes]:
    cells = tuple(bytes((_CELL, 2, _BOOL << 3, flag)) for flag in (0, 1))
    return [cells[flag] for flag in values.tolist()]


def texts(values: Iterable[str | None]) -> list[bytes]:
    return [NULL if value is None else entry(_CELL, entry(_STRING << 3 | 2, value.encode())) for value in values]


def octets(values: Iterable[bytes | None]) -> list[bytes]:
    return [NULL if value is None else entry(_CELL, entry(_BYTES << 3 | 2, value)) for value in values]


def bare(cell: bytes) -> bytes:
    """The serialised FieldValue of a cell."""
    start = 1
    while cell[start] > 0x7F:
        start += 1
    return cell[start + 1 :]


def varints(values: NDArray[np.int64], head: bytes = b"") -> list[bytes]:
    """Each value as a varint after `head`; negative values as 64-bit two's complement."""
    if len(values) <= _FEW:
        return [head + _signed(value) for value in values.tolist()]
    prefix = np.broadcast_to(np.frombuffer(head, np.uint8), (len(values), len(head)))
    return _by_width(values, lambda rows, width: prefix[rows])


def _signed(value: int) -> bytes:
    """As protobuf writes int64: a negative number in ten bytes."""
    return varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _whole(values: NDArray[np.int64], tags: NDArray[np.uint8]) -> list[bytes]:
    if len(values) <= _FEW:
        digits = map(_signed, values.tolist())
        return [bytes((_CELL, len(own) + 1, tag)) + own for own, tag in zip(digits, tags.tolist(), strict=True)]

    def heads(rows: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        found = np.empty((len(rows), 3), np.uint8)
        found[:, 0], found[:, 1], found[:, 2] = _CELL, width + 1, tags[rows]
        return found

    return _by_width(values, heads)


def _by_width(values: NDArray[np.int64], heads: _Heads) -> list[bytes]:
    unsigned = np.ascontiguousarray(values, np.int64).view(np.uint64)
    widths = np.searchsorted(_LIMITS, unsigned, side="right") + 1
    found = [b""] * len(values)
    for width in np.unique(widths).tolist():
        rows = np.flatnonzero(widths == width)
        own = unsigned[rows]
        digits = np.empty((len(rows), width), np.uint8)
        for place in range(width):
            more = 0x80 if place + 1 < width else 0
            digits[:, place] = (own >> np.uint64(7 * place)).astype(np.uint8) & 0x7F | more
        cells = _split(np.concatenate([heads(rows, width), digits], axis=1))
        if len(rows) == len(values):
            return cells
        for row, cell in zip(rows.tolist(), cells, strict=True):
            found[row] = cell
    return found


def _split(rows: NDArray[np.uint8]) -> list[bytes]:
    """The rows of the matrix."""
    found: list[bytes] = np.ascontiguousarray(rows).view(f"V{rows.shape[1]}").ravel().tolist()
    return found


def entry(tag: int, value: bytes) -> bytes:
    """A length-delimited field: its tag, its length, its value."""
    length = len(value)
    if length < 128:
        return bytes((tag, length)) + value
    head = bytearray((tag,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + value
