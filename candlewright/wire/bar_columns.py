"""Columns of bars to and from serialised OHLCV messages, without a Python step per field.

Bars with the same fields, whose varints and texts have the same widths, are rows of one byte matrix. All fields except
strings are written, including zeros, so that most bars are. Messages that few others resemble are left to the protobuf
library, so that every valid one is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from candlewright.wire.varint import read_varint

__all__ = ["BarColumns", "decode", "encode"]

_OPEN_TIME, _OPEN, _HIGH, _LOW, _CLOSE, _VOLUME, _QUOTE_VOLUME, _TRADE_COUNT, _PERIOD, _TICKER, _COMPLETE, _REVISION = (
    range(1, 13)
)
_SEQUENCE, _SOURCE, _FROM_CLIENT = 13, 14, 15
_VARINT, _DOUBLE, _BYTES = 0, 1, 2
#: The varint fields, and the most bytes (of 7 bits) of one that is read without the protobuf library.
_WIDEST = {_OPEN_TIME: 9, _TRADE_COUNT: 9, _PERIOD: 4, _COMPLETE: 1, _REVISION: 4, _SEQUENCE: 9, _FROM_CLIENT: 1}
_DOUBLES = range(_OPEN, _QUOTE_VOLUME + 1)
_TEXTS = (_TICKER, _SOURCE)
#: Fewer messages of one length, and those after so many layouts, are read one by one.
_FEW_ALIKE, _MAX_LAYOUTS = 8, 8
#: The most messages that are read together, so that they and their columns are still in the processor's cache.
_BLOCK_BARS = 8_192


@dataclass(kw_only=True, frozen=True, slots=True)
class BarColumns:
    """One value per bar, 0 or empty where a bar does not have the field. `prices`: open, high, low and close, (4, n);
    `volumes`: volume and quote volume, (2, n); the others: (n,).
    """

    ticker: NDArray[np.object_]
    period_seconds: NDArray[np.int64]
    open_time: NDArray[np.uint64]
    prices: NDArray[np.float64]
    volumes: NDArray[np.float64]
    has_quote_volume: NDArray[np.bool_]
    trade_count: NDArray[np.uint64]
    has_trade_count: NDArray[np.bool_]
    complete: NDArray[np.bool_]
    revision: NDArray[np.int64]
    source: NDArray[np.object_]
    from_client: NDArray[np.bool_]


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


def decode(values: Sequence[bytes], lengths: Sequence[int] = ()) -> BarColumns:
    """`values`: messages; given the `lengths` of all messages, each of `values` may be several messages.

    Raises BadFrame if one of them is not an OHLCV.
    """
    sizes = np.fromiter(map(len, values), np.int64, len(values))
    found = _Decoded(len(lengths or values))
    try:
        for first, data, own in _blocks(values, sizes, np.array(lengths, np.int64) if lengths else sizes):
            for places, block in _of_one_length(data, own):
                _decode(block, first + places, found)
    except (DecodeError, UnicodeDecodeError) as error:
        raise BadFrame("BAD_RECORD", "not an OHLCV") from error
    return found.columns()


def _decode(block: NDArray[np.uint8], places: NDArray[np.int64], found: "_Decoded") -> None:
    """`block`: messages of one length, those at `places`."""
    for _ in range(_MAX_LAYOUTS):
        if len(places) < _FEW_ALIKE or (layout := _Layout.of(block[0].tobytes())) is None:
            break
        is_alike = layout.fits(block)
        if is_alike.all():
            found.set_alike(places, block, layout)
            return
        found.set_alike(places[is_alike], block[is_alike], layout)
        places, block = places[~is_alike], block[~is_alike]
    for place, message in zip(places.tolist(), block, strict=True):
        found.set_one(place, OHLCV.FromString(message.tobytes()))


def _blocks(
    values: Sequence[bytes], sizes: NDArray[np.int64], lengths: NDArray[np.int64]
) -> Iterator[tuple[int, bytes, NDArray[np.int64]]]:
    """Neighbouring messages, joined: the place of the first one, and the length of each."""
    # How many messages have ended after each value.
    stops = np.searchsorted(np.cumsum(lengths), np.cumsum(sizes), side="right")
    value = first = 0
    while value < len(values):
        after = max(value + 1, int(np.searchsorted(stops, first + _BLOCK_BARS, side="right")))
        stop = int(stops[after - 1])
        yield first, b"".join(values[value:after]), lengths[first:stop]
        value, first = after, stop


def _of_one_length(data: bytes, lengths: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint8]]]:
    """The messages of each length: their places, and their bytes as rows."""
    content = np.frombuffer(data, np.uint8)
    starts = np.cumsum(lengths) - lengths
    for length in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == length)
        rows = np.lib.stride_tricks.as_strided(content, (len(content) - length + 1, length), (1, 1), writeable=False)
        yield places, rows[starts[places]]


@dataclass(frozen=True, slots=True)
class _Layout:
    """`fields`: where the content of each begins and ends. `mask`: the bits that are equal in all messages of this
    layout.
    """

    fields: dict[int, tuple[int, int]]
    mask: NDArray[np.uint8]
    first: NDArray[np.uint8]

    @classmethod
    def of(cls, data: bytes) -> "_Layout | None":
        """None for an unknown or repeated field, an unusual width, or bytes that are not a message."""
        fields: dict[int, tuple[int, int]] = {}
        mask = np.full(len(data), 0xFF, np.uint8)
        at = 0
        while at < len(data):
            number, kind = data[at] >> 3, data[at] & 7
            start = at + 1
            if kind == _VARINT and (widest := _WIDEST.get(number)) is not None:
                read = read_varint(data, start)
                if read is None or read[1] - start > widest:
                    return None
                at, bits = read[1], 0x80
            elif kind == _DOUBLE and number in _DOUBLES:
                at, bits = start + 8, 0
            elif kind == _BYTES and number in _TEXTS and start < len(data) and data[start] < 0x80:
                start, bits = start + 1, 0
                at = start + data[start - 1]
            else:
                return None
            if at > len(data) or (number in fields and number != _SEQUENCE):
                return None
            fields[number] = start, at
            mask[start:at] = bits
        return cls(fields, mask, np.frombuffer(data, np.uint8))

    def fits(self, block: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which rows have this layout."""
        fixed = np.flatnonzero(self.mask)
        differs: NDArray[np.bool_] = ((block[:, fixed] ^ self.first[fixed]) & self.mask[fixed]).astype(np.bool_)
        return np.logical_not(differs.any(axis=1))


