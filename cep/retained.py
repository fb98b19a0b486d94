"""Rows that partitions keep from batch to batch: in few arrays for all of them, copied as seldom as can be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cep.release import Rows, joined
from cep.vector import Index, is_every, ranges


@dataclass(slots=True, eq=False)
class Chunk:
    """Rows of the partitions that one batch touched; `users`: how many pieces of partitions lie here."""

    rows: Rows
    users: int = 0


@dataclass(slots=True)
class Piece:
    """`count` rows of one partition from `place` of `chunk`."""

    chunk: Chunk
    place: int
    count: int


class Gathered:
    """Rows of partitions, one partition after another, as they lie in `sources`: those of each of `spans` (number of
    the source, first row, rows) in turn. They are copied when they are asked for."""

    def __init__(self, sources: Sequence[Rows], spans: Sequence[tuple[int, int, int]]) -> None:
        self._sources = sources
        offsets = np.cumsum([0, *(source.length for source in sources)])
        of_span, firsts, lengths = np.array(spans, np.int64).reshape(len(spans), 3).T
        firsts = firsts + offsets[of_span]
        ends = np.cumsum(lengths)
        self._offsets = offsets
        self._firsts, self._lengths, self._ends = firsts, lengths, ends
        self._rows: Rows | None = None
        self.length = int(ends[-1]) if len(ends) else 0

    @property
    def rows(self) -> Rows:
        """All of them."""
        if self._rows is None:
            self._rows = self._picked(ranges(self._firsts, self._lengths))
        return self._rows

    def take(self, places: Index) -> Rows:
        if self._rows is not None:
            return self._rows if is_every(places, self.length) else self._rows.take(places)
        shifts = self._firsts - (self._ends - self._lengths)
        return self._picked(places + shifts.take(np.searchsorted(self._ends, places, side="right")))

    def _picked(self, wanted: Index) -> Rows:
        """`wanted`: numbers over all sources."""
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
