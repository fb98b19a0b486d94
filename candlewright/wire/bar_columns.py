"""Columns of bars to and from serialised OHLCV messages, without a Python step per field.

Bars with the same fields, whose varints and texts have the same widths, are rows of one byte matrix. All fields except
strings are written, including zeros, so that most bars are. Messages that few others resemble are left to the protobuf
library, so that every valid one is read.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import accumulate, chain
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from candlewright.wire.candlewright_pb2 import OHLCV
from candlewright.wire.errors import BadFrame
from candlewright.wire.varint import read_varint, varint

__all__ = ["BarColumns", "decode", "encode", "joined"]

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
    `volumes`: volume and quote volume, (2, n); the others: (n,). `ticker`, `source`: places in `texts`.
    """

    texts: list[str]
    ticker: NDArray[np.int32]
    period_seconds: NDArray[np.int64]
    open_time: NDArray[np.uint64]
    prices: NDArray[np.float64]
    volumes: NDArray[np.float64]
    has_quote_volume: NDArray[np.bool_]
    trade_count: NDArray[np.uint64]
    has_trade_count: NDArray[np.bool_]
    complete: NDArray[np.bool_]
    revision: NDArray[np.int64]
    source: NDArray[np.int32]
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
    doubles = (*prices, volume, quote_volume)
    whole = {
        _OPEN_TIME: open_time,
        _TRADE_COUNT: trade_count,
        _REVISION: revision,
        _COMPLETE: complete.astype(np.int64),
    }
    ending = _text(_SOURCE, source)
    period = bytes((_PERIOD << 3 | _VARINT,)) + varint(period_seconds)
    texts = {number: period + _text(_TICKER, tickers[number]) + ending for number in np.unique(group).tolist()}
    messages = [b""] * len(group)
    # One number per kind of row, since a width has one digit.
    kinds = np.zeros(len(group), np.int64)
    for column in whole.values():
        kinds = kinds * 10 + _varint_widths(column)
    for kind in np.unique(kinds).tolist():
        rows = np.flatnonzero(kinds == kind)
        widths = list(map(int, str(kind)))
        matrix = np.empty((len(rows), sum(widths) + len(widths) + 9 * len(doubles)), np.uint8)
        at = 0
        for (number, column), width in zip(whole.items(), widths, strict=True):
            matrix[:, at] = number << 3 | _VARINT
            values = column[rows]
            for place in range(width):
                at += 1
                byte = (values >> 7 * place).astype(np.uint8)
                matrix[:, at] = byte | 0x80 if place + 1 < width else byte & 0x7F
            at += 1
        for number, double in zip(_DOUBLES, doubles, strict=True):
            matrix[:, at] = number << 3 | _DOUBLE
            np.ndarray((len(rows),), "<f8", matrix, at + 1, (matrix.shape[1],))[:] = double[rows]
            at += 9
        data = matrix.tobytes()
        for row, number, start in zip(rows.tolist(), group[rows].tolist(), range(0, len(data), at), strict=True):
            messages[row] = data[start : start + at] + texts[number]
    return messages


def _varint_widths(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The varint size of each value in bytes."""
    limits = np.array([1 << 7 * width for width in range(1, 9)], np.int64)
    least, most = np.searchsorted(limits, (values.min(), values.max()), side="right") + 1 if len(values) else (1, 1)
    if least == most:
        return np.full(len(values), least)
    return np.searchsorted(limits, values, side="right") + 1


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


def joined(parts: Sequence[BarColumns]) -> BarColumns:
    """The bars of all parts, of which there is at least one."""
    columns: dict[str, Any] = {
        own.name: np.concatenate([getattr(part, own.name) for part in parts], axis=-1)
        for own in fields(BarColumns)
        if own.name not in ("texts", "ticker", "source")
    }
    firsts = list(accumulate((len(part.texts) for part in parts), initial=0))
    columns |= {
        name: np.concatenate([getattr(part, name) + first for part, first in zip(parts, firsts, strict=False)])
        for name in ("ticker", "source")
    }
    return BarColumns(texts=list(chain.from_iterable(part.texts for part in parts)), **columns)


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
        # All bytes in their order cost far less than a result for each row, and one array less than two.
        differs = block ^ self.first
        differs &= self.mask
        fits = np.ones(len(block), np.bool_)
        fits[np.flatnonzero(differs) // block.shape[1]] = False
        return fits


def _eight_bytes(block: NDArray[np.uint8], start: int, kind: str) -> NDArray[Any]:
    """Those from `start` on in each row, as numbers."""
    return np.ndarray((len(block),), kind, np.ascontiguousarray(block), start, (block.shape[1],))


def _varints(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    found = np.zeros(len(content), np.uint64)
    for place in range(content.shape[1]):
        found |= (content[:, place] & 0x7F).astype(np.uint64) << np.uint64(7 * place)
    return found


class _Decoded:
    """The columns of `count` bars, field by field."""

    def __init__(self, count: int) -> None:
        self._whole = {number: np.zeros(count, np.uint64) for number in _WIDEST}
        self._doubles = np.zeros((len(_DOUBLES), count))
        #: Each text that was read, and its place.
        self._texts = {"": 0}
        self._places = {number: np.zeros(count, np.int32) for number in _TEXTS}
        self._has = {number: np.zeros(count, np.bool_) for number in (_QUOTE_VOLUME, _TRADE_COUNT)}

    def set_alike(self, places: NDArray[np.int64], block: NDArray[np.uint8], layout: _Layout) -> None:
        for number, (start, stop) in layout.fields.items():
            if number in self._has:
                self._has[number][places] = True
            if number in self._places:
                self._places[number][places] = self._text_places(block[:, start:stop])
            elif number in _DOUBLES:
                self._doubles[number - _OPEN, places] = _eight_bytes(block, start, "<f8")
            else:
                self._whole[number][places] = _varints(block[:, start:stop])

    def _text_places(self, content: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Reads a text once for the neighbouring bars that share it."""
        width = content.shape[1]
        changes = np.flatnonzero(content[1:] != content[:-1]) // max(1, width) + 1
        starts = np.unique(np.concatenate(([0], changes)))
        texts = [row.tobytes().decode() for row in content[starts]]
        own = [self._texts.setdefault(text, len(self._texts)) for text in texts]
        return np.repeat(np.array(own, np.int32), np.diff(starts, append=len(content)))

    def set_one(self, place: int, bar: OHLCV) -> None:
        for field, value in bar.ListFields():
            number = field.number
            if number in self._has:
                self._has[number][place] = True
            if number in self._places:
                self._places[number][place] = self._texts.setdefault(value, len(self._texts))
            elif number in _DOUBLES:
                self._doubles[number - _OPEN, place] = value
            else:
                self._whole[number][place] = value

    def columns(self) -> BarColumns:
        whole = self._whole
        return BarColumns(
            texts=list(self._texts),
            ticker=self._places[_TICKER],
            period_seconds=whole[_PERIOD].astype(np.int64),
            open_time=whole[_OPEN_TIME],
            prices=self._doubles[:4],
            volumes=self._doubles[4:],
            has_quote_volume=self._has[_QUOTE_VOLUME],
            trade_count=whole[_TRADE_COUNT],
            has_trade_count=self._has[_TRADE_COUNT],
            complete=whole[_COMPLETE] != 0,
            revision=whole[_REVISION].astype(np.int64),
            source=self._places[_SOURCE],
            from_client=whole[_FROM_CLIENT] != 0,
        )
