"""Values of consecutive rows, and of blocks of them: rows are added at the end and forgotten at the start."""

import numpy as np

from candlewright_cep.matching.intervals import Span
from candlewright_cep.vector import Array

#: A block holds 2 ** FAN_BITS rows, or this many blocks of the level below.
FAN_BITS = 8
#: Shorter ranges are read row by row.
_FEW_BLOCKS = 4


class Tail:
    """An array that grows at the end and shrinks at the start; `values` are not copied until others are added."""

    __slots__ = ("_buffer", "_end", "_start")

    def __init__(self, values: Array | None = None) -> None:
        self._buffer: Array = np.zeros(0, np.bool_) if values is None else values
        self._start, self._end = 0, len(self._buffer)

    def __len__(self) -> int:
        return self._end - self._start

    @property
    def values(self) -> Array:
        return self._buffer[self._start : self._end]

    def add(self, further: Array) -> None:
        end = self._end + len(further)
        if end > len(self._buffer) or self._buffer.dtype != further.dtype:
            kept = self.values
            self._buffer = np.empty(2 * (len(kept) + len(further)), further.dtype)
            self._buffer[: len(kept)] = kept
            self._start, self._end = 0, len(kept)
            end = len(kept) + len(further)
        self._buffer[self._end : end] = further
        self._end = end

    def forget(self, count: int) -> None:
        self._start = min(self._start + count, self._end)

    def cut(self, count: int) -> None:
        """Keep only the first values."""
        self._end = self._start + count


class Blocks:
    """The values of the rows from `first` on, and what `fold` makes of each block of them.

    Blocks begin at multiples of their length, so forgotten rows change none but the first. They are computed when they
    are asked for, and again only if rows have been added to them.
    """

    def __init__(self, fold: np.ufunc, first: int, values: Array | None = None) -> None:
        self.first = first
        self._fold = fold
        self._levels = [Tail(values)]
        # The row up to which each level has been computed.
        self._ends = [first]

    @property
    def end(self) -> int:
        return self.first + len(self._levels[0])

    def add(self, values: Array) -> None:
        self._levels[0].add(values)

    def forget(self, row: int) -> None:
        """Drop the rows before this one. The first block of each level keeps what it was computed from."""
        for level, tail in enumerate(self._levels):
            shift = level * FAN_BITS
            tail.forget((row >> shift) - (self.first >> shift))
        self.first = row

    def of(self, level: int, begin: int, end: int) -> Array:
        """The values of these rows (level 0), or of these blocks of 2 ** (level * FAN_BITS) rows."""
        first = self.first >> level * FAN_BITS
        return self._level(level).values[begin - first : end - first]

    def folded(self, begin: int, end: int) -> Array:
        """One value for all of these rows."""
        low, high = -(-begin >> FAN_BITS), end >> FAN_BITS
        if high - low < _FEW_BLOCKS:
            parts = [self.of(0, begin, end)]
        else:
            parts = [self.of(0, begin, low << FAN_BITS), self.of(1, low, high), self.of(0, high << FAN_BITS, end)]
        found: Array = self._fold.reduce(np.concatenate(parts), keepdims=True)
        return found

    def _level(self, level: int) -> Tail:
        while level >= len(self._levels):
            self._levels.append(Tail())
            self._ends.append(self.first)
        tail, end = self._levels[level], self.end
        if level and self._ends[level] < end:
            shift = level * FAN_BITS
            # The last block may have got further rows.
            begin = max(self._ends[level], self.first) >> shift
            tail.cut(begin - (self.first >> shift))
            below, first = self._level(level - 1).values, self.first >> shift - FAN_BITS
            starts = np.maximum(np.arange(begin << FAN_BITS, first + len(below), 1 << FAN_BITS), first)
            tail.add(self._fold.reduceat(below, starts - first))
            self._ends[level] = end
        return tail


class Spans:
    """The spans of the rows from `first` on, and of blocks of them."""

    def __init__(self, first: int, span: Span | None = None) -> None:
        low, high, gaps = (None, None, None) if span is None else (span.low, span.high, _gaps(span))
        self.low = Blocks(np.minimum, first, low)
        self.high = Blocks(np.maximum, first, high)
        self._gaps = Blocks(np.logical_or, first, gaps)

    @property
    def end(self) -> int:
        return self.low.end

    def add(self, span: Span) -> None:
        for blocks, values in ((self.low, span.low), (self.high, span.high), (self._gaps, _gaps(span))):
            blocks.add(values)

    def forget(self, row: int) -> None:
        for blocks in (self.low, self.high, self._gaps):
            blocks.forget(row)

    def of(self, level: int, begin: int, end: int) -> Span:
        """See `Blocks.of`."""
        return Span(self.low.of(level, begin, end), self.high.of(level, begin, end), self._gaps.of(level, begin, end))

    def has_gaps(self, begin: int, end: int) -> bool:
        return bool(self._gaps.folded(begin, end)[0])


def _gaps(span: Span) -> Array:
    return span.gaps if len(span.gaps) == len(span.low) else np.repeat(span.gaps, len(span.low))
