"""Rows that partitions keep from batch to batch: in few arrays for all partitions, copied as rarely as possible."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from candlewright_cep.streaming.rows.release import Rows, compact, joined
from candlewright_cep.vector import Index, is_every, ranges

#: Chunks may hold this many rows in excess of twice the rows that are kept.
_SPARE_ROWS = 4096
#: So few spans are taken one by one.
_FEW_SPANS = 4


@dataclass(slots=True, eq=False)
class Chunk:
    """Rows of the partitions that one batch touched; `users`: how many pieces of partitions are in this chunk."""

    rows: Rows
    users: int = 0


@dataclass(slots=True)
class Piece:
    """`count` rows of one partition, at `place` in `chunk`."""

    chunk: Chunk
    place: int
    count: int


class Gathered:
    """Rows of partitions, one partition after another, taken from `sources`: those of each of `spans` (source number,
    first row, number of rows) in turn. They are copied only when they are requested.
    """

    def __init__(self, sources: Sequence[Rows], spans: Sequence[tuple[int, int, int]]) -> None:
        self._sources = sources
        self._spans = spans
        self._rows: Rows | None = None
        self.length = sum([length for _, _, length in spans])

    @property
    def rows(self) -> Rows:
        """All the rows."""
        if self._rows is None and 0 < len(self._spans) <= _FEW_SPANS:
            self._rows = joined([self._sources[source].part(first, length) for source, first, length in self._spans])
        elif self._rows is None:
            firsts, lengths, _ = self._places
            self._rows = self._picked(ranges(firsts, lengths))
        return self._rows

    @cached_property
    def _offsets(self) -> Index:
        """The number of the first row of each source, over all sources."""
        return np.cumsum([0, *(source.length for source in self._sources)])

    @cached_property
    def _places(self) -> tuple[Index, Index, Index]:
        """For each span its first row, over all sources; its length; and where it ends among the rows of all spans."""
        of_span, firsts, lengths = np.array(self._spans, np.int64).reshape(len(self._spans), 3).T
        return firsts + self._offsets[of_span], lengths, lengths.cumsum()

    def part(self, start: int, length: int) -> Rows:
        """Consecutive rows, without copying any others."""
        first = start
        for source, place, count in self._spans:
            if first >= 0 and first + length <= count:
                return self._sources[source].part(place + first, length)
            first -= count
        if self._rows is not None:
            return self._rows.part(start, length)
        found = [] if length else [self._sources[0].slice(0, 0)]
        for source, first, count in self._spans:
            low, high = max(0, start), min(count, start + length)
            if low < high:
                found.append(self._sources[source].part(first + low, high - low))
            start -= count
        return joined(found)

    def take(self, places: Index) -> Rows:
        if self._rows is not None:
            return self._rows if is_every(places, self.length) else self._rows.take(places)
        firsts, lengths, ends = self._places
        shifts = firsts - (ends - lengths)
        return self._picked(places + shifts.take(np.searchsorted(ends, places, side="right")))

    def _picked(self, wanted: Index) -> Rows:
        """`wanted`: row numbers over all sources."""
        if not len(wanted):
            return self._sources[0].slice(0, 0)
        if len(self._sources) == 1 or 2 * len(wanted) >= int(self._offsets[-1]):
            together = joined(list(self._sources))
            return together if is_every(wanted, together.length) else together.take(wanted)
        source_of = np.searchsorted(self._offsets, wanted, side="right") - 1
        order = np.argsort(source_of, kind="stable")
        used, firsts = np.unique(source_of[order], return_index=True)
        parts = [
            self._sources[source].take(own - self._offsets[source])
            for source, own in zip(used.tolist(), np.split(wanted[order], firsts[1:]), strict=True)
        ]
        found = joined(parts)
        if is_every(order, len(order)):
            return found
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return found.take(back)


class RetainedRows:
    """The rows of all partitions; each partition has a list of its pieces. `columns`: the columns that are kept."""

    def __init__(self, columns: Collection[int]) -> None:
        self.columns = columns
        self._stored = 0

    @staticmethod
    def gathered(spans: Sequence[tuple[Sequence[Piece], int, int]], new: Rows | None = None) -> Gathered:
        """For each partition, its pieces and then its part (first row, end) of the `new` rows."""
        chunks = list(dict.fromkeys(piece.chunk for pieces, _, _ in spans for piece in pieces))
        numbers = {chunk: number for number, chunk in enumerate(chunks)}
        sources = [chunk.rows for chunk in chunks]
        if new is not None and (new.length or not sources):
            sources.append(new)
        places: list[tuple[int, int, int]] = []
        for pieces, start, end in spans:
            places += [(numbers[piece.chunk], piece.place, piece.count) for piece in pieces]
            if end > start:
                places.append((len(chunks), start, end - start))
        return Gathered(sources, places)

    def add(self, owners: Iterable[list[Piece]], lengths: Sequence[int], rows: Rows) -> None:
        """`rows`: the rows of each owner in turn, which follow those that it has."""
        chunk = Chunk(rows)
        place = 0
        for pieces, length in zip(owners, lengths, strict=True):
            if length:
                pieces.append(Piece(chunk, place, length))
                chunk.users += 1
                place += length
        if chunk.users:
            self._stored += rows.length

    def release(self, pieces: list[Piece], kept: int = 0) -> None:
        """Release all of these rows except the last `kept` ones."""
        gone = sum(piece.count for piece in pieces) - kept
        while gone > 0:
            piece = pieces[0]
            if piece.count > gone:
                pieces[0] = Piece(piece.chunk, piece.place + gone, piece.count - gone)
                return
            gone -= piece.count
            self._leave(pieces.pop(0))

    def release_small(self, pieces: list[Piece], following: int) -> int:
        """Release the last pieces, up to one that has more than twice as many rows as those after it, of which
        `following` are in no piece yet. Returns the number of released rows.

        If these rows are copied into one piece, few pieces remain, and each row is copied a few times only.
        """
        gone = 0
        while pieces and pieces[-1].count <= 2 * (gone + following):
            gone += pieces[-1].count
            self._leave(pieces.pop())
        return gone

    def _leave(self, piece: Piece) -> None:
        piece.chunk.users -= 1
        if not piece.chunk.users:
            self._stored -= piece.chunk.rows.length

    def together(self, owners: Iterable[list[Piece]]) -> Rows:
        """All rows of these owners, one owner after another."""
        return compact(self.gathered([(pieces, 0, 0) for pieces in owners]).rows, self.columns)

    def has_many_spare(self, kept: int) -> bool:
        """Whether far more rows are stored than the `kept` ones that are still needed."""
        return self._stored > 2 * kept + _SPARE_ROWS

    def repack(self, owners: Sequence[list[Piece]]) -> None:
        """Copy the rows of all owners into one chunk and drop the others. Every owner must have rows."""
        counts = [sum(piece.count for piece in pieces) for pieces in owners]
        rows = self.together(owners)
        for pieces in owners:
            self.release(pieces)
        self.add(owners, counts, rows)
