"""The last rows of each ticker, and those that open attempts wait with, kept once for all streams that need not be fed
every row.

A stream is not fed the rows of a micro-batch that can neither begin nor complete its pattern (see
`candlewright_cep.matching.glance`). Once rows can, it is first fed those missed rows that still matter, from here.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.binding.expressions import Expression
from candlewright_cep.limits import DEFAULT
from candlewright_cep.matching.glance import Look
from candlewright_cep.table_bytes import bytes_of, table_of
from candlewright_cep.vector import Vector, concatenate, from_column, ranges
from candlewright_cep.work import Work
from triggers.packing import squeezed, unsqueezed
from triggers.records.moved import Moved
from triggers.running.held import HeldRows

__all__ = ["Recent"]


def _values(rows: pa.Table) -> RowValues:
    return RowValues(lambda index: from_column(rows.column(index)), rows.num_rows)


_HEADER = b"candlewright"


class Recent:
    """The last rows of one input, at most `most` of each ticker. `filters`: only rows that meet all of them, in this
    order, count. `counts`: the rows of each ticker so far; `ended`: their number when the ticker last closed, since no
    match continues across that. `held`: more of those tickers for which it has `needs`."""

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.filters: Sequence[Expression] = ()
        self.held = HeldRows()
        self.counts: dict[str, int] = {}
        self.ended: dict[str, int] = {}
        self._rows: pa.Table | None = None
        self._places: dict[str, tuple[int, int]] = {}
        #: The tickers for whose last rows the filters failed; none of these rows counts.
        self.failed: set[str] = set()
        self._last: tuple[Moved, Moved] | None = None

    def of(self, moved: Moved) -> Moved:
        """The part of what has moved that counts."""
        if not self.filters or not moved.by_ticker:
            return moved
        if self._last is None or self._last[0] is not moved:
            self.failed.clear()
            rows = self._filtered(moved.rows, moved.by_ticker)
            self._last = moved, Moved.of(rows, set(moved.tickers), moved.clock)
        return self._last[1]

    def _filtered(self, rows: pa.Table, by_ticker: Mapping[str, pa.Table]) -> pa.Table:
        try:
            # One allowance for all filters, because to begin one is a system call.
            with Work(DEFAULT, rows.num_rows):
                for condition in self.filters:
                    met = _values(rows).value(condition).true()
                    rows = rows if met.all() else rows.filter(pa.array(met))
            return rows
        except Exception:  # The same error in a stream suspends the triggers on the ticker at fault alone.
            if len(by_ticker) == 1:
                self.failed.update(by_ticker)
                return rows.slice(0, 0)
            return pa.concat_tables([self._filtered(own, {name: own}) for name, own in by_ticker.items()])

    def look(self, moved: Moved, columns: Iterable[int]) -> Look:
        """The kept rows of the tickers that have moved, each followed by its new ones. `moved`: see `of`."""
        places = moved.by_ticker.places
        old = [self._places.get(ticker, (0, 0)) for ticker in places]
        kept, rows = self._kept(moved.rows), moved.rows
        spans = np.array([span for before, (start, count) in zip(old, places.values(), strict=True)
                          for span in (before, (kept.num_rows + start, count))], np.int64)  # fmt: skip
        order = ranges(spans[:, 0], spans[:, 1])
        ends = np.cumsum(spans[:, 1])
        starts = np.append(0, ends[1:-1:2])
        known: dict[int, Vector] = {
            index: concatenate([from_column(kept.column(index)), from_column(rows.column(index))]).take(order)
            for index in columns
        }
        values = RowValues(known.__getitem__, len(order), Bounds(starts, ends[1::2]))
        return Look(values=values, length=len(order), starts=starts, news=ends[::2])

    def add(self, moved: Moved) -> None:
        """Append the rows of `moved` that count, and drop those that are no longer needed."""
        moved = self.of(moved)
        self._last = None
        for ticker in moved.tickers & moved.clock.closed:
            self.ended[ticker] = self.counts.get(ticker, 0) + moved.by_ticker.places.get(ticker, (0, 0))[1]
        if not moved.by_ticker:
            return
        self.held.add(
            moved.rows,
            {
                ticker: (start, count, self.counts.get(ticker, 0))
                for ticker, (start, count) in moved.by_ticker.places.items()
            },
        )
        kept = self._kept(moved.rows)
        spans: list[tuple[int, int]] = []
        places: dict[str, tuple[int, int]] = {}
        length = 0
        for ticker in dict.fromkeys([*self._places, *moved.by_ticker.places]):
            start, count = self._places.get(ticker, (0, 0))
            first, new = moved.by_ticker.places.get(ticker, (0, 0))
            self.counts[ticker] = self.counts.get(ticker, 0) + new
            new_kept = min(new, self.most)
            old_kept = min(count, self.most - new_kept)
            spans.append((start + count - old_kept, old_kept))
            spans.append((kept.num_rows + first + new - new_kept, new_kept))
            places[ticker] = length, old_kept + new_kept
            length += old_kept + new_kept
        picked = np.array(spans, np.int64)
        together = pa.concat_tables([kept, moved.rows]).combine_chunks()
        self._rows = together.take(pa.array(ranges(picked[:, 0], picked[:, 1]))).combine_chunks()
        self._places = places

    def first_needed(self, ticker: str, place: int, reach: int) -> int:
        """The first row that still matters to a stream whose next row is number `place` and whose matches may begin
        `reach` rows before the newest ones."""
        return max(place, self.counts.get(ticker, 0) - reach, self.ended.get(ticker, 0))

    def rows(self, spans: Mapping[str, tuple[int, int]], like: pa.Table) -> pa.Table:
        """The rows between two numbers, by ticker, as far as they are kept. `like`: a table with their columns."""
        parts = [like.slice(0, 0)]
        for ticker, (first, end) in sorted(spans.items()):
            start, count = self._places.get(ticker, (0, 0))
            oldest = self.counts.get(ticker, 0) - count
            if first < oldest and first >= self.held.needs.get(ticker, end):
                parts += self.held.rows(ticker, first, end)
            elif self._rows is not None:
                low = max(first, oldest)
                parts.append(self._rows.slice(start + low - oldest, max(0, end - low)))
        return pa.concat_tables(parts).combine_chunks()

    @property
    def none(self) -> pa.Table | None:
        """A table with the columns but no rows; None before the first row."""
        return None if self._rows is None else self._rows.slice(0, 0)

    def _kept(self, like: pa.Table) -> pa.Table:
        return like.slice(0, 0) if self._rows is None else self._rows

    # ---- state
    def save(self) -> bytes:
        told = {"most": self.most, "counts": self.counts, "ended": self.ended, "places": self._places}
        told["needs"] = dict(self.held.needs)
        rows = pa.table({}) if self._rows is None else self._rows
        return squeezed(bytes_of(rows.replace_schema_metadata({_HEADER: json.dumps(told).encode()})))

    @classmethod
    def load(cls, written: bytes, held: Mapping[int, bytes]) -> "Recent":
        """`held`: the output of `HeldRows.save`. Raises ValueError for other bytes."""
        rows = table_of(unsqueezed(written))
        told: dict[str, Any] = json.loads(rows.schema.metadata[_HEADER])
        found = cls(told["most"])
        # Missing in states of older versions.
        found.held = HeldRows.load(told.get("needs", {}), held)
        found.counts, found.ended = dict(told["counts"]), dict(told["ended"])
        found._places = {ticker: (start, count) for ticker, (start, count) in told["places"].items()}
        found._rows = rows.replace_schema_metadata(None).combine_chunks() if rows.num_columns else None
        return found
