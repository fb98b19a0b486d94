"""Rows in memory, whose columns are read only when they are needed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.matching.recognize import SortKey
from candlewright_cep.vector import Index, Vector, codes, concatenate, from_column, ranks_of

Source = Vector | Callable[[], Vector]


class Relation:
    """`length` rows; `column(i)` computes each column once."""

    def __init__(self, columns: Sequence[Source], length: int) -> None:
        self._columns: list[Source] = list(columns)
        self.length = length

    @property
    def width(self) -> int:
        return len(self._columns)

    def column(self, index: int) -> Vector:
        found = self._columns[index]
        if not isinstance(found, Vector):
            found = found()
            self._columns[index] = found
        return found

    def values(self, bounds: Bounds | None = None) -> RowValues:
        return RowValues(self.column, self.length, bounds)

    def take(self, rows: Index) -> "Relation":
        """The rows with these numbers; a row of NULLs for a negative number."""
        return Relation([_Taken(self, index, rows) for index in range(self.width)], len(rows))

    def picked(self, index: int, rows: Index) -> Vector:
        """The values of one column at these rows."""
        source = self._columns[index]
        if isinstance(source, _Taken) and 2 * len(rows) < self.length:
            # Reads only the rows that are needed, not the whole column of an earlier `take`.
            return source.relation.picked(source.index, np.where(rows < 0, -1, source.rows[rows]))
        return self.column(index).take(rows)

    def slice(self, start: int, length: int) -> "Relation":
        """A view of consecutive rows."""
        return Relation([partial(self._sliced, index, start, length) for index in range(self.width)], length)

    def _sliced(self, index: int, start: int, length: int) -> Vector:
        return self.column(index).slice(start, length)

    def with_columns(self, further: Sequence[Source]) -> "Relation":
        return Relation([*self._sources(), *further], self.length)

    def select(self, indices: Sequence[int]) -> "Relation":
        sources = self._sources()
        return Relation([sources[index] for index in indices], self.length)

    def _sources(self) -> list[Source]:
        return [self._reference(index) for index in range(self.width)]

    def _reference(self, index: int) -> Source:
        found = self._columns[index]
        return found if isinstance(found, Vector) else partial(self.column, index)


@dataclass(slots=True)
class _Taken:
    """A column of a relation at some of its rows."""

    relation: Relation
    index: int
    rows: Index

    def __call__(self) -> Vector:
        return self.relation.picked(self.index, self.rows)


def from_table(table: pa.Table, known: Mapping[int, pa.Array] | None = None) -> Relation:
    """The rows of a table; columns in `known` are not read from it."""
    sources: list[Source] = [partial(_read, table, index) for index in range(table.num_columns)]
    for index, array in (known or {}).items():
        sources[index] = partial(from_column, array)
    return Relation(sources, table.num_rows)


def _read(table: pa.Table, index: int) -> Vector:
    return from_column(table.column(index))


def concatenated(parts: Sequence[Relation]) -> Relation:
    sources = [partial(_together, parts, index) for index in range(parts[0].width)]
    return Relation(sources, sum([part.length for part in parts]))


def _together(parts: Sequence[Relation], index: int) -> Vector:
    return concatenate([part.column(index) for part in parts])


def partition_codes(columns: Sequence[Vector], length: int) -> Index:
    """One number per row; rows with equal values in all columns have equal numbers (NULL equals NULL)."""
    found = np.zeros(length, dtype=np.int64)
    for index, column in enumerate(columns):
        part = codes(column)
        if int(part.min(initial=0)) < 0:
            part += 1
        if index == 0:
            found = part
            continue
        kinds = int(part.max(initial=0)) + 1
        if kinds * (int(found.max(initial=0)) + 1) <= length or not _follows(part, found):
            found = ranks_of(found * kinds + part)
    return found


def _follows(part: Index, found: Index) -> bool:
    """Whether `part` is determined by `found`, as the end of a window is by its start."""
    of_number = np.zeros(int(found.max(initial=0)) + 1, np.int64)
    of_number[found] = part
    return bool((of_number.take(found) == part).all())


def sort_codes(vector: Vector, key: SortKey) -> Index | None:
    """Integers that sort ascending in the order of the key; None if the key itself consists of ascending integers."""
    whole = vector.expand()
    if whole.type.is_text or whole.values.dtype.kind == "f" or whole.valid is not None or key.descending:
        ranks = codes(whole)
        missing = ranks < 0
        if key.descending:
            ranks = -ranks
        if missing.any():
            ranks = np.where(missing, np.iinfo(np.int64).min if key.nulls_first else np.iinfo(np.int64).max, ranks)
        return ranks
    found: Index = whole.values.astype(np.int64)
    return found


def sorted_order(keys: Sequence[SortKey], values: RowValues, length: int) -> Index:
    """Row numbers in the order of the keys; ties keep their order of arrival."""
    order = np.arange(length, dtype=np.int64)
    for key in reversed(keys):
        ranks = sort_codes(values.value(key.expression), key)
        if ranks is None or length == 0:
            continue
        picked = ranks[order]
        if not bool((picked[1:] >= picked[:-1]).all()):
            order = order[np.argsort(picked, kind="stable")]
    return order


def arranged(relation: Relation, partition: Sequence[int], keys: Sequence[SortKey]) -> tuple[Relation, Bounds, Index]:
    """The rows grouped by partition and sorted within each; and the row numbers that they had.

    Partitions are in the order of their values, NULL first.
    """
    length = relation.length
    order = sorted_order(keys, relation.values(), length)
    in_order = _is_identity(order)
    bounds = Bounds.whole(length)
    if partition:
        numbers = partition_codes([relation.column(index) for index in partition], length)
        small: Index = numbers.astype(np.uint16) if int(numbers.max(initial=0)) < 65_536 else numbers
        grouped = np.argsort(small if in_order else small[order], kind="stable")
        order = grouped if in_order else order[grouped]
        in_order = in_order and _is_identity(order)
        sizes = np.bincount(small)
        sizes = sizes[sizes > 0]
        ends = np.cumsum(sizes)
        bounds = Bounds(ends - sizes, ends)
    return (relation if in_order else relation.take(order)), bounds, order


def _is_identity(order: Index) -> bool:
    return len(order) == 0 or (int(order[0]) == 0 and bool((order[1:] - order[:-1] == 1).all()))
