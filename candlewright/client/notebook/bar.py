"""Progress of a request: a widget in a notebook, a line of text on stderr elsewhere."""

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from candlewright.client.notebook.bar_widget import BarWidget

#: How often a terminal's line is rewritten, and a new line is written elsewhere.
_AGAIN_SECONDS, _LINE_SECONDS = 0.2, 5.0


class ProgressBar:
    """For `progress=`: `c.history([...], progress=cw.ProgressBar())`. One for each call.

    The widget needs the extra `notebook`; without it a notebook gets lines of text as well. On a terminal, the line is
    overwritten, and is complete when the last candle has arrived.
    """

    def __init__(self, what: str = "history", unit: str = "candles") -> None:
        self._what, self._unit = what, unit
        self._widget = _widget()
        self._next = 0.0

    def __call__(self, done: int, expected: int, *, note: str = "") -> None:
        text = f"{self._what}: {done:,} of {expected:,} {self._unit}" + (f" ({note})" if note else "")
        if self._widget is not None:
            self._widget.show(done, expected, text)
            return
        is_whole, is_terminal = 0 < expected <= done, sys.stderr.isatty()
        if time.monotonic() < self._next and not is_whole:
            return
        self._next = time.monotonic() + (_AGAIN_SECONDS if is_terminal else _LINE_SECONDS)
        # Erases the rest of a longer text.
        start, end = ("\r\x1b[K", "\n" if is_whole else "") if is_terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=sys.stderr, flush=True)


def _widget() -> "BarWidget | None":
    """Shown at once; None outside of a notebook, and where widgets are not installed."""
    marimo = sys.modules.get("marimo")
    is_marimo = marimo is not None and marimo.running_in_notebook()
    # IPython on a terminal has no kernel.
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if not is_marimo and getattr(shell, "kernel", None) is None:
        return None
    try:
        from candlewright.client.notebook.bar_widget import BarWidget
    except ModuleNotFoundError:
        return None
    widget = BarWidget()
    if is_marimo:
        assert marimo is not None
        marimo.output.append(widget)
    else:
        from IPython import display

        show: Callable[[BarWidget], object] = display.display
        show(widget)
    return widget
