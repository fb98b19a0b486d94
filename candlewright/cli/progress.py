"""Progress of a long request: a bar on a terminal, an occasional line elsewhere; always on stderr."""

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

from candlewright.cli.output import say

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Requests that end sooner show nothing.
PATIENCE_SECONDS = 1.0
LINE_SECONDS = 5.0
#: After this long without a first candle, the user is shown what it may be waiting for.
HINT_SECONDS = 3.0


class RequestProgress:
    """Call it with (done, expected) candles, or other units (`unit`); `hint` is shown once if nothing arrives, and a
    `note` whenever it changes.
    """

    def __init__(self, what: str, *, is_tty: bool | None = None, unit: str = "candles", hint: str = "") -> None:
        self._what = what
        self._hint = hint
        self._unit = unit
        self._is_tty = sys.stderr.isatty() if is_tty is None else is_tty
        self._started = time.monotonic()
        self._next_line = self._started + PATIENCE_SECONDS
        self._note = ""
        self._bar: tuple[Progress, TaskID] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def __call__(self, done: int, expected: int, *, note: str = "") -> None:
        now = time.monotonic()
        if note != self._note:
            self._note = note
            if note:
                say(f"{self._what}: {note}")
        if self._hint and (done or now - self._started >= HINT_SECONDS):
            if not done:
                say(self._hint)
            self._hint = ""
        if now < self._next_line:
            return
        if self._is_tty:
            self._next_line = now
            self._draw(done, expected)
        else:
            self._next_line = now + LINE_SECONDS
            say(f"{self._what}: {done} of {expected} {self._unit}")

    def _draw(self, done: int, expected: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bar is None:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar = progress, progress.add_task(self._what, total=expected)
            progress.start()
        progress, task = self._bar
        progress.update(task, completed=done, total=expected)
