"""Defines an indicator: its declaration, and how it runs over ordered rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep.functions.indicators.series import Layout, Memory, Series, Walk
from candlewright_cep.functions.usage import Extent, Usage
from candlewright_cep.types import DOUBLE
from candlewright_cep.vector import Array, Bools, Index, Vector

#: The most rows that an indicator may look back.
LONGEST = 10_000


@dataclass(frozen=True, slots=True)
class Argument:
    """A number that is fixed when the text is checked: a number of rows (an integer) or a factor."""

    name: str
    least: float = 2
    most: float = LONGEST
    is_whole: bool = True
    usual: float = 14
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class Indicator:
    """A declared indicator. `compute` takes a walk, a series for each of `inputs`, and a number for each of
    `numbers`.
    """

    name: str
    inputs: tuple[str, ...]
    numbers: tuple[Argument, ...]
    compute: Callable[..., Series]
    text: str
    values: Extent | None = None

    @property
    def optional(self) -> int:
        """How many of the last numbers may be omitted."""
        return sum(number.is_optional for number in self.numbers)

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join([*self.inputs, *(number.name for number in self.numbers)])})"

    @property
    def usage(self) -> Usage:
        columns = ["price" if name in ("x", "high", "low", "close", "open") else "size" for name in self.inputs]
        numbers = [f"{number.usual:g}" for number in self.numbers]
        example = f"{self.name}({', '.join([*columns, *numbers])})"
        nulls = "NULL while it warms up, and for a row whose input is NULL, NaN or infinite"
        return Usage(self.signature, self.text, example, nulls, self.values)

    def over(self, inputs: Sequence["Input"], numbers: Sequence[float], rows: "Rows") -> Vector:
        """The indicator's values for these rows; `rows.memory` is updated with them."""
        masks = [each.usable for each in inputs if each.usable is not None]
        if not masks:
            walk = Walk(rows.memory, rows.layout)
            return Vector(DOUBLE, *self._found(walk, [each.values for each in inputs], numbers))
        usable = np.logical_and.reduce(masks)
        picked = np.flatnonzero(usable)
        before = np.concatenate([np.zeros(1, np.int64), np.cumsum(usable)])
        walk = Walk(rows.memory, Layout(rows.layout.partitions, before[rows.ends] - before[rows.starts]))
        values, known = np.zeros(len(usable)), np.zeros(len(usable), np.bool_)
        values[picked], known[picked] = self._found(walk, [each.values[picked] for each in inputs], numbers)
        return Vector(DOUBLE, values, known)

    def _found(self, walk: Walk, values: Sequence[Array], numbers: Sequence[float]) -> tuple[Array, Bools]:
        with np.errstate(all="ignore"):
            found = self.compute(walk, *map(Series, values), *numbers)
        return found.values, walk.numbers >= found.start


@dataclass(frozen=True, slots=True)
class Input:
    """A column that indicators read; `usable`: the rows with a finite value, None for all."""

    values: Array
    usable: Bools | None

    @staticmethod
    def of(vector: Vector) -> "Input":
        whole = vector.expand()
        usable = np.isfinite(whole.values)
        if whole.valid is not None:
            usable &= whole.valid
        return Input(whole.values, None if usable.all() else usable)


@dataclass(frozen=True, slots=True)
class Rows:
    """Ordered rows: `starts[i]` to `ends[i]` are those of the partition i of `layout`, whose state is in `memory`."""

    starts: Index
    ends: Index
    layout: Layout
    memory: Memory


def whole(starts: Index, ends: Index) -> Rows:
    """The rows of a finished input, in which every partition begins and ends."""
    memory = Memory()
    memory.grow(len(starts))
    return Rows(starts, ends, Layout(np.arange(len(starts), dtype=np.int64), ends - starts), memory)
