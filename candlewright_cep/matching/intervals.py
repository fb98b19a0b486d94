"""Interval arithmetic: what a condition can be over many rows, given the minimum and maximum of each value it reads.

The result encloses the true values: whatever the rows hold, the values of an expression are within its span.
Floating-point operations are monotone in each operand, so the ends of a span follow from the ends of its parts.
Integers and times are held as doubles, widened to the next double where these are not exact.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from candlewright_cep.binding.expressions import Apply, Column, Constant, Expression
from candlewright_cep.types import Kind, SqlType
from candlewright_cep.vector import Array, Bools, Vector

_EXACT = 2.0**53
_LONGEST = 2.0**63
_NO: Bools = np.zeros(1, np.bool_)
_YES: Bools = np.ones(1, np.bool_)
_MIRRORED = {">": "<", ">=": "<="}


class Span(NamedTuple):
    """Values between `low` and `high`, one pair per entry; `gaps`: some values may be NULL or NaN. An entry without
    values has `low` above `high`.
    """

    low: Array
    high: Array
    gaps: Bools


class Truth(NamedTuple):
    """Whether a condition may be TRUE for some row of each entry, and whether it must be TRUE for all of them."""

    may: Bools
    must: Bools


Read = Callable[[int], Span]
UNKNOWN = Span(np.array([-np.inf]), np.array([np.inf]), _YES)
_UNDECIDED = Truth(_YES, _NO)


def is_measured(kind: SqlType) -> bool:
    """Whether values of this type have spans; booleans are 0 or 1."""
    return kind.is_measured or kind.kind is Kind.BOOLEAN


def is_telling(node: Expression) -> bool:
    """Whether spans can ever decide a condition over columns and constants."""
    if not isinstance(node, Apply):
        return isinstance(node, Column)
    if node.function == "AND":
        return any(is_telling(part) for part in node.arguments)
    if node.function in ("OR", "NOT"):
        return all(is_telling(part) for part in node.arguments)
    return node.function in (*_COMPARED, *_MIRRORED, "BETWEEN") and all(_has_span(part) for part in node.arguments)


def _has_span(node: Expression) -> bool:
    if isinstance(node, Apply):
        return _operation(node) is not None and all(_has_span(part) for part in node.arguments)
    return isinstance(node, Column | Constant) and node.type.is_measured


def of_value(value: Any) -> Span:
    """The span of one value; None is NULL."""
    if value is None or value != value:
        return Span(np.array([np.inf]), np.array([-np.inf]), _YES)
    return widened(np.array([float(value)]), is_exact=isinstance(value, float))


def widened(values: Array, *, is_exact: bool) -> Span:
    """The spans of numbers given as doubles; an integer past 53 bits spans the doubles next to it."""
    if is_exact or not len(values) or float(np.abs(values).max()) < _EXACT:
        return Span(values, values, _NO)
    inexact = np.abs(values) >= _EXACT
    low, high = np.nextafter(values, -np.inf), np.nextafter(values, np.inf)
    return Span(np.where(inexact, low, values), np.where(inexact, high, values), _NO)


def span_of(vector: Vector) -> Span:
    """One span per value; a span without values if it is NULL or NaN."""
    whole = vector.expand()
    values = whole.values.astype(np.float64)
    span = widened(values, is_exact=whole.type.kind in (Kind.DOUBLE, Kind.BOOLEAN))
    missing = np.isnan(values) if whole.type.kind is Kind.DOUBLE else _NO
    if whole.valid is not None:
        missing = missing | ~whole.valid
    if not missing.any():
        return span
    return Span(np.where(missing, np.inf, span.low), np.where(missing, -np.inf, span.high), missing)


def truth(node: Expression, read: Read) -> Truth:
    """Evaluate a condition over spans. `read` returns the spans of a column."""
    if isinstance(node, Column) and node.type.kind is Kind.BOOLEAN:
        span = read(node.index)
        return Truth(span.high >= 1, (span.low >= 1) & ~span.gaps)
    if isinstance(node, Constant):
        return Truth(_YES, _YES) if node.value is True else Truth(_NO, _NO)
    if not isinstance(node, Apply):
        return _UNDECIDED
    if node.function in ("AND", "OR"):
        return _joined(is_and=node.function == "AND", parts=[truth(part, read) for part in node.arguments])
    if node.function == "NOT":
        # A Truth does not distinguish FALSE from NULL.
        return Truth(~truth(node.arguments[0], read).must, _NO)
    if not all(part.type.is_measured for part in node.arguments):
        return _UNDECIDED
    return _compared(node.function, [_span(part, read) for part in node.arguments])


def _joined(*, is_and: bool, parts: Sequence[Truth]) -> Truth:
    join: Callable[[Bools, Bools], Bools] = np.logical_and if is_and else np.logical_or
    return Truth(reduce(join, [part.may for part in parts]), reduce(join, [part.must for part in parts]))


def _compared(function: str, spans: Sequence[Span]) -> Truth:
    if function == "BETWEEN":
        value, low, high = spans
        return _joined(is_and=True, parts=[_at_most(low, value), _at_most(value, high)])
    compare = _COMPARED.get(_MIRRORED.get(function, function))
    if compare is None:
        return _UNDECIDED
    one, other = spans
    return compare(other, one) if function in _MIRRORED else compare(one, other)


def _present(one: Span, other: Span) -> Bools:
    return ~(one.gaps | other.gaps)


def _less(one: Span, other: Span) -> Truth:
    return Truth(one.low < other.high, (one.high < other.low) & _present(one, other))


def _at_most(one: Span, other: Span) -> Truth:
    return Truth(one.low <= other.high, (one.high <= other.low) & _present(one, other))


def _equal(one: Span, other: Span) -> Truth:
    same = (one.low == one.high) & (one.low == other.low) & (other.low == other.high)
    return Truth((one.low <= other.high) & (other.low <= one.high), same & _present(one, other))


def _unequal(one: Span, other: Span) -> Truth:
    apart = (one.high < other.low) | (other.high < one.low)
    # NaN differs from everything.
    return Truth(~_equal(one, other).must, apart & _present(one, other))


_COMPARED: dict[str, Callable[[Span, Span], Truth]] = {
    "<": _less,
    "<=": _at_most,
    "=": _equal,
    "<>": _unequal,
}


# -- arithmetic -----------------------------------------------------------------------------------------------------


def _span(node: Expression, read: Read) -> Span:
    if isinstance(node, Column):
        return read(node.index)
    if isinstance(node, Constant):
        return of_value(node.value)
    operation = _operation(node)
    if operation is None or not isinstance(node, Apply):
        return UNKNOWN
    with np.errstate(all="ignore"):
        found = _sound(operation(*(_span(part, read) for part in node.arguments)))
        return found if node.type.kind is Kind.DOUBLE else _whole(found)


def _operation(node: Expression) -> Callable[..., Span] | None:
    """A function from the spans of the arguments to the span of the result; None if the operation is not supported."""
    if not isinstance(node, Apply) or not all(part.type.is_measured for part in node.arguments):
        return None
    is_double = node.type.kind is Kind.DOUBLE
    if node.function in ("*", "/") and not is_double:
        is_plain = node.function == "*" and all(part.type.is_integer for part in node.arguments)
        return _product if is_plain else None
    if node.function == "CAST":
        source = node.arguments[0].type
        keeps = source.is_numeric if is_double else source.kind is Kind.INT and node.type.kind is Kind.BIGINT
        return (lambda span: span) if keeps else None
    return _OPERATIONS.get(node.function)


def _sound(span: Span) -> Span:
    """A NaN bound (infinity minus infinity) means that nothing is known; with an infinite bound a value may be NaN."""
    finite = np.isfinite(span.low) & np.isfinite(span.high)
    if finite.all():
        return span
    lost = np.isnan(span.low) | np.isnan(span.high)
    return Span(np.where(lost, -np.inf, span.low), np.where(lost, np.inf, span.high), span.gaps | ~finite)


def _whole(span: Span) -> Span:
    """Integers are inexact past 53 bits, and NULL past 64."""
    low, high = span.low, span.high
    inexact = (low <= -_EXACT) | (high >= _EXACT)
    if not inexact.any():
        return span
    gaps = span.gaps | (low <= -_LONGEST) | (high >= _LONGEST)
    return Span(
        np.where(inexact, np.nextafter(low, -np.inf), low), np.where(inexact, np.nextafter(high, np.inf), high), gaps
    )


def _sum(one: Span, other: Span) -> Span:
    return Span(one.low + other.low, one.high + other.high, one.gaps | other.gaps)


def _difference(one: Span, other: Span) -> Span:
    return Span(one.low - other.high, one.high - other.low, one.gaps | other.gaps)


def _of_ends(operation: np.ufunc, one: Span, other: Span) -> Span:
    ends = [operation(left, right) for left in (one.low, one.high) for right in (other.low, other.high)]
    low, high = ends[0], ends[0]
    for end in ends[1:]:
        low, high = np.minimum(low, end), np.maximum(high, end)
    return Span(low, high, one.gaps | other.gaps)


def _product(one: Span, other: Span) -> Span:
    return _of_ends(np.multiply, one, other)


def _quotient(one: Span, other: Span) -> Span:
    has_zero = (other.low <= 0) & (other.high >= 0)
    found = _of_ends(np.divide, one, other)
    if not has_zero.any():
        return found
    return Span(np.where(has_zero, -np.inf, found.low), np.where(has_zero, np.inf, found.high), found.gaps | has_zero)


def _opposite(one: Span) -> Span:
    return Span(-one.high, -one.low, one.gaps)


def _size(one: Span) -> Span:
    high = np.maximum(np.abs(one.low), np.abs(one.high))
    low = np.where(one.low > 0, one.low, np.where(one.high < 0, -one.high, 0.0))
    return Span(low, high, one.gaps)


_OPERATIONS: dict[str, Callable[..., Span]] = {
    "+": _sum,
    "-": _difference,
    "*": _product,
    "/": _quotient,
    "NEGATE": _opposite,
    "ABS": _size,
}
