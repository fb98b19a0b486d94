"""Going on after an error, to find the others: what is wrong becomes NULL, which fits anywhere.

Only inside `collecting`; elsewhere the first error is raised as it is. A plan that was made with errors never leaves
`compile_query`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import ParamSpec

from candlewright_cep.binding.expressions import Constant, Expression
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.types import NULL

#: Of one text.
MOST_ERRORS = 20

_COLLECTED: ContextVar[list[TriggerRejected] | None] = ContextVar("collected", default=None)
_Arguments = ParamSpec("_Arguments")


@contextmanager
def collecting() -> Iterator[list[TriggerRejected]]:
    """The errors that are found inside, besides one that is raised."""
    found: list[TriggerRejected] = []
    token = _COLLECTED.set(found)
    try:
        yield found
    finally:
        _COLLECTED.reset(token)


@contextmanager
def strictly() -> Iterator[None]:
    """The first error inside is raised as it is: it is about another text."""
    token = _COLLECTED.set(None)
    try:
        yield
    finally:
        _COLLECTED.reset(token)


def is_noted(error: TriggerRejected) -> bool:
    """Whether it is noted, so that checking may go on."""
    found = _COLLECTED.get()
    if found is None or len(found) >= MOST_ERRORS:
        return False
    found.append(error)
    return True


def raise_noted() -> None:
    """Raises the first error that was noted, if any was."""
    if found := _COLLECTED.get():
        raise found[0]


def recovering(bind: Callable[_Arguments, Expression]) -> Callable[_Arguments, Expression]:
    """A method that binds; what it refuses is NULL while errors are collected."""

    @wraps(bind)
    def bound(*arguments: _Arguments.args, **named: _Arguments.kwargs) -> Expression:
        known = len(_COLLECTED.get() or ())
        try:
            return bind(*arguments, **named)
        except TriggerRejected as error:
            # What follows from an error inside is none of its own.
            if len(_COLLECTED.get() or ()) == known and not is_noted(error):
                raise
            return Constant(None, NULL)

    return bound
