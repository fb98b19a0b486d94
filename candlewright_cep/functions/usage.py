"""The documentation of a function for the authors of texts, as part of its declaration."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from candlewright_cep.functions.signatures import Signature
from candlewright_cep.types import SqlType
from candlewright_cep.vector import Vector


@dataclass(frozen=True, slots=True)
class Extent:
    """The numbers that a function can return: `only` these, or from `least` to `most`."""

    least: float = -math.inf
    most: float = math.inf
    only: tuple[float, ...] = ()

    def __str__(self) -> str:
        if self.only:
            *others, last = (f"{value:g}" for value in sorted(self.only))
            return f"{', '.join(others)} or {last}"
        return f"at least {self.least:g}" if math.isinf(self.most) else f"from {self.least:g} to {self.most:g}"


NOT_NEGATIVE = Extent(0)
SHARE = Extent(0, 1)
PERCENT = Extent(0, 100)
STRICT = "NULL if an argument is NULL"
SKIPPED = "NULLs are left out; NULL if nothing else is there"


@dataclass(frozen=True, slots=True)
class Usage:
    """How to use a function. `example`: for a scalar function a condition that is true, otherwise a column of a query
    over `ticks`.
    """

    signature: str
    text: str
    example: str
    nulls: str = STRICT
    values: Extent | None = None


#: Name, signature, kernel, usage; the usage is None if the grammar has its own form for the function.
Declared = tuple[str, Signature, Callable[[Sequence[Vector], SqlType, str], Vector], Usage | None]
