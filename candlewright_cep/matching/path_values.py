"""The values that path conditions read, for the rows of one partition of a stream that the search still needs.

They are computed once, when a row is tested, not for all retained rows with every batch.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from candlewright_cep.binding.expressions import Expression
from candlewright_cep.matching.blocks import Tail
from candlewright_cep.matching.foresight import Foresight, Prospects
from candlewright_cep.vector import Array, Vector


class KeptRows:
    """What the foresight reads at the rows: masks, times, and the columns that it names."""

    def __init__(self, first: int, columns: Sequence[Expression]) -> None:
        self.first = first
        self._columns = {node: Tail() for node in columns}
        # Where values are not NULL, once there has been a NULL.
        self._valid: dict[Expression, Tail] = {}
        self._masks, self._times = Tail(), Tail()

    @property
    def end(self) -> int:
        return self.first + len(self._masks)

    @property
    def masks(self) -> Array:
        return self._masks.values

    @property
    def times(self) -> Array:
        return self._times.values

    def vector(self, node: Expression) -> Vector:
        valid = self._valid.get(node)
        return Vector(node.type, self._columns[node].values, None if valid is None else valid.values)

    def add(self, columns: Sequence[Vector], masks: Array, times: Array) -> None:
        """Append the values of further rows."""
        for (node, values), column in zip(self._columns.items(), columns, strict=True):
            if column.valid is not None or self._valid:
                self._valid.setdefault(node, Tail(np.ones(len(values), np.bool_))).add(column.mask)
            values.add(column.values)
        self._masks.add(masks)
        self._times.add(times)

    def forget(self, row: int) -> None:
        """Drop the rows before this one."""
        for tail in (self._masks, self._times, *self._columns.values(), *self._valid.values()):
            tail.forget(row - self.first)
        self.first = row


class PathValues:
    """`lists`: the hoisted expressions of the conditions, for the trials; `first`: the number of their first row;
    `kept`, `prospects`: for the foresight, if there is one.
    """

    def __init__(self, first: int, hoisted: int, foresight: Foresight | None) -> None:
        self.first = self.end = first
        self.lists: list[list[Any]] = [[] for _ in range(hoisted)]
        self.kept = KeptRows(first, () if foresight is None else foresight.columns)
        self.prospects = None if foresight is None else Prospects(foresight, self.kept)

    def add(self, lists: Sequence[Sequence[Any]], columns: Sequence[Vector], masks: Array, *, times: Array) -> None:
        """Append the values of further rows."""
        for own, further in zip(self.lists, lists, strict=True):
            own.extend(further)
        if self.prospects is not None:
            self.kept.add(columns, masks, times)
        self.end += len(masks)

    def forget(self, row: int) -> None:
        """Drop the rows before this one."""
        if row <= self.first:
            return
        for own in self.lists:
            del own[: row - self.first]
        if self.prospects is not None:
            self.kept.forget(row)
            self.prospects.forget(row)
        self.first = row
