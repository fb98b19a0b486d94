"""Typed row filters: the annotations of pyiceberg's own classes do not show the arguments that they take."""

from collections.abc import Sequence
from typing import Any

from pyiceberg import expressions
from pyiceberg.expressions import BooleanExpression

_classes: Any = expressions


def equal(column: str, value: str | int) -> BooleanExpression:
    return _made(_classes.EqualTo(column, value))


def at_least(column: str, value: str | int) -> BooleanExpression:
    return _made(_classes.GreaterThanOrEqual(column, value))


def below(column: str, value: str | int) -> BooleanExpression:
    return _made(_classes.LessThan(column, value))


def any_of(filters: Sequence[BooleanExpression]) -> BooleanExpression:
    """Rows that match at least one of `filters`, which must not be empty."""
    return filters[0] if len(filters) == 1 else _made(_classes.Or(*filters))


def one_of(column: str, values: Sequence[str]) -> BooleanExpression:
    return _made(_classes.In(column, values))


def none_of(column: str, values: Sequence[str]) -> BooleanExpression:
    return _made(_classes.NotIn(column, values))


def _made(filter_: BooleanExpression) -> BooleanExpression:
    return filter_
