"""Signatures: which argument types a function accepts, and the type of its result."""

from collections.abc import Callable, Sequence

from candlewright_cep.types import BIGINT, DOUBLE, Kind, SqlType, common, is_array, is_struct


class Mismatch(Exception):
    """The argument types match no signature of the function."""


# From argument types to the types that they are converted to, and the type of the result.
Signature = Callable[[Sequence[SqlType]], tuple[list[SqlType], SqlType]]


def fits(source: SqlType, target: SqlType) -> bool:
    """Whether a type converts to another without CAST."""
    if source.kind is Kind.OPAQUE:
        # A STRUCT's fields keep the names that they have in the first type.
        return common(target, source) == target
    return source.kind is Kind.NULL or common(source, target) == target


def fixed(result: SqlType, *wanted: SqlType, optional: int = 0) -> Signature:
    """Exactly these types; the last `optional` ones may be absent."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if not len(wanted) - optional <= len(types) <= len(wanted):
            raise Mismatch
        if not all(fits(source, target) for source, target in zip(types, wanted, strict=False)):
            raise Mismatch
        return list(wanted[: len(types)]), result

    return resolve


def result_of(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    """The common type of all arguments, which are single values."""
    wanted, found = whole_result_of(types)
    if found.kind is Kind.OPAQUE:
        raise Mismatch
    return wanted, found


def whole_result_of(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    """The common type of all arguments, which may be STRUCTs or arrays."""
    found = types[0]
    for kind in types[1:]:
        wider = common(found, kind)
        if wider is None:
            raise Mismatch
        found = wider
    if found.kind is Kind.OPAQUE and not (is_struct(found) or is_array(found)):
        raise Mismatch
    return [found] * len(types), found


def one_type(count: int | None, result: SqlType | None, at_least: int = 1) -> Signature:
    """Arguments of one common type; the result is that type unless `result` says otherwise."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if len(types) < at_least or (count is not None and len(types) != count):
            raise Mismatch
        wanted, kind = result_of(types)
        return wanted, result or kind

    return resolve


def numeric(count: int) -> Signature:
    """`count` numbers; the result is their common type."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if len(types) != count:
            raise Mismatch
        wanted, kind = result_of(types)
        if kind.kind is Kind.NULL:
            return [DOUBLE] * count, DOUBLE
        if not kind.is_numeric:
            raise Mismatch
        return wanted, kind

    return resolve


def number_like(least: int, most: int) -> Signature:
    """One number whose type is the result, then whole numbers."""

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        if not least <= len(types) <= most:
            raise Mismatch
        kind = DOUBLE if types[0].kind is Kind.NULL else types[0]
        if not kind.is_numeric or not all(fits(other, BIGINT) for other in types[1:]):
            raise Mismatch
        return [kind] + [BIGINT] * (len(types) - 1), kind

    return resolve
