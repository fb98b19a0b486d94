"""Defines an indicator: its declaration, and how it runs over ordered rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from candlewright_cep.functions.indicators.series import Memory, Series, Walk
from candlewright_cep.functions.usage import Extent, Usage
from candlewright_cep.types import DOUBLE
from candlewright_cep.vector import Bools, Index, Vector

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

    def over(self, arguments: Sequence[Vector], numbers: Sequence[float], rows: "Rows") -> Vector:
        """The indicator's values for these rows; `rows.memory` is updated with them."""
        length = arguments[0].length
        usable: Bools = np.ones(length, np.bool_)
        for argument in arguments:
            usable &= argument.mask & np.isfinite(argument.values)
        picked: Index | None = None
        sizes = rows.ends - rows.starts
        if not usable.all():
            picked = np.flatnonzero(usable)
            before = np.concatenate([np.zeros(1, np.int64), np.cumsum(usable)])
            sizes = before[rows.ends] - before[rows.starts]
        walk = Walk(rows.memory, rows.partitions, sizes)
        given = [Series(argument.values if picked is None else argument.values[picked]) for argument in arguments]
        with np.errstate(all="ignore"):
            found = self.compute(walk, *given, *numbers)
        valid: Bools = walk.numbers >= found.start
        if picked is None:
            return Vector(DOUBLE, found.values, valid)
        values, known = np.zeros(length), np.zeros(length, np.bool_)
        values[picked], known[picked] = found.values, valid
        return Vector(DOUBLE, values, known)


@dataclass(frozen=True, slots=True)
class Rows:
    """Ordered rows. Rows `starts[i]` to `ends[i]` belong to the partition with the number `partitions[i]` in
    `memory`.
    """

    starts: Index
    ends: Index
    partitions: Index
    memory: Memory


def whole(starts: Index, ends: Index) -> Rows:
    """The rows of a finished input, in which every partition begins and ends."""
    memory = Memory()
    memory.grow(len(starts))
    return Rows(starts, ends, np.arange(len(starts), dtype=np.int64), memory)
