"""Error recovery: an expression with an error becomes NULL, which fits anywhere, so that checking finds further errors.

This applies only inside `collecting`; elsewhere the first error is raised as it is. A plan made with errors never
leaves `compile_query`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

from candlewright_cep.binding.expressions import Constant, Expression
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.types import NULL

#: At most this many errors are collected for one text.
MOST_ERRORS = 20

_COLLECTED: ContextVar[list[TriggerRejected] | None] = ContextVar("collected", default=None)
_Arguments = ParamSpec("_Arguments")


@contextmanager
def collecting() -> Iterator[list[TriggerRejected]]:
    """Yields a list that receives the errors found inside, except for one that is raised."""
    found: list[TriggerRejected] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


@contextmanager
def strictly() -> Iterator[None]:
    """Inside, the first error is raised as it is, because it belongs to another text (a view's)."""
    token = _COLLECTED.set(None)
    try:
        yield
    finally:
        _COLLECTED.reset(token)


def is_noted(error: TriggerRejected) -> bool:
    """Whether the error was collected, so that checking may continue."""
    found = _COLLECTED.get()
    if found is None or len(found) >= MOST_ERRORS:
        return False
    found.append(error)
    return True


def reworded(change: Callable[[TriggerRejected], TriggerRejected]) -> None:
    """Replace the errors collected so far."""
    found = _COLLECTED.get()
    if found is not None:
        found[:] = map(change, found)


def raise_noted() -> None:
    """Raises the first collected error, if there is one."""
    if found := _COLLECTED.get():
        raise found[0]


def recovering(bind: Callable[_Arguments, Expression]) -> Callable[_Arguments, Expression]:
    """Wraps a method that binds an expression: while errors are collected, a rejected expression becomes NULL."""

    @wraps(bind)
    def bound(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Expression:
        known = len(_COLLECTED.get() or ())
        try:
            return bind(*arguments, **named)
        except TriggerRejected as error:
            # An error that follows from one inside is not reported separately.
            if len(_COLLECTED.get() or ()) == known and not is_noted(error):
                raise
            return Constant(None, NULL)

    return bound
