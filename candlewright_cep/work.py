"""Limits the work of one evaluation, or of one batch of a stream: steps and seconds, both growing with its rows.

A step is one row that a search tries, or work that takes as long: `VALUES_A_STEP` values of a vectorised function, or
`FOLDED_A_STEP` of one that is computed value by value. Operations that turn few rows into many (frames, windows, joins)
spend their steps before they make the rows. Seconds are CPU time of this thread, so that a busy machine does not reject
a text.
"""

import time
from contextvars import ContextVar

from candlewright_cep import limits as bounds
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import DEFAULT, Limits

#: The clock is read once per this many steps.
_STRETCH = 20_000
VALUES_A_STEP, FOLDED_A_STEP = 8, 3
LESS = "use shorter frames and windows, or narrower joins"


class WorkLimit(Exception):
    """A text took more steps or more time than its rows allow."""


class Work:
    """`spend` and `check` raise WorkLimit once the allowance is used up. As a context, it is the one that applies to
    everything inside.
    """

    def __init__(self, limits: Limits, rows: int) -> None:
        self._most_steps = limits.steps_per_batch + rows * limits.steps_per_row
        self._most_seconds = limits.seconds_per_batch + rows * limits.seconds_per_row
        self._rows = rows
        self._begin = time.thread_time()
        self._steps = 0
        self._made, self._most_made = 0, bounds.MADE_TEXTS + rows * bounds.MADE_A_ROW
        self._pause = min(_STRETCH, self._most_steps)

    def __enter__(self) -> "Work":
        self._outer = _CURRENT.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        _CURRENT.reset(self._outer)

    @property
    def steps(self) -> int:
        """The steps spent so far."""
        return self._steps

    def spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > self._pause:
            self.check()

    def made(self, size: int, *, planned: int = 0) -> None:
        """Count bytes of texts and arrays. Raises TriggerRejected if they, or those planned as well, are too many."""
        self._made += size
        if self._made + planned > self._most_made:
            raise TriggerRejected(f"the texts and arrays made in one step have more than {self._most_made} bytes")

    def check(self) -> None:
        if self._steps > self._most_steps:
            raise WorkLimit(f"the text took more than {self._most_steps} steps over {self._rows} rows")
        if time.thread_time() - self._begin > self._most_seconds:
            raise WorkLimit(f"the text took more than {self._most_seconds:.1f} seconds over {self._rows} rows")
        self._pause = min(self._steps + _STRETCH, self._most_steps)


_CURRENT: ContextVar[Work | None] = ContextVar("work", default=None)


def current() -> Work:
    """The allowance that applies here; a fresh one outside any."""
    return _CURRENT.get() or Work(DEFAULT, 0)


def spend(values: int, a_step: int = VALUES_A_STEP) -> None:
    """Spend the steps of this many values; raises WorkLimit."""
    current().spend(values // a_step + 1)


def made(size: int) -> None:
    """Count this many bytes of texts and arrays; raises TriggerRejected."""
    current().made(size)


def check_made(size: int) -> None:
    """Raises TriggerRejected if so many more bytes would be too many."""
    current().made(0, planned=size)
