"""Row filters, typed: pyiceberg's own classes take arguments that their annotations do not show."""

from collections.abc import Sequence

from pyiceberg.expressions import BooleanExpression, EqualTo, GreaterThanOrEqual, In, LessThan


def equal(column: str, value: str | int) -> BooleanExpression:
    return EqualTo(column, value)  # type: ignore[call-arg, misc]


def at_least(column: str, value: str | int) -> BooleanExpression:
    return GreaterThanOrEqual(column, value)  # type: ignore[call-arg, misc]


def below(column: str, value: str | int) -> BooleanExpression:
    return LessThan(column, value)  # type: ignore[call-arg, misc]


def one_of(column: str, values: Sequence[str]) -> BooleanExpression:
    return In(column, values)  # type: ignore[call-arg, misc]
