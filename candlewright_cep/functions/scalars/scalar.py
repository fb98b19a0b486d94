"""Scalar functions and operators: names, signatures and vectorised kernels. This table is the allow-list.

All follow SQL's NULL rules. A result that its type cannot represent (an integer divided by zero, an integer past 64
bits, text that is not a number) is NULL: data must never stop a trigger.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.functions import decimals
from candlewright_cep.functions.scalars import arithmetic, calendars, fields, zones
from candlewright_cep.functions.scalars import arrays as functions_arrays
from candlewright_cep.functions.scalars import text as functions_text
from candlewright_cep.functions.scalars import time as functions_time
from candlewright_cep.functions.scalars.kernels import Implementation, finish, strict, valid_of
from candlewright_cep.functions.signatures import Mismatch, Signature, fixed, one_type, result_of, whole_result_of
from candlewright_cep.functions.usage import Usage
from candlewright_cep.types import BOOLEAN, NULL, Kind, SqlType, from_arrow, is_array, is_struct
from candlewright_cep.vector import Array, Bools, Vector, choose, constant, from_column


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    name: str
    signature: Signature
    vector: Implementation
    #: None for operators.
    usage: Usage | None = None


def _compared(count: int | None, at_least: int = 1) -> Signature:
    """Arguments converted to one type; DECIMALs may keep their own digits."""
    alike = one_type(count, BOOLEAN, at_least)

    def resolve(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
        wanted, kind = alike(types)
        return decimals.compared(types) or wanted, kind

    return resolve


def _equality(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    return functions_arrays.both_structs(types) or functions_arrays.both_arrays(types) or _compared(2)(types)


def _order(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    return functions_arrays.both_structs(types) or _compared(2)(types)


def _comparison(numbers: Callable[..., Array], texts: str) -> Implementation:
    kernel = getattr(pc, texts)
    of_numbers = strict(numbers)

    def run(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
        left, right = arguments
        if not left.type.is_text:
            return of_numbers(arguments, kind, "")
        if is_struct(left.type):
            found = np.asarray(numbers(*functions_arrays.compared_structs(left, right)), np.bool_)
            return Vector(
                kind, found, np.broadcast_to(left.mask, found.shape) & np.broadcast_to(right.mask, found.shape)
            )
        if left.type.kind is Kind.OPAQUE:
            same = functions_arrays.are_equal(left, right)
            valid = np.broadcast_to(left.mask, same.shape) & np.broadcast_to(right.mask, same.shape)
            return Vector(kind, same if texts == "equal" else ~same, valid)
        if left.type.kind is Kind.DECIMAL:
            found = np.asarray(numbers(*decimals.comparable(left, right)), np.bool_)
            return finish(arguments, kind, found, valid=valid_of(arguments))
        return text_result(arguments, kernel(left.text(), right.text()), kind)

    return run


_LESS, _GREATER = _comparison(np.less, "less"), _comparison(np.greater, "greater")


def text_result(arguments: Sequence[Vector], found: pa.Array | pa.Scalar, kind: SqlType) -> Vector:
    """The outcome of an Arrow kernel as a vector of type `kind`."""
    if isinstance(found, pa.Scalar):
        return constant(kind, found.as_py(), arguments[0].length)
    made = from_column(found)
    return Vector(kind, made.values, made.valid)


def _distinct(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    left, right = arguments
    if left.type.is_text:
        same = _comparison(np.equal, "equal")(arguments, BOOLEAN, "").expand().true()
    else:
        equal = np.asarray(left.values == right.values)
        if left.values.dtype.kind == "f":
            equal = equal | (np.isnan(left.values) & np.isnan(right.values))
        same = np.broadcast_to(equal, (left.length,))
    one, other = np.broadcast_to(left.mask, (left.length,)), np.broadcast_to(right.mask, (left.length,))
    return Vector(kind, ~((same & one & other) | (~one & ~other)), None)


def _and(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return _logic(arguments, kind, stops_at=False)


def _or(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return _logic(arguments, kind, stops_at=True)


def _logic(arguments: Sequence[Vector], kind: SqlType, *, stops_at: bool) -> Vector:
    join = np.logical_or if stops_at else np.logical_and
    values = arguments[0].values
    for argument in arguments[1:]:
        values = join(values, argument.values)
    if all(argument.valid is None for argument in arguments):
        return finish(arguments, kind, values, valid=None)
    # Known if every part is known, or if one known part decides the result.
    known: Bools = np.ones(1, dtype=np.bool_)
    decided: Bools = np.zeros(1, dtype=np.bool_)
    for argument in arguments:
        known = known & argument.mask
        decided = decided | (argument.mask & (argument.values == stops_at))
    return finish(arguments, kind, np.where(decided, stops_at, not stops_at), valid=known | decided)


def _is_null(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return finish(arguments, kind, ~arguments[0].mask, valid=None)


def _is_true(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    return Vector(kind, np.array(arguments[0].true()), None)


def _in(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    equal = _comparison(np.equal, "equal")
    parts = [equal([arguments[0], option], BOOLEAN, extra) for option in arguments[1:]]
    return _logic(parts, kind, stops_at=True)


def _between(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    value, low, high = arguments
    at_least = _comparison(np.greater_equal, "greater_equal")([value, low], BOOLEAN, extra)
    at_most = _comparison(np.less_equal, "less_equal")([value, high], BOOLEAN, extra)
    return _logic([at_least, at_most], kind, stops_at=False)


def _case(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    found = arguments[-1]
    for index in range(len(arguments) - 3, -1, -2):
        found = choose(arguments[index].true(), arguments[index + 1], found)
    return Vector(kind, found.values, found.valid, length=found.length, constant=found.constant)


def _coalesce(arguments: Sequence[Vector], kind: SqlType, _extra: str) -> Vector:
    found = arguments[-1]
    for argument in reversed(arguments[:-1]):
        if argument.valid is None:
            found = argument
        else:
            found = choose(np.broadcast_to(argument.mask, (argument.length,)), argument, found)
    return Vector(kind, found.values, found.valid, length=found.length, constant=found.constant)


def _null_if(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    same = _comparison(np.equal, "equal")(arguments, BOOLEAN, extra).true()
    return arguments[0].with_nulls(same)


def _extreme(numbers: Callable[..., Array], *, least: bool) -> Implementation:
    def run(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
        found = arguments[0]
        if not kind.is_text:
            values = found.values
            for argument in arguments[1:]:
                values = numbers(values, argument.values)
            return finish(arguments, kind, values, valid=valid_of(arguments))
        for argument in arguments[1:]:
            better = (_LESS if least else _GREATER)([argument, found], BOOLEAN, extra)
            unknown = ~np.broadcast_to(better.mask, (found.length,))
            found = choose(better.true(), argument, found).with_nulls(unknown)
        return found

    return run


def _case_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    results = [*types[1:-1:2], types[-1]]
    _, kind = whole_result_of(results)
    wanted: list[SqlType] = []
    for _pair in range(len(types) // 2):
        wanted += [BOOLEAN, kind]
    return [*wanted, kind], kind


def _null_if_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) != 2:
        raise Mismatch
    wanted, kind = result_of(types)
    return wanted, kind


def _if_signature(types: Sequence[SqlType]) -> tuple[list[SqlType], SqlType]:
    if len(types) not in (2, 3):
        raise Mismatch
    wanted, kind = _case_signature(types if len(types) == 3 else [*types, NULL])
    return wanted[: len(types)], kind


def _if(arguments: Sequence[Vector], kind: SqlType, extra: str) -> Vector:
    missing = constant(kind, None, arguments[0].length)
    return _case(arguments if len(arguments) == 3 else [*arguments, missing], kind, extra)


_LOGIC: Signature = lambda types: ([BOOLEAN] * len(types), BOOLEAN)  # noqa: E731
_ANY: Signature = lambda types: (list(types), BOOLEAN)  # noqa: E731


def _table() -> dict[str, ScalarFunction]:
    entries = [
        *(ScalarFunction(*entry) for entry in arithmetic.OPERATORS),
        ScalarFunction("=", _equality, _comparison(np.equal, "equal")),
        ScalarFunction("<>", _equality, _comparison(np.not_equal, "not_equal")),
        ScalarFunction("<", _order, _comparison(np.less, "less")),
        ScalarFunction("<=", _order, _comparison(np.less_equal, "less_equal")),
        ScalarFunction(">", _order, _comparison(np.greater, "greater")),
        ScalarFunction(">=", _order, _comparison(np.greater_equal, "greater_equal")),
        ScalarFunction("IS DISTINCT", _compared(2), _distinct),
        ScalarFunction("AND", _LOGIC, _and),
        ScalarFunction("OR", _LOGIC, _or),
        ScalarFunction("NOT", fixed(BOOLEAN, BOOLEAN), strict(np.logical_not)),
        ScalarFunction("IS NULL", _ANY, _is_null),
        ScalarFunction("IS TRUE", fixed(BOOLEAN, BOOLEAN), _is_true),
        ScalarFunction("IN", _compared(None, at_least=2), _in),
        ScalarFunction("BETWEEN", _compared(3), _between),
        ScalarFunction("CASE", _case_signature, _case),
        ScalarFunction(
            "IF",
            _if_signature,
            _if,
            Usage(
                "IF(condition, then, else)",
                "then if the condition is true, otherwise else (NULL without one)",
                "IF(2 > 1, 'up', 'down') = 'up'",
                "a condition that is NULL counts as not met",
            ),
        ),
        ScalarFunction(
            "COALESCE",
            whole_result_of,
            _coalesce,
            Usage(
                "COALESCE(a, b, …)",
                "the first argument that is not NULL",
                "COALESCE(NULL, 3, 4) = 3",
                "NULL if all arguments are NULL",
            ),
        ),
        ScalarFunction(
            "IFNULL",
            one_type(2, None),
            _coalesce,
            Usage("IFNULL(a, b)", "a, or b if a is NULL", "IFNULL(NULL, 3) = 3", "NULL if both arguments are NULL"),
        ),
        ScalarFunction(
            "NULLIF",
            _null_if_signature,
            _null_if,
            Usage("NULLIF(a, b)", "NULL if a = b, otherwise a", "NULLIF(3, 3) IS NULL", "NULL if a is NULL"),
        ),
        ScalarFunction(
            "GREATEST",
            one_type(None, None, at_least=1),
            _extreme(np.fmax, least=False),
            Usage("GREATEST(a, b, …)", "the greatest argument", "GREATEST(1, 3, 2) = 3"),
        ),
        ScalarFunction(
            "LEAST",
            one_type(None, None, at_least=1),
            _extreme(np.fmin, least=True),
            Usage("LEAST(a, b, …)", "the least argument", "LEAST(1, 3, 2) = 1"),
        ),
        *(ScalarFunction(*entry) for entry in arithmetic.ENTRIES),
        *(ScalarFunction(*entry) for entry in functions_text.ENTRIES),
        *(ScalarFunction(*entry) for entry in functions_time.ENTRIES),
        *(ScalarFunction(*entry) for entry in functions_arrays.ENTRIES),
        *(ScalarFunction(*entry) for entry in zones.ENTRIES),
        *(ScalarFunction(*entry) for entry in calendars.ENTRIES),
        *(ScalarFunction(*entry) for entry in fields.ENTRIES),
    ]
    table = {entry.name: entry for entry in entries}
    if len(table) < len(entries):
        raise AssertionError("two functions have the same name")
    return table


def cast(vector: Vector, target: SqlType) -> Vector:
    """CAST: NULL where the value has no counterpart in `target`. Raises Mismatch for types without conversion."""
    source = vector.type
    if source == target:
        return vector
    if source.kind is Kind.NULL:
        return constant(target, None, vector.length)
    if target.kind is Kind.STRING:
        return functions_text.written(vector)
    if source.kind is Kind.STRING:
        return functions_text.parsed(vector, target)
    if Kind.OPAQUE in (source.kind, target.kind):
        return _cast_parts(vector, target)
    if Kind.DECIMAL in (source.kind, target.kind):
        return decimals.cast(vector, target)
    if source.is_time and target.is_time:
        return functions_time.rescaled(vector, target)
    if target.kind is Kind.DOUBLE and (source.is_numeric or source.kind is Kind.BOOLEAN):
        return Vector(
            target, vector.values.astype(np.float64), vector.valid, length=vector.length, constant=vector.constant
        )
    if target.is_integer and (source.is_numeric or source.kind is Kind.BOOLEAN):
        return _to_integer(vector, target)
    if target.kind is Kind.BOOLEAN and source.is_numeric:
        return Vector(target, vector.values != 0, vector.valid, length=vector.length, constant=vector.constant)
    raise Mismatch


def _cast_parts(vector: Vector, target: SqlType) -> Vector:
    """A STRUCT or an array with its parts converted."""
    whole = vector.expand()
    valid, array = whole.valid, whole.text()
    if is_array(vector.type) and is_array(target):
        items = cast(from_column(array.flatten()), from_arrow(target.arrow.value_type)).to_arrow()
        sizes = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
        made = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), items)
        return Vector(target, made.cast(target.arrow), valid)
    if not (is_struct(vector.type) and is_struct(target)) or vector.type.arrow.num_fields != target.arrow.num_fields:
        raise Mismatch
    parts = [
        cast(from_column(array.field(place)), from_arrow(field.type)).to_arrow()
        for place, field in enumerate(target.arrow)
    ]
    return Vector(target, pa.StructArray.from_arrays(parts, fields=list(target.arrow)), valid)


def _to_integer(vector: Vector, target: SqlType) -> Vector:
    values, valid = vector.values, vector.valid
    if values.dtype.kind == "f":
        with np.errstate(all="ignore"):
            rounded = arithmetic.nearest(values)
            fits = (rounded >= -(2.0**63)) & (rounded < 2.0**63)
            values = np.where(fits, rounded, 0).astype(np.int64)
        valid = valid if fits.all() else (fits if valid is None else valid & fits)
    values = values.astype(np.int64)
    if target.kind is Kind.INT:
        fits = (values >= -(2**31)) & (values < 2**31)
        valid = valid if fits.all() else (fits if valid is None else valid & fits)
    return Vector(target, values, valid, length=vector.length, constant=vector.constant)


FUNCTIONS = _table()
