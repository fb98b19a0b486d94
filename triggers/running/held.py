"""The rows that open attempts have not been fed yet, kept once for all streams of an input.

An attempt in a loop whose condition holds for every new row stays as it is (see `candlewright_cep.matching.glance`),
however many rows come. Its stream is fed all of them once one may matter.

The rows are in chunks that never change once written. As in a log-structured merge tree, a chunk is merged with the one
before it unless that one is more than twice as long: a step that saves its state writes few rows.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from candlewright_cep.table_bytes import bytes_of, table_of
from candlewright_cep.vector import ranges
from triggers.packing import squeezed, unsqueezed

__all__ = ["HeldRows"]

_HEADER = b"candlewright"
#: Rows that are not needed are dropped once there are this many more of them than of needed ones.
_SPARE_ROWS = 4096
#: First row in a table, count, and the number of the first one among all rows of its ticker.
Place = tuple[int, int, int]


@dataclass(slots=True, eq=False)
class _Chunk:
    rows: pa.Table
    places: dict[str, Place]
    written: bytes = b""

    def as_bytes(self) -> bytes:
        if not self.written:
            header = {_HEADER: json.dumps(self.places).encode()}
            self.written = squeezed(bytes_of(self.rows.replace_schema_metadata(header)))
        return self.written

    @staticmethod
    def of_bytes(written: bytes) -> "_Chunk":
        rows = table_of(unsqueezed(written))
        places: dict[str, Sequence[int]] = json.loads(rows.schema.metadata[_HEADER])
        found = {ticker: (start, count, first) for ticker, (start, count, first) in places.items()}
        return _Chunk(rows.replace_schema_metadata(None).combine_chunks(), found, written)

    def part(self, ticker: str, first: int, end: int) -> tuple[int, int, int] | None:
        """Where rows `first` to `end` of a ticker are, as far as the chunk has them."""
        start, count, own = self.places.get(ticker, (0, 0, 0))
        low, high = max(first, own), min(end, own + count)
        return (start + low - own, high - low, low) if low < high else None


@dataclass(slots=True)
class HeldRows:
    """Rows are numbered by ticker. `needs`: the first row of each ticker that is still needed; of other tickers, none
    is.
    """

    needs: Mapping[str, int] = field(default_factory=dict)
    _chunks: dict[int, _Chunk] = field(default_factory=dict)
    _last: int = 0

    def add(self, rows: pa.Table, places: Mapping[str, Place]) -> None:
        """New rows, of which the needed ones are kept."""
        if not self.needs:
            self._chunks.clear()
            return
        chunk = self._needed([_Chunk(rows, dict(places))])
        if chunk is not None:
            parts = [chunk]
            size = chunk.rows.num_rows
            while self._chunks and next(reversed(self._chunks.values())).rows.num_rows <= 2 * size:
                parts.append(self._chunks.popitem()[1])
                size += parts[-1].rows.num_rows
            self._keep(self._needed(parts[::-1]) if len(parts) > 1 else chunk)
        kept = sum(part.rows.num_rows for part in self._chunks.values())
        if kept > _SPARE_ROWS and kept > 2 * self._count() + _SPARE_ROWS:
            parts, self._chunks = list(self._chunks.values()), {}
            self._keep(self._needed(parts))

    def _keep(self, chunk: _Chunk | None) -> None:
        if chunk is not None:
            self._last += 1
            self._chunks[self._last] = chunk

    def _count(self) -> int:
        """The number of needed rows."""
        ends = {ticker: first + count for part in self._chunks.values()
                for ticker, (_, count, first) in part.places.items()}  # fmt: skip
        return sum(max(0, end - self.needs[ticker]) for ticker, end in ends.items() if ticker in self.needs)

    def _needed(self, parts: Sequence[_Chunk]) -> _Chunk | None:
        """One chunk with the needed rows of these, which follow each other."""
        starts = np.cumsum([0, *(part.rows.num_rows for part in parts)]).tolist()
        spans: list[tuple[int, int]] = []
        places: dict[str, Place] = {}
        length = 0
        for ticker in dict.fromkeys(name for part in parts for name in part.places if name in self.needs):
            found = [(start, own) for start, part in zip(starts, parts, strict=False)
                     if (own := part.part(ticker, self.needs[ticker], 2**62)) is not None]  # fmt: skip
            count = sum(own[1] for _, own in found)
            if count:
                places[ticker] = length, count, found[0][1][2]
                spans += [(start + own[0], own[1]) for start, own in found]
                length += count
        if not spans:
            return None
        picked = np.array(spans, np.int64)
        together = pa.concat_tables([part.rows for part in parts]).combine_chunks()
        return _Chunk(together.take(pa.array(ranges(picked[:, 0], picked[:, 1]))).combine_chunks(), places)

    def rows(self, ticker: str, first: int, end: int) -> Iterator[pa.Table]:
        """Needed rows of a ticker, in their order."""
        for chunk in self._chunks.values():
            if (own := chunk.part(ticker, first, end)) is not None:
                yield chunk.rows.slice(own[0], own[1])

    # ---- state
    def save(self) -> dict[int, bytes]:
        """The chunks by number; an unchanged one is the same object each time."""
        return {number: chunk.as_bytes() for number, chunk in self._chunks.items()}

    @classmethod
    def load(cls, needs: Mapping[str, int], written: Mapping[int, bytes]) -> "HeldRows":
        chunks = {number: _Chunk.of_bytes(content) for number, content in sorted(written.items())}
        return cls(dict(needs), chunks, max(chunks, default=0))
