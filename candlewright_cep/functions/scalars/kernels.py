"""What the kernels of scalar functions share: SQL's NULL rule and the length of results."""

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from candlewright_cep.functions import decimals
from candlewright_cep.types import Kind, SqlType
from candlewright_cep.vector import Array, Bools, Vector

Implementation = Callable[[Sequence[Vector], SqlType, str], Vector]
_IS_CONSTANT = attrgetter("constant")


def valid_of(arguments: Sequence[Vector]) -> Bools | None:
    valid: Bools | None = None
    for argument in arguments:
        if argument.valid is not None:
            valid = argument.valid if valid is None else valid & argument.valid
    return valid


def finish(arguments: Sequence[Vector], kind: SqlType, values: Array, *, valid: Bools | None) -> Vector:
    """A vector of the arguments' common length; it stays constant if all of them are."""
    length = arguments[0].length
    if all(map(_IS_CONSTANT, arguments)):
        return Vector(kind, values, valid, length=length, constant=True)
    if len(values) != length:
        values = np.repeat(values, length)
    if valid is not None and len(valid) != length:
        valid = np.repeat(valid, length)
    return Vector(kind, values, valid, length=length)


def strict(compute: Callable[..., Array]) -> Implementation:
    quiet = np.errstate(all="ignore")(compute)

    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        values = quiet(*[argument.values for argument in arguments])
        return finish(arguments, kind, values, valid=valid_of(arguments))

    return run


def exact(function: str, otherwise: Implementation) -> Implementation:
    """The function as `decimals` computes it, if the result is a DECIMAL."""

    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        if kind.kind is Kind.DECIMAL:
            return decimals.computed(function, arguments, kind)
        return otherwise(arguments, kind, extra)

    return run


def same(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    found = arguments[0]
    return Vector(kind, found.values, found.valid, length=found.length, constant=found.constant)