class _Decoded:
    """The columns of `count` bars, field by field."""

    def __init__(self, count: int) -> None:
        self._whole = {number: np.zeros(count, np.uint64) for number in _WIDEST}
        self._doubles = np.zeros((len(_DOUBLES), count))
        self._texts = {number: np.full(count, "", np.object_) for number in _TEXTS}
        self._has = {number: np.zeros(count, np.bool_) for number in (_QUOTE_VOLUME, _TRADE_COUNT)}

    def set_alike(self, places: NDArray[np.int64], block: NDArray[np.uint8], layout: _Layout) -> None:
        for number, (start, stop) in layout.fields.items():
            content = block[:, start:stop]
            if number in self._has:
                self._has[number][places] = True
            if number in self._texts:
                self._set_texts(self._texts[number], places, content)
            elif number in _DOUBLES:
                self._doubles[number - _OPEN, places] = np.ascontiguousarray(content).view("<f8")[:, 0]
            else:
                digits = (content & 0x7F).T.astype(np.uint64)
                self._whole[number][places] = sum(digit << np.uint64(7 * place) for place, digit in enumerate(digits))

    def _set_texts(self, column: NDArray[np.object_], places: NDArray[np.int64], content: NDArray[np.uint8]) -> None:
        """Reads a text once for the neighbouring bars that share it."""
        starts = np.flatnonzero((content[1:] != content[:-1]).any(axis=1)) + 1
        starts = np.concatenate(([0], starts))
        written = [row.tobytes() for row in content[starts]]
        texts = np.array([text.decode() for text in written], np.object_)
        column[places] = np.repeat(texts, np.diff(starts, append=len(content)))

    def set_one(self, place: int, bar: OHLCV) -> None:
        for field, value in bar.ListFields():
            number = field.number
            if number in self._has:
                self._has[number][place] = True
            if number in self._texts:
                self._texts[number][place] = value
            elif number in _DOUBLES:
                self._doubles[number - _OPEN, place] = value
            else:
                self._whole[number][place] = value

    def columns(self) -> BarColumns:
        whole = self._whole
        return BarColumns(
            ticker=self._texts[_TICKER],
            period_seconds=whole[_PERIOD].astype(np.int64),
            open_time=whole[_OPEN_TIME],
            prices=self._doubles[:4],
            volumes=self._doubles[4:],
            has_quote_volume=self._has[_QUOTE_VOLUME],
            trade_count=whole[_TRADE_COUNT],
            has_trade_count=self._has[_TRADE_COUNT],
            complete=whole[_COMPLETE] != 0,
            revision=whole[_REVISION].astype(np.int64),
            source=self._texts[_SOURCE],
            from_client=whole[_FROM_CLIENT] != 0,
        )
