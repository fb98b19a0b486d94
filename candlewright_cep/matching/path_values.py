"""The values that path conditions read, for the rows of one partition of a stream that the search still needs.

They are computed once, when a row is tested, not for all retained rows with every batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from candlewright_cep.binding.expressions import Expression
from candlewright_cep.vector import Array, Vector


class _Tail:
    """An array that grows at the end and shrinks at the start."""

    __slots__ = ("_buffer", "_end", "_start")

    def __init__(self) -> None:
        self._buffer: Array = np.zeros(0, np.bool_)
        self._start = self._end = 0

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
        self._start += count


class PathValues:
    """`lists`: the hoisted expressions of the conditions, for the trials; `first`: the number of their first row.

    The arrays are for the foresight: masks, times, and the columns that it names (None without a foresight).
    """

    def __init__(self, first: int, hoisted: int, columns: Sequence[Expression] | None) -> None:
        self.first = first
        self.lists: list[list[Any]] = [[] for _ in range(hoisted)]
        self._columns = {node: (_Tail(), _Tail()) for node in columns or ()}
        self._masks, self._times = _Tail(), _Tail()
        self._foresees = columns is not None
        self.end = first

    @property
    def masks(self) -> Array:
        return self._masks.values

    @property
    def times(self) -> Array:
        return self._times.values

    def vector(self, node: Expression) -> Vector:
        values, valid = self._columns[node]
        return Vector(node.type, values.values, valid.values)

    def add(self, lists: Sequence[Sequence[Any]], columns: Sequence[Vector], masks: Array, *, times: Array) -> None:
        """Append the values of further rows."""
        for own, further in zip(self.lists, lists, strict=True):
            own.extend(further)
        for (values, valid), column in zip(self._columns.values(), columns, strict=True):
            values.add(column.values)
            valid.add(column.mask)
        if self._foresees:
            self._masks.add(masks)
            self._times.add(times)
        self.end += len(masks)

    def forget(self, row: int) -> None:
        """Drop the rows before this one."""
        count = row - self.first
        if count <= 0:
            return
        for own in self.lists:
            del own[:count]
        for tail in (self._masks, self._times, *(part for pair in self._columns.values() for part in pair)):
            tail.forget(count)
        self.first = row
