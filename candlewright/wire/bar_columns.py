"""Columns of bars as serialised OHLCV messages, without a Python step per field.

All fields except strings are written, including zeros, so that bars whose varints have the same widths are rows of one
byte matrix.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["encode"]

_OPEN_TIME, _OPEN, _HIGH, _LOW, _CLOSE, _VOLUME, _QUOTE_VOLUME, _TRADE_COUNT, _PERIOD, _TICKER, _COMPLETE, _REVISION = (
    range(1, 13)
)
_SOURCE = 14
_VARINT, _DOUBLE, _BYTES = 0, 1, 2


def encode(
    tickers: Sequence[str],
    group: NDArray[np.int64],
    *,
    period_seconds: int,
    open_time: NDArray[np.int64],
    prices: Sequence[NDArray[np.float64]],
    volume: NDArray[np.float64],
    quote_volume: NDArray[np.float64],
    trade_count: NDArray[np.int64],
    complete: NDArray[np.bool_],
    revision: NDArray[np.int64],
    source: str,
) -> list[bytes]:
    """One OHLCV per row, for `tickers[group]`; `prices`: open, high, low, close. Integers must not be negative."""
    doubles = list(zip(range(_OPEN, _QUOTE_VOLUME + 1), (*prices, volume, quote_volume), strict=True))
    whole = [(_OPEN_TIME, open_time), (_TRADE_COUNT, trade_count), (_REVISION, revision)]
    widths = np.stack([_varint_widths(column) for _, column in whole], axis=1)
    ending = _text(_SOURCE, source)
    texts = {number: _text(_TICKER, tickers[number]) + ending for number in np.unique(group).tolist()}
    period = np.full(1, period_seconds)
    messages = [b""] * len(group)
    # One number per kind of row, since a width has one digit.
    kinds = widths @ np.array([100, 10, 1])
    for kind in np.flatnonzero(np.bincount(kinds)).tolist():
        rows = np.flatnonzero(kinds == kind)
        parts = [
            _varint_field(number, column[rows], width)
            for (number, column), width in zip(whole, (kind // 100, kind // 10 % 10, kind % 10), strict=True)
        ]
        parts += [_double_field(number, column[rows]) for number, column in doubles]
        parts.append(_varint_field(_COMPLETE, complete[rows].astype(np.int64), 1))
        constant = _varint_field(_PERIOD, period, int(_varint_widths(period)[0]))
        parts.append(np.broadcast_to(constant, (len(rows), constant.shape[1])))
        matrix = np.concatenate(parts, axis=1)
        data, width = matrix.tobytes(), matrix.shape[1]
        for at, (row, number) in enumerate(zip(rows.tolist(), group[rows].tolist(), strict=True)):
            messages[row] = data[at * width : (at + 1) * width] + texts[number]
    return messages


def _varint_widths(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The varint size of each value in bytes."""
    limits = np.array([1 << 7 * width for width in range(1, 9)], np.int64)
    return np.searchsorted(limits, values, side="right") + 1


def _varint_field(number: int, values: NDArray[np.int64], width: int) -> NDArray[np.uint8]:
    """Rows of a tag plus a varint of `width` bytes."""
    rows = np.empty((len(values), width + 1), np.uint8)
    rows[:, 0] = number << 3 | _VARINT
    for place in range(width):
        rows[:, place + 1] = values >> 7 * place & 0x7F | (0x80 if place + 1 < width else 0)
    return rows


def _double_field(number: int, values: NDArray[np.float64]) -> NDArray[np.uint8]:
    rows = np.empty((len(values), 9), np.uint8)
    rows[:, 0] = number << 3 | _DOUBLE
    rows[:, 1:] = np.ascontiguousarray(values, "<f8").view(np.uint8).reshape(len(values), 8)
    return rows


def _text(number: int, text: str) -> bytes:
    value = text.encode()
    head, length = bytearray((number << 3 | _BYTES,)), len(value)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + value
