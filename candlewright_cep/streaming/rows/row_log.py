"""The rows that an operator keeps from feed to feed, in chunks that never change once written.

As in a log-structured merge tree, a chunk is merged with the one before it unless that one is more than twice as long.
There are therefore about log n chunks of n rows, each row is copied about log n times, and a step that saves its state
writes the few newest rows, not all of them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from candlewright_cep.binding.evaluation import Bounds
from candlewright_cep.planning.relation import Relation, concatenated
from candlewright_cep.streaming.rows.packing import packed_rows, unpacked_rows
from candlewright_cep.streaming.rows.release import Rows, compact, joined
from candlewright_cep.vector import Index, distinct, is_ascending, is_every, ranges

__all__ = ["NEWEST_ROWS", "RowLog", "Together", "without"]

#: Up to this many of the newest rows are written with each state; beyond, they become a chunk.
NEWEST_ROWS = 128
#: More spans than this are taken from the concatenated sources at once.
_FEW_SPANS = 32

Needed = Callable[[Rows], Rows]


@dataclass(slots=True, eq=False)
class _Chunk:
    """`places`: per ticker, its first row and the number of its rows; "" for all rows if tickers are not kept apart."""

    rows: Rows
    places: Mapping[str, tuple[int, int]]
    number: int = 0
    written: bytes = b""

    def as_bytes(self) -> bytes:
        if not self.written:
            self.written = packed_rows(self.rows)
            # The same rows within these bytes, so that they are in memory once.
            self.rows = unpacked_rows(self.written)
        return self.written


@dataclass(frozen=True, slots=True)
class Together:
    """New rows after the kept rows of their tickers, grouped by ticker.

    Ticker t has the rows `bounds.starts[t]` to `bounds.ends[t]`, the last `counts[t]` of them new. `new`: for each new
    row, its number in `relation`; `places`: its number among the new rows of `relation`.
    """

    relation: Relation
    bounds: Bounds
    counts: Index
    new: Index
    places: Index


class RowLog:
    """`needed`: selects, from the latest rows, those that later rows may still reach; called only when chunks merge.
    `is_joint`: the rows of all tickers are read together, in the order in which they came. `columns`: those that are
    kept, all if None; `needed` drops the others too.
    """

    def __init__(self, needed: Needed, *, is_joint: bool, columns: Collection[int] | None = None) -> None:
        self._needed = needed
        self._columns = columns
        self._is_joint = is_joint
        self._chunks: list[_Chunk] = []
        self._newest: _Chunk | None = None
        self._last = 0

    def _chunk(self, rows: Rows, number: int = 0) -> _Chunk:
        if self._is_joint:
            return _Chunk(rows, {"": (0, rows.length)}, number)
        names, codes = _codes(rows)
        if not is_ascending(codes):
            order = np.argsort(codes, kind="stable")
            rows, codes = compact(rows.take(order)), codes[order]
        ends = np.searchsorted(codes, np.arange(len(names)), side="right").tolist()
        places = {name: (start, end - start) for name, start, end in zip(names, [0, *ends], ends, strict=False)}
        return _Chunk(rows, places, number)

    @property
    def _all(self) -> list[_Chunk]:
        return self._chunks if self._newest is None else [*self._chunks, self._newest]

    @property
    def length(self) -> int:
        return sum(chunk.rows.length for chunk in self._all)

    @property
    def tickers(self) -> set[str]:
        """The tickers of all rows, including rows that are no longer needed."""
        if self._is_joint:
            return {name for chunk in self._all for name in _codes(chunk.rows)[0]}
        return {name for chunk in self._all for name in chunk.places}

    def of_tickers(self, tickers: Set[str]) -> Rows | None:
        """The rows of these tickers, needed or not, in order of arrival within each ticker; every row if all tickers
        are read together. None if there are none.
        """
        found: list[Rows] = []
        for chunk in self._all:
            if self._is_joint or chunk.places.keys() <= tickers:
                found.append(chunk.rows)
            elif places := [place for name, place in chunk.places.items() if name in tickers]:
                firsts, counts = np.array(places, np.int64).T
                found.append(chunk.rows.take(ranges(firsts, counts)))
        return joined(found) if found else None

    def with_kept(self, rows: Rows) -> Together:
        """`rows`: the new rows, in order of arrival within each ticker."""
        names, codes = ([""], np.zeros(rows.length, np.int64)) if self._is_joint else _codes(rows)
        order: Index = np.argsort(codes, kind="stable")
        counts: Index = np.bincount(codes, minlength=len(names))
        own = rows.relation if is_every(order, rows.length) else rows.relation.take(order)
        firsts = (np.cumsum(counts) - counts).tolist()
        of_new = dict(zip(names, zip(firsts, counts.tolist(), strict=True), strict=True))
        sources = [
            (chunk.rows.relation, chunk.places) for chunk in self._all if not of_new.keys().isdisjoint(chunk.places)
        ]
        sources.append((own, of_new))
        spans: list[tuple[int, int, int]] = []
        ends: list[int] = []
        length = 0
        for name in names:
            for number, (_, places) in enumerate(sources):
                if (place := places.get(name)) is not None:
                    spans.append((number, *place))
                    length += place[1]
            ends.append(length)
        bounds = Bounds(np.array([0, *ends[:-1]], np.int64), np.array(ends, np.int64))
        back = np.empty_like(order)
        back[order] = np.arange(rows.length)
        new = ranges(bounds.ends - counts, counts).take(back)
        return Together(_picked([relation for relation, _ in sources], spans), bounds, counts, new, back)

    def append(self, rows: Rows) -> None:
        """Rows that come after all others."""
        newest = rows if self._newest is None else joined([self._newest.rows, rows])
        if newest.length > NEWEST_ROWS:
            self._merge(newest)
        elif newest.length:
            self._newest = self._chunk(compact(newest, self._columns))

    def _merge(self, newest: Rows | None, *, wholly: bool = False) -> None:
        """Merge the newest rows with the chunks before them, up to one that is over twice as long (`wholly`: all)."""
        parts, size = ([], 0) if newest is None else ([newest], newest.length)
        while self._chunks and (wholly or self._chunks[-1].rows.length <= 2 * size):
            parts.append(self._chunks.pop().rows)
            size += parts[-1].length
        self._newest = None
        if parts and (rows := self._needed(joined(parts[::-1]))).length:
            self._keep(rows)

    def clear(self) -> None:
        self._chunks, self._newest = [], None

    def repack(self) -> None:
        """Drop all rows that are not needed."""
        self._merge(None if self._newest is None else self._newest.rows, wholly=True)

    def _keep(self, rows: Rows) -> None:
        self._last += 1
        self._chunks.append(self._chunk(rows, self._last))

    def whole(self) -> Rows | None:
        """All needed rows; None if nothing is kept."""
        parts = [chunk.rows for chunk in self._all]
        return self._needed(joined(parts)) if parts else None

    def most_of_a_ticker(self, most: int) -> int:
        """The number of needed rows of the ticker with most of them, if over `most` are kept in total; otherwise 0."""
        if self.length <= most or self._counted() <= most:
            return 0
        self.repack()
        return self._counted()

    def _counted(self) -> int:
        counts: Counter[str] = Counter()
        for chunk in self._all:
            names, codes = _codes(chunk.rows)
            counts.update(dict(zip(names, np.bincount(codes).tolist(), strict=True)))
        return max(counts.values(), default=0)

    def drop(self, tickers: Set[str]) -> None:
        """Forget the rows of these tickers."""
        before, self._chunks = self._chunks, []
        for chunk in before:
            left = _left(chunk.rows, tickers)
            if left.length == chunk.rows.length:
                self._chunks.append(chunk)
            elif left.length:
                self._keep(left)
        if self._newest is not None:
            left = _left(self._newest.rows, tickers)
            self._newest = self._chunk(left) if left.length else None

    # -- state ----------------------------------------------------------------------------------------------------

    def parts(self) -> tuple[dict[str, Any], Rows | None, dict[int, bytes]]:
        """The arguments of `restore`: a state for JSON, the newest rows, and the chunks by number.

        An unchanged chunk is the same object each time.
        """
        chunks = {chunk.number: chunk.as_bytes() for chunk in self._chunks}
        newest = None if self._newest is None else self._newest.rows
        return {"last": self._last, "chunks": list(chunks)}, newest, chunks

    def restore(self, state: Mapping[str, Any], newest: Rows | None, chunks: Mapping[int, bytes]) -> None:
        """Raises ValueError if a chunk of the state is missing."""
        # A state saved in one part has no chunks.
        self._last, self._chunks = state.get("last", 0), []
        for number in state.get("chunks", []):
            if number not in chunks:
                raise ValueError(f"chunk {number} of a state is missing")
            found = self._chunk(unpacked_rows(chunks[number]), number)
            found.written = chunks[number]
            self._chunks.append(found)
        self._newest = self._chunk(newest) if newest is not None and newest.length else None


def _picked(sources: Sequence[Relation], spans: Sequence[tuple[int, int, int]]) -> Relation:
    """`spans`: number of a source, first row, rows."""
    if len(spans) <= _FEW_SPANS:
        return concatenated([sources[number].slice(first, length) for number, first, length in spans])
    together = concatenated(sources)
    offsets = np.cumsum([0, *(source.length for source in sources)])
    numbers, firsts, lengths = np.array(spans, np.int64).T
    wanted = ranges(offsets[numbers] + firsts, lengths)
    return together if is_every(wanted, together.length) else together.take(wanted)


def _codes(rows: Rows) -> tuple[list[str], Index]:
    return distinct(rows.ticker)


def _left(rows: Rows, tickers: Set[str]) -> Rows:
    names, codes = _codes(rows)
    if tickers.isdisjoint(names):
        return rows
    stays = np.array([name not in tickers for name in names], np.bool_)
    return compact(rows.take(np.flatnonzero(stays.take(codes))))


def without(rows: Rows | None, tickers: Set[str]) -> Rows | None:
    """The rows of all other tickers."""
    return None if rows is None else _left(rows, tickers)
