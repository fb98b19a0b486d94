"""The rows and the clock of one input after a micro-batch; each stream takes its part of them."""

from collections.abc import Callable, Iterator, KeysView, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from candlewright_cep import Clock
from candlewright_cep.vector import distinct

__all__ = ["Moved"]

#: If there are more tickers than this, their rows are selected from all rows at once.
_PARTS = 32


@dataclass(frozen=True, slots=True)
class Moved:
    """The new rows of one input, and its clock after them. `tickers`: those with rows, a new watermark or an end."""

    rows: pa.Table
    by_ticker: "_Parts"
    tickers: frozenset[str]
    clock: Clock

    @classmethod
    def of(
        cls,
        rows: pa.Table,
        tickers: set[str],
        clock: Clock,
        *,
        whole: Callable[[pa.Table], pa.Table] | None = None,
    ) -> "Moved":
        """`tickers`: those without rows. `whole`: adds all columns of the input to rows."""
        rows, cuts = _by_ticker(rows)
        if whole is not None:
            rows = whole(rows)
        by_ticker = _Parts(rows, {ticker: (start, end - start) for ticker, start, end in cuts})
        return cls(rows, by_ticker, frozenset(tickers | by_ticker.keys()), clock)

    def and_of(self, tickers: set[str]) -> "Moved":
        """The same rows, with further tickers without any."""
        return replace(self, tickers=self.tickers | tickers)

    def of_tickers(self, names: Sequence[str]) -> pa.Table:
        """The rows of these tickers, ticker by ticker; each ticker must have rows."""
        if len(names) == len(self.by_ticker):
            return self.rows
        if len(names) <= _PARTS:
            parts = [self.by_ticker[name] for name in sorted(names)]
            return pa.concat_tables(parts) if parts else self.rows.slice(0, 0)
        wanted = np.zeros(self.rows.num_rows, np.bool_)
        for start, length in map(self.by_ticker.places.__getitem__, names):
            wanted[start : start + length] = True
        return self.rows.filter(pa.array(wanted))


class _Parts(Mapping[str, pa.Table]):
    """Parts of a table by name, sliced on request."""

    def __init__(self, rows: pa.Table, places: Mapping[str, tuple[int, int]]) -> None:
        self._rows = rows
        self.places = places
        self._ends: dict[str, dict[str, tuple[float, float]]] = {}

    def __getitem__(self, name: str) -> pa.Table:
        return self._rows.slice(*self.places[name])

    def ends(self, column: str) -> Mapping[str, tuple[float, float]]:
        """For each ticker, the least and the greatest value: NaN if a row has none. Empty unless the column is of
        doubles.
        """
        if column not in self._ends:
            self._ends[column] = self._found_ends(column)
        return self._ends[column]

    def _found_ends(self, column: str) -> dict[str, tuple[float, float]]:
        if not self.places or not pa.types.is_float64(self._rows.schema.field(column).type):
            return {}
        values = self._rows.column(column).to_numpy()
        starts = [start for start, _ in self.places.values()]
        least, most = np.minimum.reduceat(values, starts).tolist(), np.maximum.reduceat(values, starts).tolist()
        return dict(zip(self.places, zip(least, most, strict=True), strict=True))

    def keys(self) -> KeysView[str]:
        return self.places.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def _by_ticker(rows: pa.Table) -> tuple[pa.Table, list[tuple[str, int, int]]]:
    """The rows with those of each ticker together, in their original order, and where each ticker's rows begin and
    end.
    """
    if not rows.num_rows:
        return rows, []
    names, codes = distinct(rows.column("ticker"))
    if len(names) == 1:
        return rows, [(names[0], 0, rows.num_rows)]
    if not bool((codes[1:] >= codes[:-1]).all()):
        order = np.argsort(codes, kind="stable")
        rows, codes = rows.take(pa.array(order)), codes[order]
    cuts = np.flatnonzero(codes[1:] != codes[:-1]) + 1
    places = [0, *cuts.tolist(), rows.num_rows]
    return rows, [(names[codes[start]], start, end) for start, end in pairwise(places)]
