"""Row filters, typed: pyiceberg's own classes take arguments that their annotations do not show."""

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


def one_of(column: str, values: Sequence[str]) -> BooleanExpression:
    return _made(_classes.In(column, values))


def _made(filter_: BooleanExpression) -> BooleanExpression:
    return filter_
