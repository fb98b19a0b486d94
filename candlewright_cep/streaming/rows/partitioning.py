"""Divides released rows by PARTITION BY and sorts them by its ORDER BY."""

from typing import Any

import numpy as np

from candlewright_cep.matching.recognize import SortKey
from candlewright_cep.planning.relation import partition_codes, sorted_order
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.vector import Index, is_ascending

Key = tuple[Any, ...]


def by_partition(
    rows: Rows, tickers: Index, columns: tuple[int, ...], *, keys: tuple[SortKey, ...]
) -> tuple[Rows, Index, list[tuple[Key, int, int]]]:
    """The rows and the codes of their tickers, sorted by partition and within it; and for each partition its key, first
    row and end. `columns`: those of PARTITION BY.
    """
    vectors = [rows.relation.column(index) for index in columns]
    if rows.length == 1:
        return rows, tickers, [(tuple(vector.to_list()[0] for vector in vectors), 0, 1)]
    numbers = tickers
    if len(vectors) != 1 or vectors[0].values is not rows.ticker or not is_ascending(tickers):
        numbers = partition_codes(vectors, rows.length)
    order = np.arange(rows.length, dtype=np.int64)
    if not is_ascending(numbers):
        order = np.argsort(numbers, kind="stable").astype(np.int64)
    if not _is_ordered(rows, keys, numbers, order):
        order = sorted_order(keys, rows.relation.values(), rows.length)
        order = order[np.argsort(numbers[order], kind="stable")]
    if not bool((order[1:] > order[:-1]).all()):
        rows, numbers, tickers = rows.take(order), numbers[order], tickers[order]
        vectors = [rows.relation.column(index) for index in columns]
    cuts = np.flatnonzero(numbers[1:] != numbers[:-1]) + 1
    starts = np.concatenate([np.zeros(1, np.int64), cuts])
    ends = np.append(cuts, rows.length)
    names = zip(*(vector.take(starts).to_list() for vector in vectors), strict=True) if columns else [()]
    return rows, tickers, list(zip(names, starts.tolist(), ends.tolist(), strict=True))


def _is_ordered(rows: Rows, keys: tuple[SortKey, ...], numbers: Index, order: Index) -> bool:
    """Whether a single ascending key is already in order within each partition, as rows are released."""
    if len(keys) > 1:
        return False
    for key in keys:
        vector = rows.relation.values().value(key.expression).expand()
        if vector.valid is not None or vector.type.is_text or key.descending:
            return False
        values, groups = vector.values[order], numbers[order]
        if bool(((groups[1:] == groups[:-1]) & (values[1:] < values[:-1])).any()):
            return False
    return True
