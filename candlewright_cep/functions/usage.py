"""The documentation of a function for the authors of texts, as part of its declaration."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from candlewright_cep.functions.signatures import Signature
from candlewright_cep.types import SqlType
from candlewright_cep.vector import Vector

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


#: Name, signature, kernel, usage; the usage is None if the grammar has its own form for the function.
Declared = tuple[str, Signature, Callable[[Sequence[Vector], SqlType, str], Vector], Usage | None]
