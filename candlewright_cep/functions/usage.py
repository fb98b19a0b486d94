"""What a declaration says about its function to the authors of texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from candlewright_cep.functions.signatures import Signature
from candlewright_cep.types import SqlType
from candlewright_cep.vector import Vector

STRICT = "NULL if an argument is NULL"
SKIPPED = "NULLs are left out; NULL if nothing else is there"


@dataclass(frozen=True, slots=True)
class Usage:
    """`example`: of a scalar function a condition that holds, otherwise a column of a query over `ticks`."""

    signature: str
    text: str
    example: str
    nulls: str = STRICT


#: Name, signature, values; no usage where the grammar has a form of its own for it.
Declared = tuple[str, Signature, Callable[[Sequence[Vector], SqlType, str], Vector], Usage | None]
