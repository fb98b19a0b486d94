"""Vectorised evaluation of row expressions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression, Shift
from candlewright_cep.functions.scalars.scalar import FUNCTIONS, cast
from candlewright_cep.vector import Bools, Index, Vector, constant, counted, nulls


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the partitions of a sorted input: partition p has the rows `starts[p]` to `ends[p]` (exclusive)."""

    starts: Index
    ends: Index

    @staticmethod
    def whole(length: int) -> "Bounds":
        if length == 0:
            return Bounds(np.zeros(0, np.int64), np.zeros(0, np.int64))
        return Bounds(np.zeros(1, np.int64), np.array([length], np.int64))

    def outside(self, delta: int, length: int) -> Bools:
        """For each row, whether the row `delta` later is outside its partition."""
        found = np.zeros(length, dtype=np.bool_)
        if abs(delta) == 1:
            found[self.starts if delta < 0 else self.ends - 1] = True
            return found
        sizes = self.ends - self.starts
        rows = np.arange(length, dtype=np.int64)
        if delta < 0:
            return rows + delta < np.repeat(self.starts, sizes)
        return rows + delta >= np.repeat(self.ends, sizes)


class Values(Protocol):
    """Evaluates expressions over some input."""

    def value(self, node: Expression) -> Vector: ...


def apply(node: Apply, arguments: list[Vector]) -> Vector:
    """Apply one function to the values of its arguments."""
    if node.function == "CAST":
        return cast(arguments[0], node.type)
    return FUNCTIONS[node.function].vector(arguments, node.type, node.extra)


class RowValues:
    """Values of row expressions over the rows of one input; equal subtrees are computed once."""

    def __init__(self, column: Callable[[int], Vector], length: int, bounds: Bounds | None = None) -> None:
        self._column = column
        self._length = length
        self._bounds = bounds
        self._known: dict[Expression, Vector] = {}

    def value(self, node: Expression) -> Vector:
        """One value for each row. Raises KeyError for nodes that are not row expressions."""
        if isinstance(node, Constant):
            return constant(node.type, node.value, self._length)
        if isinstance(node, Column):
            return self._column(node.index)
        known = self._known.get(node)
        if known is None:
            known = self._compute(node)
            self._known[node] = known
        return known

    def _compute(self, node: Expression) -> Vector:
        work.spend(self._length)
        if isinstance(node, Apply):
            return counted(apply(node, [self.value(part) for part in node.arguments]))
        if isinstance(node, Shift):
            return counted(self._shift(self.value(node.argument), node.delta))
        raise KeyError(type(node).__name__)

    def _shift(self, source: Vector, delta: int) -> Vector:
        if delta == 0:
            return source
        length = self._length
        bounds = self._bounds if self._bounds is not None else Bounds.whole(length)
        if length == 0 or abs(delta) >= length:
            return nulls(source.type, length)
        rows = np.arange(length, dtype=np.int64) + delta
        outside = bounds.outside(delta, length)
        if source.type.is_text or source.constant:
            return source.take(np.where(outside, -1, rows))
        values = np.empty_like(source.values)
        valid = ~outside
        if delta < 0:
            values[-delta:], values[:-delta] = source.values[:delta], 0
            if source.valid is not None:
                valid[-delta:] &= source.valid[:delta]
        else:
            values[:-delta], values[-delta:] = source.values[delta:], 0
            if source.valid is not None:
                valid[:-delta] &= source.valid[delta:]
        return Vector(source.type, values, valid)
