"""Reports a request's progress to callers."""

import inspect
import logging
from collections.abc import Callable
from typing import Protocol

log = logging.getLogger("candlewright")


class NotedProgress(Protocol):
    """`note` is a remark of the platform, such as what the request is waiting for; usually empty."""

    def __call__(self, done: int, expected: int, *, note: str) -> object: ...


#: Called with done and expected candles, and with a `note` if it has a parameter of that name.
Progress = Callable[[int, int], object] | NotedProgress


class Reporter:
    """Calls `progress`. If it does not accept notes, they are logged as warnings, once, so that the user knows the
    reason for a wait."""

    def __init__(self, what: str, progress: Progress | None) -> None:
        self._what = what
        self._progress = progress
        self._takes_note = progress is not None and _has_note(progress)
        self._logged = ""
        #: The newest one.
        self.note = ""

    def __call__(self, done: int, expected: int, note: str) -> None:
        self.note = note
        if self._takes_note:
            self._progress(done, expected, note=note)  # type: ignore[misc, call-arg]
            return
        if note and note != self._logged:
            log.warning("%s: %s", self._what, note)
        self._logged = note
        if self._progress is not None:
            self._progress(done, expected)  # type: ignore[call-arg]


def _has_note(progress: Progress) -> bool:
    try:
        return "note" in inspect.signature(progress).parameters
    except (TypeError, ValueError):
        # A built-in function without a signature.
        return False
