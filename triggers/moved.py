"""What a micro-batch brought of one input, ready for each stream to take its part."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from cep import Clock

__all__ = ["Moved"]


@dataclass(frozen=True, slots=True)
class Moved:
    """What one micro-batch brought of one input. `tickers`: those with rows, a new watermark or an end."""

    rows: pa.Table
    by_ticker: Mapping[str, pa.Table]
    tickers: frozenset[str]
    clock: Clock

    @classmethod
    def of(cls, rows: pa.Table, tickers: set[str], clock: Clock) -> "Moved":
        """`tickers`: those without rows."""
        rows, by_ticker = _by_ticker(rows)
        return cls(rows, by_ticker, frozenset(tickers | by_ticker.keys()), clock)


def _by_ticker(rows: pa.Table) -> tuple[pa.Table, dict[str, pa.Table]]:
    """The rows with those of each ticker together, in the order they had, and the parts."""
    if not rows.num_rows:
        return rows, {}
    encoded = rows.column("ticker").combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy(zero_copy_only=False)
    order = np.argsort(codes, kind="stable")
    if not bool((order[1:] > order[:-1]).all()):
        rows, codes = rows.take(pa.array(order)), codes[order]
    cuts = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), rows.num_rows]
    names = encoded.dictionary.to_pylist()
    return rows, {names[codes[start]]: rows.slice(start, end - start) for start, end in pairwise(cuts)}
