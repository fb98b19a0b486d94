"""The exchange's JSON texts. Amounts are strings with eight decimals, as Binance writes them.

Candle rows are encoded column by column with numpy: a page of a thousand rows takes about a millisecond.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from sandbox.markets.candles import Candles
from sandbox.markets.noise import Ints

_DIGITS = np.array([f"{i:04d}".encode() for i in range(10_000)], dtype="S4").view(np.uint32)
_DECIMALS = 8
_LARGEST = (1 << 63) - 1

_Text: TypeAlias = npt.NDArray[np.uint8]


def amount(value: int, decimals: int) -> str:
    """`value` times 10**-decimals with eight decimals; further digits are truncated."""
    if decimals == 0:
        return f"{value}.00000000"
    if decimals > _DECIMALS:
        value, decimals = value // 10 ** (decimals - _DECIMALS), _DECIMALS
    digits = str(value).zfill(decimals + (2 if value < 0 else 1))
    return f"{digits[:-decimals]}.{digits[-decimals:]:0<8}"


def _digits(values: Ints, chunks: int) -> _Text:
    """Decimal digits of non-negative values, zero-padded to 4 * chunks places, one row per value."""
    cells = np.empty((len(values), chunks), dtype=np.uint32)
    rest = values
    for chunk in range(chunks - 1, 0, -1):
        upper = rest // 10_000
        cells[:, chunk] = _DIGITS[rest - upper * 10_000]
        rest = upper
    cells[:, 0] = _DIGITS[rest]
    return cells.view(np.uint8)


class _RowWriter:
    """Collects the text columns of all rows, and a mask of the bytes to keep (padding zeros are dropped)."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._texts: list[_Text] = []
        self._masks: list[npt.NDArray[np.bool_]] = []

    def literal(self, text: bytes) -> None:
        row = np.frombuffer(text, dtype=np.uint8)
        self._texts.append(np.broadcast_to(row, (self._rows, len(row))))
        self._masks.append(np.broadcast_to(np.True_, (self._rows, len(row))))

    def integer(self, values: Ints) -> None:
        largest = int(values.max(initial=0))
        chunks = max(1, (len(str(largest)) + 3) // 4)
        self._texts.append(_digits(values, chunks))
        # A 64-bit value has at most 19 digits, so higher powers are not needed.
        powers = np.array([min(10**place, _LARGEST) for place in range(4 * chunks - 1, 0, -1)], dtype=np.int64)
        mask = np.ones((self._rows, 4 * chunks), dtype=np.bool_)
        np.greater_equal(values[:, None], powers[None, :], out=mask[:, :-1])
        self._masks.append(mask)

    def fixed(self, values: Ints, decimals: int) -> None:
        if decimals > _DECIMALS:
            values, decimals = values // 10 ** (decimals - _DECIMALS), _DECIMALS
        whole = values // 10**decimals
        part = (values - whole * 10**decimals) * 10 ** (_DECIMALS - decimals)
        self.integer(whole)
        self.literal(b".")
        self._texts.append(_digits(part, 2))
        self._masks.append(np.broadcast_to(np.True_, (self._rows, _DECIMALS)))

    def finish(self) -> tuple[bytes, Ints]:
        text, mask = np.concatenate(self._texts, axis=1), np.concatenate(self._masks, axis=1)
        offsets = np.zeros(self._rows + 1, dtype=np.int64)
        np.cumsum(mask.sum(axis=1), out=offsets[1:])
        return text[mask].tobytes(), offsets


def encode_candles(candles: Candles, price_decimals: int, lot_decimals: int) -> tuple[bytes, Ints]:
    """All rows as JSON arrays, each followed by a comma, and the offset of each row (one entry more than rows)."""
    writer = _RowWriter(len(candles))
    writer.literal(b"[")
    writer.integer(candles.open_time)
    writer.literal(b',"')
    for column in (candles.open, candles.high, candles.low, candles.close):
        writer.fixed(column, price_decimals)
        writer.literal(b'","')
    writer.fixed(candles.volume, lot_decimals)
    writer.literal(b'",')
    writer.integer(candles.close_time)
    writer.literal(b',"')
    writer.fixed(candles.quote, price_decimals + lot_decimals)
    writer.literal(b'",')
    writer.integer(candles.count)
    writer.literal(b',"')
    writer.fixed(candles.taker_volume, lot_decimals)
    writer.literal(b'","')
    writer.fixed(candles.taker_quote, price_decimals + lot_decimals)
    writer.literal(b'","0"],')
    return writer.finish()


def page(rows: bytes) -> bytes:
    """A JSON array of rows, each of which ends with a comma."""
    return b"[" + rows[:-1] + b"]"
